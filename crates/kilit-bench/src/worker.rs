//! One contender: a process that waits for the word, then wants the lock once, or again and again.

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use kilit::{Clock, Moment, Mutex};
use serde::{Deserialize, Serialize};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine; without it, a bare blocking flock on `lock`.
    #[arg(long)]
    engine: Option<String>,
    /// The lock's name, or the file of the bare flock.
    #[arg(long)]
    lock: String,
    /// Again and again for this long; without it, once.
    #[arg(long, value_parser = kilit::duration::parse)]
    again: Option<Duration>,
}

/// One acquisition, in nanoseconds of the boot-time clock, which all processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) released: u64,
}

/// Answers each line of standard input with the turns of one round, as JSON.
pub(crate) fn main(args: &Args) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let contender = match &args.engine {
        Some(url) => Contender::Kilit(runtime.block_on(kilit::open(url))?.mutex(args.lock.parse()?)),
        None => Contender::Bare(PathBuf::from(&args.lock)),
    };
    let mut out = io::stdout();
    writeln!(out, "ready")?;
    for line in io::stdin().lines() {
        line?;
        let turns = runtime.block_on(contender.round(args.again))?;
        writeln!(out, "{}", serde_json::to_string(&turns)?)?;
    }
    Ok(())
}

/// Who wants the lock.
#[derive(Clone)]
pub(crate) enum Contender {
    Kilit(Mutex),
    Bare(PathBuf),
}

impl Contender {
    /// Wants the lock once, or for as long as `again`.
    pub(crate) async fn round(&self, again: Option<Duration>) -> Result<Vec<Turn>, kilit::Error> {
        let clock = Clock::system();
        let end = clock.now() + again.unwrap_or_default();
        let mut turns = Vec::new();
        loop {
            turns.push(self.turn(&clock).await?);
            if clock.now() >= end {
                return Ok(turns);
            }
        }
    }

    async fn turn(&self, clock: &Clock) -> Result<Turn, kilit::Error> {
        let now = || Moment::as_nanos(clock.now());
        let asked = now();
        match self {
            Self::Kilit(mutex) => {
                let guard = mutex.acquire().await?;
                let (granted, released) = (now(), now());
                guard.release().await?;
                Ok(Turn { asked, granted, released })
            }
            Self::Bare(path) => {
                let failed =
                    |error: io::Error| kilit::Error::new(kilit::ErrorKind::Refused, error.to_string());
                let file = open(path).map_err(failed)?;
                file.lock().map_err(failed)?;
                let (granted, released) = (now(), now());
                file.unlock().map_err(failed)?;
                Ok(Turn { asked, granted, released })
            }
        }
    }
}

pub(crate) fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}
