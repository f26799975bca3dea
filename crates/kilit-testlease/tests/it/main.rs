//! The machine over every small history, and its face in process under every fault.

mod engine;
mod machine;
mod wire;

use std::time::Duration;

use kilit_core::{Claim, LockName, LossNotice, Note, OwnerId, Share};

const TTL: Duration = Duration::from_secs(10);

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn claim(name_text: &str, share: Share) -> Claim {
    Claim {
        name: name(name_text),
        owner: OwnerId::random(),
        share,
        ttl: TTL,
        lock_delay: Duration::ZERO,
        note: Note::new("a test").unwrap(),
        notice: LossNotice::default(),
    }
}
