//! Benches. Every figure stands beside a peer that ran in the same minute on the same machine.
//!
//! `cargo run --release -p kilit-bench` runs all and prints a Markdown table; `--json FILE` writes the figures.

#![forbid(unsafe_code)]

mod bare;
mod contended;
mod cpu;
mod crowd;
mod leases;
mod peer;
mod report;
mod server;
mod stats;
mod uncontended;
mod worker;

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum};
use kilit_testbed::server::{Redis, Server, redis::RedisCluster};
use tokio::runtime::{Builder, Runtime};

use crate::{contended::Kind, crowd::Lock, report::Report};

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

/// What the file engine is to reach of the bare system calls.
const FILE_GOAL: f64 = 0.5;

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
    let scratch = tempfile::tempdir()?;
    let mut plan = Plan::new(args);
    for engine in &args.engine {
        match engine {
            Engine::File => plan.file(scratch.path()).await?,
            Engine::Memory => plan.memory(scratch.path()).await?,
            Engine::Redis => plan.redis().await?,
        }
    }
    print!("{}", plan.report.markdown());
    if let Some(path) = &args.json {
        std::fs::write(path, plan.report.json()?)?;
    }
    Ok(())
}

/// How much is done of everything.
struct Plan<'a> {
    report: Report,
    parts: &'a [Part],
    pairs: usize,
    time: Duration,
    crowds: &'static [usize],
    leases: &'static [usize],
}

impl<'a> Plan<'a> {
    fn new(args: &'a Args) -> Self {
        let (pairs, time) = if args.smoke { (1, Duration::from_millis(50)) } else { (args.pairs, args.time) };
        Self {
            report: Report::new(pairs, time),
            parts: &args.part,
            pairs,
            time,
            crowds: if args.smoke { &[2, 3] } else { &[2, 3, 16, 64] },
            leases: if args.smoke { &[1000] } else { &[10_000, 100_000] },
        }
    }

    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    async fn file(&mut self, scratch: &Path) -> Result<(), Box<dyn Error>> {
        let url = format!("file://{}", scratch.join("file").display());
        if self.has(Part::Uncontended) {
            let bout = uncontended::Bout::with_flock(&url, scratch, Some(FILE_GOAL)).await?;
            bout.run(&mut self.report, self.pairs, self.time).await?;
        }
        let locks = [Lock::kilit(&url).await?, Lock::flock(scratch)];
        self.contend(&locks, Kind::Processes, None, None).await?;
        self.contend(&locks[..1], Kind::Tasks, None, None).await
    }

    async fn memory(&mut self, scratch: &Path) -> Result<(), Box<dyn Error>> {
        if self.has(Part::Uncontended) {
            let bout = uncontended::Bout::with_flock("memory:", scratch, None).await?;
            bout.run(&mut self.report, self.pairs, self.time).await?;
        }
        self.contend(&[Lock::kilit("memory:").await?], Kind::Tasks, None, None).await
    }

    async fn redis(&mut self) -> Result<(), Box<dyn Error>> {
        let server = Redis::start();
        let url = server.url();
        if self.has(Part::Uncontended) {
            let bout = uncontended::Bout::with_redis(&server).await?;
            bout.run(&mut self.report, self.pairs, self.time).await?;
        }
        let locks = [Lock::kilit(&url).await?, Lock::token(&url).await?];
        self.contend(&locks, Kind::Tasks, Some(4.0), Some(&server)).await?;
        self.contend(&locks, Kind::Processes, Some(8.0), Some(&server)).await?;
        if self.has(Part::Contended) {
            let waiters = self.crowds.iter().copied().max().unwrap_or(0);
            contended::peers(&mut self.report, &server, waiters, self.pairs.min(5)).await?;
        }
        if self.has(Part::Leases) {
            let (ttl, time) = (self.time * 15, self.time * 30);
            for &count in self.leases {
                let servers = slice::from_ref(&server);
                leases::run(&mut self.report, "on one server", servers, &url, count, ttl, time).await?;
            }
            let cluster = RedisCluster::start();
            for &count in self.leases {
                let (servers, url) = (&cluster.nodes, cluster.url());
                leases::run(&mut self.report, "on a cluster of 3", servers, &url, count, ttl, time).await?;
            }
        }
        Ok(())
    }

    /// All that a crowd does, of every size.
    async fn contend(
        &mut self,
        locks: &[Lock],
        kind: Kind,
        goal: Option<f64>,
        server: Option<&Server<Redis>>,
    ) -> Result<(), Box<dyn Error>> {
        if !self.has(Part::Contended) {
            return Ok(());
        }
        let bout = contended::Bout { locks, kind, goal, server };
        for &waiters in self.crowds {
            bout.once_each(&mut self.report, waiters, self.pairs).await?;
            bout.again(&mut self.report, waiters, self.time, Duration::ZERO).await?;
        }
        // How many commands it takes depends on how long the lock is held.
        let ours = contended::Bout { locks: &locks[..1], kind, goal, server };
        for &waiters in self.crowds.iter().filter(|waiters| server.is_some() && matches!(waiters, 2 | 64)) {
            for hold in [1, 10].map(Duration::from_millis) {
                ours.again(&mut self.report, waiters, 3 * self.time, hold).await?;
            }
        }
        Ok(())
    }
}
