//! Holding a lock: the session family on flock.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kilit_core::{
    Assurance, BoxFuture, Claim, Clock, Engine, EngineUrl, Error, ErrorKind, Evicted, Finding, LockName,
    LockStatus, LossReason, Mode, Released, Renewal, Result, Retry, Target, TokenSource,
    family::{Gripped, Session, SessionEngine},
    sys::process_id,
};

use crate::{
    attempt::{Attempt, Tried, Turn},
    config::Config,
    counter, doctor, evict,
    failure::failed,
    idle::Idle,
    inspect,
    layout::Layout,
    line::Place,
    lock_file::{LockFile, Look},
    record::{self, FLAGGED_LEN, State},
    sys::{kernel::Here, watch::Watcher},
    wait,
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
    idle: Idle,
    assurance: Assurance,
    clock: Clock,
    pub(crate) here: Here,
    source: OnceLock<(u128, TokenSource)>,
}

/// What is kept open.
#[derive(Debug)]
pub(crate) struct Hold {
    file: Arc<LockFile>,
    /// Boxed: only a shared hold has one.
    seat: Option<Box<Place>>,
    duplicated: AtomicBool,
    pid: u32,
}

impl FileSession {
    pub(crate) fn open(config: Config) -> Result<Self> {
        let distrusted = doctor::distrusted(&config.dir)?;
        Self::on(distrusted, config)
    }

    /// `distrusted` is the name of the file system, where its locks cannot be trusted between hosts.
    fn on(distrusted: Option<&'static str>, config: Config) -> Result<Self> {
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
            idle: Idle::new(),
            clock: Clock::system(),
            here: Here::find(),
            source: OnceLock::new(),
        })
    }

    /// The token source of an id.
    pub(crate) fn source(&self, id: u128) -> Result<TokenSource> {
        match self.source.get() {
            Some((known, source)) if *known == id => Ok(source.clone()),
            _ => {
                let new = TokenSource::new(format!("file:{id:032x}"))?;
                // Of the first one only: another follows when the counter is lost.
                let _ = self.source.set((id, new.clone()));
                Ok(new)
            }
        }
    }

    fn let_go_of(&self, claim: &Claim, hold: &Hold) -> Result<Released> {
        // In a forked child the lock is its parent's.
        let process = process_id();
        if hold.pid != process {
            return Ok(Released::WasNotHeld);
        }
        let file = &hold.file;
        match &hold.seat {
            Some(seat) => seat.leave(),
            // Without the mark a successor takes us for vanished: at worst the lock-delay keeps it waiting.
            None if !claim.lock_delay.is_zero() => file.mark(State::Released).unwrap_or_default(),
            None => {}
        }
        file.unlock().map_err(failed("unlock", file.path()))?;
        let duplicated = hold.duplicated.load(Ordering::Relaxed);
        // A waiter raises the flag before it tries: either it has found the lock free, or we see the flag.
        let Look { linked, flagged } = file.look().unwrap_or(Look { linked: false, flagged: true });
        if duplicated || flagged {
            file.ring();
        }
        if linked && !duplicated {
            self.idle.keep(&claim.name, file.clone(), process);
        }
        Ok(if linked { Released::Done } else { Released::WasNotHeld })
    }
}

impl Hold {
    pub(crate) fn new(file: Arc<LockFile>, seat: Option<Place>) -> Self {
        Self { file, seat: seat.map(Box::new), duplicated: AtomicBool::new(false), pid: process_id() }
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
        let mut file = self.idle.take(&claim.name, process_id());
        let attempt = Attempt::new(self, claim);
        match attempt.run(Turn::Outside, &mut file).await? {
            Tried::Granted(gripped) => return Ok(Some(gripped)),
            // Boxed: a claim that need not wait is done on the stack, and the smaller the quicker.
            Tried::Busy if patience.is_zero() => {
                return Box::pin(wait::once_more(self, &attempt, file)).await;
            }
            _ if patience.is_zero() => return Ok(None),
            _ => {}
        }
        let deadline = self.clock.now() + patience;
        let waited =
            self.clock.timeout_at(deadline, Box::pin(wait::in_line(self, claim, &attempt, file))).await;
        match waited.transpose() {
            // The engine was there a moment ago: the caller tries again, and hears of it if it lasts.
            Err(error) if error.retry() != Retry::Never => {
                tracing::warn!(name = %claim.name, %error, "waiting was cut short; trying again");
                Ok(None)
            }
            waited => waited,
        }
    }

    fn grip_at_once(&self, claim: &Claim) -> Option<Gripped<Hold>> {
        if claim.share.mode() != Mode::Exclusive {
            return None;
        }
        let process = process_id();
        let mut file = Some(self.idle.take(&claim.name, process)?);
        let gripped = Attempt::new(self, claim).run_at_once(&mut file);
        if let Some(file) = file {
            // For the try that follows: closing it would wake whoever watches.
            self.idle.keep(&claim.name, file, process);
        }
        gripped
    }

