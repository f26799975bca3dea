//! Waiting: in a line, woken by the kernel, and never in a blocked thread.

use std::{sync::Arc, time::Duration};

use kilit_core::{
    Claim, Moment, Result,
    family::{Gripped, Session},
};

use crate::{
    attempt::{Attempt, Tried, Turn},
    config::LOOK,
    engine::{FileSession, Hold},
    failure::failed,
    line::{Line, Place},
    lock_file::LockFile,
    record::Card,
    sys::{kernel, watch::Watch},
};

/// After this long a waiter believes that the one in front, who was woken and leaves a free lock alone, is stopped.
const DOUBT: Duration = Duration::from_millis(80);

/// For one who does not wait: whether it was only `inspect` that had the lock for a moment. It can have it no second time
/// meanwhile.
pub(crate) async fn once_more(
    session: &FileSession,
    attempt: &Attempt<'_>,
    mut file: Option<Arc<LockFile>>,
) -> Result<Option<Gripped<Hold>>> {
    let mut without_probes = None;
    for _ in 0..50 {
        match kernel::without_probes(&session.layout.locks) {
            Err(_) => return Ok(None),
            Ok(None) => tokio::time::sleep(Duration::from_millis(1)).await,
            guard => {
                without_probes = guard.ok();
                break;
            }
        }
    }
    let tried = attempt.run(Turn::Outside, &mut file).await?;
    drop(without_probes);
    match tried {
        Tried::Granted(gripped) => Ok(Some(gripped)),
        _ => Ok(None),
    }
}

/// Waits in line until it is granted. Dropping it leaves the line.
pub(crate) async fn in_line(
    session: &FileSession,
    claim: &Claim,
    attempt: &Attempt<'_>,
    mut file: Option<Arc<LockFile>>,
) -> Result<Gripped<Hold>> {
    let line = attempt.line();
    let mut place = join(session, claim, &line)?;
    let (mut ahead, mut free): (Option<Ahead>, Option<Free>) = (None, None);
    loop {
        let now = session.clock().now();
        if !place.is_current().map_err(failed("look at", line.dir()))? {
            place = join(session, claim, &line)?;
            ahead = None;
        }
        // A new place, or a new lock file: who comes now must see the line.
        let lock = match file.take() {
            Some(lock) => file.insert(lock),
            None => file.insert(attempt.open()?),
        };
        lock.raise_flag().map_err(failed("write", attempt.path()))?;
        // The watch first, then the try: what happens in between is not missed.
        ahead = match ahead.take() {
            Some(ahead) if ahead.is_there(&line)? => Some(ahead),
            _ => watch_ahead(session, &line, &place)?,
        };
        let lock_watch = if ahead.is_none() { session.watcher.lock(attempt.path()) } else { None };
        let (watch, turn) = match &ahead {
            Some(ahead) => (ahead.watch.as_ref(), Turn::Behind(left_alone(free, ahead.count, now))),
            None => (lock_watch.as_ref(), Turn::Head),
        };
        let mut look = LOOK - DOUBT - Duration::from_millis(fastrand::u64(0..100));
        match attempt.run(turn, &mut file).await? {
            Tried::Granted(gripped) => return Ok(gripped),
            Tried::Busy => free = None,
            Tried::NotMyTurn(sight) => {
                let since = free.filter(|free| free.sight == sight).map_or(now, |free| free.since);
                (free, look) = (Some(Free { sight, since }), DOUBT);
            }
            Tried::Closed(until) => look = look.min(until.since(now)),
        }
        let woken = session.clock().timeout_at(session.clock().now() + look, fired(watch)).await;
        // The watch has fired, or it matters how many are in front.
        if woken.is_some() || free.is_some() {
            ahead = None;
        }
        tracing::trace!(name = %claim.name, place = place.number(), by_event = woken.is_some(), "waiter woken");
    }
}

/// A lock that was seen free, though somebody waits in front.
#[derive(Clone, Copy)]
struct Free {
    sight: u32,
    since: Moment,
}

/// How long a lock must be left alone before a waiter with `count` in front takes it: they have all had the time to
/// look, one after the other.
fn doubt(count: u32) -> Duration {
    DOUBT + LOOK * count.saturating_sub(1)
}

fn left_alone(free: Option<Free>, count: u32, now: Moment) -> Option<u32> {
    free.filter(|free| now.since(free.since) >= doubt(count)).map(|free| free.sight)
}

fn join(session: &FileSession, claim: &Claim, line: &Line) -> Result<Place> {
    let card = Card::new(claim, session.config.check, session.here);
    session.layout.with_dirs(|| line.join(&claim.name, &card)).map_err(failed("stand in", line.dir()))
}

/// Who is in front.
struct Ahead {
    number: u64,
    /// The watch on the one directly before me.
    watch: Option<Watch>,
    /// How many they are at most.
    count: u32,
}

impl Ahead {
    /// Whether it still lives.
    fn is_there(&self, line: &Line) -> Result<bool> {
        line.look_at(&line.place_path(self.number), false).map_err(failed("look at", line.dir()))
    }
}

/// Watches the live place before mine; `None` when there is none, and I am the head.
fn watch_ahead(session: &FileSession, line: &Line, place: &Place) -> Result<Option<Ahead>> {
    let see = |error| failed("look at", line.dir())(error);
    let mut waiting = line.entries().map_err(see)?.waiting;
    waiting.retain(|number| *number < place.number());
    while let Some(number) = waiting.pop() {
        let path = line.place_path(number);
        let watch = session.watcher.place(&path);
        if line.look_at(&path, false).map_err(see)? {
            return Ok(Some(Ahead { number, watch, count: waiting.len() as u32 + 1 }));
        }
    }
    Ok(None)
}

async fn fired(watch: Option<&Watch>) {
    match watch {
        Some(watch) => watch.fired().await,
        None => std::future::pending().await,
    }
}
