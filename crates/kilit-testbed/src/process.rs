//! Child processes that are always reaped and never outlive the test.

use std::{
    fs::{self, File},
    io,
    os::unix::{fs::FileExt, process::CommandExt, process::ExitStatusExt},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, kill_process, kill_process_group, pidfd_open},
};

pub use rustix::process::Signal;

/// The variable by which a process and all its descendants are found again, whatever group or session they moved to.
const MARK: &str = "KILIT_TESTBED_MARK";

/// A child process in a group of its own. When this is dropped, also by a panic, the child and everything that it
/// started are killed and the child is reaped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    mark: String,
    what: String,
    stdout: File,
    stderr: File,
    status: Option<ExitStatus>,
}

/// How a process ended, and all that it wrote.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote to stdout, with bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// What it wrote to stderr, with bytes that are not UTF-8 replaced.
    pub stderr: String,
}

impl Exit {
    /// The exit code as a shell shows it: 128 + N when signal N ended the process.
    pub fn code(&self) -> i32 {
        let by_signal = self.status.signal().map(|signal| 128 + signal);
        self.status.code().or(by_signal).expect("a status is a code or a signal")
    }

    /// Checks the exit code.
    ///
    /// # Panics
    /// With the output, when it is another one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        let account = account(&self.stdout, &self.stderr);
        assert_eq!(self.code(), code, "another exit code was expected; {account}");
        self
    }
}

impl Process {
    /// Starts `command` with nothing on its stdin.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_stdin(command, Stdio::null())
    }

    /// Starts `command` with this stdin. Output goes to files and not to pipes: it can be read at any time, and a
    /// descendant that lives on keeps no reader waiting.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn_with_stdin(command: &mut Command, stdin: Stdio) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let what = format!("{command:?}");
        let capture = || -> (File, File) {
            let file = tempfile::tempfile().expect("a temporary file");
            (file.try_clone().expect("a second descriptor"), file)
        };
        let ((stdout, to_stdout), (stderr, to_stderr)) = (capture(), capture());
        let child = command
            .env(MARK, &mark)
            .process_group(0)
            .stdin(stdin)
            .stdout(to_stdout)
            .stderr(to_stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
        // The command keeps its copies of the files for another spawn; nothing here waits for their end.
        Self { child, mark, what, stdout, stderr, status: None }
    }

    /// Runs `command` to its end.
    ///
    /// # Panics
    /// With the output, when it takes longer than `within`.
    #[track_caller]
    pub fn run(command: &mut Command, within: Duration) -> Exit {
        Self::spawn(command).wait(within)
    }

    /// The process id, which is the group's id as well.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its end of the pipe, when it was started with [`Stdio::piped`].
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Its end, if it has come.
    pub fn try_wait(&mut self) -> Option<Exit> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child can be waited for");
        }
        self.status.map(|status| Exit { status, stdout: self.stdout(), stderr: self.stderr() })
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// With the output, when it takes longer than `within`.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> Exit {
        if self.status.is_none() && !ends_within(self.pid(), within) {
            panic!("{} has not ended within {within:?}; {}", self.what, self.account());
        }
        self.status = Some(self.child.wait().expect("a child can be waited for"));
        self.try_wait().expect("it has ended")
    }

    /// Waits until `find` finds something in its stdout, and returns that.
    ///
    /// # Panics
    /// With the output, when it ends before, or takes longer than `within`.
    #[track_caller]
    pub fn wait_for_stdout<T>(&mut self, within: Duration, mut find: impl FnMut(&str) -> Option<T>) -> T {
        let found = poll_until(within, || {
            // In this order: what it wrote before its end is looked at.
            let ended = self.try_wait().is_some();
            match find(&self.stdout()) {
                Some(found) => Some(Ok(found)),
                None => ended.then_some(Err("ended")),
            }
        });
        found.unwrap_or(Err("waited in vain")).unwrap_or_else(|why| {
            panic!("{} {why} before the expected output within {within:?}; {}", self.what, self.account())
        })
    }

    /// Sends a signal to the process alone; nothing happens when it has ended.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process(self.rustix_pid(), signal);
        }
    }

    /// Sends a signal to its whole group; nothing happens when that is empty.
    pub fn signal_group(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process_group(self.rustix_pid(), signal);
        }
    }

    /// SIGSTOP, and waits until every thread of it stands still. [`resume`](Self::resume) ends that.
    ///
    /// # Panics
    /// When it does not stop within ten seconds.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        wait_until_stopped(self.pid());
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL to the process alone, and reaps it. What it had started lives on until this is dropped.
    pub fn kill(&mut self) -> Exit {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10))
    }

    /// The living processes that it started, directly or not, itself included.
    pub fn family(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.mark).into_bytes();
        let is_marked = |pid: &u32| {
            // Of a process that is just ending, or another user's, there is nothing to read.
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|&byte| byte == 0).any(|var| var == mark)
        };
        all_pids().filter(is_marked).filter(|&pid| !is_gone(pid)).collect()
    }

    fn rustix_pid(&self) -> Pid {
        to_pid(self.pid())
    }

    fn account(&self) -> String {
        account(&self.stdout(), &self.stderr())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A member that was just forking is found in the next round.
        loop {
            self.signal_group(Signal::KILL);
            let family = self.family();
            if family.is_empty() {
                break;
            }
            for pid in family {
                let _ = kill_process(to_pid(pid), Signal::KILL);
                ends_within(pid, Duration::from_secs(1));
            }
        }
        let _ = self.child.wait();
    }
}

