//! Distributed locks that say exactly how far they can be trusted.
//!
//! ```no_run
//! # async fn sell() -> kilit::Result<()> {
//! let locks = kilit::open("file:").await?;
//! let guard = locks.mutex("product:42".parse()?).acquire().await?;
//! let token = guard.token(); // show it to the store with every write
//! // … sell the last one; ask `guard.check()` before each step …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! First decide what two holders at once would cost. *Money*: any engine will do. *Data*: the engine must draw
//! [fencing tokens](FencingToken) and the resource must [compare them](Fence); ask for it with
//! [`Purpose::Correctness`], and an engine that cannot promise it refuses when the lock is built.
//!
//! A guard is renewed in the background. When its lock is gone it says so: [`Hold::check`] reads the clock,
//! [`Hold::lost`] is a cancellation token, and [`Guard::run`] stops the work. Programs without a runtime use
//! [`blocking`].

#![forbid(unsafe_code)]

mod engines;
mod open;

pub use engines::engines;
pub use kilit_core::*;
pub use open::{descriptor, open, open_blocking};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
