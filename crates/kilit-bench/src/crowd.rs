//! Who fights for the lock, and the gate that lets all begin at once.

use std::{
    error::Error,
    fs::File,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use kilit::{Client, Clock, Guard, LockName};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinSet,
};

use crate::worker::{self, Contender, Turn};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The lock that all contenders want.
const NAME: &str = "contest";

/// What is fought for.
#[derive(Clone, Copy)]
pub(crate) enum Lock<'a> {
    /// A lock of the engine with this URL.
    Kilit(&'a str),
    /// A bare blocking flock on a file in this directory.
    Bare(&'a Path),
}

impl Lock<'_> {
    pub(crate) async fn client(self) -> Result<Option<Client>> {
        Ok(match self {
            Self::Kilit(url) => Some(kilit::open(url).await?),
            Self::Bare(_) => None,
        })
    }
}

/// The lock, held by the bench itself until everyone stands in line.
pub(crate) enum Gate {
    Kilit(Client, LockName, Guard),
    Bare(File),
}

impl Gate {
    pub(crate) async fn close(lock: Lock<'_>, client: Option<&Client>) -> Result<Self> {
        match (lock, client) {
            (Lock::Bare(scratch), _) => {
                let file = worker::open(&scratch.join(NAME))?;
                file.lock()?;
                Ok(Self::Bare(file))
            }
            (_, client) => {
                let (client, name) = (client.ok_or("no client")?.clone(), NAME.parse::<LockName>()?);
                let guard = client.mutex(name.clone()).acquire().await?;
                Ok(Self::Kilit(client, name, guard))
            }
        }
    }

    /// Opens when all are waiting; the moment of the release, in nanoseconds since boot.
    pub(crate) async fn open(self, waiters: usize) -> Result<u64> {
        let now = || Clock::system().now().as_nanos();
        match self {
            Self::Kilit(client, name, guard) => {
                let begun = Instant::now();
                while in_line(&client, &name).await? < waiters {
                    if begun.elapsed() > Duration::from_secs(60) {
                        return Err("the contenders do not come to stand in line".into());
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let released = now();
                guard.release().await?;
                Ok(released)
            }
            Self::Bare(file) => {
                // The kernel's line cannot be asked who stands in it.
                tokio::time::sleep(Duration::from_millis(100 + 5 * waiters as u64)).await;
                let released = now();
                file.unlock()?;
                Ok(released)
            }
        }
    }
}

async fn in_line(client: &Client, name: &LockName) -> Result<usize> {
    let locks = client.inspect(Some(name)).await?;
    Ok(locks.iter().filter_map(|lock| lock.queue.as_ref()).map(Vec::len).sum())
}

/// The contenders.
pub(crate) enum Crowd {
    /// In this process.
    Tasks(Vec<Contender>, JoinSet<(usize, kilit::Result<Vec<Turn>>)>),
    /// A process each.
    Processes(Vec<Process>),
}

/// A contender in a process of its own.
pub(crate) struct Process {
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Crowd {
    pub(crate) fn of_tasks(client: &Client, size: usize) -> Result<Self> {
        let contenders =
            (0..size).map(|_| Ok(Contender::Kilit(client.mutex(NAME.parse()?)))).collect::<Result<_>>()?;
        Ok(Self::Tasks(contenders, JoinSet::new()))
    }

    /// Starts the processes and waits until each is ready.
    pub(crate) async fn of_processes(lock: Lock<'_>, size: usize, again: Option<Duration>) -> Result<Self> {
        let mut processes = vec![];
        for _ in 0..size {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("worker");
            match lock {
                Lock::Kilit(url) => command.args(["--engine", url, "--lock", NAME]),
                Lock::Bare(scratch) => command.arg("--lock").arg(scratch.join(NAME)),
            };
            if let Some(again) = again {
                command.arg("--again").arg(format!("{}ms", again.as_millis()));
            }
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
            let stdin = child.stdin.take().ok_or("no pipe")?;
            let lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
            processes.push(Process { stdin, lines, _child: child });
        }
        for process in &mut processes {
            process.lines.next_line().await?.ok_or("a contender ended")?;
        }
        Ok(Self::Processes(processes))
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tasks(..) => "tasks",
            Self::Processes(_) => "processes",
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Tasks(contenders, _) => contenders.len(),
            Self::Processes(processes) => processes.len(),
        }
    }

    /// Gives the word: once, or again and again.
    pub(crate) async fn start(&mut self, again: Option<Duration>) -> Result<()> {
        match self {
            Self::Tasks(contenders, running) => {
                for (i, contender) in contenders.iter().cloned().enumerate() {
                    running.spawn(async move { (i, contender.round(again).await) });
                }
            }
            Self::Processes(processes) => {
                for process in processes {
                    process.stdin.write_all(b"go\n").await?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the end of the round: each contender's turns.
    pub(crate) async fn turns(&mut self) -> Result<Vec<Vec<Turn>>> {
        let mut all = vec![vec![]; self.size()];
        match self {
            Self::Tasks(_, running) => {
                while let Some(done) = running.join_next().await {
                    let (i, turns) = done?;
                    all[i] = turns?;
                }
            }
            Self::Processes(processes) => {
                for (turns, process) in all.iter_mut().zip(processes) {
                    let line = process.lines.next_line().await?.ok_or("a contender ended")?;
                    *turns = serde_json::from_str(&line)?;
                }
            }
        }
        Ok(all)
    }
}