/// Whether no process `pid` runs. A zombie counts as gone: it only waits for a parent that may never look.
pub fn is_gone(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Waits until process `pid`, a child of ours or not, is gone.
///
/// # Panics
/// When it takes longer than `within`.
#[track_caller]
pub fn wait_gone(pid: u32, within: Duration) {
    assert!(ends_within(pid, within), "process {pid} still runs after {within:?}");
}

/// Waits until every thread of process `pid` is stopped by a signal.
///
/// # Panics
/// When it does not stop within ten seconds.
#[track_caller]
pub fn wait_until_stopped(pid: u32) {
    wait_until(&format!("process {pid} is stopped"), Duration::from_secs(10), || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let states: Vec<_> = tasks.map(|task| state_in(&task.path().join("stat"))).collect();
        assert!(!is_gone(pid), "process {pid} has ended and cannot be stopped");
        states.iter().all(|state| matches!(state, Some('T' | 't')))
    });
}

/// Waits until `holds` says yes. Where there is an event to wait for, wait for that instead.
///
/// # Panics
/// Naming `what`, when it takes longer than `within`.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    assert!(poll_until(within, || holds().then_some(())).is_some(), "not within {within:?}: {what}");
}

/// The one place that polls.
pub(crate) fn poll_until<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    const STEP: Duration = Duration::from_millis(2);
    let until = Instant::now() + within;
    loop {
        match look() {
            None if Instant::now() < until => thread::sleep(STEP),
            found => return found,
        }
    }
}

/// Sleeps until `pid` has ended; false when it has not by then.
fn ends_within(pid: u32, within: Duration) -> bool {
    let until = Instant::now() + within;
    let Ok(pidfd) = pidfd_open(to_pid(pid), PidfdFlags::empty()) else { return true };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("cannot poll a pidfd: {}", io::Error::from(error)),
        }
    }
}

fn account(stdout: &str, stderr: &str) -> String {
    format!("its output was\n--- stdout\n{}\n--- stderr\n{}", stdout.trim_end(), stderr.trim_end())
}

fn state(pid: u32) -> Option<char> {
    state_in(format!("/proc/{pid}/stat").as_ref())
}

fn state_in(stat: &std::path::Path) -> Option<char> {
    // The second field is the program's name in brackets, which may hold anything.
    let stat = String::from_utf8_lossy(&fs::read(stat).ok()?).into_owned();
    stat.rsplit_once(") ")?.1.chars().next()
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn to_pid(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is a positive i32")
}

/// Reads by position: the process writes through the same open file, whose offset must stay where it is.
fn read(file: &File) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 64 * 1024]);
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64).expect("a temporary file can be read") {
            0 => return String::from_utf8_lossy(&bytes).into_owned(),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}
