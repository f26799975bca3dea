//! The session family: grip and let go (flock, PostgreSQL advisory locks). The hold lasts as long as a session does,
//! and ends with it.

use std::{
    fmt, io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    Answer, Assurance, BoxFuture, Claim, Clock, Engine, Evicted, FencingToken, Finding, Grant, LockName,
    LockStatus, LossReason, Moment, OwnerId, Released, Renewal, Result, Target, owner::OwnerMap,
};

/// An engine whose holds are tied to something that this process keeps open.
pub trait Session: fmt::Debug + Send + Sync + 'static {
    /// What is kept open. Dropping it lets go.
    type Hold: fmt::Debug + Send + Sync + 'static;

    /// What it promises.
    fn assurance(&self) -> &Assurance;

    /// The clock of its deadlines.
    fn clock(&self) -> &Clock;

    /// Takes the lock, waiting for up to `patience` (zero: one try); `None` when it ran out. The waiting is done here:
    /// after a `None` that comes early, core only asks again, with a growing pause. Dropping the future lets go of what
    /// it may have taken. A session that ends later tells so by [`Claim::notice`].
    fn grip(
        &self,
        claim: &Claim,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<Gripped<Self::Hold>>>> + Send;

    /// As [`Engine::claim_at_once`].
    fn grip_at_once(&self, claim: &Claim) -> Option<Gripped<Self::Hold>> {
        let _ = claim;
        None
    }

    /// Whether the hold still stands, asked every [`loss_notice`](Assurance::loss_notice), and never where that is
    /// [`AT_ONCE`](crate::Bound::AT_ONCE). `Kept(None)` where there is no deadline.
    fn alive(&self, claim: &Claim, hold: &Self::Hold) -> impl Future<Output = Result<Renewal>> + Send;

    /// Lets go at once, even while other references to the hold exist. Called once a hold, and again if it fails.
    fn let_go(&self, claim: &Claim, hold: &Self::Hold) -> impl Future<Output = Result<Released>> + Send;

    /// As [`Engine::release_at_once`]; `let_go` follows a `None`.
    fn let_go_at_once(&self, claim: &Claim, hold: &Self::Hold) -> Option<Released> {
        let _ = (claim, hold);
        None
    }

    /// As [`Engine::duplicate`].
    fn duplicate(&self, hold: &Self::Hold) -> io::Result<Option<OwnedFd>> {
        let _ = hold;
        Ok(None)
    }

    /// As [`Engine::inspect`].
    fn inspect(&self, name: Option<&LockName>) -> impl Future<Output = Result<Vec<LockStatus>>> + Send;

    /// As [`Engine::evict`].
    fn evict(
        &self,
        name: &LockName,
        target: Target,
        force: bool,
    ) -> impl Future<Output = Result<Evicted>> + Send;

    /// As [`Engine::diagnose`].
    fn diagnose(&self) -> impl Future<Output = Result<Vec<Finding>>> + Send;
}

/// A lock that was taken.
#[derive(Debug)]
pub struct Gripped<H> {
    /// What is kept open.
    pub hold: H,
    /// Its token, for an exclusive hold where the engine has tokens.
    pub token: Option<FencingToken>,
    /// When the session counts as lost unless it is heard from; `None` where the kernel keeps it.
    pub deadline: Option<Moment>,
}

/// The [`Engine`] of a [`Session`]: it knows which owner has which hold.
#[derive(Debug)]
pub struct SessionEngine<S: Session> {
    session: S,
    holds: Mutex<OwnerMap<Held<S::Hold>>>,
}

struct Held<H> {
    hold: Arc<H>,
    token: Option<FencingToken>,
    deadline: Option<Moment>,
}

impl<H> fmt::Debug for Held<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("token", &self.token).finish_non_exhaustive()
    }
}

impl<S: Session> SessionEngine<S> {
    /// Wraps a session.
    pub fn new(session: S) -> Self {
        Self { session, holds: Mutex::default() }
    }

    /// The session itself.
    pub fn get_ref(&self) -> &S {
        &self.session
    }

    fn holds(&self) -> MutexGuard<'_, OwnerMap<Held<S::Hold>>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_of(&self, owner: OwnerId) -> Option<Arc<S::Hold>> {
        self.holds().get(&owner).map(|held| held.hold.clone())
    }

    async fn claim(&self, claim: &Claim, patience: Duration) -> Result<Answer> {
        if let Some(Held { token, deadline, .. }) = self.holds().get(&claim.owner) {
            return Ok(Answer::Granted(Grant { token: token.clone(), deadline: *deadline }));
        }
        let Some(gripped) = self.session.grip(claim, patience).await? else {
            return Ok(Answer::Waiting { ahead: None, try_after: Duration::ZERO });
        };
        Ok(Answer::Granted(self.keep(claim, gripped)))
    }

    fn keep(&self, claim: &Claim, gripped: Gripped<S::Hold>) -> Grant {
        let Gripped { hold, token, deadline } = gripped;
        self.holds().insert(claim.owner, Held { hold: Arc::new(hold), token: token.clone(), deadline });
        Grant { token, deadline }
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            answers.push(match self.hold_of(claim.owner) {
                // One hold that cannot be looked at keeps no other from being told of its loss.
                Some(hold) => self.session.alive(claim, &hold).await.unwrap_or_else(|error| {
                    tracing::warn!(engine = self.assurance().engine, name = %claim.name, %error, "a hold cannot be looked at");
                    Renewal::Unanswered
                }),
                None => Renewal::Gone(LossReason::Ended),
            });
        }
        Ok(answers)
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        // Taken out first: of two releases of one hold, only one lets go.
        let Some(held) = self.holds().remove(&claim.owner) else { return Ok(Released::WasNotHeld) };
        let released = self.session.let_go(claim, &held.hold).await;
        if released.is_err() {
            self.holds().insert(claim.owner, held);
        }
        released
    }
}

impl<S: Session> Engine for SessionEngine<S> {
    fn assurance(&self) -> &Assurance {
        self.session.assurance()
    }

    fn clock(&self) -> &Clock {
        self.session.clock()
    }

    fn claim<'a>(&'a self, claim: &'a Claim, patience: Duration) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.claim(claim, patience))
    }

    fn claim_at_once(&self, claim: &Claim) -> Option<Grant> {
        self.session.grip_at_once(claim).map(|gripped| self.keep(claim, gripped))
    }

    fn renew<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(self.renew(claims))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.release(claim))
    }

    fn release_at_once(&self, claim: &Claim) -> Option<Released> {
        // As in `release`.
        let held = self.holds().remove(&claim.owner)?;
        let released = self.session.let_go_at_once(claim, &held.hold);
        if released.is_none() {
            self.holds().insert(claim.owner, held);
        }
        released
    }

    fn duplicate(&self, owner: OwnerId) -> io::Result<Option<OwnedFd>> {
        self.hold_of(owner).map_or(Ok(None), |hold| self.session.duplicate(&hold))
    }

    fn inspect<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Vec<LockStatus>>> {
        Box::pin(self.session.inspect(name))
    }

    fn evict<'a>(
        &'a self,
        name: &'a LockName,
        target: Target,
        force: bool,
    ) -> BoxFuture<'a, Result<Evicted>> {
        Box::pin(self.session.evict(name, target, force))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.session.diagnose())
    }
}
