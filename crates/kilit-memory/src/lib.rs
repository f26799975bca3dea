//! The memory engine: locks within one process, for a process's own tests, and the reference of the conformance suite.
//!
//! Waiters stand in one line a name and are served in order; a claim holds when the units of everyone up to and
//! including it fit the capacity. Two clients exclude each other only when they share one [`Memory`].

#![forbid(unsafe_code)]

mod engine;
mod line;

use std::sync::Arc;

pub use engine::Memory;
use kilit_core::{Descriptor, Engine};

/// What this crate registers.
pub static ENGINES: &[Descriptor] = &[Descriptor {
    scheme: "memory",
    aliases: &[],
    urls: &["memory:"],
    about: "Locks within one process, for its own tests.",
    settings: &[],
    assurance: engine::assurance,
    open: |url| {
        Box::pin(async move {
            let bare = url.hosts().is_empty() && url.path().is_empty() && url.user().is_none();
            url.finish()?;
            match bare {
                true => Ok(Arc::new(Memory::new()) as Arc<dyn Engine>),
                false => Err(kilit_core::Error::invalid("the memory engine has one URL, `memory:`")),
            }
        })
    },
}];
