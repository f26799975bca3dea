//! One try to take a lock.

use std::{
    mem::MaybeUninit,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use kilit_core::{
    Claim, FencingToken, LockName, MAX_LOCK_DELAY, Mode, Moment, Result, TokenValue,
    family::{Gripped, Session},
};

use crate::{
    aside::aside,
    counter,
    engine::{FileSession, Hold},
    failure::{failed, incompatible},
    line::{Line, Place},
    lock_file::LockFile,
    record::{self, Card, FLAGGED_LEN, Parsed, Position, Record, State},
};

/// Who tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Somebody who stands in no line.
    Outside,
    /// The first of the line.
    Head,
    /// Another of the line, who saw the lock like this a moment ago: free, and with this record in it.
    Behind(Option<u32>),
}

/// What came of it.
pub(crate) enum Tried {
    /// It is held.
    Granted(Gripped<Hold>),
    /// Another holds it.
    Busy,
    /// It is free, but somebody waits in front. With what a waiter behind compares at its next look.
    NotMyTurn(u32),
    /// Its last holder vanished, and its lock-delay lasts.
    Closed(Moment),
}

/// What is known before a token is drawn.
enum Taken {
    Not(Tried),
    Shared,
    /// With the token that follows in the file's own block.
    Exclusive(Position),
    /// Exclusively, and a block must be drawn after this position.
    Blockless(Position),
}