    async fn alive(&self, claim: &Claim, hold: &Hold) -> Result<Renewal> {
        let path = hold.file.path();
        if !hold.file.is_current().map_err(failed("look at", path))? {
            return Ok(Renewal::Gone(LossReason::Replaced));
        }
        let card = hold.seat.as_ref().map_or(&*hold.file, |seat| seat.file());
        let mut buffer = [MaybeUninit::uninit(); FLAGGED_LEN];
        let bytes = card.read(&mut buffer).map_err(failed("read", path))?;
        if record::broken_owner(bytes) == Some(&claim.owner.to_hex()) {
            return Ok(Renewal::Gone(LossReason::Broken));
        }
        Ok(Renewal::Kept(None))
    }

    async fn let_go(&self, claim: &Claim, hold: &Hold) -> Result<Released> {
        self.let_go_of(claim, hold)
    }

    fn let_go_at_once(&self, claim: &Claim, hold: &Hold) -> Option<Released> {
        self.let_go_of(claim, hold).ok()
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

#[cfg(test)]
mod tests {
    use kilit_core::{LossNotice, MAX_LOCK_DELAY, Note, OwnerId, Share};
    use tempfile::TempDir;

    use super::*;
    use crate::record::{Card, Position};

    fn session() -> (TempDir, FileSession) {
        let temp = tempfile::tempdir().unwrap();
        let url = format!("file://{}", temp.path().join("kilit").display());
        (temp, FileSession::open(Config::new(url.parse().unwrap()).unwrap()).unwrap())
    }

    fn claim() -> Claim {
        Claim {
            name: "x".parse().unwrap(),
            owner: OwnerId::random(),
            share: Share::EXCLUSIVE,
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            note: Note::of_this_process(),
            notice: LossNotice::default(),
        }
    }

    async fn grip(session: &FileSession, claim: &Claim) -> Option<(Hold, u64)> {
        let gripped = session.grip(claim, Duration::ZERO).await.unwrap()?;
        Some((gripped.hold, gripped.token.unwrap().value().get()))
    }

    #[tokio::test]
    async fn a_position_of_another_boot_or_inode_is_not_trusted() {
        let (_temp, mut session) = session();
        let (hold, first) = grip(&session, &claim()).await.unwrap();
        drop(hold);
        // As after a crash of the machine: what is in the file may be an old state of it.
        session.here.boot ^= 1;
        let (hold, second) = grip(&session, &claim()).await.unwrap();
        assert!(second >= first + counter::BLOCK, "{second} after {first}");
        drop(hold);
        assert_eq!(grip(&session, &claim()).await.unwrap().1, second + 1);
    }

    #[tokio::test]
    async fn the_last_token_is_refused_and_not_wrapped() {
        let (_temp, session) = session();
        let (hold, _) = grip(&session, &claim()).await.unwrap();
        let source = counter::source(&session.layout.counter).unwrap().unwrap();
        let near = Position { source, token: (i64::MAX - 1) as u64, end: 1 << 63 };
        let (claim, boot) = (claim(), session.here.boot);
        let card = Card::new(&claim, session.config.check, session.here);
        hold.file.write(boot, near, &card, State::Released, &claim.name).unwrap();
        drop(hold);
        let (hold, last) = grip(&session, &claim).await.unwrap();
        assert_eq!(last, i64::MAX as u64);
        drop(hold);
        // The counter itself is behind such a position, and says so.
        let error = session.grip(&claim, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    }

    #[tokio::test]
    async fn what_cannot_be_granted_at_once_is_left_unlocked() {
        let (_temp, session) = session();
        let claims: [Claim; 6] = std::array::from_fn(|_| claim());
        assert!(session.grip_at_once(&claims[0]).is_none(), "no file is open");
        let (hold, token) = grip(&session, &claims[0]).await.unwrap();
        session.let_go(&claims[0], &hold).await.unwrap();
        let gripped = session.grip_at_once(&claims[1]).unwrap();
        assert_eq!(gripped.token.unwrap().value().get(), token + 1);
        assert!(session.grip_at_once(&claims[2]).is_none(), "held here");
        assert_eq!(session.let_go_at_once(&claims[1], &gripped.hold), Some(Released::Done));
        let other = Attempt::new(&session, &claims[3]).open().unwrap();
        assert!(other.try_lock(Mode::Exclusive).unwrap());
        assert!(session.grip_at_once(&claims[3]).is_none(), "held by another");
        let source = counter::source(&session.layout.counter).unwrap().unwrap();
        let used_up = Position { source, token: token + 1, end: token + 2 };
        let card = Card::new(&claims[3], session.config.check, session.here);
        other.write(session.here.boot, used_up, &card, State::Held, &claims[3].name).unwrap();
        other.unlock().unwrap();
        assert!(session.grip_at_once(&claims[4]).is_none(), "its block is used up");
        assert!(other.try_lock(Mode::Exclusive).unwrap(), "nothing stays locked");
        other.unlock().unwrap();
        assert!(grip(&session, &claims[5]).await.unwrap().1 > token + 1);
    }

    #[tokio::test]
    async fn a_lock_delay_runs_on_the_boot_time_clock() {
        let (_temp, mut session) = session();
        session.clock = Clock::manual();
        let delay = Duration::from_secs(60);
        drop(grip(&session, &Claim { lock_delay: delay, ..claim() }).await.unwrap());
        assert!(grip(&session, &claim()).await.is_none(), "closed, from now on");
        session.clock.advance(delay - Duration::from_secs(1));
        assert!(grip(&session, &claim()).await.is_none(), "still, and not anew");
        session.clock.advance(Duration::from_secs(1));
        let (hold, _) = grip(&session, &claim()).await.unwrap();
        // What no kilit has written does not close it for years.
        hold.file.close_until(session.clock.now() + MAX_LOCK_DELAY * 2).unwrap();
        drop(hold);
        assert!(grip(&session, &claim()).await.is_some());
    }

    #[tokio::test]
    async fn who_leaves_a_free_lock_to_the_line_wakes_its_head() {
        let (_temp, session) = session();
        let (hold, _) = grip(&session, &claim()).await.unwrap();
        let waiter = claim();
        let card = Card::new(&waiter, session.config.check, session.here);
        let place = session.layout.line(&waiter.name).join(&waiter.name, &card).unwrap();
        hold.file.raise_flag().unwrap();
        drop(hold);
        let newcomer = claim();
        let attempt = Attempt::new(&session, &newcomer);
        // Open already, so that nothing is heard of its closing.
        let mut file = Some(attempt.open().unwrap());
        let watch = session.watcher.lock(attempt.path()).unwrap();
        assert!(matches!(attempt.run(Turn::Outside, &mut file).await.unwrap(), Tried::NotMyTurn(_)));
        tokio::time::timeout(Duration::from_secs(20), watch.fired()).await.unwrap();
        drop(place);
        assert!(matches!(attempt.run(Turn::Outside, &mut file).await.unwrap(), Tried::Granted(_)));
    }

    #[tokio::test]
    async fn without_inotify_waiters_look() {
        let (_temp, mut session) = session();
        session.watcher = Watcher::new(|| Err(std::io::Error::other("none is left")));
        let (hold, _) = grip(&session, &claim()).await.unwrap();
        let late = claim();
        let waiting = session.grip(&late, Duration::from_secs(20));
        let releasing = async {
            while session.layout.line(&late.name).entries().unwrap().waiting.is_empty() {
                tokio::task::yield_now().await;
            }
            drop(hold);
        };
        assert!(tokio::join!(waiting, releasing).0.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_forked_child_lets_go_of_nothing() {
        let (_temp, session) = session();
        let own = claim();
        let (mut hold, _) = grip(&session, &own).await.unwrap();
        // As a child sees what it has from its parent.
        hold.pid += 1;
        assert_eq!(session.let_go(&own, &hold).await.unwrap(), Released::WasNotHeld);
        assert!(grip(&session, &claim()).await.is_none());
        hold.pid -= 1;
        assert_eq!(session.let_go(&own, &hold).await.unwrap(), Released::Done);
        assert!(grip(&session, &claim()).await.is_some());
    }

    #[tokio::test]
    async fn a_file_system_of_other_hosts_is_refused_unless_forced() {
        let temp = tempfile::tempdir().unwrap();
        let on_nfs = |query: &str| {
            let url = format!("file://{}/kilit{query}", temp.path().display());
            FileSession::on(Some("NFS"), Config::new(url.parse().unwrap()).unwrap())
        };
        let error = on_nfs("").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("NFS") && error.to_string().contains("force=true"), "{error}");
        let forced = on_nfs("?force=true").unwrap();
        assert!(forced.assurance.fit_for(kilit_core::Purpose::Correctness).is_err());
        assert!(grip(&forced, &claim()).await.is_some());
    }

    #[tokio::test]
    async fn a_forced_file_system_promises_less() {
        let (_temp, session) = session();
        let forced = session.config.assurance(false);
        assert!(forced.exclusion < session.assurance.exclusion && forced.token < session.assurance.token);
        assert!(forced.fit_for(kilit_core::Purpose::Correctness).is_err());
        session.assurance.fit_for(kilit_core::Purpose::Correctness).unwrap();
    }
}
