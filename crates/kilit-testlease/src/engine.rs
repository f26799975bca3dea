//! The engine in process: clients of a [`Node`], each behind a [`Link`] of its own.

use std::{sync::Arc, time::Duration};

use kilit_core::{
    Assurance, Bound, Claim, Clock, Engine, Evicted, Exclusion, FencingToken, Finding, Level, LockName,
    LockStatus, Modes, Moment, Order, OwnerId, Released, Result, Target, TokenSource, TokenStrength,
    TokenValue,
    family::{Extended, Lease, LeaseEngine, Take},
};

use crate::{
    link::{Link, Op, Record},
    machine::{Taken, place_lasts},
    node::Node,
    view::statuses,
};

/// How soon a waiter that no push has reached looks by itself.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// A client of a [`Node`] in this process.
#[derive(Debug)]
pub struct TestLease {
    node: Arc<Node>,
    link: Arc<Link>,
    clock: Clock,
    assurance: Assurance,
}

pub(crate) fn assurance() -> Assurance {
    Assurance {
        engine: "testlease",
        exclusion: Exclusion::OneNode,
        token: TokenStrength::LostOnRestart,
        clock_accepted: false,
        order: Order::Fifo,
        modes: Modes { exclusive: true, shared: true, permits: true },
        leases: true,
        // A renewal every third of the TTL, and a tenth for its answer.
        loss_notice: Bound { ttl_percent: 44, fixed: Duration::ZERO },
        crash_release: Bound::ONE_TTL,
        wait_look: Bound::fixed(LOOK),
        notes: vec!["for kilit's own tests: a server that keeps nothing on disk".into()],
    }
}

pub(crate) fn diagnose() -> Vec<Finding> {
    let text = "the test lease server forgets every lock when it restarts".to_owned();
    vec![Finding { id: "scope", level: Level::Info, text, fix: String::new() }]
}

/// When a waiter looks again at the latest: often enough to keep its place in line.
pub(crate) fn look_by(claim: &Claim, until: Moment, clock: &Clock) -> Moment {
    until.min(clock.now() + place_lasts(claim) / 3)
}

/// The machine's answer, with where its tokens are drawn.
pub(crate) fn taken(taken: Taken, source: &TokenSource) -> Take {
    let token = |value| Some(FencingToken::new(source.clone(), TokenValue::new(value).ok()?));
    match taken {
        Taken::Lease(value) => Take::Taken { token: value.and_then(token) },
        Taken::InLine { ahead, free_in } => Take::Held { free_in: Some(free_in), ahead: Some(ahead) },
    }
}

impl TestLease {
    /// A client of `node` with the node's own clock, and with a link of its own.
    pub fn new(node: &Arc<Node>) -> Self {
        Self::with_clock(node, node.clock().clone())
    }

    /// A client of `node` with a clock of its own.
    pub fn with_clock(node: &Arc<Node>, clock: Clock) -> Self {
        Self { node: node.clone(), link: Arc::default(), clock, assurance: assurance() }
    }

    /// Its link to the node, to break and to look at.
    pub fn link(&self) -> Arc<Link> {
        self.link.clone()
    }

    /// As an engine, for a client.
    pub fn into_engine(self) -> Arc<dyn Engine> {
        Arc::new(LeaseEngine::new(self))
    }

    async fn call<T: Send + 'static>(
        &self,
        op: Op,
        touched: Vec<(LockName, OwnerId)>,
        effect: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T> {
        let (node, link, clock) = (self.node.clone(), self.link.clone(), self.clock.clone());
        let recorded = move || {
            for (name, owner) in touched {
                link.record(Record { at: clock.now(), op, name, owner });
            }
            effect(&node)
        };
        self.link.call(op, &self.clock, recorded).await
    }
}

impl Lease for TestLease {
    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn take(&self, claim: &Claim) -> Result<Take> {
        let (touched, claim) = (vec![(claim.name.clone(), claim.owner)], claim.clone());
        let answer = self.call(Op::Take, touched, move |node| node.take(&claim)).await?;
        Ok(taken(answer?, self.node.source()))
    }

    async fn extend(&self, claims: &[Arc<Claim>]) -> Result<Vec<Extended>> {
        let claims = claims.to_vec();
        let touched = claims.iter().map(|claim| (claim.name.clone(), claim.owner)).collect();
        self.call(Op::Extend, touched, move |node| {
            let extend =
                |claim: &Arc<Claim>| node.extend(&claim.name, claim.owner, claim.engine_ttl()).into();
            claims.iter().map(extend).collect()
        })
        .await
    }

    async fn cancel(&self, claim: &Claim) -> Result<Released> {
        let (name, owner) = (claim.name.clone(), claim.owner);
        let touched = vec![(name.clone(), owner)];
        let held = self.call(Op::Cancel, touched, move |node| node.cancel(&name, owner)).await?;
        Ok(if held { Released::Done } else { Released::WasNotHeld })
    }

    async fn hint(&self, claim: &Claim, until: Moment) {
        let until = look_by(claim, until, &self.clock);
        if self.link.has_push() {
            self.clock.timeout_at(until, self.node.ready(&claim.name, claim.owner)).await;
        } else {
            self.clock.sleep_until(until).await;
        }
    }

    async fn inspect(&self, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
        let wanted = name.cloned();
        let views = self.call(Op::Inspect, vec![], move |node| node.inspect(wanted.as_ref())).await?;
        Ok(statuses(views, name, self.node.source()))
    }

    async fn evict(&self, name: &LockName, target: Target, _force: bool) -> Result<Evicted> {
        let name = name.clone();
        let ended = self.call(Op::Evict, vec![], move |node| node.evict(&name, &target)).await?;
        Ok(if ended { Evicted::Ended } else { Evicted::NoSuchHold })
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(diagnose())
    }
}
