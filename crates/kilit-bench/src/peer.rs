//! Other people's lockers, in processes of their own: the same loops in their languages, see `peers/`.

use std::{error::Error, process::Stdio, time::Duration};

use kilit_testbed::peers;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// A locker of Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Rslock,
    RedisSemaphore,
    NodeRedlock,
    RedisPy,
    PythonRedisLock,
}

impl Peer {
    pub(crate) const ALL: [Self; 5] =
        [Self::Rslock, Self::RedisSemaphore, Self::NodeRedlock, Self::RedisPy, Self::PythonRedisLock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rslock => "rslock",
            Self::RedisSemaphore => "redis-semaphore",
            Self::NodeRedlock => "node redlock",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
        }
    }

    /// Starts its program and waits until that is ready.
    ///
    /// # Panics
    /// When it is not installed: a table must not lack a row without a word.
    pub(crate) async fn start(self, url: &str) -> Result<Program, Box<dyn Error>> {
        let mut command = match self {
            Self::Rslock => peers::rust("loops"),
            Self::RedisSemaphore | Self::NodeRedlock => peers::node("loops.mjs"),
            Self::RedisPy | Self::PythonRedisLock => peers::python("loops.py"),
        };
        command.args([self.name(), url]);
        let mut child = Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", self.name()))?;
        let stdin = child.stdin.take().ok_or("no pipe")?;
        let lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        let mut program = Program { peer: self, stdin, lines, child };
        program.answer().await?;
        Ok(program)
    }
}

/// Its program, which does what it is told in a line of stdin, and answers with a number in a line of stdout.
pub(crate) struct Program {
    peer: Peer,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Program {
    /// How many times a second so many tasks together take a lock each, and give it back.
    pub(crate) async fn uncontended(&mut self, tasks: usize, time: Duration) -> Result<f64, Box<dyn Error>> {
        self.ask(&format!("uncontended {tasks} {}", time.as_millis())).await
    }

    /// How many milliseconds it takes until so many tasks, which wait for one lock, have had it once.
    pub(crate) async fn drain(&mut self, waiters: usize) -> Result<f64, Box<dyn Error>> {
        self.ask(&format!("drain {waiters}")).await
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    async fn ask(&mut self, what: &str) -> Result<f64, Box<dyn Error>> {
        self.stdin.write_all(format!("{what}\n").as_bytes()).await?;
        Ok(self.answer().await?.parse()?)
    }

    async fn answer(&mut self) -> Result<String, Box<dyn Error>> {
        let ended = || format!("the program of {} has ended", self.peer.name());
        Ok(self.lines.next_line().await?.ok_or_else(ended)?)
    }
}
