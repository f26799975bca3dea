//! Other processes: the program `kilit-agent`, as a case starts it.

use std::{
    ffi::OsStr,
    io::Write,
    ops::{Deref, DerefMut},
    process::{ChildStdin, Command, Stdio},
    time::Duration,
};

use kilit_core::{FencingToken, TokenSource};
use kilit_testbed::Process;

use crate::Subject;

/// How one is started.
#[derive(Debug)]
pub struct Start {
    command: Command,
    patience: Duration,
}

/// One that runs. It ends when its stdin does.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    stdin: Option<ChildStdin>,
    patience: Duration,
}

impl Subject {
    /// A process that does `what` on the lock `name`.
    ///
    /// # Panics
    /// When the subject has no URL, or runs outside a column.
    pub fn agent(&self, what: &str, name: &str) -> Start {
        let agent = self.agent.as_ref().expect("a column knows the agent's path");
        let mut command = Command::new(agent);
        command.arg(what).arg(self.url.as_ref().expect("the case asks for a URL")).arg(name);
        Start { command, patience: self.patience }
    }
}

impl Start {
    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Another TTL than 20 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.arg("--ttl-ms").arg(ttl.as_millis().to_string())
    }

    /// A lock-delay.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.arg("--lock-delay-ms").arg(delay.as_millis().to_string())
    }

    /// Ends after so many holds.
    pub fn rounds(self, rounds: usize) -> Self {
        self.arg("--rounds").arg(rounds.to_string())
    }

    /// Starts it.
    #[track_caller]
    pub fn spawn(mut self) -> Agent {
        let mut process = Process::spawn_with_stdin(&mut self.command, Stdio::piped());
        Agent { stdin: process.take_stdin(), process, patience: self.patience }
    }
}

impl Agent {
    /// Waits until it has written the line that begins with `word`; the rest of that line.
    #[track_caller]
    pub fn said(&mut self, word: &str) -> String {
        self.process.wait_for_stdout(self.patience, |output| {
            // A line that is not ended yet may go on.
            let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().find_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned())
        })
    }

    /// Waits until it holds the lock; its token.
    ///
    /// # Panics
    /// When it has none, or does not get the lock.
    #[track_caller]
    pub fn held(&mut self) -> FencingToken {
        let said = self.said("held");
        let (value, source) = said.split_once(' ').expect("a token and its source");
        let source = TokenSource::new(source).expect("a source");
        FencingToken::new(source, value.parse().expect("a token"))
    }

    /// Asks it to do one more thing.
    pub fn ask(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its stdin is open");
        writeln!(stdin, "{line}").expect("it reads its stdin");
    }

    /// Asks it to end, waits, and checks that all went well.
    #[track_caller]
    pub fn end_well(&mut self) {
        self.end_with(0, "");
    }

    /// Asks it to end, waits, and checks its exit code and that it said why.
    #[track_caller]
    pub fn end_with(&mut self, code: i32, why: &str) {
        drop(self.stdin.take());
        let exit = self.process.wait(self.patience * 2).expect_code(code);
        assert!(exit.stderr.contains(why), "it said no word of `{why}`: {}", exit.stderr);
    }
}

impl Deref for Agent {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
