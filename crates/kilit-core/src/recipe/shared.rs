//! Shared holds.

use std::time::Duration;

use super::acquire::{Patience, acquire};
use crate::{Client, LockName, Mode, Need, Result, Share, SharedGuard, Terms};

/// Shared holds of a lock: many at a time, and never beside an exclusive one of [`Mutex`](crate::Mutex) on the same
/// name. Whether a stream of readers can keep a writer waiting is the engine's
/// [order](crate::Assurance::order): `fifo` says no.
#[derive(Clone, Debug)]
pub struct Shared {
    client: Client,
    name: LockName,
    terms: Terms,
}

impl Shared {
    pub(crate) fn new(client: Client, name: LockName) -> Self {
        Self { client, name, terms: Terms::default() }
    }

    /// The same lock, on other terms.
    ///
    /// # Errors
    /// As [`Mutex::with`](crate::Mutex::with), and [`Invalid`](crate::ErrorKind::Invalid) for purpose correctness.
    pub fn with(self, terms: Terms) -> Result<Self> {
        terms.check(self.client.assurance(), Share::SHARED)?;
        Ok(Self { terms, ..self })
    }

    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    ///
    /// # Errors
    /// As there, and [`Unsupported`](crate::ErrorKind::Unsupported) on an engine without shared holds.
    pub async fn try_acquire(&self) -> Result<SharedGuard> {
        self.claim(Patience::OneTry).await
    }

    /// As [`Mutex::acquire_within`](crate::Mutex::acquire_within).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), and [`TimedOut`](crate::ErrorKind::TimedOut).
    pub async fn acquire_within(&self, patience: Duration) -> Result<SharedGuard> {
        self.claim(if patience.is_zero() { Patience::OneTry } else { Patience::For(patience) }).await
    }

    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn acquire(&self) -> Result<SharedGuard> {
        self.claim(Patience::Forever).await
    }

    async fn claim(&self, patience: Patience) -> Result<SharedGuard> {
        self.client.require(Need::nothing().mode(Mode::Shared))?;
        acquire(&self.client, &self.name, Share::SHARED, &self.terms, patience).await.map(SharedGuard::new)
    }
}
