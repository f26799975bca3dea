//! The guardian's own side.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    process::{Command, Stdio},
};

use kilit::Clock;

use super::{
    GUARDIAN,
    protocol::{End, Event, Order, receive, send},
};
use crate::sys::{
    Pid,
    children::{self, Ended, adopt_orphans, how_it_ended, how_it_was_stopped, name_this_process, reap_until},
    group::{Group, reap_all},
    own_pid, signals, spawn,
};

/// Runs the guardian; `kilit` is at the other end of its stdin. Returns when all is done.
pub(crate) fn guard(command: &[OsString]) -> io::Result<()> {
    signals::shrug_off_all();
    name_this_process(GUARDIAN)?;
    adopt_orphans()?;
    let watch = children::Watch::new()?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    Guard { command, socket, watch, lock: None, child: None, kill_at: None, phase: Phase::Watching }.run()
}

struct Guard<'a> {
    command: &'a [OsString],
    socket: OwnedFd,
    watch: children::Watch,
    /// The lock's file, shared with `kilit`.
    lock: Option<OwnedFd>,
    /// The command, which leads its group. Not reaped before the end.
    child: Option<Pid>,
    kill_at: Option<u64>,
    phase: Phase,
}

#[derive(PartialEq, Eq)]
enum Phase {
    /// The command runs, or was not started yet.
    Watching,
    /// `kilit` ends the command.
    Ending,
    /// The command has ended and `kilit` was told.
    Ended,
}

/// Why the loop ends.
enum Stop {
    Finished,
    KilitIsGone,
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::KilitIsGone,
            _ => Self::Failed(error),
        }
    }
}

impl Guard<'_> {
    fn run(mut self) -> io::Result<()> {
        let Err(stop) = self.watch();
        if !matches!(stop, Stop::Finished) {
            self.kill();
        }
        reap_all();
        drop(self.lock);
        match stop {
            Stop::Failed(error) => Err(error),
            Stop::Finished | Stop::KilitIsGone => Ok(()),
        }
    }

    fn watch(&mut self) -> Result<Infallible, Stop> {
        send(&self.socket, &Event::Ready, &[])?;
        loop {
            self.watch.wait(&self.socket)?;
            // Orders first: after a stop, the latest deadline counts. Then the clock, before a child's good end.
            self.obey()?;
            if self.phase != Phase::Ended
                && self.kill_at.is_some_and(|at| Clock::system().now().as_nanos() >= at)
            {
                self.kill();
                self.lock = None;
                self.tell_end(End::Expired);
            }
            self.look_at_children();
        }
    }

    fn obey(&mut self) -> Result<(), Stop> {
        loop {
            match receive(&self.socket) {
                Ok(Some((Order::Start { env, kill_at, foreground }, fds))) => {
                    self.set_deadline(kill_at)?;
                    let mut fds = fds.into_iter();
                    let stdin = fds.next().ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
                    self.lock = fds.next();
                    if self.is_too_late() {
                        self.tell_end(End::Expired);
                    } else {
                        self.start(stdin, &env, foreground)?;
                    }
                }
                Ok(Some((Order::Deadline(at), _))) => self.set_deadline(at)?,
                Ok(Some((Order::Ending, _))) if self.phase == Phase::Watching => self.phase = Phase::Ending,
                Ok(Some((Order::Ending, _))) => {}
                Ok(Some((Order::Finish, _))) => return Err(Stop::Finished),
                Ok(None) => return Err(Stop::KilitIsGone),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn start(&mut self, stdin: OwnedFd, env: &[(String, Vec<u8>)], foreground: bool) -> io::Result<()> {
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .envs(env.iter().map(|(key, value)| (key, OsStr::from_bytes(value))))
            .process_group(0)
            .stdin(Stdio::from(stdin));
        spawn::prepare(&mut command, foreground);
        let event = match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                self.child = Some(pid);
                Event::Started(pid.as_raw_nonzero().get())
            }
            Err(error) => {
                self.lock = None;
                Event::NotStarted { errno: error.raw_os_error().unwrap_or_default() }
            }
        };
        send(&self.socket, &event, &[])
    }

    fn is_too_late(&self) -> bool {
        self.kill_at.is_some_and(|at| Clock::system().now().as_nanos() >= at)
    }

    fn set_deadline(&mut self, at: Option<u64>) -> io::Result<()> {
        self.kill_at = at;
        self.watch.set_timer(at.unwrap_or_default())
    }

    /// Tells `kilit` when the command has ended, and reaps orphans as they end.
    fn look_at_children(&mut self) {
        self.watch.forget_news();
        let Some(child) = self.child.filter(|_| self.phase != Phase::Ended) else { return };
        if let Some(end) = how_it_ended(child) {
            if self.phase == Phase::Watching {
                // It ended by itself. `kilit` is to be the last who lets go: that wakes the next holder.
                self.lock = None;
            }
            return self.tell_end(match end {
                Ended::Exited(code) => End::Exited(code),
                Ended::Killed(signal) => End::Killed(signal),
            });
        }
        if let Some(signal) = how_it_was_stopped(child) {
            let _ = send(&self.socket, &Event::Stopped(signal), &[]);
        }
        reap_until(child);
    }

    fn tell_end(&mut self, end: End) {
        self.phase = Phase::Ended;
        self.kill_at = None;
        let _ = self.set_deadline(None);
        // If `kilit` is gone, the end of file says so next.
        let _ = send(&self.socket, &Event::Ended(end), &[]);
    }

    fn kill(&self) {
        if let Some(child) = self.child {
            Group { leader: child, guardian: own_pid() }.kill();
        }
    }
}
