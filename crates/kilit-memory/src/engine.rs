//! The engine: lines by name, and a notice to everyone whose turn has come.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use kilit_core::{
    Answer, Assurance, Bound, BoxFuture, Claim, Clock, Engine, Error, ErrorKind, Evicted, Exclusion,
    FencingToken, Finding, Grant, Holder, Level, LockName, LockStatus, LossNotice, LossReason, Mode, Modes,
    Order, OwnerId, Released, Renewal, Result, Share, Target, TokenSource, TokenStrength, TokenValue, Waiter,
};
use tokio::sync::Notify;

use crate::line::{Line, Place};

/// Locks within one process. Clients that shall exclude each other share one `Arc<Memory>`.
#[derive(Debug)]
pub struct Memory {
    source: TokenSource,
    clock: Clock,
    assurance: Assurance,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Only names that someone holds or waits for.
    lines: HashMap<LockName, Line<Seat>>,
    /// One counter for all names: a name that was used once leaves nothing behind.
    last_token: u64,
}

/// What the engine knows of a claim beside its share.
#[derive(Debug)]
struct Seat {
    note: String,
    since: SystemTime,
    /// Notified when its turn has come.
    turn: Arc<Notify>,
    token: Option<FencingToken>,
    notice: LossNotice,
}

pub(crate) fn assurance() -> Assurance {
    Assurance {
        engine: "memory",
        exclusion: Exclusion::Process,
        token: TokenStrength::LostOnRestart,
        clock_accepted: false,
        order: Order::Fifo,
        modes: Modes { exclusive: true, shared: true, permits: true },
        leases: false,
        loss_notice: Bound::AT_ONCE,
        crash_release: Bound::AT_ONCE,
        wait_look: Bound::AT_ONCE,
        notes: vec!["it excludes only those that share one engine object in one process".into()],
    }
}

