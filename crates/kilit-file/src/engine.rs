//! Holding a lock: the session family on flock.

use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kilit_core::{
    Assurance, BoxFuture, Claim, Clock, Engine, EngineUrl, Error, ErrorKind, Evicted, FencingToken, Finding,
    LockName, LockStatus, LossReason, Mode, Moment, Released, Renewal, Result, Target, TokenSource,
    TokenValue,
    family::{Gripped, Session, SessionEngine},
};

use crate::{
    config::Config,
    counter, doctor, evict,
    failure::{failed, incompatible},
    inspect, kernel,
    layout::Layout,
    line::{Line, Place},
    lock_file::LockFile,
    record::{self, Card, MAX_LEN, OwnerText, Parsed, Position, Record, State, owner_text},
    wait,
    watch::Watcher,
};

/// Opens the engine of a `file:` URL. Nothing is made before the first claim.
pub(crate) fn open(url: EngineUrl) -> BoxFuture<'static, Result<Arc<dyn Engine>>> {
    Box::pin(async move {
        let session = FileSession::open(Config::new(url)?)?;
        Ok(Arc::new(SessionEngine::new(session)) as Arc<dyn Engine>)
    })
}

/// The engine of one directory.
#[derive(Debug)]
pub(crate) struct FileSession {
    pub(crate) layout: Layout,
    pub(crate) config: Config,
    pub(crate) watcher: Watcher,
    assurance: Assurance,
    clock: Clock,
    boot: u128,
    pid_namespace: u64,
    source: Mutex<Option<(u128, TokenSource)>>,
}

/// What is kept open.
#[derive(Debug)]
pub(crate) struct Hold {
    file: LockFile,
    owner: OwnerText,
    seat: Option<Place>,
    duplicated: AtomicBool,
    pid: u32,
}

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

/// What came of a try.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and the fast path allocates nothing for it"
)]
pub(crate) enum Try {
    /// It is held.
    Granted(Gripped<Hold>),
    /// Another holds it.
    Busy,
    /// It is free, but somebody waits in front. With what a waiter behind compares at its next look.
    NotMyTurn(u32),
    /// Its last holder vanished, and its lock-delay lasts.
    Closed(Moment),
}

