//! The side of the guardian that is in `kilit`.

use std::{
    ffi::OsString,
    io, iter,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command},
    time::Duration,
};

use kilit::{Moment, sys::Readable};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::protocol::{End, Event, Order, receive, send};
use crate::sys::{
    Pid, Signal,
    children::{adopt_orphans, exit_of, wake},
    group::{Group, Process, kill_orphans, reap_all},
    socket, spawn,
};

/// How long a guardian may be silent about a command that has ended before it is woken, and how long it may take to
/// end when all is done before it is killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a command is to be started.
#[derive(Debug)]
pub(crate) struct Start {
    /// Variables of its environment.
    pub(crate) env: Vec<(String, Vec<u8>)>,
    /// A duplicate of the lock's file, where there is one.
    pub(crate) lock: Option<OwnedFd>,
    /// When the guardian kills the group.
    pub(crate) kill_at: Option<Moment>,
    /// Whether it takes the terminal's foreground.
    pub(crate) foreground: bool,
}

/// Why a command was not started, or does not run any more.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The system does not execute it.
    Command(io::Error),
    /// No guardian could be had, or the system had no room for another process.
    System(io::Error),
    /// The deadline had come before.
    TooLate,
    /// The guardian was killed in the act; what it had started is dead.
    GuardianIsGone,
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A guardian that waits for the lock to be had.
#[derive(Debug)]
pub(crate) struct Waiting {
    launch: Command,
    process: Child,
    socket: OwnedFd,
}

impl Waiting {
    /// Starts a guardian for `command`, without the variables `without` in its environment and the command's.
    pub(crate) fn spawn(command: &[OsString], without: &[&str]) -> io::Result<Self> {
        // What a guardian that was killed leaves behind comes to this process.
        adopt_orphans()?;
        let mut launch = Command::new(spawn::THIS_PROGRAM);
        launch.arg0("kilit").args(["guardian", "--"]).args(command).process_group(0);
        for key in without {
            launch.env_remove(key);
        }
        let (process, socket) = spawn(&mut launch)?;
        Ok(Self { launch, process, socket })
    }

    /// Has the command started.
    pub(crate) async fn start(mut self, start: Start) -> Result<Guardian, NotStarted> {
        let order = Order::Start {
            env: start.env,
            kill_at: start.kill_at.map(Moment::as_nanos),
            foreground: start.foreground,
        };
        let stdin = io::stdin();
        let fds: Vec<_> =
            iter::once(stdin.as_fd()).chain(start.lock.as_ref().map(|lock| lock.as_fd())).collect();
        let socket = self.order(&order, &fds).await?;
        let started = Process::find(pid_of(&self.process)).map_or(0, |process| process.started);
        match answer(&socket, pid_of(&self.process)).await {
            Some(Event::Started(pid)) => {
                let pid = Pid::from_raw(pid).ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
                let nudge = nudge_when_ended(pid, pid_of(&self.process));
                let group = Group { leader: pid, guardian: pid_of(&self.process) };
                Ok(Guardian { process: self.process, socket, group, nudge })
            }
            Some(Event::NotStarted { errno }) => {
                end(self.process);
                let error = io::Error::from_raw_os_error(errno);
                Err(if spawn::is_shortage(errno) {
                    NotStarted::System(error)
                } else {
                    NotStarted::Command(error)
                })
            }
            Some(Event::Ended(_)) => {
                end(self.process);
                Err(NotStarted::TooLate)
            }
            _ => {
                let _ = self.process.kill();
                kill_orphans(started);
                end(self.process);
                Err(NotStarted::GuardianIsGone)
            }
        }
    }

    /// Gives the first order. A guardian that was killed before it could take one is replaced.
    async fn order(&mut self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<Readable> {
        for _ in 0..3 {
            let socket = Readable::new(self.socket.try_clone()?)?;
            // Until its first word, any signal ends it.
            if answer(&socket, pid_of(&self.process)).await == Some(Event::Ready) {
                match send(socket.fd(), order, fds) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    sent => return sent.map(|()| socket),
                }
            }
            let _ = self.process.kill();
            let _ = self.process.wait();
            (self.process, self.socket) = spawn(&mut self.launch)?;
        }
        Err(io::Error::other("the guardian ends as soon as it is started"))
    }

