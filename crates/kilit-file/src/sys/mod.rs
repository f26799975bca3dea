//! Everything that depends on the operating system: a port is this folder, with the same names. (flock itself is the
//! standard library's.)

pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod kernel;
pub(crate) mod watch;
