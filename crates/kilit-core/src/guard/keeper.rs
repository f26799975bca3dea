//! The keeper: renews every hold of a client in one batch, notices what is lost, and sends the releases that a drop
//! could not wait for.
//!
//! It lives on the client's own thread. Its table is shared with the guards, so that a hold which comes and goes within
//! a third of its TTL costs no message and no wake-up.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{Notify, futures::Notified};

use super::{LossReason, signal::Signal};
use crate::{
    BoxFuture, Claim, Clock, Effect, Engine, Error, ErrorKind, Moment, OwnerId, Released, Renewal, Result,
    deadline, owner::OwnerMap, runtime::Lifeline,
};

/// How long [`Keeper::drain`] waits for releases that the engine does not answer.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// How many errors of releases in the background are kept for [`Keeper::drain`].
const ERRORS_KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Keeper {
    engine: Arc<dyn Engine>,
    table: Mutex<Table>,
    /// Something in the table is due sooner than the loop thinks.
    wake: Notify,
    /// A renewal or a release has come to its end.
    settled: Notify,
    /// A moving average of the engine's round trips, in nanoseconds.
    latency: AtomicU64,
    /// From 0 to 1: clients do not renew in step. One for all holds of a client, so that a later one is due later.
    jitter: f64,
    /// No new holds: written under the table's mutex.
    closed: AtomicBool,
    /// Tells claims that wait of it.
    closing: Notify,
}

#[derive(Debug)]
struct Table {
    holds: OwnerMap<Entry>,
    releases: Vec<Arc<Claim>>,
    releasing: usize,
    /// When the loop wakes up by itself.
    wake_at: Moment,
    /// When the hold that came last is due, even if it has gone by now: the next one is due later, and wakes nobody.
    last_due: Moment,
    /// The client is gone: end when nothing is left.
    ending: bool,
    errors: Vec<Error>,
}

#[derive(Debug)]
struct Entry {
    claim: Arc<Claim>,
    renew_at: Moment,
    renewing: bool,
    /// Its release has begun: it is renewed no more.
    retired: bool,
}

/// What the loop does next.
#[derive(Default)]
struct Plan {
    renew: Vec<Arc<Claim>>,
    release: Vec<Arc<Claim>>,
}

