//! Benches. Every figure stands beside a peer that ran in the same minute on the same machine.
//!
//! `cargo run --release -p kilit-bench` runs all and prints a Markdown table; `--json FILE` writes the figures.

#![forbid(unsafe_code)]

mod contended;
mod crowd;
mod report;
mod stats;
mod uncontended;
mod worker;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

/// Benches of kilit.
#[derive(Parser)]
struct Args {
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

#[derive(Subcommand)]
enum Command {
    /// One contender of a contest; started by the bench itself.
    #[command(hide = true)]
    Worker(worker::Args),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if let Some(Command::Worker(worker)) = args.command {
        return worker::main(&worker);
    }
    let (pairs, time) = if args.smoke { (1, Duration::from_millis(50)) } else { (args.pairs, args.time) };
    let scratch = tempfile::tempdir()?;
    let mut report = report::Report::new(pairs, time);
    uncontended::run(&mut report, scratch.path(), pairs, time)?;
    let crowds: &[usize] = if args.smoke { &[2, 3] } else { &[2, 3, 16, 64] };
    contended::run(&mut report, scratch.path(), crowds, time, args.smoke)?;
    print!("{}", report.markdown());
    if let Some(path) = args.json {
        std::fs::write(path, report.json()?)?;
    }
    Ok(())
}
