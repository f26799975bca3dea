//! The session family's adapter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use kilit_core::{
    Answer, Assurance, Bound, Claim, Client, Clock, Engine, Error, ErrorKind, Evicted, Exclusion, Finding,
    LockName, LockStatus, LossNotice, LossReason, Modes, Note, Order, OwnerId, Released, Renewal, Result,
    Share, Target, TokenStrength,
    family::{Gripped, Session, SessionEngine},
};
use tokio::sync::Notify;

/// Grants everything but what is called `never`; letting go waits for a word; what is called `sick` cannot be looked at.
#[derive(Debug)]
struct Slow {
    assurance: Assurance,
    clock: Clock,
    go_on: Arc<Notify>,
    gripped: Arc<AtomicU32>,
    let_go: Arc<AtomicU32>,
}

impl Slow {
    fn new(clock: Clock) -> Self {
        let assurance = Assurance {
            engine: "slow",
            exclusion: Exclusion::Process,
            token: TokenStrength::None,
            clock_accepted: false,
            order: Order::Any,
            modes: Modes { exclusive: true, shared: false, permits: false },
            leases: false,
            loss_notice: Bound::AT_ONCE,
            crash_release: Bound::AT_ONCE,
            wait_look: Bound::AT_ONCE,
            notes: vec![],
        };
        Self { assurance, clock, go_on: Arc::default(), gripped: Arc::default(), let_go: Arc::default() }
    }
}

fn claim(name: &str) -> Claim {
    Claim {
        name: name.parse().unwrap(),
        owner: OwnerId::random(),
        share: Share::EXCLUSIVE,
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        note: Note::of_this_process(),
        notice: LossNotice::default(),
    }
}

impl Session for Slow {
    type Hold = ();

    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn grip(&self, claim: &Claim, _: Duration) -> Result<Option<Gripped<()>>> {
        self.gripped.fetch_add(1, Ordering::SeqCst);
        let free = claim.name.as_bytes() != b"never";
        Ok(free.then_some(Gripped { hold: (), token: None, deadline: None }))
    }

    async fn alive(&self, claim: &Claim, _: &()) -> Result<Renewal> {
        match claim.name.as_str() {
            Some("sick") => Err(Error::new(ErrorKind::Refused, "as the test wants it")),
            _ => Ok(Renewal::Gone(LossReason::Broken)),
        }
    }

    async fn let_go(&self, _: &Claim, _: &()) -> Result<Released> {
        self.let_go.fetch_add(1, Ordering::SeqCst);
        self.go_on.notified().await;
        Ok(Released::Done)
    }

    async fn inspect(&self, _: Option<&LockName>) -> Result<Vec<LockStatus>> {
        Ok(vec![])
    }

    async fn evict(&self, _: &LockName, _: Target, _: bool) -> Result<Evicted> {
        Ok(Evicted::NoSuchHold)
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(vec![])
    }
}

#[tokio::test]
async fn of_two_releases_at_once_one_lets_go() {
    let slow = Slow::new(Clock::manual());
    let (go_on, let_go) = (slow.go_on.clone(), slow.let_go.clone());
    let engine = SessionEngine::new(slow);
    let claim = claim("x");
    assert!(matches!(engine.claim(&claim, Duration::ZERO).await, Ok(Answer::Granted(_))));
    let first = engine.release(&claim);
    tokio::pin!(first);
    assert!(futures_util::poll!(&mut first).is_pending());
    assert_eq!(engine.release(&claim).await.unwrap(), Released::WasNotHeld);
    go_on.notify_one();
    assert_eq!(first.await.unwrap(), Released::Done);
    assert_eq!(let_go.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_hold_that_cannot_be_looked_at_hides_no_loss_of_another() {
    let engine = SessionEngine::new(Slow::new(Clock::manual()));
    let claims = ["sick", "broken"].map(|name| Arc::new(claim(name)));
    for claim in &claims {
        assert!(matches!(engine.claim(claim, Duration::ZERO).await, Ok(Answer::Granted(_))));
    }
    let answers = engine.renew(&claims).await.unwrap();
    assert_eq!(answers, [Renewal::Unanswered, Renewal::Gone(LossReason::Broken)]);
}

#[tokio::test]
async fn an_engine_that_gives_way_too_early_is_not_asked_in_a_loop() {
    let slow = Slow::new(Clock::system());
    let gripped = slow.gripped.clone();
    let client = Client::new(Arc::new(SessionEngine::new(slow))).unwrap();
    let error =
        client.mutex("never".parse().unwrap()).acquire_within(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(gripped.load(Ordering::SeqCst) <= 31, "each ten milliseconds at most");
}
