//! The command's process group.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use kilit::sys::Readable;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpgid, getpid, kill_process, kill_process_group, pidfd_open,
        test_kill_process_group,
    },
};
use tokio::time::{sleep, timeout};

use super::signals::needs_continuing;
use crate::guardian::GUARDIAN;

/// How often is looked whether a process has ended where no descriptor for that is to be had.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process group, by the process that leads it. The guardian leaves the leader unreaped for as long as it lives, so
/// the number cannot come to mean another group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) leader: Pid,
    /// Whose children members become when their parents have ended: the guardian, or what it is replaced by.
    pub(crate) guardian: Pid,
}

impl Group {
    /// Sends `signal` to every member. An empty group is fine. Members that are stopped are continued if it asks them to
    /// end.
    pub(crate) fn signal(self, signal: Signal) {
        // What may not be signalled, another user's process say, is waited for instead.
        let _ = kill_process_group(self.leader, signal);
        if needs_continuing(signal) && self.members().iter().any(|member| member.stopped) {
            let _ = kill_process_group(self.leader, Signal::CONT);
        }
    }

    /// Whether its leader is stopped.
    pub(crate) fn is_stopped(self) -> bool {
        Process::find(self.leader).is_some_and(|leader| leader.stopped)
    }

    /// The members that live; a zombie does not. Those of another user may be hidden (`hidepid`): of these, children of
    /// the guardian are found, which is where the last of them ends up.
    pub(crate) fn members(self) -> Vec<Process> {
        if test_kill_process_group(self.leader) == Err(Errno::SRCH) {
            return vec![];
        }
        let hidden = children(self.guardian).into_iter().filter_map(Process::hidden);
        let is_member = |process: &Process| process.group == Some(self.leader) && process.lives;
        Process::all().chain(hidden).filter(is_member).collect()
    }

    /// What must have ended before the lock passes on: the members and then, since the command of a run among them has a
    /// group of its own, the guardians of such runs.
    fn remaining(self) -> Vec<Process> {
        let members = self.members();
        if !members.is_empty() {
            return members;
        }
        // Looked for in this order: they are this guardian's children once their `kilit` has ended.
        let is_left = |process: &Process| {
            process.parent == Some(self.guardian)
                && GUARDIAN.to_str() == Ok(&process.command)
                && process.lives
        };
        Process::all().filter(is_left).collect()
    }

    /// Waits until nothing of it remains; for `within` at most. Says whether nothing does.
    pub(crate) fn wait_empty(self, within: Duration) -> bool {
        let until = Instant::now().checked_add(within);
        loop {
            let remaining = self.remaining();
            let Some(member) = remaining.first() else { return true };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            member.wait(left.unwrap_or(Duration::MAX).min(Duration::from_secs(1)));
        }
    }

    /// Waits until nothing of it remains. Needs no thread and no descriptor: the system may be out of them. Cancel safe.
    pub(crate) async fn emptied(self) {
        while let Some(member) = self.remaining().first() {
            member.ended(Duration::from_secs(1)).await;
        }
    }

    /// KILL, until nothing of it remains.
    pub(crate) fn kill(self) {
        loop {
            self.signal(Signal::KILL);
            if self.wait_empty(Duration::from_millis(100)) {
                return;
            }
        }
    }
}

/// Kills what a guardian that was itself killed has left to this process, a subreaper: all children that started no
/// earlier than `since`, and their groups.
pub(crate) fn kill_orphans(since: StartTime) {
    loop {
        let is_ours =
            |process: &Process| process.parent == Some(getpid()) && process.started >= since && process.lives;
        let orphans: Vec<_> = Process::all().filter(is_ours).collect();
        let Some(first) = orphans.first() else { return };
        for orphan in &orphans {
            let _ = kill_process(orphan.pid, Signal::KILL);
            if orphan.group == Some(orphan.pid) {
                let _ = kill_process_group(orphan.pid, Signal::KILL);
            }
        }
        first.wait(Duration::from_millis(100));
    }
}

