//! From a claim to a hold: what every recipe does.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::futures::Notified;

use crate::{
    Answer, Claim, Client, Effect, Error, ErrorKind, FencingToken, Grant, LockName, Moment, OwnerId, Result,
    Retry, Share, Terms,
    guard::{Hold, LossNotice, keeper::retry_delays},
};

/// How long an engine that was never reached is tried, where the caller would wait longer.
const FIRST_CONTACT: Duration = Duration::from_secs(10);

/// How much later than the end of a wait its answer may come: an engine waits until that end itself.
const LATE_ANSWER: Duration = Duration::from_millis(250);

/// How long a caller that gives up waits until its withdrawal was answered; it goes on in the background after that.
const WITHDRAWAL: Duration = Duration::from_millis(250);

/// How long a caller is willing to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// One try.
    OneTry,
    /// Until this much time has passed.
    For(Duration),
    /// For ever.
    Forever,
}

/// Claims `name` on `terms`, which were checked. Cancel safe.
pub(crate) async fn acquire(
    client: &Client,
    name: &LockName,
    share: Share,
    terms: &Terms,
    patience: Patience,
) -> Result<(Hold, Option<FencingToken>)> {
    let claim = Arc::new(Claim {
        name: name.clone(),
        owner: OwnerId::random(),
        share,
        ttl: terms.ttl,
        lock_delay: terms.lock_delay,
        note: terms.note.clone(),
        notice: LossNotice::default(),
    });
    // A shutdown after this look is told to the hold.
    let at_once = if client.keeper().is_closed() { None } else { client.engine().claim_at_once(&claim) };
    let grant = match at_once {
        Some(grant) => grant,
        // Boxed: the smaller a future, the quicker one that does not get here.
        None => Box::pin(claim_patiently(client, &claim, patience)).await?,
    };
    Ok(Hold::new(client.clone(), claim, grant, terms.max_hold))
}

/// Cancel safe: the pending guard exists before the first await, and withdraws the claim when the future is dropped.
async fn claim_patiently(client: &Client, claim: &Arc<Claim>, patience: Patience) -> Result<Grant> {
    // First the ear, then the look: a shutdown in between is heard.
    let closing = client.keeper().closing();
    if client.keeper().is_closed() {
        return Err(shut_down());
    }
    let mut pending = Pending { client, claim, armed: true };
    match pending.claim(patience, closing).await {
        Ok(grant) => {
            pending.armed = false;
            Ok(grant)
        }
        Err(error) => {
            client.runtime().enter(pending.withdraw(&error)).await;
            Err(error.on_engine(client.assurance().engine).on_lock(&claim.name))
        }
    }
}

/// A claim that may be travelling.
struct Pending<'a> {
    client: &'a Client,
    claim: &'a Arc<Claim>,
    armed: bool,
}

impl Pending<'_> {
    /// Claims until it is granted, patience ends or the client is shut down.
    async fn claim(&self, patience: Patience, closing: Notified<'_>) -> Result<Grant> {
        // Pinned here, and not moved into every future on the way.
        let claimed = pin!(async {
            tokio::select! {
                biased;
                claimed = self.claim_within(patience) => claimed,
                () = closing => Err(shut_down()),
            }
        });
        self.client.runtime().enter(claimed).await
    }

    async fn claim_within(&self, patience: Patience) -> Result<Grant> {
        let clock = self.client.clock();
        let (begun, forever) = (clock.now(), matches!(patience, Patience::Forever));
        let until = match patience {
            Patience::OneTry => begun,
            Patience::For(time) => begun + time,
            Patience::Forever => Moment::FAR,
        };
        // However long the engine's own time-outs are.
        let silence = match patience {
            Patience::OneTry => begun + FIRST_CONTACT,
            _ => until + LATE_ANSWER,
        };
        let mut contacted = false;
        let mut delays = None;
        let mut now = begun;
        loop {
            let left = if forever { Duration::MAX } else { until.since(now) };
            let claim = self.client.engine().claim(self.claim, left);
            let Some(answer) = clock.timeout_at(silence, claim).await else { return Err(no_answer()) };
            let mut delay = || {
                let delays = delays.get_or_insert_with(|| retry_delays(Duration::from_millis(500)));
                delays.next().unwrap_or_default()
            };
            let (result, pause) = match answer {
                Ok(Answer::Granted(grant)) => return Ok(grant),
                Ok(Answer::Waiting { try_after, .. }) => {
                    contacted = true;
                    // An engine that gives way before patience has ended is not asked in a loop.
                    let pause = try_after.max(delay());
                    (busy_or_late(patience), pause)
                }
                // Outages are ridden out: the claim is idempotent by its owner.
                Err(error) if error.retry() != Retry::Never => (error, delay()),
                Err(error) => return Err(error),
            };
            let end = if contacted { until } else { until.min(begun + FIRST_CONTACT) };
            let next = clock.now() + pause;
            if next >= end {
                return Err(result);
            }
            clock.sleep_until(next).await;
            now = clock.now();
        }
    }

    /// Takes the claim back, whatever has become of it.
    async fn withdraw(&mut self, why: &Error) {
        let nothing_was_sent = why.kind() == ErrorKind::Invalid && why.effect() == Effect::None;
        let clock = self.client.clock();
        if nothing_was_sent {
            self.armed = false;
        } else if let Some(Ok(_)) =
            clock.timeout_at(clock.now() + WITHDRAWAL, self.client.engine().release(self.claim)).await
        {
            self.armed = false;
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.client.keeper().release_later(self.claim, None);
        }
    }
}

fn shut_down() -> Error {
    Error::new(ErrorKind::Closed, "this client was shut down; open another")
}

/// What was sent may have arrived, or may yet; the withdrawal takes it back.
fn no_answer() -> Error {
    Error::new(ErrorKind::Unreachable, "no answer within the wait; is the engine up?")
        .with_effect(Effect::Unknown)
}

fn busy_or_late(patience: Patience) -> Error {
    match patience {
        Patience::OneTry => Error::new(ErrorKind::Busy, "held by another; one try was made"),
        _ => Error::new(ErrorKind::TimedOut, "held by another until the wait was over"),
    }
}