impl Memory {
    /// One that shares nothing with any other.
    pub fn new() -> Self {
        let source = TokenSource::new(format!("memory:{}", OwnerId::random())).expect("it is visible ASCII");
        Self { source, clock: Clock::system(), assurance: assurance(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn claim(&self, claim: &Claim, patience: Duration) -> Result<Answer> {
        let until = self.clock.now() + patience;
        let turn = self.join(claim)?;
        loop {
            // The notice is kept for a waiter that is not listening yet, so none is lost between here and there.
            if let Some(grant) = self.grant(claim) {
                return Ok(Answer::Granted(grant));
            }
            let in_time =
                !patience.is_zero() && self.clock.timeout_at(until, turn.notified()).await.is_some();
            if !in_time {
                // The turn may have come at the very end.
                return Ok(match self.grant(claim) {
                    Some(grant) => Answer::Granted(grant),
                    None => Answer::Waiting { ahead: self.ahead(claim), try_after: Duration::ZERO },
                });
            }
        }
    }

    fn join(&self, claim: &Claim) -> Result<Arc<Notify>> {
        let mut state = self.state();
        let line = state.lines.entry(claim.name.clone()).or_insert_with(Line::new);
        if let Some(why) = line.conflict(claim.share) {
            return Err(Error::new(ErrorKind::Refused, why));
        }
        let seat = Seat {
            note: claim.note.as_str().to_owned(),
            since: SystemTime::now(),
            turn: Arc::default(),
            token: None,
            notice: claim.notice.clone(),
        };
        line.join(claim, seat);
        let turn = line.find(claim.owner).expect("it has just joined").data.turn.clone();
        state.serve(&claim.name);
        Ok(turn)
    }

    fn grant(&self, claim: &Claim) -> Option<Grant> {
        let mut state = self.state();
        let last_token = state.last_token + 1;
        let place = state.lines.get_mut(&claim.name)?.find(claim.owner).filter(|place| place.holds)?;
        let draws = place.data.token.is_none() && place.share == Share::EXCLUSIVE;
        if draws {
            let value = TokenValue::new(last_token).expect("2^63 grants take longer than a process lives");
            place.data.token = Some(FencingToken::new(self.source.clone(), value));
        }
        let token = place.data.token.clone();
        if draws {
            state.last_token = last_token;
        }
        Some(Grant { token, deadline: None })
    }

    fn ahead(&self, claim: &Claim) -> Option<u32> {
        self.state().lines.get(&claim.name).and_then(|line| u32::try_from(line.ahead(claim.owner)).ok())
    }

    fn renewal(&self, claim: &Claim) -> Renewal {
        let mut state = self.state();
        let place = state.lines.get_mut(&claim.name).and_then(|line| line.find(claim.owner));
        match place {
            Some(place) if place.holds => Renewal::Kept(None),
            _ => Renewal::Gone(LossReason::Ended),
        }
    }

    fn leave(&self, name: &LockName, owner: OwnerId) -> Option<Place<Seat>> {
        let mut state = self.state();
        let place = state.lines.get_mut(name)?.leave(owner)?;
        state.serve(name);
        Some(place)
    }

    fn evict(&self, name: &LockName, target: &Target) -> Evicted {
        let owner = self.state().lines.get(name).and_then(|line| {
            line.places().find(|place| place.holds && target_is(target, place)).map(|place| place.owner)
        });
        match owner.and_then(|owner| self.leave(name, owner)) {
            Some(place) => {
                place.data.notice.lost(LossReason::Broken, self.clock.now());
                Evicted::Ended
            }
            None => Evicted::NoSuchHold,
        }
    }

    fn inspect(&self, name: Option<&LockName>) -> Vec<LockStatus> {
        let state = self.state();
        let wanted = |other: &LockName| name.is_none_or(|name| name == other);
        let mut all: Vec<_> = state
            .lines
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, line)| status(name, line))
            .collect();
        if let (Some(name), true) = (name, all.is_empty()) {
            all.push(LockStatus::free(name.clone()));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn serve(&mut self, name: &LockName) {
        let Some(line) = self.lines.get_mut(name) else { return };
        line.serve().for_each(|place| place.data.turn.notify_one());
        if line.is_empty() {
            self.lines.remove(name);
        }
    }
}

fn target_is(target: &Target, place: &Place<Seat>) -> bool {
    match target {
        Target::Token(value) => place.data.token.as_ref().is_some_and(|token| token.value() == *value),
        Target::Owner(owner) => place.owner.to_string() == *owner,
    }
}

fn status(name: &LockName, line: &Line<Seat>) -> LockStatus {
    let (holding, waiting): (Vec<_>, Vec<_>) = line.places().partition(|place| place.holds);
    let permit = |share: Share| share.mode() == Mode::Permit;
    LockStatus {
        mode: holding.first().map(|place| place.share.mode()),
        capacity: line
            .places()
            .next()
            .map(|place| place.share)
            .filter(|share| permit(*share))
            .map(Share::capacity),
        holders: holding
            .iter()
            .map(|place| Holder {
                token: place.data.token.clone(),
                owner: Some(place.owner.to_string()),
                note: Some(place.data.note.clone()),
                since: Some(place.data.since),
                units: permit(place.share).then(|| place.share.units()),
                ..Holder::default()
            })
            .collect(),
        queue: Some(
            waiting
                .iter()
                .map(|place| Waiter {
                    owner: Some(place.owner.to_string()),
                    note: Some(place.data.note.clone()),
                    since: Some(place.data.since),
                })
                .collect(),
        ),
        ..LockStatus::free(name.clone())
    }
}

impl Engine for Memory {
    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn claim<'a>(&'a self, claim: &'a Claim, patience: Duration) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(self.claim(claim, patience))
    }

    fn renew<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async move { Ok(claims.iter().map(|claim| self.renewal(claim)).collect()) })
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            Ok(match self.leave(&claim.name, claim.owner) {
                Some(place) if place.holds => Released::Done,
                _ => Released::WasNotHeld,
            })
        })
    }

    fn inspect<'a>(&'a self, name: Option<&'a LockName>) -> BoxFuture<'a, Result<Vec<LockStatus>>> {
        Box::pin(async move { Ok(self.inspect(name)) })
    }

    fn evict<'a>(
        &'a self,
        name: &'a LockName,
        target: Target,
        _force: bool,
    ) -> BoxFuture<'a, Result<Evicted>> {
        Box::pin(async move { Ok(self.evict(name, &target)) })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let text = "memory locks exclude nothing outside this process".to_owned();
        Box::pin(
            async move { Ok(vec![Finding { id: "scope", level: Level::Info, text, fix: String::new() }]) },
        )
    }
}
