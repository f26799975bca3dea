//! Waiting: in a line, woken by the kernel, and never in a blocked thread.

use std::time::Duration;

use kilit_core::{
    Claim, Result,
    family::{Gripped, Session},
};

use crate::{
    config::LOOK,
    engine::{FileSession, Hold, Try, Turn},
    failure::failed,
    kernel,
    line::{Line, Place},
    lock_file::LockFile,
    record::Card,
    watch::Watch,
};

/// After this long a waiter believes that the one in front, who leaves a free lock alone, is stopped.
const DOUBT: Duration = Duration::from_millis(80);

/// For one who does not wait: whether it was only `inspect` that had the lock for a moment.
pub(crate) async fn once_more(
    session: &FileSession,
    claim: &Claim,
    mut file: Option<LockFile>,
) -> Result<Option<Gripped<Hold>>> {
    for _ in 0..50 {
        match kernel::is_being_probed(&session.layout.locks) {
            None => return Ok(None),
            Some(true) => tokio::time::sleep(Duration::from_millis(1)).await,
            Some(false) => break,
        }
    }
    match session.attempt(claim, Turn::Outside, &mut file).await? {
        Try::Granted(gripped) => Ok(Some(gripped)),
        _ => Ok(None),
    }
}

/// Waits in line until it is granted. Dropping it leaves the line.
pub(crate) async fn in_line(
    session: &FileSession,
    claim: &Claim,
    mut file: Option<LockFile>,
) -> Result<Gripped<Hold>> {
    let (path, line) = session.layout.paths(&claim.name);
    let line = Line::new(line);
    let mut place = join(session, claim, &line)?;
    let mut free = None;
    loop {
        if !place.is_current().map_err(failed("look at", line.dir()))? {
            place = join(session, claim, &line)?;
        }
        // A new place, or a new lock file: who comes now must see the line.
        let lock = match file.take() {
            Some(lock) => file.insert(lock),
            None => file.insert(session.open_file(&path)?),
        };
        lock.flag_line(true).map_err(failed("write", &path))?;
        // The watch first, then the try: what happens in between is not missed.
        let ahead = watch_ahead(session, &line, &place)?;
        let (watch, turn) = match ahead {
            Some(watch) => (watch, Turn::Behind(free)),
            None => (session.watcher.lock(&path), Turn::Head),
        };
        let mut look = LOOK - DOUBT - Duration::from_millis(fastrand::u64(0..100));
        free = None;
        match session.attempt(claim, turn, &mut file).await? {
            Try::Granted(gripped) => return Ok(gripped),
            Try::Busy => {}
            Try::NotMyTurn(sight) => {
                free = Some(sight);
                look = DOUBT;
            }
            Try::Closed(until) => look = look.min(until.since(session.clock().now())),
        }
        let woken = session.clock().timeout_at(session.clock().now() + look, fired(watch.as_ref())).await;
        tracing::trace!(name = %claim.name, place = place.number(), by_event = woken.is_some(), "waiter woken");
        if woken.is_some() {
            free = None;
        }
    }
}

fn join(session: &FileSession, claim: &Claim, line: &Line) -> Result<Place> {
    let card = Card::new(claim, session.config.check, session.pid_namespace());
    session.in_line(|| line.join(&claim.name, &card), line)
}

/// Watches the live place before mine; `None` when there is none, and I am the head.
fn watch_ahead(session: &FileSession, line: &Line, place: &Place) -> Result<Option<Option<Watch>>> {
    let see = |error| failed("look at", line.dir())(error);
    let waiting = line.entries().map_err(see)?.waiting;
    for number in waiting.into_iter().rev().filter(|number| *number < place.number()) {
        let path = line.place_path(number);
        let watch = session.watcher.place(&path);
        if line.look_at(&path, false).map_err(see)? {
            return Ok(Some(watch));
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
