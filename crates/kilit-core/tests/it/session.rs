//! The session family's adapter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use kilit_core::{
    Answer, Assurance, Bound, Claim, Clock, Engine, Evicted, Exclusion, Finding, LockName, LockStatus,
    LossNotice, Modes, Note, Order, OwnerId, Released, Renewal, Result, Share, Target, TokenStrength,
    family::{Gripped, Session, SessionEngine},
};
use tokio::sync::Notify;

/// Grants everything; letting go waits for a word.
#[derive(Debug)]
struct Slow {
    assurance: Assurance,
    clock: Clock,
    go_on: Arc<Notify>,
    let_go: Arc<AtomicU32>,
}

impl Session for Slow {
    type Hold = ();

    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn grip(&self, _: &Claim, _: Duration) -> Result<Option<Gripped<()>>> {
        Ok(Some(Gripped { hold: (), token: None, deadline: None }))
    }

    async fn alive(&self, _: &Claim, _: &()) -> Result<Renewal> {
        Ok(Renewal::Kept(None))
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
    let (go_on, let_go) = (Arc::<Notify>::default(), Arc::<AtomicU32>::default());
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
    let slow = Slow { assurance, clock: Clock::manual(), go_on: go_on.clone(), let_go: let_go.clone() };
    let engine = SessionEngine::new(slow);
    let claim = Claim {
        name: "x".parse().unwrap(),
        owner: OwnerId::random(),
        share: Share::EXCLUSIVE,
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        note: Note::of_this_process(),
        notice: LossNotice::default(),
    };
    assert!(matches!(engine.claim(&claim, Duration::ZERO).await, Ok(Answer::Granted(_))));
    let first = engine.release(&claim);
    tokio::pin!(first);
    assert!(futures_util::poll!(&mut first).is_pending());
    assert_eq!(engine.release(&claim).await.unwrap(), Released::WasNotHeld);
    go_on.notify_one();
    assert_eq!(first.await.unwrap(), Released::Done);
    assert_eq!(let_go.load(Ordering::SeqCst), 1);
}
