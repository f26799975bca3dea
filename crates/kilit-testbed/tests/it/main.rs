//! The testbed itself is tested: a judge or a fault that does not work lets every other test pass.

mod chaos;
mod count;
mod fence_sqlite;
mod lease;
mod ports;
mod process;
mod program;
mod redis;
mod until_eof;

use std::time::Duration;

/// Far longer than anything here takes; a test that needs it has failed.
const SOON: Duration = Duration::from_secs(20);
