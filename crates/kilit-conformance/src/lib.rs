//! One suite over every engine: what an engine says in its [`Assurance`](kilit_core::Assurance) is what is tested, and
//! what it says it cannot do must be refused.
//!
//! An engine joins by one line, a name and an `async fn() -> Subject`, in `tests/it/main.rs`:
//!
//! ```text
//! kilit_conformance::suite! {
//!     memory: crate::columns::memory,
//! }
//! ```
//!
//! That makes a test of every [`Case`] for every [`Column`]. A case that does not apply says why, and the recorded
//! [matrix] fails when a cell is missing or its reason is another one.

#![forbid(unsafe_code)]

mod agent;
mod case;
pub mod matrix;
mod resource;
mod subject;
pub mod suite;

pub use agent::Agent;
pub use case::{Ability, Case, Column, run, run_on, verdict};
pub use resource::Resource;
pub use subject::{Harm, Link, Party, Subject, lock};
