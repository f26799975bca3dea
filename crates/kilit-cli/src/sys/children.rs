//! A process that watches its children, and a clock beside them.

use std::{
    ffi::CStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use kilit::sys::Readable;
use nix::sys::wait;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
        set_child_subreaper, waitid,
    },
    thread::set_name,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use signal_hook::consts::SIGCHLD;

/// From here on, orphans among this process's descendants become its children.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Names this process for `ps`.
pub(crate) fn name_this_process(name: &CStr) -> io::Result<()> {
    Ok(set_name(name)?)
}

/// What wakes a process that waits for its children, for a deadline, and for one thing more.
pub(crate) struct Watch {
    /// Readable when a child may have ended.
    news: UnixStream,
    timer: OwnedFd,
}

impl Watch {
    pub(crate) fn new() -> io::Result<Self> {
        let (news, sender) = UnixStream::pair()?;
        news.set_nonblocking(true)?;
        // A handler of our own, so that children become zombies even if SIGCHLD was ignored when kilit started.
        signal_hook::low_level::pipe::register(SIGCHLD, sender)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { news, timer: timerfd_create(TimerfdClockId::Boottime, flags)? })
    }

    /// When to wake up, in nanoseconds of the boot-time clock; 0 for never.
    pub(crate) fn set_timer(&self, at: u64) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }

    /// Sleeps until something may have happened; `other` is the one thing more.
    pub(crate) fn wait(&self, other: impl AsFd) -> io::Result<()> {
        let mut fds = [&other.as_fd(), &self.news.as_fd(), &self.timer.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The children are looked at next: what was said of them until now is old.
    pub(crate) fn forget_news(&self) {
        while io::Read::read(&mut &self.news, &mut [0; 64]).is_ok_and(|read| read > 0) {}
    }
}

/// Readable when a process, a child or not, has ended.
pub(crate) fn exit_of(process: Pid) -> io::Result<Readable> {
    Readable::new(pidfd_open(process, PidfdFlags::empty())?)
}

/// Continues a process that was stopped.
pub(crate) fn wake(process: Pid) {
    let _ = kill_process(process, Signal::CONT);
}

/// How a child has ended: by itself with a code, or by a signal. It stays a zombie.
pub(crate) enum Ended {
    Exited(i32),
    Killed(i32),
}

/// How a child has ended, if it has.
pub(crate) fn how_it_ended(child: Pid) -> Option<Ended> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(child), options).ok()??;
    status.terminating_signal().map(Ended::Killed).or_else(|| status.exit_status().map(Ended::Exited))
}

/// The signal by which a child was stopped, if it was since the last look.
pub(crate) fn how_it_was_stopped(child: Pid) -> Option<i32> {
    let stopped = waitid(WaitId::Pid(child), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
    stopped.ok()??.stopping_signal()
}

/// Reaps children that have ended, up to `but`, which stays a zombie.
pub(crate) fn reap_until(but: Pid) {
    use wait::{Id, WaitPidFlag};
    let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let next = || wait::waitid(Id::All, any).ok()?.pid();
    while let Some(ended) = next().filter(|pid| Pid::from_raw(pid.as_raw()) != Some(but)) {
        let _ = wait::waitpid(ended, None);
    }
}
