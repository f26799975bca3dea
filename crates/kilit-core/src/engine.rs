//! The contract of an engine: all that the guard and the recipes see of one.

use std::{fmt, io, os::fd::OwnedFd, pin::Pin, sync::Arc, time::Duration};

use crate::{
    Answer, Assurance, Claim, Clock, EngineUrl, Error, ErrorKind, Finding, Grant, LockName, LockStatus,
    OwnerId, Released, Renewal, Result, TokenValue,
};

/// A boxed future, so that engines are objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who holds which lock, decided by Redis, ZooKeeper, etcd, PostgreSQL or the kernel.
///
/// Authors of engines seldom write this trait: they write one of the [families](crate::family). Its futures are
/// polled within the runtime of the [`Client`](crate::Client), whatever runtime the caller has, or none.
///
/// Dropping a future changes nothing at the engine: the guard in core always sends a `release` after it. An effect
/// that is unknown is found out by the engine before it returns, or returned as [`ErrorKind::Unknown`].
pub trait Engine: fmt::Debug + Send + Sync + 'static {
    /// What it promises, as probed when it was opened.
    fn assurance(&self) -> &Assurance;

    /// The clock of its deadlines.
    fn clock(&self) -> &Clock;

    /// Asks to hold, and waits within the engine for up to `patience` (zero: one try). Idempotent by (name, owner).
    fn claim<'a>(&'a self, claim: &'a Claim, patience: Duration) -> BoxFuture<'a, Result<Answer>>;

    /// As [`claim`](Self::claim), where it can be granted by a plain call: without waiting, a runtime or a timer.
    /// Asked once, first of all. `None` is no answer: it has left nothing behind, and `claim` follows.
    fn claim_at_once(&self, claim: &Claim) -> Option<Grant> {
        let _ = claim;
        None
    }

    /// Renews holds, all in one round trip where that is possible. An answer for each, in order. Never creates.
    fn renew<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Vec<Renewal>>>;

    /// Ends a hold, or withdraws a waiting claim, and bars a late one of the same owner.
    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Released>>;

    /// As [`release`](Self::release), by a plain call. `None` where it cannot be, or has failed: `release` follows.
    fn release_at_once(&self, claim: &Claim) -> Option<Released> {
        let _ = claim;
        None
    }

    /// A second descriptor of what the kernel ties the hold to, where there is such a thing: the hold outlives this
    /// process for as long as the duplicate is open.
    fn duplicate(&self, owner: OwnerId) -> io::Result<Option<OwnedFd>> {
        let _ = owner;
        Ok(None)
    }

    /// Holders and waiters of one lock, or of all that have any, sorted by name.
    fn inspect<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Vec<LockStatus>>>;

    /// An operator's break: ends the hold that `target` names, and no other.
    fn evict<'a>(
        &'a self,
        name: &'a LockName,
        target: Target,
        force: bool,
    ) -> BoxFuture<'a, Result<Evicted>> {
        let _ = (name, target, force);
        let engine = self.assurance().engine;
        Box::pin(async move {
            Err(Error::new(ErrorKind::Unsupported, "holds cannot be ended from outside here")
                .on_engine(engine))
        })
    }

    /// Looks at the engine's settings and says what endangers locks there.
    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>>;
}

/// Which hold an operator ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one that bears this token.
    Token(TokenValue),
    /// The one of this owner, as `status` prints it; a foreign client's may be any text.
    Owner(String),
}

/// What came of an operator's break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The hold is over.
    Ended,
    /// There is no such hold.
    NoSuchHold,
    /// More would end than this hold; only `force` does it. A sentence each.
    NeedsForce(Vec<String>),
}

/// How an engine is opened.
pub type Open = fn(EngineUrl) -> BoxFuture<'static, Result<Arc<dyn Engine>>>;

/// One engine as it registers itself: how its URLs look and how it is opened.
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// The scheme of its URLs.
    pub scheme: &'static str,
    /// Other schemes that mean the same engine.
    pub aliases: &'static [&'static str],
    /// The forms of its URLs, as help prints them.
    pub urls: &'static [&'static str],
    /// One sentence.
    pub about: &'static str,
    /// The query settings it knows, and what each does.
    pub settings: &'static [(&'static str, &'static str)],
    /// What it promises before anything was probed: what is unknown counts as the weaker.
    pub assurance: fn() -> Assurance,
    /// Opens it. Bad settings are [`ErrorKind::Invalid`] before anything is sent.
    pub open: Open,
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
