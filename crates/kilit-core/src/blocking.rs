//! The same without async: for programs without a runtime. Works within one as well, and blocks its thread there.
//!
//! A call is not cancelled half-way. Holds are renewed in the background, whatever the thread does.

use std::{ops::Deref, time::Duration};

use crate::{
    Descriptor, EngineUrl, Error, Evicted, FencingToken, Finding, Hold, LockName, LockStatus, Result, Target,
    Terms, runtime::block_on,
};

/// As [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

impl Client {
    /// As [`crate::Client::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(descriptor: &Descriptor, url: EngineUrl) -> Result<Self> {
        block_on(crate::Client::open(descriptor, url)).map(Self)
    }

    /// As [`crate::Client::mutex`].
    pub fn mutex(&self, name: LockName) -> Mutex {
        Mutex(self.0.mutex(name))
    }

    /// As [`crate::Client::shared`].
    pub fn shared(&self, name: LockName) -> Shared {
        Shared(self.0.shared(name))
    }

    /// As [`crate::Client::inspect`].
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
        block_on(self.0.inspect(name))
    }

    /// As [`crate::Client::evict`].
    ///
    /// # Errors
    /// As there.
    pub fn evict(&self, name: &LockName, target: Target, force: bool) -> Result<Evicted> {
        block_on(self.0.evict(name, target, force))
    }

    /// As [`crate::Client::diagnose`].
    ///
    /// # Errors
    /// As there.
    pub fn diagnose(&self) -> Result<Vec<Finding>> {
        block_on(self.0.diagnose())
    }

    /// As [`crate::Client::shutdown`].
    ///
    /// # Errors
    /// As there.
    pub fn shutdown(&self) -> Result<(), Vec<Error>> {
        block_on(self.0.shutdown())
    }
}

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

impl Deref for Client {
    type Target = crate::Client;

    fn deref(&self) -> &crate::Client {
        &self.0
    }
}

/// As [`crate::Mutex`].
#[derive(Clone, Debug)]
pub struct Mutex(crate::Mutex);

impl Mutex {
    /// As [`crate::Mutex::with`].
    ///
    /// # Errors
    /// As there.
    pub fn with(self, terms: Terms) -> Result<Self> {
        self.0.with(terms).map(Self)
    }

    /// As [`crate::Mutex::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Guard> {
        block_on(self.0.try_acquire()).map(Guard)
    }

    /// As [`crate::Mutex::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, patience: Duration) -> Result<Guard> {
        block_on(self.0.acquire_within(patience)).map(Guard)
    }

    /// As [`crate::Mutex::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.0.acquire()).map(Guard)
    }
}

/// As [`crate::Shared`].
#[derive(Clone, Debug)]
pub struct Shared(crate::Shared);

impl Shared {
    /// As [`crate::Shared::with`].
    ///
    /// # Errors
    /// As there.
    pub fn with(self, terms: Terms) -> Result<Self> {
        self.0.with(terms).map(Self)
    }

    /// As [`crate::Shared::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<SharedGuard> {
        block_on(self.0.try_acquire()).map(SharedGuard)
    }

    /// As [`crate::Shared::acquire_within`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, patience: Duration) -> Result<SharedGuard> {
        block_on(self.0.acquire_within(patience)).map(SharedGuard)
    }

    /// As [`crate::Shared::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<SharedGuard> {
        block_on(self.0.acquire()).map(SharedGuard)
    }
}

/// As [`crate::Guard`]. There is no `run`: ask [`Hold::check`] between the steps of the work.
#[must_use = "the lock is released as soon as its guard is dropped"]
#[derive(Debug)]
pub struct Guard(crate::Guard);

impl Guard {
    /// As [`crate::Guard::token`].
    pub fn token(&self) -> Option<&FencingToken> {
        self.0.token()
    }

    /// As [`Hold::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0
    }
}

/// As [`crate::SharedGuard`].
#[must_use = "the lock is released as soon as its guard is dropped"]
#[derive(Debug)]
pub struct SharedGuard(crate::SharedGuard);

impl SharedGuard {
    /// As [`Hold::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl Deref for SharedGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0
    }
}
