//! Distributed locks that say exactly how far they can be trusted.
//!
//! ```no_run
//! # async fn sell() -> kilit::Result<()> {
//! let locks = kilit::open("file:").await?;
//! let guard = locks.mutex("product:42".parse()?).acquire().await?;
//! if let Some(token) = guard.token() {
//!     let (number, source) = (token.value().get(), token.source().as_str()); // shown to the store with every write
//! #   let _ = (number, source);
//! }
//! // … sell the last one; ask `guard.check()` before each step …
//! guard.release().await
//! # }
//! ```
//!
//! First decide what two holders at once would cost. *Money*: any engine will do. *Data*: the engine must draw
//! [fencing tokens](FencingToken) and the resource must [compare them](Fence); ask for it with
//! [`Purpose::Correctness`], and an engine that cannot promise it refuses when the lock is built.
//!
//! # What to read
//!
//! Six items do most of the work: [`open`] gives a [`Client`], that a [`Mutex`] (or [`Shared`]), on [`Terms`], and that
//! a [`Guard`], which derefs to [`Hold`]. [`blocking`] has the same for programs without a runtime. The resource's side
//! is [`Fence`] and [`judge`]; an operator's is [`Client::inspect`], [`Client::evict`] and [`Client::diagnose`].
//! Authors of engines read [`engine`].
//!
//! # Held and lost
//!
//! A guard is renewed in the background. When its lock is gone it says so: [`Hold::check`] reads the clock,
//! [`Hold::lost`] is a cancellation token, [`Guard::run`] drops the work at its next await. As an error, a loss is
//! [`ErrorKind::Lost`]:
//!
//! ```no_run
//! # async fn sell(stock: kilit::Mutex) -> kilit::Result<()> {
//! match stock.acquire().await?.run(async { /* sell */ }).await {
//!     Err(error) if error.kind() == kilit::ErrorKind::Lost => println!("not finished: {error}"),
//!     other => other?,
//! }
//! # Ok(()) }
//! ```
//!
//! A guard that is dropped releases in the background: a `try_acquire` right after may still find the lock busy.
//! [`Guard::release`] waits for the answer, and tells when the lock had been lost. Locks are not re-entrant.
//!
//! # Features
//!
//! `file` and `memory`, both on by default, are the engines that are built in; [`engines`] lists them. kilit runs on
//! Linux only.

#![forbid(unsafe_code)]

pub mod engine;
mod engines;
mod open;

pub use engines::engines;
#[doc(inline)]
pub use kilit_core::{
    Assurance, Bound, Client, Clock, Descriptor, Effect, EngineUrl, Error, ErrorKind, Evicted, Exclusion,
    Fence, FenceError, FencingToken, Finding, Guard, Hold, Holder, Level, LockName, LockStatus, Loss,
    LossReason, MAX_LOCK_DELAY, MemoryFence, Mode, Modes, Moment, Mutex, Need, Note, Order, OwnerId, Purpose,
    Refused, Result, Retry, Rule, Secret, Share, Shared, SharedGuard, Standing, TTL_RANGE, Target, Terms,
    TokenSource, TokenStrength, TokenValue, Waiter, blocking, deadline, duration, judge, sys,
};
pub use open::{descriptor, open, open_blocking};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
