//! The lease family: one atomic step on the server's clock (Redis, an SQL row).

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Answer, Assurance, BoxFuture, Claim, Clock, Effect, Engine, Evicted, FencingToken, Finding, Grant,
    LockName, LockStatus, LossReason, Moment, Released, Renewal, Result, Retry, Target,
    deadline::lease_deadline,
};

/// An engine whose holds end by themselves a TTL after the last word of their owner.
///
/// Every step is atomic on the server and goes by the owner id. An answer that was lost is an error with
/// [`Effect::Unknown`]: the adapter then asks once more.
pub trait Lease: fmt::Debug + Send + Sync + 'static {
    /// What it promises.
    fn assurance(&self) -> &Assurance;

    /// The clock of its deadlines.
    fn clock(&self) -> &Clock;

    /// Takes the lock for [`Claim::engine_ttl`] if it is free, and draws a token in the same step. An owner that holds
    /// it already gets the same token and its lease anew, so the step can be repeated when an answer was lost. An
    /// owner that was [cancelled](Self::cancel) gets nothing.
    fn take(&self, claim: &Claim) -> impl Future<Output = Result<Take>> + Send;

    /// Sets each lease to its full TTL if it still belongs to its owner. Never creates.
    fn extend(&self, claims: &[Arc<Claim>]) -> impl Future<Output = Result<Vec<Extended>>> + Send;

    /// Removes the lease if it belongs to the owner, leaves the line, and bars a late `take` of the same owner.
    fn cancel(&self, claim: &Claim) -> impl Future<Output = Result<Released>> + Send;

    /// Returns at `until`, or sooner when another `take` may succeed. May return too early, never too late for a
    /// change that came after the last `take` of the same claim.
    fn hint(&self, claim: &Claim, until: Moment) -> impl Future<Output = ()> + Send {
        let _ = claim;
        self.clock().sleep_until(until)
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

/// The server's answer to a [`Lease::take`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// The lease is the owner's.
    Taken {
        /// Its token, where there are any.
        token: Option<FencingToken>,
    },
    /// Somebody else has it, or is in front.
    Held {
        /// How long until it ends by itself, where known.
        free_in: Option<Duration>,
        /// How many are in front, where known.
        ahead: Option<u32>,
    },
}

/// The server's answer to one [`Lease::extend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// It has its full TTL again.
    Kept,
    /// It is not the owner's any more, and why.
    Gone(LossReason),
    /// Its server did not answer; those of others did.
    Unanswered,
}

impl From<bool> for Extended {
    /// Whether it was still the owner's, where no more is known.
    fn from(kept: bool) -> Self {
        if kept { Self::Kept } else { Self::Gone(LossReason::Ended) }
    }
}

/// The [`Engine`] of a [`Lease`].
#[derive(Debug)]
pub struct LeaseEngine<L>(L);

impl<L: Lease> LeaseEngine<L> {
    /// Wraps a lease.
    pub fn new(lease: L) -> Self {
        Self(lease)
    }

    /// The lease itself.
    pub fn get_ref(&self) -> &L {
        &self.0
    }

    async fn claim(&self, claim: &Claim, patience: Duration) -> Result<Answer> {
        let clock = self.0.clock();
        let until = clock.now() + patience;
        let mut in_line = None;
        loop {
            let (sent, take) = match (self.take(claim).await, in_line) {
                (Ok(answer), _) => answer,
                // The caller has to know that the engine was reached before this outage; the next call says the rest.
                (Err(error), Some(ahead)) if error.retry() != Retry::Never => {
                    return Ok(Answer::Waiting { ahead, try_after: Duration::ZERO });
                }
                (Err(error), _) => return Err(error),
            };
            let (free_in, ahead) = match take {
                Take::Taken { token } => {
                    let deadline = lease_deadline(sent, claim.ttl);
                    // An answer that was longer on its way than the lease lasts is no grant.
                    if clock.now() < deadline {
                        return Ok(Answer::Granted(Grant { token, deadline: Some(deadline) }));
                    }
                    (Some(Duration::ZERO), None)
                }
                Take::Held { free_in, ahead } => (free_in, ahead),
            };
            in_line = Some(ahead);
            let now = clock.now();
            if now >= until {
                return Ok(Answer::Waiting { ahead, try_after: Duration::ZERO });
            }
            let look = self.0.assurance().wait_look.of(claim.ttl);
            self.0.hint(claim, until.min(now + free_in.unwrap_or(look).min(look))).await;
        }
    }

    /// One take, and one more where the first one's answer was lost: taking is idempotent, so the second finds out
    /// what the first did. Returns when the answered one left.
    async fn take(&self, claim: &Claim) -> Result<(Moment, Take)> {
        let sent = self.0.clock().now();
        match self.0.take(claim).await {
            Err(lost) if lost.effect() == Effect::Unknown => {
                let sent = self.0.clock().now();
                // The first error stands: the second may know less of what happened.
                self.0.take(claim).await.map(|take| (sent, take)).map_err(|_| lost)
            }
            answer => answer.map(|take| (sent, take)),
        }
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewal>> {
        let sent = self.0.clock().now();
        let extended = self.0.extend(claims).await?;
        let answer = |(claim, extended): (&Arc<Claim>, Extended)| match extended {
            Extended::Kept => Renewal::Kept(Some(lease_deadline(sent, claim.ttl))),
            Extended::Gone(why) => Renewal::Gone(why),
            Extended::Unanswered => Renewal::Unanswered,
        };
        Ok(claims.iter().zip(extended).map(answer).collect())
    }
}

impl<L: Lease> Engine for LeaseEngine<L> {
    fn assurance(&self) -> &Assurance {
        self.0.assurance()
    }

    fn clock(&self) -> &Clock {
        self.0.clock()
    }

    fn claim<'a>(&'a self, claim: &'a Claim, patience: Duration) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.claim(claim, patience))
    }

    fn renew<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(self.renew(claims))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.0.cancel(claim))
    }

    fn inspect<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Vec<LockStatus>>> {
        Box::pin(self.0.inspect(name))
    }

    fn evict<'a>(
        &'a self,
        name: &'a LockName,
        target: Target,
        force: bool,
    ) -> BoxFuture<'a, Result<Evicted>> {
        Box::pin(self.0.evict(name, target, force))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.0.diagnose())
    }
}