impl FileSession {
    pub(crate) fn open(config: Config) -> Result<Self> {
        let distrusted = doctor::distrusted(&config.dir)?;
        if let Some(name) = distrusted
            && !config.force
        {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{} lies on a {name} file system, where locks may not exclude other hosts: use a local \
                     directory, or `?force=true` to do so all the same",
                    config.dir.display().to_string().escape_debug()
                ),
            )
            .on_engine("file"));
        }
        let layout = Layout::new(config.dir.clone());
        counter::source(&layout.counter)?;
        Ok(Self {
            layout,
            assurance: config.assurance(distrusted.is_none()),
            config,
            watcher: Watcher::default(),
            clock: Clock::system(),
            boot: boot(),
            pid_namespace: kernel::pid_namespace().unwrap_or_default(),
            source: Mutex::default(),
        })
    }

    /// One try. `file` is the lock file, kept open from one try to the next: opening and closing it is an event to
    /// whoever watches it.
    pub(crate) async fn attempt(
        &self,
        claim: &Claim,
        turn: Turn,
        file: &mut Option<LockFile>,
    ) -> Result<Try> {
        let (path, line) = self.layout.paths(&claim.name);
        let line = Line::new(line);
        let mode = claim.share.mode();
        // Whether the lock is free at all shows in an exclusive lock only.
        let first_mode = if matches!(turn, Turn::Behind(_)) { Mode::Exclusive } else { mode };
        let Some(lock) = self.lock(&path, first_mode, file)? else {
            let lock = file.as_ref().expect("a busy lock file stays open");
            self.check_name(lock, claim)?;
            return Ok(Try::Busy);
        };
        let mut buffer = [0; MAX_LEN];
        let bytes = lock.read(&mut buffer).map_err(failed("read", &path))?;
        let record = self.known(bytes, claim, lock);
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                *file = None;
                return Err(error);
            }
        };
        let flagged = record::line_flag(bytes);
        if let Some(sight) = self.out_of_turn(turn, &record, flagged, lock, &line)? {
            lock.unlock().map_err(failed("unlock", &path))?;
            lock.ring();
            return Ok(Try::NotMyTurn(sight));
        }
        if first_mode != mode && !lock.try_lock(mode).map_err(failed("lock", &path))? {
            return Ok(Try::Busy);
        }
        if let Some(until) = self.closed(&record, flagged, mode, lock, &line)? {
            lock.unlock().map_err(failed("unlock", &path))?;
            return Ok(Try::Closed(until));
        }
        let card = Card::new(claim, self.config.check, self.pid_namespace);
        let (token, seat) = match mode {
            Mode::Exclusive => (Some(self.stamp(claim, &card, record, lock).await?), None),
            _ => (None, Some(self.sit(claim, &card, record, lock, &line)?)),
        };
        let file = file.take().expect("a granted lock file is open");
        let hold = Hold { file, owner: card.owner, seat, duplicated: AtomicBool::new(false), pid: card.pid };
        Ok(Try::Granted(Gripped { hold, token, deadline: None, ended: None }))
    }

    /// Locks the file that the path leads to, when it is free.
    fn lock<'f>(
        &self,
        path: &Path,
        mode: Mode,
        file: &'f mut Option<LockFile>,
    ) -> Result<Option<&'f LockFile>> {
        // Somebody may replace it while it is being locked; nobody does that for ever.
        for _ in 0..100 {
            let lock = match file.take() {
                Some(lock) => lock,
                None => self.open_file(path)?,
            };
            let free = lock.try_lock(mode).map_err(failed("lock", path))?;
            if lock.is_current().map_err(failed("look at", path))? {
                let lock = file.insert(lock);
                return Ok(free.then_some(&*lock));
            }
        }
        Err(incompatible(format!("{} is replaced again and again; lock files must stay", path.display())))
    }

    pub(crate) fn open_file(&self, path: &Path) -> Result<LockFile> {
        match LockFile::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_layout()?;
                LockFile::open(path)
            }
            opened => opened,
        }
        .map_err(failed("open", path))
    }

    pub(crate) fn make_layout(&self) -> Result<()> {
        self.layout.make().map_err(failed("make", &self.layout.dir))
    }

    /// The record of a lock that was just taken, if there is one of this very name and version.
    fn known<'b>(&self, bytes: &'b [u8], claim: &Claim, lock: &LockFile) -> Result<Option<Record<'b>>> {
        match record::parse(bytes) {
            Parsed::Nothing => Ok(None),
            Parsed::Newer => Err(incompatible(format!(
                "{} was written by a later version of kilit; use that one",
                lock.path().display()
            ))
            .on_lock(&claim.name)),
            Parsed::Record(record) if record.name == claim.name.as_bytes() => Ok(Some(record)),
            Parsed::Record(record) => Err(incompatible(format!(
                "{} is the file of another lock, {}: does the file system fold case? Use another directory",
                lock.path().display(),
                LockName::new(record.name).map_or_else(|_| "without a name".into(), |name| name.to_string()),
            ))
            .on_lock(&claim.name)),
        }
    }

    fn check_name(&self, lock: &LockFile, claim: &Claim) -> Result<()> {
        let mut buffer = [0; MAX_LEN];
        let bytes = lock.read(&mut buffer).map_err(failed("read", lock.path()))?;
        self.known(bytes, claim, lock).map(|_| ())
    }

    /// Whether the lock must be left to somebody in front; then what it looks like.
    ///
    /// A waiter behind another takes a lock that it saw free twice: the one in front is stopped.
    fn out_of_turn(
        &self,
        turn: Turn,
        record: &Option<Record<'_>>,
        flagged: bool,
        lock: &LockFile,
        line: &Line,
    ) -> Result<Option<u32>> {
        let sight = record.map_or(0, |record| record.crc);
        match turn {
            Turn::Head => Ok(None),
            Turn::Behind(before) => Ok((before != Some(sight)).then_some(sight)),
            Turn::Outside if !flagged => Ok(None),
            Turn::Outside => {
                let see = |path| failed("look at", path);
                if line.has_waiters().map_err(see(lock.path()))? {
                    return Ok(Some(sight));
                }
                if line.entries().map_err(see(lock.path()))?.seats.is_empty() {
                    // Whoever joins first makes a place and then sets the flag, so one of us sees the other.
                    lock.flag_line(false).map_err(failed("write", lock.path()))?;
                    if line.has_waiters().map_err(see(lock.path()))? {
                        lock.flag_line(true).map_err(failed("write", lock.path()))?;
                    }
                }
                Ok(None)
            }
        }
    }

    /// Until when nothing may be granted, since a holder with a lock-delay vanished. When that is seen first is
    /// written down, so that giving up does not start it anew.
    fn closed(
        &self,
        record: &Option<Record<'_>>,
        flagged: bool,
        mode: Mode,
        lock: &LockFile,
        line: &Line,
    ) -> Result<Option<Moment>> {
        let now = self.clock.now();
        let Some(record) = record.filter(|record| record.origin.boot == self.boot) else { return Ok(None) };
        let mut until = record.closed_until;
        if until > now + kilit_core::MAX_LOCK_DELAY {
            until = now; // Nothing that kilit has written.
        }
        let seen = until;
        let write = |error| failed("write", lock.path())(error);
        if record.state == State::Held && !record.card.lock_delay.is_zero() {
            until = until.max(now + record.card.lock_delay);
        }
        // Readers and a reader that vanished do not disturb each other.
        let seats = if flagged && mode == Mode::Exclusive {
            line.entries().map_err(failed("look at", lock.path()))?.seats
        } else {
            vec![]
        };
        for seat in &seats {
            let delay = line.read(seat, |record| record.card.lock_delay);
            let delay = delay.map_err(failed("read", seat))?.unwrap_or_default();
            if !line.look_at(seat, true).map_err(failed("look at", seat))? && !delay.is_zero() {
                until = until.max(now + delay);
            }
        }
        if until > seen {
            lock.close_until(until).map_err(write)?;
            lock.mark(State::Vanished).map_err(write)?;
        }
        for seat in &seats {
            line.look_at(seat, false).map_err(failed("remove", seat))?;
        }
        Ok((until > now).then_some(until))
    }

    /// Draws the token of an exclusive hold and writes who holds.
    async fn stamp(
        &self,
        claim: &Claim,
        card: &Card<'_>,
        record: Option<Record<'_>>,
        lock: &LockFile,
    ) -> Result<FencingToken> {
        let last = record.map(|record| record.position).unwrap_or_default();
        let trusted = record.is_some_and(|record| record.origin == lock.origin(self.boot));
        let position = match last.next().filter(|_| trusted) {
            Some(next) => next,
            None => self.draw(last).await?,
        };
        lock.write(self.boot, position, card, State::Held, &claim.name)
            .map_err(failed("write", lock.path()))?;
        Ok(FencingToken::new(self.source(position.source)?, TokenValue::new(position.token)?))
    }

    async fn draw(&self, last: Position) -> Result<Position> {
        let path = self.layout.counter.clone();
        let drawn = tokio::task::spawn_blocking(move || counter::draw(&path, last)).await;
        drawn.unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client is being shut down")))
    }

    pub(crate) fn boot(&self) -> u128 {
        self.boot
    }

    pub(crate) fn pid_namespace(&self) -> u64 {
        self.pid_namespace
    }

    /// The token source of an id.
    pub(crate) fn source(&self, id: u128) -> Result<TokenSource> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        match &*source {
            Some((known, source)) if *known == id => Ok(source.clone()),
            _ => {
                let new = TokenSource::new(format!("file:{id:032x}"))?;
                *source = Some((id, new.clone()));
                Ok(new)
            }
        }
    }

    /// Takes a seat, so that others see who shares the lock.
    fn sit(
        &self,
        claim: &Claim,
        card: &Card<'_>,
        record: Option<Record<'_>>,
        lock: &LockFile,
        line: &Line,
    ) -> Result<Place> {
        let write = |error| failed("write", lock.path())(error);
        if record.is_none_or(|record| record.origin.boot != self.boot) {
            // Several may do so at once: they write the same bytes.
            lock.write(self.boot, Position::default(), &Card::nobody(), State::None, &claim.name)
                .map_err(write)?;
        }
        if !card.lock_delay.is_zero() {
            lock.flag_line(true).map_err(write)?;
        }
        self.in_line(|| line.sit(&claim.name, card), line)
    }

    /// A step in the line's directory; what is missing above it is made.
    pub(crate) fn in_line<T>(&self, step: impl Fn() -> io::Result<T>, line: &Line) -> Result<T> {
        match step() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_layout()?;
                step()
            }
            done => done,
        }
        .map_err(failed("stand in", line.dir()))
    }
}

