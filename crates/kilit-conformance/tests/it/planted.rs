//! The suite can fail: engines with a planted bug, each of a kind that lock software has really had, and the case that
//! catches it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use kilit_conformance::{Subject, verdict};
use kilit_core::{
    Answer, Assurance, BoxFuture, Claim, Client, Clock, Engine, Evicted, FencingToken, Finding, Grant,
    LockName, LockStatus, LossReason, Modes, Note, Released, Renewal, Result, Share, Target, TokenStrength,
    TokenValue,
};
use kilit_memory::Memory;

use crate::columns::TestNode;

/// What is wrong with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Every few claims that should wait are granted.
    GrantsTwice,
    /// The server knows the session only: a second claim of the same process is granted.
    SharesAll,
    /// Two holds get one token.
    TokenRepeats,
    /// The token is drawn again when a claim is repeated.
    TokenPerAnswer,
    /// A release ends whatever hold there is.
    ReleaseByName,
    /// A claim whose caller has given up still arrives, after its withdrawal.
    LateClaim,
    /// A withdrawal leaves a waiter in line.
    KeepsWaiters,
    /// A waiter is never woken.
    ForgetsAWaiter,
    /// A renewal takes the lock again.
    RenewalCreates,
    /// A renewal never says that the hold is gone.
    AlwaysKept,
    /// A renewal says now and then that the hold is gone.
    FalseAlarm,
    /// The deadline counts from the answer.
    DeadlineFromAnswer,
    /// Nothing keeps the lock closed after a holder that vanished.
    NoLockDelay,
    /// Names that differ in case are one lock.
    FoldsCase,
    /// Names are cut after 64 bytes.
    CutsNames,
    /// A break ends whatever hold there is.
    EvictsByName,
    /// The note is not kept.
    LosesNotes,
    /// It promises what it has not.
    Boasts,
}

/// An engine with a bug.
#[derive(Debug)]
struct Planted {
    inner: Arc<dyn Engine>,
    bug: Bug,
    assurance: Assurance,
    calls: Arc<AtomicU64>,
}

impl Planted {
    fn over(inner: Arc<dyn Engine>, bug: Bug, calls: Arc<AtomicU64>) -> Client {
        let mut assurance = inner.assurance().clone();
        if bug == Bug::Boasts {
            assurance.token = TokenStrength::Durable;
            assurance.modes = Modes { exclusive: true, shared: true, permits: true };
        }
        Client::new(Arc::new(Self { inner, bug, assurance, calls })).expect("a thread")
    }

    /// Every `n`th time.
    fn every(&self, n: u64) -> bool {
        self.calls.fetch_add(1, SeqCst) % n == n - 1
    }

    /// The claim as the inner engine sees it.
    fn altered(&self, claim: &Claim) -> Claim {
        let mut claim = claim.clone();
        match self.bug {
            Bug::SharesAll => claim.share = Share::SHARED,
            Bug::NoLockDelay => claim.lock_delay = Duration::ZERO,
            Bug::LosesNotes => claim.note = Note::new("").expect("a note"),
            _ => claim.name = self.name(&claim.name),
        }
        claim
    }

    fn name(&self, name: &LockName) -> LockName {
        let bytes = name.as_bytes();
        LockName::new(match self.bug {
            Bug::FoldsCase => bytes.to_ascii_lowercase(),
            Bug::CutsNames => bytes[..bytes.len().min(64)].to_vec(),
            _ => bytes.to_vec(),
        })
        .expect("a name")
    }

    async fn claim(&self, claim: &Claim, patience: Duration) -> Result<Answer> {
        let claim = self.altered(claim);
        if self.bug == Bug::LateClaim {
            return self.travel(claim, patience).await;
        }
        let first = self.inner.claim(&claim, Duration::ZERO).await?;
        let answer = match first {
            Answer::Waiting { .. } if self.bug == Bug::GrantsTwice && self.every(5) => {
                Answer::Granted(Grant { token: None, deadline: None })
            }
            Answer::Waiting { .. } if self.bug == Bug::ForgetsAWaiter && self.every(5) => {
                std::future::pending().await
            }
            Answer::Waiting { .. } if !patience.is_zero() => self.inner.claim(&claim, patience).await?,
            answer => answer,
        };
        Ok(match answer {
            Answer::Granted(grant) => Answer::Granted(self.alter_grant(&claim, grant)),
            waiting => waiting,
        })
    }

