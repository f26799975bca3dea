//! An operator's break: ask the holder to stop, and end its process only when told to.

use std::time::Duration;

use kilit_core::{Error, ErrorKind, Evicted, Holder, LockName, Mode, Result, Target, family::Session};

use crate::{
    engine::FileSession,
    failure::failed,
    inspect::inspect,
    lock_file::LockFile,
    record::OwnerText,
    sys::{files::Inode, host, kernel::Table},
};

/// What a holder gets beyond its own interval: to end what it does, and to let go.
const SLACK: Duration = Duration::from_secs(1);

/// How long a process that was killed, or the guardian of its children, may take.
const DEATH: Duration = Duration::from_secs(5);

/// As [`Session::evict`].
pub(crate) async fn evict(
    session: &FileSession,
    name: &LockName,
    target: Target,
    force: bool,
) -> Result<Evicted> {
    let Some((mode, holder)) = find(session, name, &target)? else { return Ok(Evicted::NoSuchHold) };
    let owner = holder.owner.unwrap_or_default();
    tracing::warn!(%name, owner, force, "an operator breaks the lock");
    let text: OwnerText =
        owner.as_bytes().try_into().map_err(|_| Error::invalid("no owner id of kilit's"))?;
    // A shared holder is asked at its seat, an exclusive one at the lock itself.
    let (path, line) = (session.layout.lock(name), session.layout.line(name));
    let card = if mode == Mode::Exclusive { path } else { line.seat_path(&owner) };
    let Some(file) = LockFile::open_only(&card).map_err(failed("open", &card))? else {
        return Ok(Evicted::Ended);
    };
    let hold = Hold { session, name, target: Target::Owner(owner), inode: file.inode() };
    file.ask_to_stop(&text).map_err(failed("write", &card))?;
    let check = line.read(&card, |record| record.card.check).map_err(failed("read", &card))?;
    if hold.is_gone_within(check.unwrap_or(session.config.check) + SLACK).await? {
        return Ok(Evicted::Ended);
    }
    let takers = hold.takers()?;
    if takers.contains(&std::process::id()) {
        return Err(hold.cannot("this very process holds it, and does not let go: release it there"));
    }
    if takers.is_empty() {
        let why = "its process cannot be seen from here; it is in another container or another user's: end it there";
        return Err(hold.cannot(why));
    }
    if !force {
        let note = holder.note.unwrap_or_default();
        let what = |pid| format!("process {pid} ({note}) would be killed, with all that it holds");
        return Ok(Evicted::NeedsForce(takers.into_iter().map(what).collect()));
    }
    // First who took it, so that a guardian can end what runs under the lock. Then whoever keeps it still.
    for _ in 0..2 {
        for pid in hold.takers()? {
            hold.kill(pid)?;
        }
        if hold.is_gone_within(DEATH).await? {
            return Ok(Evicted::Ended);
        }
    }
    let message = "its process was killed and the kernel has not ended it yet: see whether it hangs in I/O";
    Err(Error::new(ErrorKind::Unknown, message).on_engine("file").on_lock(name))
}

/// The hold that is meant, if there is such a hold.
fn find(session: &FileSession, name: &LockName, target: &Target) -> Result<Option<(Mode, Holder)>> {
    let Some(status) = inspect(session, Some(name))?.pop() else { return Ok(None) };
    let meant = status.holders.into_iter().find(|holder| match target {
        Target::Token(value) => holder.token.as_ref().is_some_and(|token| token.value() == *value),
        Target::Owner(owner) => holder.owner.as_ref() == Some(owner),
    });
    Ok(status.mode.zip(meant))
}

/// The hold that is to end.
struct Hold<'a> {
    session: &'a FileSession,
    name: &'a LockName,
    target: Target,
    /// The file that only this holder has locked.
    inode: Inode,
}

impl Hold<'_> {
    async fn is_gone_within(&self, time: Duration) -> Result<bool> {
        let clock = self.session.clock();
        let deadline = clock.now() + time;
        while find(self.session, self.name, &self.target)?.is_some() {
            if clock.now() >= deadline {
                return Ok(false);
            }
            clock.sleep(Duration::from_millis(20)).await;
        }
        Ok(true)
    }

    fn table(&self) -> Result<Table> {
        let locks = &self.session.layout.locks;
        Table::read(locks).map_err(failed("look at", locks))
    }

    /// The processes that took it; when they are dead, those that have a duplicate of its descriptor.
    fn takers(&self) -> Result<Vec<u32>> {
        let table = self.table()?;
        let takers: Vec<_> = table.on(self.inode).iter().map(|flock| flock.pid).collect();
        let alive: Vec<_> = takers.into_iter().filter(|pid| table.keeps(*pid, self.inode)).collect();
        Ok(if alive.is_empty() { table.keepers(self.inode) } else { alive })
    }

    /// Ends a process that keeps the lock: looked at again once its PID cannot be another's any more.
    fn kill(&self, pid: u32) -> Result<()> {
        let table = self.table()?;
        let locks = &self.session.layout.locks;
        let killed = host::kill(pid, || table.keeps(pid, self.inode))
            .map_err(failed("kill the process that holds a lock in", locks))?;
        if killed {
            tracing::warn!(name = %self.name, pid, "the process that held the lock was killed");
        }
        Ok(())
    }

    fn cannot(&self, why: &str) -> Error {
        Error::new(ErrorKind::Unsupported, why).on_engine("file").on_lock(self.name)
    }
}