/// The children of a process, hidden ones too.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Reaps every child that has ended.
pub(crate) fn reap_all() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// When a process started, in clock ticks since boot.
pub(crate) type StartTime = u64;

/// A process as `/proc` shows it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// The program's name, at most 15 bytes of anything.
    pub(crate) command: String,
    pub(crate) started: StartTime,
    lives: bool,
    stopped: bool,
    parent: Option<Pid>,
    group: Option<Pid>,
}

impl Process {
    /// The process with this id, if there is one.
    pub(crate) fn find(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&stat))
    }

    /// One that `/proc` does not show: what the system tells anybody of it.
    fn hidden(pid: Pid) -> Option<Self> {
        if Self::find(pid).is_some() {
            return None;
        }
        let group = Some(getpgid(Some(pid)).ok()?);
        let lives = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&Timespec::default())) != Ok(1),
            Err(error) => error != Errno::SRCH,
        };
        Some(Self { pid, command: "?".to_owned(), started: 0, lives, stopped: false, parent: None, group })
    }

    /// pid (command) state parent group … and, as the 20th field, the number of threads, as the 22nd, the start.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let (head, tail) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = tail.split(' ').collect();
        let id = |at: usize| Pid::from_raw(fields.get(at)?.parse().ok()?);
        Some(Self {
            pid,
            command: head.split_once('(')?.1.to_owned(),
            started: fields.get(19)?.parse().ok()?,
            // One whose first thread has ended looks like a zombie while its other threads run.
            lives: !matches!(*fields.first()?, "Z" | "X") || fields.get(17)?.parse::<u32>().ok()? > 1,
            stopped: fields.first() == Some(&"T"),
            parent: id(1),
            group: id(2),
        })
    }

    fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        pids.filter_map(Self::find)
    }

    /// Waits until it has ended; for `within` at most.
    pub(crate) fn wait(&self, within: Duration) {
        // No descriptor: it has ended, or the system has none left. The caller looks again.
        let Ok(pidfd) = pidfd_open(self.pid, PidfdFlags::empty()) else { return };
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&within));
    }

    /// The same, beside other work.
    async fn ended(&self, within: Duration) {
        match pidfd_open(self.pid, PidfdFlags::empty()).map_err(io::Error::from).and_then(Readable::new) {
            Ok(pidfd) => {
                let _ = timeout(within, pidfd.wait()).await;
            }
            Err(_) => sleep(LOOK_AGAIN.min(within)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn this_process_is_found() {
        let me = Process::find(getpid()).unwrap();
        assert!(me.lives && me.started > 0);
        assert_eq!(me.parent, rustix::process::getppid());
        assert_eq!(me.group, Some(rustix::process::getpgrp()));
    }

    #[test]
    fn a_process_lives_as_long_as_any_of_its_threads() {
        let stat = |state, threads| {
            format!("7 (a) b) {state} 1 7 7 0 -1 4194316 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0")
        };
        let process = |state, threads| Process::parse(getpid(), &stat(state, threads)).unwrap();
        assert_eq!((process("S", 1).command.as_str(), process("S", 1).started), ("a) b", 4711));
        assert!(process("S", 1).lives && process("Z", 2).lives);
        // While it is reaped it has none.
        assert!(!process("Z", 1).lives && !process("X", 0).lives);
    }

    #[test]
    fn a_group_is_killed_with_its_grandchildren() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 600 & echo ready; wait"])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let group = Group { leader: Pid::from_child(&shell), guardian: getpid() };
        assert_eq!(group.members().len(), 2);
        assert!(!group.wait_empty(Duration::ZERO));
        group.kill();
        assert!(group.members().is_empty(), "zombies do not count");
        shell.wait().unwrap();
        group.signal(Signal::TERM);
        assert!(group.wait_empty(Duration::ZERO));
    }
}
