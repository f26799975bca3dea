//! One contender: a process or a task that waits for the word, then wants the lock once, or again and again.

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use kilit::{Clock, Moment, Mutex};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Builder, time::sleep};

use crate::bare::{Flock, Token};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is wanted.
    #[arg(long, value_enum)]
    kind: Kind,
    /// The engine, the directory of the bare flock, or the server of the bare token.
    #[arg(long)]
    at: String,
    /// The lock's name.
    #[arg(long)]
    name: String,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Kilit,
    Flock,
    Token,
}

/// What a contender does when it gets the word.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Again and again for this long; otherwise once.
    pub(crate) again: Option<Duration>,
    /// How long it holds the lock each time.
    pub(crate) hold: Duration,
}

/// One acquisition, in nanoseconds of the boot-time clock, which all processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) released: u64,
}

/// Answers each round in a line of standard input with its turns, both as JSON.
pub(crate) fn main(args: &Args) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let contender = runtime.block_on(async {
        Ok::<_, Box<dyn Error>>(match args.kind {
            Kind::Kilit => Contender::Kilit(kilit::open(&args.at).await?.mutex(args.name.parse()?)),
            Kind::Flock => Contender::Flock(Flock(PathBuf::from(&args.at).join(&args.name))),
            Kind::Token => Contender::Token(Token::connect(&args.at, &args.name).await?),
        })
    })?;
    let mut out = io::stdout();
    writeln!(out, "ready")?;
    for line in io::stdin().lines() {
        let turns = runtime.block_on(contender.round(serde_json::from_str(&line?)?))?;
        writeln!(out, "{}", serde_json::to_string(&turns)?)?;
    }
    Ok(())
}

/// Who wants the lock.
#[derive(Clone)]
pub(crate) enum Contender {
    Kilit(Mutex),
    Flock(Flock),
    Token(Token),
}

impl Contender {
    /// Its turns in one round.
    pub(crate) async fn round(&self, round: Round) -> kilit::Result<Vec<Turn>> {
        let clock = Clock::system();
        let end = clock.now() + round.again.unwrap_or_default();
        let mut turns = Vec::new();
        loop {
            turns.push(self.turn(&clock, round.hold).await?);
            if clock.now() >= end {
                return Ok(turns);
            }
        }
    }

    async fn turn(&self, clock: &Clock, hold: Duration) -> kilit::Result<Turn> {
        let now = || Moment::as_nanos(clock.now());
        let held = async || {
            let granted = now();
            if !hold.is_zero() {
                sleep(hold).await;
            }
            (granted, now())
        };
        let asked = now();
        let (granted, released) = match self {
            Self::Kilit(mutex) => {
                let guard = mutex.acquire().await?;
                let held = held().await;
                guard.release().await?;
                held
            }
            Self::Flock(flock) => {
                let file = flock.open().map_err(failed)?;
                file.lock().map_err(failed)?;
                let held = held().await;
                file.unlock().map_err(failed)?;
                held
            }
            Self::Token(token) => {
                token.take().await.map_err(failed)?;
                let held = held().await;
                token.give().await.map_err(failed)?;
                held
            }
        };
        Ok(Turn { asked, granted, released })
    }
}

fn failed(error: impl Error) -> kilit::Error {
    kilit::Error::new(kilit::ErrorKind::Refused, error.to_string())
}