    fn alter_grant(&self, claim: &Claim, mut grant: Grant) -> Grant {
        let token = grant.token.take();
        grant.token = token.map(|token| {
            let value = token.value().get();
            let value = match self.bug {
                Bug::TokenRepeats => value.div_ceil(2),
                Bug::TokenPerAnswer => value * 1000 + self.calls.fetch_add(1, SeqCst),
                _ => value,
            };
            FencingToken::new(token.source().clone(), TokenValue::new(value).expect("in range"))
        });
        match self.bug {
            Bug::Boasts => grant.token = None,
            Bug::DeadlineFromAnswer => grant.deadline = Some(self.clock().now() + claim.ttl),
            _ => {}
        }
        grant
    }

    /// The request is on its way, whatever becomes of its caller.
    async fn travel(&self, claim: Claim, patience: Duration) -> Result<Answer> {
        let inner = self.inner.clone();
        let request = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            inner.claim(&claim, patience).await
        });
        request.await.expect("it does not panic")
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewal>> {
        let claims: Vec<_> = claims.iter().map(|claim| Arc::new(self.altered(claim))).collect();
        let mut answers = self.inner.renew(&claims).await?;
        for (answer, claim) in answers.iter_mut().zip(&claims) {
            let kept = Renewal::Kept(Some(self.clock().now() + claim.ttl * 9 / 10));
            match (self.bug, *answer) {
                (Bug::RenewalCreates, Renewal::Gone(_)) => {
                    self.inner.claim(claim, Duration::ZERO).await?;
                    *answer = Renewal::Kept(None);
                }
                (Bug::AlwaysKept, _) => *answer = kept,
                (Bug::FalseAlarm, _) if self.every(20) => *answer = Renewal::Gone(LossReason::Ended),
                _ => {}
            }
        }
        Ok(answers)
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let claim = self.altered(claim);
        match self.bug {
            Bug::GrantsTwice => {
                self.inner.release(&claim).await?;
                Ok(Released::Done)
            }
            Bug::ReleaseByName => match self.end_any(&claim.name).await? {
                Evicted::Ended => Ok(Released::Done),
                _ => self.inner.release(&claim).await,
            },
            Bug::KeepsWaiters
                if self.inner.renew(&[Arc::new(claim.clone())]).await?[0] != Renewal::Kept(None) =>
            {
                Ok(Released::WasNotHeld)
            }
            _ => self.inner.release(&claim).await,
        }
    }

    async fn end_any(&self, name: &LockName) -> Result<Evicted> {
        let status = self.inner.inspect(Some(name)).await?.remove(0);
        match status.holders.into_iter().find_map(|holder| holder.owner) {
            Some(owner) => self.inner.evict(name, Target::Owner(owner), true).await,
            None => Ok(Evicted::NoSuchHold),
        }
    }
}

impl Engine for Planted {
    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        self.inner.clock()
    }

    fn claim<'a>(&'a self, claim: &'a Claim, patience: Duration) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.claim(claim, patience))
    }

    fn renew<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(self.renew(claims))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.release(claim))
    }

    fn inspect<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Vec<LockStatus>>> {
        Box::pin(async move {
            let asked = name.map(|name| self.name(name));
            let mut all = self.inner.inspect(asked.as_ref()).await?;
            if let (Some(name), [status]) = (name, &mut all[..]) {
                status.name = name.clone();
            }
            Ok(all)
        })
    }

    fn evict<'a>(
        &'a self,
        name: &'a LockName,
        target: Target,
        force: bool,
    ) -> BoxFuture<'a, Result<Evicted>> {
        match self.bug {
            Bug::EvictsByName => Box::pin(self.end_any(name)),
            _ => self.inner.evict(name, target, force),
        }
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.inner.diagnose()
    }
}