/// A claim on its file.
pub(crate) struct Attempt<'a> {
    session: &'a FileSession,
    claim: &'a Claim,
    mode: Mode,
    /// Not needed while the file is open.
    path: OnceLock<PathBuf>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(session: &'a FileSession, claim: &'a Claim) -> Self {
        Self { session, claim, mode: claim.share.mode(), path: OnceLock::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.get_or_init(|| self.session.layout.lock(&self.claim.name))
    }

    pub(crate) fn line(&self) -> Line {
        self.session.layout.line(&self.claim.name)
    }

    /// Tries once. `file` is the lock file, kept open from one try to the next: opening and closing it is an event to
    /// whoever watches it.
    pub(crate) async fn run(&self, turn: Turn, file: &mut Option<Arc<LockFile>>) -> Result<Tried> {
        let outcome = self.take(turn, file);
        if outcome.is_err() {
            *file = None;
        }
        let position = match outcome? {
            Taken::Not(tried) => return Ok(tried),
            Taken::Shared => None,
            Taken::Exclusive(position) => Some(position),
            // Boxed: it seldom happens, and a smaller future is a quicker one.
            Taken::Blockless(last) => Some(Box::pin(self.draw(last)).await?),
        };
        let lock = file.take().expect("a lock file that was taken is open");
        self.grip(position, lock).map(Tried::Granted)
    }

    /// As [`run`](Self::run) from outside, for an exclusive hold whose token is in the file's own block. `file` is
    /// left where it can be tried again, and is not locked then.
    pub(crate) fn run_at_once(&self, file: &mut Option<Arc<LockFile>>) -> Option<Gripped<Hold>> {
        let taken = self.take(Turn::Outside, file);
        let lock = file.take()?;
        match taken {
            Ok(Taken::Exclusive(position)) => self.grip(Some(position), lock).ok(),
            Ok(Taken::Not(_)) => {
                *file = Some(lock);
                None
            }
            _ => {
                // As closing it does, when a look at its last hold is over.
                let _ = lock.unlock();
                None
            }
        }
    }

    /// Writes down who has what was taken.
    fn grip(&self, position: Option<Position>, lock: Arc<LockFile>) -> Result<Gripped<Hold>> {
        let card = Card::new(self.claim, self.session.config.check, self.session.here);
        let (token, seat) = match position {
            Some(position) => (Some(self.stamp(&card, position, &lock)?), None),
            None => (None, Some(self.sit(&card, &lock)?)),
        };
        Ok(Gripped { hold: Hold::new(lock, seat), token, deadline: None })
    }

    /// All of it but the token and the writing down: without a wait, so that the bytes that were read stay on the
    /// stack.
    fn take(&self, turn: Turn, file: &mut Option<Arc<LockFile>>) -> Result<Taken> {
        // Whether the lock is free at all shows in an exclusive lock only.
        let first_mode = if matches!(turn, Turn::Behind(_)) { Mode::Exclusive } else { self.mode };
        let (lock, free) = self.lock(first_mode, file)?;
        let mut buffer = [MaybeUninit::uninit(); FLAGGED_LEN];
        let bytes = lock.read(&mut buffer).map_err(failed("read", lock.path()))?;
        let (parsed, flagged) = (record::parse(bytes), record::is_flagged(bytes));
        let record = self.known(&parsed)?;
        if !free {
            return Ok(Taken::Not(Tried::Busy));
        }
        if let Some(sight) = self.out_of_turn(turn, record, flagged, lock)? {
            lock.unlock().map_err(failed("unlock", lock.path()))?;
            lock.ring();
            return Ok(Taken::Not(Tried::NotMyTurn(sight)));
        }
        if first_mode != self.mode && !lock.try_lock(self.mode).map_err(failed("lock", lock.path()))? {
            return Ok(Taken::Not(Tried::Busy));
        }
        if let Some(until) = self.closed_until(record, flagged, lock)? {
            lock.unlock().map_err(failed("unlock", lock.path()))?;
            return Ok(Taken::Not(Tried::Closed(until)));
        }
        let boot = self.session.here.boot;
        if self.mode == Mode::Exclusive {
            let last = record.map(|record| record.position).unwrap_or_default();
            let trusted = record.is_some_and(|record| record.origin == lock.origin(boot));
            let next = last.next().filter(|_| trusted);
            return Ok(next.map_or(Taken::Blockless(last), Taken::Exclusive));
        }
        if record.is_none_or(|record| record.origin.boot != boot) {
            // For the name. Several may do so at once: they write the same bytes.
            lock.write(boot, Position::default(), &Card::nobody(), State::None, &self.claim.name)
                .map_err(failed("write", lock.path()))?;
        }
        Ok(Taken::Shared)
    }

    /// Locks the file that the path leads to; whether it was free.
    fn lock<'f>(&self, mode: Mode, file: &'f mut Option<Arc<LockFile>>) -> Result<(&'f LockFile, bool)> {
        // Somebody may replace it while it is being locked; nobody does that for ever.
        for _ in 0..100 {
            let lock = match file.take() {
                Some(lock) => lock,
                None => self.open()?,
            };
            let free = lock.try_lock(mode).map_err(failed("lock", lock.path()))?;
            if lock.is_current().map_err(failed("look at", lock.path()))? {
                return Ok((file.insert(lock), free));
            }
        }
        Err(incompatible(format!(
            "{} is replaced again and again; lock files must stay",
            self.path().display()
        )))
    }

    pub(crate) fn open(&self) -> Result<Arc<LockFile>> {
        let layout = &self.session.layout;
        let path = self.path();
        layout.with_dirs(|| LockFile::open(path).map(Arc::new)).map_err(failed("open", path))
    }

    /// The record that was read, if there is one, of this very name and version.
    fn known<'p, 'b>(&self, parsed: &'p Parsed<'b>) -> Result<Option<&'p Record<'b>>> {
        match parsed {
            Parsed::Nothing => Ok(None),
            Parsed::Newer => Err(incompatible(format!(
                "{} was written by a later version of kilit; use that one",
                self.path().display()
            ))),
            Parsed::Record(record) if record.name == self.claim.name.as_bytes() => Ok(Some(record)),
            Parsed::Record(record) => Err(incompatible(format!(
                "{} is the file of another lock, {}: does the file system fold case? Use another directory",
                self.path().display(),
                LockName::new(record.name).map_or_else(|_| "without a name".into(), |name| name.to_string()),
            ))),
        }
    }

    /// Whether the lock must be left to somebody in front; then what it looks like.
    ///
    /// A waiter behind another takes a lock that it saw free twice: the one in front is stopped.
    fn out_of_turn(
        &self,
        turn: Turn,
        record: Option<&Record<'_>>,
        flagged: bool,
        lock: &LockFile,
    ) -> Result<Option<u32>> {
        let sight = record.map_or(0, |record| record.crc);
        match turn {
            Turn::Head => Ok(None),
            Turn::Behind(before) => Ok((before != Some(sight)).then_some(sight)),
            Turn::Outside if !flagged => Ok(None),
            Turn::Outside => {
                let line = self.line();
                let waiting = line.has_waiters().map_err(failed("look at", line.dir()))?;
                if !waiting {
                    line.lower_flag(lock).map_err(failed("look at", line.dir()))?;
                }
                Ok(waiting.then_some(sight))
            }
        }
    }

    /// Until when nothing may be granted, since a holder with a lock-delay vanished. When that was seen first is
    /// written down, so that giving up does not start it anew.
    fn closed_until(
        &self,
        record: Option<&Record<'_>>,
        flagged: bool,
        lock: &LockFile,
    ) -> Result<Option<Moment>> {
        // The boot-time clock began anew, and whatever the holder did has ended with its machine.
        let Some(record) = record.filter(|record| record.origin.boot == self.session.here.boot) else {
            return Ok(None);
        };
        let mut delay = match record.state {
            State::Held => record.card.lock_delay,
            _ => Duration::ZERO,
        };
        if delay.is_zero() && record.closed_until == Moment::from_nanos(0) && !flagged {
            return Ok(None);
        }
        let now = self.session.clock().now();
        let noted = match record.closed_until {
            until if until > now + MAX_LOCK_DELAY => now, // Nothing that kilit has written.
            until => until,
        };
        let mut dead_seats = vec![];
        // A reader that vanished does not disturb others.
        if flagged && self.mode == Mode::Exclusive {
            let line = self.line();
            dead_seats = line.dead_seats().map_err(failed("look at", line.dir()))?;
            delay = dead_seats.iter().map(|seat| seat.lock_delay).fold(delay, Duration::max);
        }
        let until = if delay.is_zero() { noted } else { noted.max(now + delay) };
        if !delay.is_zero() {
            lock.close_until(until).map_err(failed("write", lock.path()))?;
            lock.mark(State::Vanished).map_err(failed("write", lock.path()))?;
        }
        for seat in dead_seats {
            seat.remove().map_err(failed("remove a seat of", lock.path()))?;
        }
        Ok((until > now).then_some(until))
    }

    async fn draw(&self, last: Position) -> Result<Position> {
        let path = self.session.layout.counter.clone();
        aside("draw a block of tokens", move || counter::draw(&path, last)).await?
    }

    /// Writes down who holds it exclusively, and under which token.
    fn stamp(&self, card: &Card<'_>, position: Position, lock: &LockFile) -> Result<FencingToken> {
        lock.write(self.session.here.boot, position, card, State::Held, &self.claim.name)
            .map_err(failed("write", lock.path()))?;
        Ok(FencingToken::new(self.session.source(position.source)?, TokenValue::new(position.token)?))
    }

    /// Takes a seat, so that others see who shares it.
    fn sit(&self, card: &Card<'_>, lock: &LockFile) -> Result<Place> {
        if !card.lock_delay.is_zero() {
            lock.raise_flag().map_err(failed("write", lock.path()))?;
        }
        let (line, layout) = (self.line(), &self.session.layout);
        layout.with_dirs(|| line.sit(&self.claim.name, card)).map_err(failed("sit in", line.dir()))
    }
}
