//! The contracts of kilit. No network, and never the wall clock.
//!
//! A distributed lock is three contracts, kept by three parties:
//!
//! | contract | question | kept by | here |
//! |---|---|---|---|
//! | exclusion | who holds it now? | the engine | [`Engine`] |
//! | notice | how does a holder learn that it no longer holds it? | the guard | [`Guard`] |
//! | fence | how does the resource refuse a holder that did not learn in time? | the store | [`Fence`] |
//!
//! Users take the `kilit` crate, which brings the engines. Authors of engines write one of the [`family`] traits.

#![deny(unsafe_code)]

mod assurance;
pub mod blocking;
mod claim;
mod client;
mod clock;
pub mod deadline;
pub mod duration;
mod engine;
mod error;
pub mod family;
mod fence;
mod guard;
mod inspect;
mod name;
mod network;
mod owner;
mod recipe;
pub mod runtime;
pub mod sys;
mod timer;
mod token;
mod url;

pub use assurance::{Assurance, Bound, Exclusion, Modes, Need, Order, Purpose, TokenStrength};
pub use claim::{Answer, Claim, Grant, MAX_LOCK_DELAY, Mode, Released, Renewal, Share, TTL_RANGE};
pub use client::Client;
pub use clock::{Clock, Moment};
pub use engine::{BoxFuture, Descriptor, Engine, Evicted, Open, Target};
pub use error::{Effect, Error, ErrorKind, Result, Retry};
pub use fence::{Fence, FenceError, MemoryFence, Refused, Rule, judge};
pub use guard::{Guard, Hold, Loss, LossNotice, LossReason, SharedGuard, Standing};
pub use inspect::{Finding, Holder, Level, LockStatus, Waiter};
pub use name::LockName;
pub use network::{Network, PASSWORD_VARIABLE, TlsFiles};
pub use owner::{Note, OwnerId};
pub use recipe::{Mutex, Shared, Terms};
pub use token::{FencingToken, TokenSource, TokenValue};
pub use url::{EngineUrl, Secret};
