//! On which terms a lock is asked for.

use std::time::Duration;

use crate::{Assurance, Error, MAX_LOCK_DELAY, Mode, Need, Note, Purpose, Result, Share, TTL_RANGE};

/// On which terms a lock is asked for. [`Default`] is a TTL of 30 s, for efficiency.
#[derive(Clone, Debug)]
pub struct Terms {
    /// How long a lease lasts without renewal: 100 ms to 7 days. Engines without leases check it and do not use it.
    pub ttl: Duration,
    /// What a double run costs.
    pub purpose: Purpose,
    /// For people who look at the engine.
    pub note: Note,
    /// The keeper stops renewing after this time, counted from the grant on the boot-time clock; the hold then ends
    /// with its last deadline, one TTL later at most.
    pub max_hold: Option<Duration>,
    /// How much longer the lock stays closed after a holder that vanished without releasing it: up to 1 h. Other
    /// programs' clients of the same lock do not honour it.
    pub lock_delay: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            purpose: Purpose::Efficiency,
            note: Note::of_this_process(),
            max_hold: None,
            lock_delay: Duration::ZERO,
        }
    }
}

impl Terms {
    /// Checks every range, and that the engine can carry the share and the purpose. Nothing is sent.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a range; [`Unsupported`](crate::ErrorKind::Unsupported) for what the
    /// engine does not promise.
    pub fn check(&self, assurance: &Assurance, share: Share) -> Result<()> {
        let (shortest, longest) = (TTL_RANGE.start(), TTL_RANGE.end());
        if !TTL_RANGE.contains(&self.ttl) {
            return Err(Error::invalid(format!(
                "a TTL of {:?} is outside 100ms to 7 days ({shortest:?} to {longest:?})",
                self.ttl
            )));
        }
        if self.lock_delay > MAX_LOCK_DELAY {
            return Err(Error::invalid(format!("a lock-delay of {:?} is above 1 h", self.lock_delay)));
        }
        if self.max_hold.is_some_and(|longest| longest.is_zero()) {
            return Err(Error::invalid("a maximal hold time of 0 holds nothing; leave it out for no limit"));
        }
        assurance.require(Need::nothing().mode(share.mode()))?;
        assurance.fit_for(self.purpose)?;
        if self.purpose == Purpose::Correctness && share.mode() != Mode::Exclusive {
            return Err(Error::invalid(
                "purpose correctness needs a fencing token, and only an exclusive hold has one that a fence can compare",
            ));
        }
        Ok(())
    }
}
