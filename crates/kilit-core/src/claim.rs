//! What is asked of an engine, and what it answers.

use std::time::Duration;

use crate::{Error, FencingToken, LockName, LossNotice, LossReason, Moment, Note, OwnerId, Result};

/// How much of a lock is asked for: `units` out of `capacity`.
///
/// Exclusive and shared exclude each other on one name. A finite capacity is a semaphore only; mixing it with the
/// other two, or disagreeing on the capacity, is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    units: u32,
    capacity: u32,
}

/// The three kinds of a [`Share`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// All of it: one holder.
    Exclusive,
    /// Any number of shared holders, and no exclusive one.
    Shared,
    /// Some permits out of a finite number.
    Permit,
}

impl Share {
    /// All of the lock.
    pub const EXCLUSIVE: Self = Self { units: u32::MAX, capacity: u32::MAX };
    /// A reader's share.
    pub const SHARED: Self = Self { units: 1, capacity: u32::MAX };

    /// `units` permits out of `capacity`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) unless 1 ≤ units ≤ capacity ≤ 2^31−1.
    pub fn permits(units: u32, capacity: u32) -> Result<Self> {
        if units == 0 || units > capacity || capacity > i32::MAX as u32 {
            return Err(Error::invalid(format!(
                "{units} permits out of {capacity}: both must be at least 1, the first not above the second, \
                 the second at most 2147483647"
            )));
        }
        Ok(Self { units, capacity })
    }

    /// How much is asked for.
    pub fn units(self) -> u32 {
        self.units
    }

    /// Out of how much.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Which of the three kinds it is.
    pub fn mode(self) -> Mode {
        match (self.units, self.capacity) {
            (u32::MAX, u32::MAX) => Mode::Exclusive,
            (_, u32::MAX) => Mode::Shared,
            _ => Mode::Permit,
        }
    }
}

/// A request to hold a lock. Its identity is (name, owner): an engine answers the same claim twice with the same hold.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lock.
    pub name: LockName,
    /// Fresh and random, made before anything is sent.
    pub owner: OwnerId,
    /// How much of it.
    pub share: Share,
    /// How long a lease lasts without renewal; unused by engines that have no leases.
    pub ttl: Duration,
    /// How much longer the lock stays closed after a holder that vanished; zero for not at all.
    pub lock_delay: Duration,
    /// For people who look at the engine.
    pub note: Note,
    /// How the engine tells the holder that it has ended the hold.
    pub notice: LossNotice,
}

impl Claim {
    /// How long a lease engine keeps the lock without a word from the owner: the TTL and the lock-delay. The holder's
    /// own deadline knows nothing of the delay.
    pub fn engine_ttl(&self) -> Duration {
        self.ttl + self.lock_delay
    }
}

/// The shortest and the longest TTL that a claim may have; an engine may narrow it.
pub const TTL_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(7 * 24 * 60 * 60);

/// The longest lock-delay.
pub const MAX_LOCK_DELAY: Duration = Duration::from_secs(60 * 60);

/// An engine's answer to a claim.
#[derive(Debug)]
pub enum Answer {
    /// The lock is held from now on.
    Granted(Grant),
    /// Patience ended. The place in line, where there is one, is kept: claim again to go on, release to leave.
    Waiting {
        /// How many are in front, where the engine knows.
        ahead: Option<u32>,
        /// Look again after this long; zero where the engine itself wakes the next claim.
        try_after: Duration,
    },
}

/// The engine's yes.
#[derive(Debug)]
pub struct Grant {
    /// The fencing token, where the engine has them and the share is exclusive.
    pub token: Option<FencingToken>,
    /// The local deadline: the hold counts as lost from here on unless it is renewed. `None` where the hold lasts as
    /// long as the process.
    pub deadline: Option<Moment>,
}

/// An engine's answer to one renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Still held, with this local deadline from now on.
    Kept(Option<Moment>),
    /// No longer held, and why.
    Gone(LossReason),
    /// It could not be found out this time; it is asked again while there is time.
    Unanswered,
}

/// An engine's answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was held and is not any more.
    Done,
    /// There was nothing to release: the hold had ended before.
    WasNotHeld,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_checked() {
        assert_eq!(Share::EXCLUSIVE.mode(), Mode::Exclusive);
        assert_eq!(Share::SHARED.mode(), Mode::Shared);
        assert_eq!(Share::permits(2, 3).unwrap().mode(), Mode::Permit);
        assert_eq!(Share::permits(1, 1).unwrap().mode(), Mode::Permit);
        for (units, capacity) in [(0, 1), (2, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            assert!(Share::permits(units, capacity).is_err(), "{units}/{capacity}");
        }
    }
}
