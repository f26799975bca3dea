//! One lease server, whoever asks it: the machine, its clock, and the news of a change.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kilit_core::{Claim, Clock, LockName, OwnerId, Target, TokenSource};
use tokio::sync::Notify;

use crate::{
    machine::{Machine, Refusal, Taken},
    view::LockView,
};

/// A server in this process. Another one, also after a restart, is another token source: nothing is on disk.
#[derive(Debug)]
pub struct Node {
    machine: Mutex<Machine>,
    clock: Clock,
    source: TokenSource,
    /// Somebody has left a line before its time.
    changed: Notify,
}

impl Node {
    /// An empty one, whose leases end by `clock`.
    pub fn new(clock: Clock) -> Self {
        let source =
            TokenSource::new(format!("testlease:{}", OwnerId::random())).expect("it is visible ASCII");
        Self { machine: Mutex::default(), clock, source, changed: Notify::new() }
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Where its tokens are drawn.
    pub fn source(&self) -> &TokenSource {
        &self.source
    }

    /// The state itself, for tests that set or look at it.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        // Each step leaves the machine whole, so a test that panicked with the lock in hand has broken nothing.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Machine::take`].
    ///
    /// # Errors
    /// [`Refusal`], with nothing changed.
    pub fn take(&self, claim: &Claim) -> Result<Taken, Refusal> {
        self.machine().take(claim, self.clock.now())
    }

    /// See [`Machine::extend`].
    pub fn extend(&self, name: &LockName, owner: OwnerId, ttl: Duration) -> bool {
        self.machine().extend(name, owner, ttl, self.clock.now())
    }

    /// See [`Machine::cancel`].
    pub fn cancel(&self, name: &LockName, owner: OwnerId) -> bool {
        let held = self.machine().cancel(name, owner, self.clock.now());
        self.changed.notify_waiters();
        held
    }

    /// See [`Machine::evict`].
    pub fn evict(&self, name: &LockName, target: &Target) -> bool {
        let ended = self.machine().evict(name, target, self.clock.now());
        self.changed.notify_waiters();
        ended
    }

    /// See [`Machine::inspect`].
    pub fn inspect(&self, name: Option<&LockName>) -> Vec<LockView> {
        self.machine().inspect(name, self.clock.now())
    }

    /// Returns when another take of this owner would not just stand in line, unless that comes by the clock alone.
    /// Cancel safe.
    pub async fn ready(&self, name: &LockName, owner: OwnerId) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.machine().is_ready(name, owner, self.clock.now()) {
                return;
            }
            changed.await;
        }
    }
}