    /// Ends it: no lock was had.
    pub(crate) fn dismiss(self) {
        drop(self.socket);
        end(self.process);
    }
}

/// A guardian with a command that runs.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
    socket: Readable,
    group: Group,
    nudge: AbortHandle,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It has ended.
    Ended(End),
    /// It was stopped because its group has not got the terminal's foreground.
    WantsTerminal,
    /// It was stopped for another reason, such as a ^Z.
    Stopped,
    /// The guardian was killed. The command may live.
    GuardianIsGone,
}

impl Guardian {
    /// The command's group.
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// The next that becomes of the command, or of the guardian. Cancel safe.
    pub(crate) async fn next(&self) -> News {
        loop {
            match next_event(&self.socket).await {
                Some(Event::Ended(end)) => return News::Ended(end),
                Some(Event::Stopped(signal)) if is_about_the_terminal(signal) => return News::WantsTerminal,
                Some(Event::Stopped(_)) => return News::Stopped,
                Some(_) => {}
                None => return News::GuardianIsGone,
            }
        }
    }

    /// Tells the guardian when it must kill the group. Says whether it could be told: a guardian that is stopped reads
    /// nothing.
    pub(crate) fn set_deadline(&self, at: Option<Moment>) -> bool {
        self.tell(&Order::Deadline(at.map(Moment::as_nanos)))
    }

    /// From here on the guardian keeps the lock's file until the group is gone.
    pub(crate) fn begin_ending(&self) {
        self.tell(&Order::Ending);
    }

    fn tell(&self, order: &Order) -> bool {
        // If it is gone, `next` says so.
        send(self.socket.fd(), order, &[]).is_ok()
    }

    /// Ends the guardian: the command has ended, and so has its group where that matters.
    pub(crate) fn finish(self) {
        self.tell(&Order::Finish);
        self.nudge.abort();
        end(self.process);
    }
}

fn spawn(launch: &mut Command) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = socket::pair()?;
    let process = launch.stdin(theirs).spawn()?;
    // The other end must be open in the guardian alone.
    launch.stdin(std::process::Stdio::null());
    Ok((process, ours))
}

async fn next_event(socket: &Readable) -> Option<Event> {
    let event = socket.read_with(|fd| receive(fd)).await;
    // A packet that cannot be read comes from no guardian of ours.
    event.ok().flatten().map(|(event, _)| event)
}

/// The next event, which is due at once: a guardian that was stopped is continued.
async fn answer(socket: &Readable, guardian: Pid) -> Option<Event> {
    loop {
        match timeout(PATIENCE, next_event(socket)).await {
            Ok(event) => return event,
            Err(_) => wake(guardian),
        }
    }
}

/// Whether a process that used the terminal from the background was stopped by this signal.
fn is_about_the_terminal(signal: i32) -> bool {
    [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal)
}

/// A guardian that was stopped is continued when its command has ended: nobody else knows how.
fn nudge_when_ended(command: Pid, guardian: Pid) -> AbortHandle {
    let nudge = async move {
        // No descriptor: the guardian was killed in this moment, which is news enough.
        let Ok(exit) = exit_of(command) else { return };
        let _ = exit.wait().await;
        loop {
            sleep(PATIENCE).await;
            wake(guardian);
        }
    };
    tokio::spawn(nudge).abort_handle()
}

/// Waits for a guardian that has nothing left to do, and reaps it and what it has left.
fn end(mut guardian: Child) {
    if let Some(process) = Process::find(pid_of(&guardian)) {
        process.wait(PATIENCE);
    }
    let _ = guardian.kill();
    let _ = guardian.wait();
    reap_all();
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}