impl Keeper {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        let table = Table {
            holds: OwnerMap::default(),
            releases: Vec::new(),
            releasing: 0,
            wake_at: Moment::FAR,
            last_due: Moment::FAR,
            ending: false,
            errors: Vec::new(),
        };
        Self {
            engine,
            table: Mutex::new(table),
            wake: Notify::new(),
            settled: Notify::new(),
            latency: AtomicU64::new(0),
            jitter: fastrand::f64(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.engine.clock()
    }

    /// What one round trip to the engine has taken of late.
    pub(crate) fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency.load(Ordering::Relaxed))
    }

    pub(crate) fn note_latency(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        // Two threads may lose one sample of each other: it is an estimate.
        let old = self.latency.load(Ordering::Relaxed);
        let new = if old == 0 { sample } else { old - old / 8 + sample / 8 };
        self.latency.store(new, Ordering::Relaxed);
    }

    /// Whether the client was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends when the client is shut down after this call.
    pub(crate) fn closing(&self) -> Notified<'_> {
        self.closing.notified()
    }

    /// Takes charge of a hold that was granted by `now`.
    pub(crate) fn add(&self, claim: Arc<Claim>, now: Moment) {
        let signal = claim.notice.signal();
        let renew_at = self.next_renewal(&claim, signal.deadline(), now);
        let due = renew_at.min(signal.deadline()).min(signal.keep_until());
        let mut table = self.table();
        if self.is_closed() {
            drop(table);
            signal.lose(LossReason::Shutdown, now);
            return self.release_later(&claim, None);
        }
        let wake = due < table.wake_at;
        table.wake_at = table.wake_at.min(due);
        table.last_due = due;
        table.holds.insert(claim.owner, Entry { claim, renew_at, renewing: false, retired: false });
        drop(table);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Releases a hold, or withdraws a claim that has no signal yet, without waiting: for a drop. Never blocks, awaits
    /// or panics.
    pub(crate) fn release_later(&self, claim: &Arc<Claim>, signal: Option<&Signal>) {
        let mut table = self.table();
        table.holds.remove(&claim.owner);
        if signal.is_some_and(|signal| self.has_ended(signal)) {
            return;
        }
        table.releases.push(claim.clone());
        drop(table);
        self.wake.notify_one();
    }

    /// As [`release`](Self::release), where that needs no wait. `None` where it does: `release` follows.
    pub(crate) fn release_at_once(&self, claim: &Claim) -> Option<Result<()>> {
        let at_once = self.retire_at_once(claim.owner) && claim.notice.signal().is_endless();
        let released = at_once.then(|| self.engine.release_at_once(claim))??;
        self.table().holds.remove(&claim.owner);
        Some(outcome(released))
    }

    /// Releases a hold: stops its renewal, waits for one that is under way, and tries until the deadline.
    ///
    /// When it is dropped, the hold stays in the table, unrenewed, for [`release_later`](Self::release_later).
    pub(crate) async fn release(&self, claim: &Claim) -> Result<()> {
        let signal = claim.notice.signal();
        self.retire(claim.owner).await;
        let now = self.clock().now();
        let loss = signal.check(now).err();
        let released = match loss {
            Some(_) if self.engine.assurance().leases => Ok(Released::WasNotHeld),
            Some(_) => self.try_release(claim, now, Moment::FAR).await,
            None => self.try_release(claim, now, signal.deadline()).await,
        };
        self.table().holds.remove(&claim.owner);
        match (loss, released?) {
            (Some(loss), _) => Err(loss.into()),
            (None, released) => outcome(released),
        }
    }

    /// No renewal of this hold begins from here on, and none is under way when this returns.
    async fn retire(&self, owner: OwnerId) {
        loop {
            let settled = self.settled.notified();
            if self.retire_at_once(owner) {
                return;
            }
            settled.await;
        }
    }

    /// No renewal of this hold begins from here on; whether none is under way.
    fn retire_at_once(&self, owner: OwnerId) -> bool {
        let mut table = self.table();
        let Some(entry) = table.holds.get_mut(&owner) else { return true };
        entry.retired = true;
        !entry.renewing
    }

    /// A lease that is lost ends by itself, and nothing more is sent for it. What a session keeps open is let go of
    /// all the same.
    fn has_ended(&self, signal: &Signal) -> bool {
        self.engine.assurance().leases && signal.check(self.clock().now()).is_err()
    }

    /// Tries to release until `until`, or for one TTL where there is no deadline.
    async fn try_release(&self, claim: &Claim, now: Moment, until: Moment) -> Result<Released> {
        let mut sent = now;
        let until = until.min(sent + claim.ttl);
        let (mut delays, mut unanswered) = (None, false);
        loop {
            let error = match self.clock().timeout_at(until, self.engine.release(claim)).await {
                // By the try whose answer was lost, or before that: nobody knows.
                Some(Ok(Released::WasNotHeld)) if unanswered => return Err(self.unconfirmed(claim)),
                Some(Ok(released)) => {
                    // Where there are no leases it tells little, and the clock costs as much.
                    if self.engine.assurance().leases {
                        self.note_latency(self.clock().now().since(sent));
                    }
                    return Ok(released);
                }
                Some(Err(error)) => error,
                None => Error::new(ErrorKind::Unknown, "the release was not answered before the deadline"),
            };
            unanswered |= error.effect() != Effect::None;
            let delays = delays.get_or_insert_with(|| retry_delays(claim.ttl / 10));
            let retry_at = self.clock().now() + delays.next().unwrap_or(Duration::from_secs(1));
            let hopeless =
                matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Refused | ErrorKind::Unsupported);
            if hopeless || retry_at >= until {
                return Err(error.on_engine(self.engine.assurance().engine).on_lock(&claim.name));
            }
            self.clock().sleep_until(retry_at).await;
            sent = self.clock().now();
        }
    }

    fn unconfirmed(&self, claim: &Claim) -> Error {
        let text = "it is not held any more; the answer that would tell since when was lost";
        Error::new(ErrorKind::Unknown, text)
            .with_effect(Effect::Done)
            .on_engine(self.engine.assurance().engine)
            .on_lock(&claim.name)
    }

    /// Refuses new holds, ends those that live, and waits until every release was answered, for 5 s at most.
    pub(crate) async fn drain(&self) -> Result<(), Vec<Error>> {
        {
            let now = self.clock().now();
            let mut table = self.table();
            self.closed.store(true, Ordering::Release);
            let live: Vec<_> = table.holds.drain().map(|(_, entry)| entry).collect();
            for entry in live {
                let has_ended = self.has_ended(entry.signal());
                entry.signal().lose(LossReason::Shutdown, now);
                if !has_ended {
                    table.releases.push(entry.claim);
                }
            }
        }
        self.closing.notify_waiters();
        self.wake.notify_one();
        let all_settled = async {
            loop {
                let settled = self.settled.notified();
                if self.table().idle() {
                    return;
                }
                settled.await;
            }
        };
        let in_time = self.clock().timeout_at(self.clock().now() + DRAIN_LIMIT, all_settled).await.is_some();
        let mut table = self.table();
        let mut errors = mem::take(&mut table.errors);
        if !in_time {
            let left = table.releasing + table.releases.len();
            errors.push(Error::new(
                ErrorKind::Unknown,
                format!(
                    "{left} releases were not answered within {DRAIN_LIMIT:?}; leases end with their TTL, \
                     other holds with this process"
                ),
            ));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The client is gone: the loop ends when the last release was answered.
    pub(crate) fn end(&self) {
        self.table().ending = true;
        self.wake.notify_one();
    }

    /// The loop. The runtime's thread lives as long as it does.
    pub(crate) async fn run(self: Arc<Self>, lifeline: Lifeline) {
        let _lifeline = lifeline;
        let mut tasks: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        while let Some(plan) = self.plan() {
            for batch in by_ttl(plan.renew) {
                tasks.push(Box::pin(self.clone().renew(batch)));
            }
            for claim in plan.release {
                tasks.push(Box::pin(self.clone().release_now(claim)));
            }
            let wake_at = self.table().wake_at;
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.clock().sleep_until(wake_at) => {}
                Some(()) = tasks.next() => {}
            }
        }
    }

    /// Looks through the table: what is due, what is over, and when to look again. `None` when all is done.
    fn plan(&self) -> Option<Plan> {
        let now = self.clock().now();
        let mut plan = Plan::default();
        let mut table = self.table();
        table.wake_at = if table.last_due > now { table.last_due } else { Moment::FAR };
        let Table { holds, releases, wake_at, .. } = &mut *table;
        holds.retain(|_, entry| {
            if entry.signal().check(now).is_err() {
                // A release that is under way still needs the entry; and what the kernel keeps, nothing else ends.
                if entry.signal().keep_until() <= now && !entry.retired && !self.engine.assurance().leases {
                    releases.push(entry.claim.clone());
                }
                return entry.retired;
            }
            let keep_until = entry.signal().keep_until();
            if now >= keep_until {
                entry.signal().put_at_risk(keep_until + entry.claim.ttl);
            } else if !entry.renewing && !entry.retired {
                // What is due soon goes along, so that a client's holds fall into one batch.
                if entry.renew_at <= now + entry.claim.ttl / 6 && entry.renew_at != Moment::FAR {
                    plan.renew.push(entry.claim.clone());
                } else {
                    *wake_at = entry.renew_at.min(*wake_at);
                }
            }
            let keep_until = if now < keep_until { keep_until } else { Moment::FAR };
            *wake_at = entry.signal().deadline().min(keep_until).min(*wake_at);
            true
        });
        if plan.renew.iter().all(|claim| table.holds[&claim.owner].renew_at > now) {
            // Nothing is due yet: what would only have gone along waits for its own time.
            let due = plan.renew.drain(..).map(|claim| table.holds[&claim.owner].renew_at).min();
            table.wake_at = table.wake_at.min(due.unwrap_or(Moment::FAR));
        }
        for claim in &plan.renew {
            table.holds.get_mut(&claim.owner).expect("it was found above").renewing = true;
        }
        plan.release = mem::take(&mut table.releases);
        table.releasing += plan.release.len();
        (!table.ending || !table.idle()).then_some(plan)
    }

    /// The renewal: one round trip for the whole batch, bounded, and tried again while there is time.
    async fn renew(self: Arc<Self>, batch: Vec<Arc<Claim>>) {
        let sent = self.clock().now();
        let limit = batch.iter().map(|claim| self.renewal_timeout(claim)).min().unwrap_or_default();
        let answers = match self.clock().timeout_at(sent + limit, self.engine.renew(&batch)).await {
            Some(Ok(answers)) => {
                self.note_latency(self.clock().now().since(sent));
                answers.into_iter().map(Some).collect()
            }
            Some(Err(error)) => {
                tracing::warn!(engine = self.engine.assurance().engine, %error, "a renewal failed; trying again");
                vec![None; batch.len()]
            }
            None => {
                tracing::warn!(
                    engine = self.engine.assurance().engine,
                    ?limit,
                    "a renewal was not answered; trying again"
                );
                vec![None; batch.len()]
            }
        };
        let now = self.clock().now();
        let mut table = self.table();
        for (claim, answer) in batch.iter().zip(answers) {
            let Some(entry) = table.holds.get_mut(&claim.owner) else { continue };
            entry.renewing = false;
            match answer {
                Some(Renewal::Kept(deadline)) => {
                    entry.signal().extend(deadline);
                    entry.renew_at = self.next_renewal(claim, entry.signal().deadline(), now);
                }
                Some(Renewal::Gone(reason)) => entry.signal().lose(reason, now),
                Some(Renewal::Unanswered) | None => {
                    if entry.signal().deadline() != Moment::FAR {
                        entry.signal().put_at_risk(Moment::FAR);
                    }
                    entry.renew_at = now + (limit / 4).mul_f64(0.5 + fastrand::f64());
                }
            }
        }
        drop(table);
        self.settled.notify_waiters();
    }

    /// One release in the background.
    async fn release_now(self: Arc<Self>, claim: Arc<Claim>) {
        let released = self.try_release(&claim, self.clock().now(), Moment::FAR).await;
        let mut table = self.table();
        table.releasing -= 1;
        if let Err(error) = released
            && error.effect() != Effect::Done
        {
            tracing::warn!(%error, "a release in the background failed; a lease ends with its TTL, another hold with this process");
            if table.errors.len() < ERRORS_KEPT {
                table.errors.push(error);
            }
        }
        drop(table);
        self.settled.notify_waiters();
    }

    /// When a hold with this deadline is renewed, or looked at where there is no lease.
    fn next_renewal(&self, claim: &Claim, deadline: Moment, now: Moment) -> Moment {
        let assurance = self.engine.assurance();
        match assurance.leases {
            true => deadline::renew_at(deadline, claim.ttl, self.jitter),
            false => match assurance.loss_notice.of(claim.ttl) {
                // An engine that tells of a loss at once is not asked.
                Duration::ZERO => Moment::FAR,
                bound => now + bound / 1000 * (900 - (100.0 * self.jitter) as u32),
            },
        }
    }

    fn renewal_timeout(&self, claim: &Claim) -> Duration {
        match self.engine.assurance().leases {
            true => deadline::renewal_timeout(claim.ttl),
            false => self.engine.assurance().loss_notice.of(claim.ttl),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn signal(&self) -> &Signal {
        self.claim.notice.signal()
    }
}

impl Table {
    fn idle(&self) -> bool {
        self.releases.is_empty() && self.releasing == 0
    }
}

/// What a release came to where the hold was not known to be lost.
fn outcome(released: Released) -> Result<()> {
    match released {
        Released::Done => Ok(()),
        Released::WasNotHeld => Err(Error::new(ErrorKind::Lost, "the lock was found lost at its release")),
    }
}

/// Claims of about the same TTL together: the shortest of a batch says how long the answer to it may take.
fn by_ttl(claims: Vec<Arc<Claim>>) -> impl Iterator<Item = Vec<Arc<Claim>>> {
    let mut batches = BTreeMap::<u32, Vec<_>>::new();
    for claim in claims {
        batches.entry(claim.ttl.as_millis().max(1).ilog2()).or_default().push(claim);
    }
    batches.into_values()
}

/// Growing delays with jitter, up to `longest` and never above a second.
pub(crate) fn retry_delays(longest: Duration) -> impl Iterator<Item = Duration> {
    let longest = longest.clamp(Duration::from_millis(20), Duration::from_secs(1));
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times()
        .build()
}
