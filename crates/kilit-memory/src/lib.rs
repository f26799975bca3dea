//! See the description in the manifest.