impl Session for FileSession {
    type Hold = Hold;

    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn grip(&self, claim: &Claim, patience: Duration) -> Result<Option<Gripped<Hold>>> {
        if claim.share.mode() == Mode::Permit {
            return Err(Error::new(ErrorKind::Unsupported, "permits are not to be had on this engine")
                .on_engine("file"));
        }
        let mut file = None;
        match self.attempt(claim, Turn::Outside, &mut file).await? {
            Try::Granted(gripped) => return Ok(Some(gripped)),
            Try::Busy if patience.is_zero() => return wait::once_more(self, claim, file).await,
            _ if patience.is_zero() => return Ok(None),
            _ => {}
        }
        let deadline = self.clock.now() + patience;
        self.clock.timeout_at(deadline, Box::pin(wait::in_line(self, claim, file))).await.transpose()
    }

    async fn alive(&self, _: &Claim, hold: &Hold) -> Result<Renewal> {
        let path = hold.file.path();
        if !hold.file.is_current().map_err(failed("look at", path))? {
            return Ok(Renewal::Gone(LossReason::Replaced));
        }
        let card = hold.seat.as_ref().map_or(&hold.file, |seat| seat.file());
        let mut buffer = [0; MAX_LEN];
        let bytes = card.read(&mut buffer).map_err(failed("read", path))?;
        if record::broken_owner(bytes) == Some(&hold.owner) {
            return Ok(Renewal::Gone(LossReason::Broken));
        }
        Ok(Renewal::Kept(None))
    }

