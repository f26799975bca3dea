//! What engines are made of: for their authors, and nobody else.
//!
//! Write a [`family`] trait, wrap it in its adapter, and give it to [`Client::new`](crate::Client::new), or register a
//! [`Descriptor`](crate::Descriptor). An engine's own crate depends on `kilit-core`, where all of this is.

pub use kilit_core::{Answer, BoxFuture, Claim, Engine, Grant, LossNotice, Open, Released, Renewal, family};
