//! A lease engine for kilit's own tests, so that the lease path is proven before any server is.
//!
//! One pure [`machine`] with two faces: [`TestLease`] in this process, with faults before and after each effect and a
//! clock that a test moves; and a server on loopback that `testlease://` URLs reach through a real network stack.

#![forbid(unsafe_code)]

mod client;
mod engine;
pub mod link;
pub mod machine;
mod node;
mod server;
mod text;
pub mod view;
mod wire;

pub use client::ENGINES;
pub use engine::TestLease;
pub use link::{Fault, Link, Op};
pub use node::Node;
pub use server::serve;
