//! Benches. Every figure stands beside a peer that ran in the same minute on the same machine.
//!
//! `./test speed` runs all and prints Markdown tables; `--json FILE` writes the figures.

#![forbid(unsafe_code)]

mod bare;
mod contended;
mod cpu;
mod crowd;
mod leases;
mod peer;
mod plan;
mod report;
mod server;
mod stats;
mod uncontended;
mod worker;

use std::{error::Error, io, path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use tokio::runtime::{Builder, Runtime};

use crate::plan::Plan;

/// Benches of kilit.
#[derive(Parser)]
struct Args {
    /// Only these engines.
    #[arg(long, value_enum, default_values = ["file", "memory", "redis"])]
    engine: Vec<Engine>,
    /// Only these parts.
    #[arg(long, value_enum, default_values = ["uncontended", "contended", "leases"])]
    part: Vec<Part>,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Acquire and release where nobody else wants the lock.
    Uncontended,
    /// Many who want one lock.
    Contended,
    /// Many leases held at once.
    Leases,
}

#[derive(Subcommand)]
enum Command {
    /// One contender of a contest; started by the bench itself.
    #[command(hide = true)]
    Worker(worker::Args),
    /// Who holds many leases; started by the bench itself.
    #[command(hide = true)]
    Holder(leases::Args),
    /// Acquire and release again and again, with nothing beside it: for a profiler.
    Alone(uncontended::Args),
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    match &args.command {
        Some(Command::Worker(worker)) => worker::main(worker),
        Some(Command::Holder(holder)) => leases::main(holder),
        Some(Command::Alone(alone)) => runtime()?.block_on(uncontended::alone(alone)),
        None => runtime()?.block_on(run(&args)),
    }
}

/// As large as the machine that the goals are for, and the same for every arm.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let report = Plan::new(args).run(&args.engine).await?;
    print!("{}", report.markdown());
    if let Some(path) = &args.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(())
}
