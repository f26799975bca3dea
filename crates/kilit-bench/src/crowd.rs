//! Who fights for the lock, and the gate that lets all begin at once.

use std::{
    error::Error,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kilit::{Client, Clock, Guard, LockName};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    bare::{Flock, Token},
    worker::{Contender, Kind, Round, Turn},
};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The lock that all contenders want.
const NAME: &str = "contest";

/// How long the slowest machine takes until everybody stands in line.
const ALL_WAIT: Duration = Duration::from_secs(60);

/// What is fought for.
pub(crate) enum Lock {
    /// A lock of the engine with this URL.
    Kilit(String, Client),
    /// A bare blocking flock on a file in this directory.
    Flock(PathBuf),
    /// An element of a list on the Redis server with this URL.
    Token(String, Token),
}

impl Lock {
    pub(crate) async fn kilit(url: &str) -> Result<Self> {
        Ok(Self::Kilit(url.into(), kilit::open(url).await?))
    }

    pub(crate) fn flock(directory: &Path) -> Self {
        Self::Flock(directory.into())
    }

    pub(crate) async fn token(url: &str) -> Result<Self> {
        Ok(Self::Token(url.into(), Token::connect(url, NAME).await?))
    }

    /// What it is called in the report.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Kilit(url, _) => url.split(':').next().unwrap_or(url),
            Self::Flock(_) => "bare blocking flock",
            Self::Token(..) => "bare BLPOP token",
        }
    }

    /// Takes it, so that all who want it wait.
    pub(crate) async fn close(&self) -> Result<Gate> {
        Ok(match self {
            Self::Kilit(_, client) => {
                let name = NAME.parse::<LockName>()?;
                let guard = client.mutex(name.clone()).acquire().await?;
                Gate::Kilit(client.clone(), name, guard)
            }
            Self::Flock(directory) => {
                let file = Flock(directory.join(NAME)).open()?;
                file.lock()?;
                Gate::Flock(file)
            }
            Self::Token(_, token) => {
                token.remove().await?;
                Gate::Token(token.clone())
            }
        })
    }

    async fn contender(&self) -> Result<Contender> {
        Ok(match self {
            Self::Kilit(_, client) => Contender::Kilit(client.mutex(NAME.parse()?)),
            Self::Flock(directory) => Contender::Flock(Flock(directory.join(NAME))),
            Self::Token(url, _) => Contender::Token(Token::connect(url, NAME).await?),
        })
    }

    fn worker(&self) -> Result<Command> {
        let (kind, at) = match self {
            Self::Kilit(url, _) => (Kind::Kilit, url.clone()),
            Self::Flock(directory) => (Kind::Flock, directory.display().to_string()),
            Self::Token(url, _) => (Kind::Token, url.clone()),
        };
        let kind = clap::ValueEnum::to_possible_value(&kind).ok_or("no such kind")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--kind", kind.get_name(), "--at", &at, "--name", NAME]);
        Ok(command)
    }
}

/// The lock, held by the bench itself until everyone stands in line.
pub(crate) enum Gate {
    Kilit(Client, LockName, Guard),
    Flock(File),
    Token(Token),
}

impl Gate {
    /// Returns when so many are waiting.
    pub(crate) async fn awaited_by(&self, waiters: usize) -> Result<()> {
        let all = async {
            match self {
                Self::Kilit(client, name, _) => {
                    while in_line(client, name).await? < waiters {
                        sleep(Duration::from_millis(5)).await;
                    }
                }
                // The kernel's line cannot be asked who stands in it.
                Self::Flock(_) => sleep(Duration::from_millis(100 + 5 * waiters as u64)).await,
                Self::Token(token) => token.awaited_by(waiters).await?,
            }
            Ok(())
        };
        timeout(ALL_WAIT, all).await.map_err(|_| "the contenders do not come to stand in line")?
    }

    /// Gives it back; the moment just before, in nanoseconds since boot.
    pub(crate) async fn open(self) -> Result<u64> {
        let released = Clock::system().now().as_nanos();
        match self {
            Self::Kilit(_, _, guard) => guard.release().await?,
            Self::Flock(file) => file.unlock()?,
            Self::Token(token) => token.give().await?,
        }
        Ok(released)
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
    pub(crate) async fn of_tasks(lock: &Lock, size: usize) -> Result<Self> {
        let mut contenders = vec![];
        for _ in 0..size {
            contenders.push(lock.contender().await?);
        }
        Ok(Self::Tasks(contenders, JoinSet::new()))
    }

    /// Starts the processes and waits until each is ready.
    pub(crate) async fn of_processes(lock: &Lock, size: usize) -> Result<Self> {
        let mut processes = vec![];
        for _ in 0..size {
            let mut command = lock.worker()?;
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

    /// Gives the word.
    pub(crate) async fn start(&mut self, round: Round) -> Result<()> {
        match self {
            Self::Tasks(contenders, running) => {
                for (i, contender) in contenders.iter().cloned().enumerate() {
                    running.spawn(async move { (i, contender.round(round).await) });
                }
            }
            Self::Processes(processes) => {
                let word = serde_json::to_string(&round)? + "\n";
                for process in processes {
                    process.stdin.write_all(word.as_bytes()).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the end of the round: each contender's turns.
    pub(crate) async fn turns(&mut self) -> Result<Vec<Vec<Turn>>> {
        let mut all = vec![];
        match self {
            Self::Tasks(contenders, running) => {
                all.resize(contenders.len(), vec![]);
                while let Some(done) = running.join_next().await {
                    let (i, turns) = done?;
                    all[i] = turns?;
                }
            }
            Self::Processes(processes) => {
                for process in processes {
                    let line = process.lines.next_line().await?.ok_or("a contender ended")?;
                    all.push(serde_json::from_str(&line)?);
                }
            }
        }
        Ok(all)
    }
}
