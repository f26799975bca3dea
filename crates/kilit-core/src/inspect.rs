//! What an operator sees of an engine: holders, waiters, findings.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::{FencingToken, LockName, Mode};

/// One lock as the engine shows it at this moment.
#[derive(Clone, Debug)]
pub struct LockStatus {
    /// The lock.
    pub name: LockName,
    /// How it is held; `None` when it is free.
    pub mode: Option<Mode>,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Who waits, in order where the engine keeps one; `None` where it cannot say.
    pub queue: Option<Vec<Waiter>>,
    /// How many permits there are in all, for a semaphore.
    pub capacity: Option<u32>,
    /// The file that the kernel locks, on engines that have one.
    pub path: Option<PathBuf>,
}

impl LockStatus {
    /// A lock that nobody holds or waits for, as far as is known.
    pub fn free(name: LockName) -> Self {
        Self { name, mode: None, holders: vec![], queue: None, capacity: None, path: None }
    }

    /// Whether anyone holds it.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// A hold as the engine shows it.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    /// Its token, where there is one.
    pub token: Option<FencingToken>,
    /// The claim's owner id, or the text that a foreign client left there.
    pub owner: Option<String>,
    /// The claim's note.
    pub note: Option<String>,
    /// When it was granted, by the wall clock of the holder or the engine: for people, never for a deadline.
    pub since: Option<SystemTime>,
    /// How long the engine keeps it without renewal.
    pub expires_in: Option<Duration>,
    /// How many permits it has, for a semaphore.
    pub units: Option<u32>,
    /// Whether another program than kilit holds it.
    pub foreign: bool,
}

/// A waiter as the engine shows it.
#[derive(Clone, Debug, Default)]
pub struct Waiter {
    /// The claim's owner id.
    pub owner: Option<String>,
    /// The claim's note.
    pub note: Option<String>,
    /// When it joined, by the wall clock.
    pub since: Option<SystemTime>,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Worth a change.
    Warn,
    /// Locks are not safe, or not available, as it is.
    Danger,
}

/// One thing that `doctor` says of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A short word that scripts can match on.
    pub id: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// What to do about it; empty for [`Level::Info`].
    pub fix: String,
}
