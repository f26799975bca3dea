//! A directory of locks of its own, and the command under test.

use std::{ffi::OsStr, fs, path::PathBuf, process::Command, time::Duration};

use kilit_testbed::{Process, Signal, TempDir, process::Exit, tempdir};
use serde_json::Value;

/// Longer than anything takes that works.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path("locks").display())
    }

    /// `kilit`, with the file engine in this place.
    pub(crate) fn kilit<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = kilit();
        command.env("KILIT_ENGINE", self.url()).args(args);
        command
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Exit {
        Process::run(&mut self.kilit(args), SOON)
    }

    /// Starts it, and waits until its command has said `ready`.
    #[track_caller]
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Process {
        let mut process = Process::spawn(&mut self.kilit(args));
        wait_for_line(&mut process, "ready");
        process
    }

    /// A holder of `name` that lives until it is told to end.
    #[track_caller]
    pub(crate) fn hold(&self, name: &str) -> Process {
        self.start(["run", name, "--", "sh", "-c", "echo ready; exec sleep 600"])
    }

    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> Value {
        serde_json::from_str(&self.run(["status", "--json", name]).stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect_free(&self, name: &str) {
        self.run(["status", name]).expect_code(1);
    }
}

/// The command under test, with nothing of kilit's in its environment.
pub(crate) fn kilit() -> Command {
    let program = std::env::var_os("KILIT_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_kilit").into());
    let mut command = Command::new(program);
    for key in ["KILIT_ENGINE", "KILIT_PASSWORD", "KILIT_LOG", "KILIT_TOKEN", "KILIT_TOKEN_SOURCE"] {
        command.env_remove(key);
    }
    command
}

#[track_caller]
pub(crate) fn wait_for_line(process: &mut Process, line: &str) {
    process.wait_for_stdout(SOON, |text| text.lines().any(|it| it == line).then_some(()));
}

/// Nothing that it has started lives.
#[track_caller]
pub(crate) fn expect_no_family(ended: &Process) {
    assert!(ended.family().is_empty(), "these live on: {:?}", ended.family());
}

/// The guardian among what `kilit` has started.
#[track_caller]
pub(crate) fn guardian_of(kilit: &Process) -> u32 {
    let is_guardian = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.starts_with(b"kilit\0guardian\0")
    };
    kilit.family().into_iter().find(is_guardian).expect("a guardian runs")
}

#[track_caller]
pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
