//! Holding a lock: the session family on flock.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kilit_core::{
    Assurance, BoxFuture, Claim, Clock, Engine, EngineUrl, Error, ErrorKind, Evicted, Finding, LockName,
    LockStatus, LossReason, Mode, Released, Renewal, Result, Target, TokenSource,
    family::{Gripped, Session, SessionEngine},
};

use crate::{
    attempt::{Attempt, Tried, Turn},
    config::Config,
    counter, doctor, evict,
    failure::failed,
    inspect,
    kernel::Here,
    layout::Layout,
    line::Place,
    lock_file::LockFile,
    record::{self, Card, MAX_LEN, OwnerText, State},
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
    pub(crate) here: Here,
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
            here: Here::find(),
            source: Mutex::default(),
        })
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
}

impl Hold {
    pub(crate) fn new(file: LockFile, card: &Card<'_>, seat: Option<Place>) -> Self {
        Self { file, owner: card.owner, seat, duplicated: AtomicBool::new(false), pid: card.pid }
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
        let attempt = Attempt::new(self, claim);
        let mut file = None;
        match attempt.run(Turn::Outside, &mut file).await? {
            Tried::Granted(gripped) => return Ok(Some(gripped)),
            Tried::Busy if patience.is_zero() => return wait::once_more(self, &attempt, file).await,
            _ if patience.is_zero() => return Ok(None),
            _ => {}
        }
        let deadline = self.clock.now() + patience;
        self.clock
            .timeout_at(deadline, Box::pin(wait::in_line(self, claim, &attempt, file)))
            .await
            .transpose()
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

    async fn let_go(&self, _: &Claim, hold: &Hold) -> Result<Released> {
        // In a forked child the lock is its parent's.
        if hold.pid != std::process::id() {
            return Ok(Released::WasNotHeld);
        }
        let standing = hold.file.is_current().unwrap_or(false);
        match &hold.seat {
            Some(seat) => seat.leave(),
            // Without the mark a successor takes us for vanished: at worst the lock-delay keeps it waiting.
            None => hold.file.mark(State::Released).unwrap_or_default(),
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