    async fn let_go(&self, claim: &Claim, hold: &Hold) -> Result<Released> {
        debug_assert_eq!(hold.owner, owner_text(claim.owner));
        // In a forked child the lock is its parent's.
        if hold.pid != std::process::id() {
            return Ok(Released::WasNotHeld);
        }
        let standing = hold.file.is_current().unwrap_or(false);
        if hold.seat.is_none() {
            // Without the mark a successor takes us for vanished: at worst the lock-delay keeps it waiting.
            let _ = hold.file.mark(State::Released);
        } else if let Some(seat) = &hold.seat {
            seat.leave();
        }
        hold.file.unlock().map_err(failed("unlock", hold.file.path()))?;
        if hold.duplicated.load(Ordering::Relaxed) {
            hold.file.ring();
        }
        Ok(if standing { Released::Done } else { Released::WasNotHeld })
    }

    fn duplicate(&self, hold: &Hold) -> io::Result<Option<OwnedFd>> {
        hold.duplicated.store(true, Ordering::Relaxed);
        hold.file.duplicate().map(Some)
    }

    async fn inspect(&self, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
        inspect::inspect(self, name)
    }

    async fn evict(&self, name: &LockName, target: Target, force: bool) -> Result<Evicted> {
        evict::evict(self, name, target, force).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        doctor::diagnose(self).await
    }
}

/// The kernel's boot id. Where it is not to be had, one of this engine's own: then no position of another process is
/// trusted, and each grant draws a block.
fn boot() -> u128 {
    let id = kilit_core::sys::boot_id().and_then(|id| u128::from_str_radix(&id.replace('-', ""), 16).ok());
    id.unwrap_or_else(|| u128::from_str_radix(&kilit_core::OwnerId::random().to_string(), 16).unwrap_or(1))
}
