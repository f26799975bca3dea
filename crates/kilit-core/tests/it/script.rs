//! A lease engine whose every answer a test decides, on a clock that the test moves.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use kilit_core::{
    Assurance, Bound, Claim, Client, Clock, Error, ErrorKind, Evicted, Exclusion, FencingToken, Finding,
    LockName, LockStatus, Modes, Order, OwnerId, Released, Result, Target, Terms, TokenSource, TokenStrength,
    TokenValue,
    family::{Extended, Lease, LeaseEngine, Take},
};
use tokio::sync::oneshot;

/// What the engine was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Take(OwnerId),
    Extend(Vec<OwnerId>),
    Cancel(OwnerId),
}

/// What the engine answers to the next call of each kind; without a script it says yes.
#[derive(Debug)]
pub(crate) enum Answer {
    /// As usual.
    Yes,
    /// Somebody else has it.
    No,
    /// An error of this kind.
    Fails(ErrorKind),
    /// Nothing, until the sender lets it go on as usual.
    Hangs(oneshot::Receiver<()>),
}

#[derive(Debug, Default)]
struct Script {
    takes: Vec<Answer>,
    extends: Vec<Answer>,
    cancels: Vec<Answer>,
    last_token: u64,
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Scripted {
    assurance: Assurance,
    clock: Clock,
    source: TokenSource,
    script: Arc<Mutex<Script>>,
    asked: Mutex<Sender<Asked>>,
}

/// The test's side of the engine.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    script: Arc<Mutex<Script>>,
    asked: Receiver<Asked>,
}

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// How long a test waits for something that shall happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

impl Stage {
    pub(crate) fn new() -> Self {
        let (sender, asked) = channel();
        let (clock, script) = (Clock::manual(), Arc::<Mutex<Script>>::default());
        let engine = Scripted {
            assurance: assurance(),
            clock: clock.clone(),
            source: TokenSource::new("scripted:1").unwrap(),
            script: script.clone(),
            asked: Mutex::new(sender),
        };
        let client = Client::new(Arc::new(LeaseEngine::new(engine))).unwrap();
        Self { client, clock, script, asked }
    }

    pub(crate) fn mutex(&self, name: &str) -> kilit_core::Mutex {
        let terms = Terms { ttl: TTL, ..Terms::default() };
        self.client.mutex(LockName::new(name).unwrap()).with(terms).unwrap()
    }

    pub(crate) fn on_take(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script.lock().unwrap().takes.extend(answers);
    }

    pub(crate) fn on_extend(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script.lock().unwrap().extends.extend(answers);
    }

    pub(crate) fn on_cancel(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script.lock().unwrap().cancels.extend(answers);
    }

    /// The next thing that the engine is asked.
    pub(crate) fn next(&self) -> Asked {
        self.asked.recv_timeout(SOON).expect("the engine is asked something")
    }

    /// Moves the clock in small steps until the engine is asked something.
    pub(crate) fn advance_to_next(&self) -> Asked {
        let end = std::time::Instant::now() + SOON;
        loop {
            assert!(std::time::Instant::now() < end, "the engine is asked something");
            match self.asked.recv_timeout(Duration::from_millis(1)) {
                Ok(asked) => return asked,
                Err(_) => self.clock.advance(TTL / 500),
            }
        }
    }

    /// Fails if the engine was asked anything that no test has looked at.
    pub(crate) fn nothing_more(&self) {
        assert_eq!(self.asked.try_recv().ok(), None);
    }
}

/// An answer that hangs, and what lets it go on.
pub(crate) fn hang() -> (oneshot::Sender<()>, Answer) {
    let (go_on, wait) = oneshot::channel();
    (go_on, Answer::Hangs(wait))
}

impl Scripted {
    async fn play(&self, asked: Asked, list: fn(&mut Script) -> &mut Vec<Answer>) -> Result<bool> {
        let answer = {
            let mut script = self.script.lock().unwrap();
            let list = list(&mut script);
            if list.is_empty() { Answer::Yes } else { list.remove(0) }
        };
        self.asked.lock().unwrap().send(asked).ok();
        match answer {
            Answer::Yes => Ok(true),
            Answer::No => Ok(false),
            Answer::Fails(kind) => Err(Error::new(kind, "as the script says")),
            Answer::Hangs(wait) => {
                let _ = wait.await;
                Ok(true)
            }
        }
    }
}

impl Lease for Scripted {
    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn take(&self, claim: &Claim) -> Result<Take> {
        if !self.play(Asked::Take(claim.owner), |script| &mut script.takes).await? {
            return Ok(Take::Held { free_in: None, ahead: None });
        }
        let mut script = self.script.lock().unwrap();
        script.last_token += 1;
        Ok(Take::Taken {
            token: Some(FencingToken::new(self.source.clone(), TokenValue::new(script.last_token).unwrap())),
        })
    }

    async fn extend(&self, claims: &[Arc<Claim>]) -> Result<Vec<Extended>> {
        let owners = claims.iter().map(|claim| claim.owner).collect();
        let kept = self.play(Asked::Extend(owners), |script| &mut script.extends).await?;
        Ok(vec![kept.into(); claims.len()])
    }

    async fn cancel(&self, claim: &Claim) -> Result<Released> {
        match self.play(Asked::Cancel(claim.owner), |script| &mut script.cancels).await? {
            true => Ok(Released::Done),
            false => Ok(Released::WasNotHeld),
        }
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

fn assurance() -> Assurance {
    Assurance {
        engine: "scripted",
        exclusion: Exclusion::OneNode,
        token: TokenStrength::LostOnRestart,
        clock_accepted: false,
        order: Order::Any,
        modes: Modes { exclusive: true, shared: false, permits: false },
        leases: true,
        loss_notice: Bound { ttl_percent: 34, fixed: Duration::ZERO },
        crash_release: Bound::ONE_TTL,
        wait_look: Bound::fixed(Duration::from_millis(500)),
        notes: vec![],
    }
}
