//! Benches. Every figure stands beside a peer that ran in the same minute on the same machine.
//!
//! `cargo run --release -p kilit-bench` runs all and prints a Markdown table; `--json FILE` writes the figures.

#![forbid(unsafe_code)]

mod bare;
mod contended;
mod crowd;
mod peer;
mod report;
mod stats;
mod uncontended;
mod worker;

use std::{error::Error, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use kilit_testbed::server::Redis;
use tokio::runtime::Builder;

use crate::uncontended::Bout;

/// Benches of kilit.
#[derive(Parser)]
struct Args {
    /// Only these engines.
    #[arg(long, value_enum, default_values = ["file", "memory", "redis"])]
    engine: Vec<Engine>,
    /// How many A/B pairs a ratio is made of.
    #[arg(long, default_value_t = 11)]
    pairs: usize,
    /// How long each half of a pair, and each contended loop, runs.
    #[arg(long, default_value = "2s", value_parser = kilit::duration::parse)]
    time: Duration,
    /// Writes all figures here.
    #[arg(long)]
    json: Option<PathBuf>,
    /// One short pass that only shows that everything runs; its figures mean nothing.
    #[arg(long)]
    smoke: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    File,
    Memory,
    Redis,
}

#[derive(Subcommand)]
enum Command {
    /// One contender of a contest; started by the bench itself.
    #[command(hide = true)]
    Worker(worker::Args),
}

/// What the file engine is to reach of the bare system calls.
const FILE_GOAL: f64 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    match &args.command {
        Some(Command::Worker(worker)) => worker::main(worker),
        None => Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(&args)),
    }
}

async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let (pairs, time) = if args.smoke { (1, Duration::from_millis(50)) } else { (args.pairs, args.time) };
    let scratch = tempfile::tempdir()?;
    let mut report = report::Report::new(pairs, time);
    for engine in &args.engine {
        let redis;
        let bout = match engine {
            Engine::File => {
                let url = format!("file://{}", scratch.path().join("file").display());
                Bout::with_flock(&url, scratch.path(), Some(FILE_GOAL)).await?
            }
            Engine::Memory => Bout::with_flock("memory:", scratch.path(), None).await?,
            Engine::Redis => {
                redis = Redis::start();
                Bout::with_redis(&redis.url()).await?
            }
        };
        bout.run(&mut report, pairs, time).await?;
    }
    let crowds: &[usize] = if args.smoke { &[2, 3] } else { &[2, 3, 16, 64] };
    contended::run(&mut report, scratch.path(), crowds, time, args.smoke).await?;
    print!("{}", report.markdown());
    if let Some(path) = &args.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(())
}
