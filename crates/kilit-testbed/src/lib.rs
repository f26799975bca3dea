//! What kilit's tests stand on: processes that never outlive a test, faults on the wire, and judges at the resource.
//!
//! Never published, and a dev-dependency of all but the bench, which is not published either. Helpers here panic with a
//! full account of what was seen, because that is how a test fails.

#![forbid(unsafe_code)]

pub mod bins;
pub mod chaos;
pub mod count;
pub mod fence_sqlite;
pub mod overlap;
pub mod peers;
pub mod ports;
pub mod process;
pub mod server;
pub mod tls;
pub mod until_eof;

pub use process::{Process, Signal, is_gone, wait_until};
pub use tempfile::{TempDir, tempdir};