/// Over one memory object.
async fn memory(bug: Option<Bug>) -> Subject {
    let (engine, calls) = (Arc::new(Memory::new()), Arc::default());
    let connect = move || {
        let (engine, calls) = (engine.clone(), Arc::clone(&calls));
        async move {
            match bug {
                Some(bug) => Planted::over(engine, bug, calls).into(),
                None => Client::new(engine).expect("a thread").into(),
            }
        }
    };
    Subject::new(connect).patience(Duration::from_secs(3))
}

/// Over one lease server in this process.
async fn lease(bug: Option<Bug>) -> Subject {
    let (node, calls) = (TestNode::new(), Arc::default());
    let connect = {
        let node = node.clone();
        move || {
            let (node, calls) = (node.clone(), Arc::clone(&calls));
            async move {
                node.party(|engine| match bug {
                    Some(bug) => Planted::over(engine, bug, calls),
                    None => Client::new(engine).expect("a thread"),
                })
            }
        }
    };
    node.harm(Subject::new(connect)).patience(Duration::from_secs(3))
}

macro_rules! caught {
    ($($test:ident: $bug:ident over $base:ident by $case:literal saying $words:literal,)+) => {
        $(#[test]
        fn $test() {
            let said = verdict($case, $base(Some(Bug::$bug))).expect_err("the bug was not caught");
            assert!(said.contains($words), "{} fails for another reason: {said}", $case);
            // And without the bug there is nothing to catch.
            verdict($case, $base(None)).expect("the engine without the bug");
        })+
    };
}

caught! {
    grants_twice: GrantsTwice over memory by "exclusion::many_clients" saying "exclusion was violated",
    grants_twice_to_tasks: GrantsTwice over memory by "exclusion::many_tasks" saying "exclusion was violated",
    grants_to_all_of_a_session: SharesAll over memory by "exclusion::no_reentrance" saying "held by this handle",
    repeats_a_token: TokenRepeats over memory by "tokens::rise_over_release_and_drop" saying "tokens do not rise",
    draws_a_token_per_answer: TokenPerAnswer over memory by "tokens::belong_to_the_claim" saying "more than one token",
    releases_by_name: ReleaseByName over memory by "release::goes_by_identity" saying "WasNotHeld",
    lets_a_late_claim_in: LateClaim over memory by "cancel::acquire_at_every_await_point" saying "the lock is free",
    lets_late_claims_of_a_storm_in: LateClaim over memory by "cancel::thousands_of_random_drops" saying "not within",
    keeps_waiters_that_left: KeepsWaiters over memory by "cancel::a_waiter_that_gives_up_touches_no_one"
        saying "nobody holds the lock or waits",
    forgets_a_waiter: ForgetsAWaiter over memory by "waiting::everyone_is_served" saying "everyone is served",
    creates_by_renewal: RenewalCreates over memory by "release::renewal_never_creates" saying "Kept",
    never_says_gone: AlwaysKept over lease by "loss::of_an_ended_hold_is_noticed" saying "the loss is noticed",
    cries_wolf: FalseAlarm over lease by "loss::none_in_a_quiet_run" saying "nothing has happened to it",
    counts_from_the_answer: DeadlineFromAnswer over lease
        by "loss::is_noticed_before_the_next_grant_when_answers_are_slow" saying "another has it",
    forgets_the_lock_delay: NoLockDelay over lease by "terms::lock_delay_after_a_vanished_holder"
        saying "after its deadline",
    folds_case: FoldsCase over memory by "names::all_pairs_differ" saying "is another lock",
    cuts_names: CutsNames over memory by "names::all_pairs_differ" saying "is another lock",
    breaks_by_name: EvictsByName over memory by "inspect::evicts_no_other" saying "NoSuchHold",
    loses_notes: LosesNotes over memory by "inspect::shows_the_holder" saying "note",
    boasts_of_tokens: Boasts over memory by "inspect::shows_the_holder" saying "token",
}
