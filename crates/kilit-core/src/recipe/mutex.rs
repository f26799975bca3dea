//! The mutex.

use std::time::Duration;

use super::acquire::{Patience, acquire};
use crate::{Client, Guard, LockName, Result, Share, Terms};

/// A lock with one holder at a time, over any engine.
///
/// Not re-entrant: a second claim of the same task waits for the first, since a token drawn inside would make the
/// outer one stale. Hand the guard down instead. Two claims of one process exclude each other like any two.
///
/// Whether waiters are served in order is the engine's promise ([`Assurance::order`](crate::Assurance::order)).
#[derive(Clone, Debug)]
pub struct Mutex {
    client: Client,
    name: LockName,
    terms: Terms,
}

impl Mutex {
    pub(crate) fn new(client: Client, name: LockName) -> Self {
        Self { client, name, terms: Terms::default() }
    }

    /// The same lock, on other terms.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a value out of its range, and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a [purpose](crate::Purpose) that the engine is not fit for.
    /// Nothing is sent.
    pub fn with(self, terms: Terms) -> Result<Self> {
        terms.check(self.client.assurance(), Share::EXCLUSIVE)?;
        Ok(Self { terms, ..self })
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Makes one try, of 10 s at most where the engine does not answer.
    ///
    /// A guard that was dropped just before may not be released yet: then the lock is still busy.
    /// [`Guard::release`] waits for that.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) when another holds it;
    /// [`Unreachable`](crate::ErrorKind::Unreachable) or [`Unknown`](crate::ErrorKind::Unknown) when the engine did
    /// not answer; [`Refused`](crate::ErrorKind::Refused), [`Incompatible`](crate::ErrorKind::Incompatible) or
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when it said no; [`Closed`](crate::ErrorKind::Closed) after
    /// [`Client::shutdown`].
    ///
    /// # Cancel safety
    /// A future that is dropped leaves nothing behind: the claim is withdrawn in the background.
    pub async fn try_acquire(&self) -> Result<Guard> {
        self.claim(Patience::OneTry).await
    }

    /// Waits for up to `patience`, counted from the call on the boot-time clock; zero is one try.
    ///
    /// An engine that cannot be reached at all is given up after 10 s, or `patience` if that is less; later outages
    /// are ridden out.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut) when another held it all the time, and those of
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire); the place in line is given up.
    pub async fn acquire_within(&self, patience: Duration) -> Result<Guard> {
        self.claim(if patience.is_zero() { Patience::OneTry } else { Patience::For(patience) }).await
    }

    /// Waits for as long as it takes.
    ///
    /// # Errors
    /// Those of [`acquire_within`](Self::acquire_within) but for [`TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// # Cancel safety
    /// As [`acquire_within`](Self::acquire_within).
    pub async fn acquire(&self) -> Result<Guard> {
        self.claim(Patience::Forever).await
    }

    async fn claim(&self, patience: Patience) -> Result<Guard> {
        acquire(&self.client, &self.name, Share::EXCLUSIVE, &self.terms, patience).await.map(Guard::new)
    }
}
