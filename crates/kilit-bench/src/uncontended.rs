//! Acquire and release where nobody else wants the lock: kilit and its peers, in turn.

use std::{
    error::Error,
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use kilit::{Client, LockName, Mutex};
use kilit_testbed::server::{Redis, Server};
use tokio::{process::Command, task::JoinSet};

use crate::{
    bare::{CANCEL, Flock, ScriptLock, Scripts, TAKE, TAKE_WITHOUT_TOKEN},
    cpu,
    peer::{Peer, Program},
    report::{Cost, Ratio, Report},
    stats::Spread,
};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// How many tasks take a lock each.
const TASKS: [usize; 2] = [1, 64];

/// One arm alone, for a profiler to look at.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine.
    #[arg(long)]
    engine: String,
    /// A client that only sends the scripts, to an engine of Redis.
    #[arg(long)]
    bare: bool,
    /// How many tasks take a lock each.
    #[arg(long, default_value_t = 1)]
    tasks: usize,
    #[arg(long = "for", value_parser = kilit::duration::parse)]
    time: Duration,
}

pub(crate) async fn alone(args: &Args) -> Result<()> {
    let mut arm = match args.bare {
        true => Arm::Scripts(Scripts::connect(&args.engine, TAKE, CANCEL).await?),
        false => Arm::Kilit(kilit::open(&args.engine).await?),
    };
    let before = cpu::used_by(process::id());
    let (begun, per_second) = (Instant::now(), arm.per_second(args.tasks, args.time).await?);
    let turns = per_second * begun.elapsed().as_secs_f64();
    let used = (cpu::used_by(process::id()) - before).as_secs_f64() * 1e6 / turns;
    println!("{per_second:.0} a second, {used:.1} us of CPU time each");
    Ok(())
}

/// Arms that run in turn, again and again.
pub(crate) struct Bout {
    arms: Vec<(String, Arm)>,
    beside: Vec<Beside>,
    /// The process of the server, where there is one.
    server: Option<u32>,
}

/// What one arm did in each round.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    /// CPU time of one turn, in microseconds.
    client_us: Vec<f64>,
    server_us: Vec<f64>,
}

/// Which arm stands beside which, and what their ratio is to reach at 1 task and at 64.
struct Beside(usize, usize, [Option<f64>; TASKS.len()]);

/// Who takes and gives back.
enum Arm {
    Kilit(Client),
    /// With its files in this directory.
    Flock(PathBuf),
    Scripts(Scripts),
    Program(Box<Program>),
    /// redis-benchmark, which only sets a key, again and again: half as often as it does is what two commands can be.
    RedisBenchmark(SocketAddr),
}

impl Bout {
    /// An engine beside the bare system calls.
    pub(crate) async fn with_flock(url: &str, scratch: &Path, goal: Option<f64>) -> Result<Self> {
        Ok(Self {
            arms: vec![
                (url.split(':').next().unwrap_or(url).into(), Arm::Kilit(kilit::open(url).await?)),
                ("bare open + flock + unlock + close".into(), Arm::Flock(scratch.into())),
            ],
            // The bare loop is one loop: its share is a goal for one task.
            beside: vec![Beside(0, 1, [goal, None])],
            server: None,
        })
    }

    /// The Redis engine beside a client that only sends the scripts, and beside what else there is.
    pub(crate) async fn with_redis(server: &Server<Redis>) -> Result<Self> {
        let url = &server.url();
        let bare = Scripts::connect(url, TAKE, CANCEL).await?;
        let without_token = Scripts::connect(url, TAKE_WITHOUT_TOKEN, CANCEL).await?;
        let mut arms = vec![
            ("redis".into(), Arm::Kilit(kilit::open(url).await?)),
            ("bare client, same scripts".into(), Arm::Scripts(bare)),
            ("bare client, no token, no line".into(), Arm::Scripts(without_token)),
        ];
        let mut beside = vec![Beside(0, 1, [Some(0.9), Some(0.8)]), Beside(1, 2, [None; 2])];
        beside.push(Beside(0, arms.len(), [None; 2]));
        arms.push(("redis-benchmark, half its SETs".into(), Arm::RedisBenchmark(server.addr())));
        for peer in Peer::ALL {
            let goal = matches!(peer, Peer::Rslock).then_some(1.0);
            beside.push(Beside(0, arms.len(), [None, goal]));
            arms.push((peer.name().into(), Arm::Program(Box::new(peer.start(url).await?))));
        }
        Ok(Self { arms, beside, server: Some(server.pid()) })
    }

    /// The rows.
    pub(crate) async fn run(mut self, report: &mut Report, rounds: usize, time: Duration) -> Result<()> {
        for (i, tasks) in TASKS.into_iter().enumerate() {
            let all = self.rounds(tasks, rounds, time).await?;
            for Beside(ours, peer, goals) in &self.beside {
                let (per_second, its) = (&all[*ours].per_second, &all[*peer].per_second);
                let ratios: Vec<_> = per_second.iter().zip(its).map(|(our, its)| our / its).collect();
                report.add_ratio(Ratio {
                    what: self.arms[*ours].0.clone(),
                    peer: self.arms[*peer].0.clone(),
                    tasks,
                    per_second: Spread::of(per_second),
                    peer_per_second: Spread::of(its),
                    ratio: Spread::of(&ratios),
                    goal: goals[i],
                });
            }
            for ((what, arm), rounds) in self.arms.iter().zip(&all) {
                report.add_cost(Cost {
                    what: what.clone(),
                    tasks,
                    client_us: arm.pid().map(|_| Spread::of(&rounds.client_us)),
                    server_us: self.server.map(|_| Spread::of(&rounds.server_us)),
                });
            }
        }
        Ok(())
    }

    async fn rounds(&mut self, tasks: usize, rounds: usize, time: Duration) -> Result<Vec<Rounds>> {
        let mut all: Vec<_> = self.arms.iter().map(|_| Rounds::default()).collect();
        for round in 0..=rounds {
            let mut order: Vec<_> = all.iter_mut().zip(&mut self.arms).collect();
            // Whoever comes later finds the machine as the others have left it, so the order turns round.
            if round % 2 == 1 {
                order.reverse();
            }
            for (rounds, (_, arm)) in order {
                let (client, server) = (arm.pid(), self.server);
                let used = || [client, server].map(|pid| pid.map_or(Duration::ZERO, cpu::used_by));
                let before = used();
                let begun = Instant::now();
                let per_second = arm.per_second(tasks, time).await?;
                let turns = per_second * begun.elapsed().as_secs_f64();
                let of_a_turn = |used: Duration| used.as_secs_f64() * 1e6 / turns;
                // The first round warms up.
                if round > 0 {
                    let after = used();
                    rounds.per_second.push(per_second);
                    rounds.client_us.push(of_a_turn(after[0] - before[0]));
                    rounds.server_us.push(of_a_turn(after[1] - before[1]));
                }
            }
        }
        Ok(all)
    }
}

impl Arm {
    /// The process of the client, where it outlives a round.
    fn pid(&self) -> Option<u32> {
        match self {
            Self::Program(program) => Some(program.pid()),
            Self::RedisBenchmark(_) => None,
            _ => Some(process::id()),
        }
    }

    async fn per_second(&mut self, tasks: usize, time: Duration) -> Result<f64> {
        let names = (0..tasks).map(|i| format!("bench-{i}"));
        let cycles: Vec<Cycle> = match self {
            Self::Kilit(client) => {
                let mutex = |name| LockName::new(name).map(|name| Cycle::Kilit(client.mutex(name)));
                names.map(mutex).collect::<Result<_, _>>()?
            }
            Self::Flock(scratch) => names.map(|name| Cycle::Flock(Flock(scratch.join(name)))).collect(),
            Self::Scripts(scripts) => names.map(|name| Cycle::Scripts(scripts.lock(&name))).collect(),
            Self::Program(program) => return program.uncontended(tasks, time).await,
            Self::RedisBenchmark(addr) => return Ok(redis_benchmark(*addr, tasks, time).await? / 2.0),
        };
        Ok(per_second(cycles, time).await)
    }
}

/// How many SETs it sends a second over so many connections.
async fn redis_benchmark(addr: SocketAddr, connections: usize, time: Duration) -> Result<f64> {
    // It counts requests and not seconds: so many take about that long.
    let requests = (40_000.0 * time.as_secs_f64()).ceil();
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string(), "--csv"]);
    command.args(["-c", &connections.to_string(), "-n", &requests.to_string()]);
    let output = command.args(["SET", "bench", "value", "PX", "30000"]).output().await?;
    let text = String::from_utf8(output.stdout)?;
    let rate = text.lines().last().and_then(|row| row.split("\",\"").nth(1)?.parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark says: {text}").into())
}

/// What one task does again and again.
enum Cycle {
    Kilit(Mutex),
    Flock(Flock),
    Scripts(ScriptLock),
}

impl Cycle {
    async fn turn(&self) {
        match self {
            Self::Kilit(mutex) => {
                let guard = mutex.try_acquire().await.expect("nobody else wants it");
                guard.release().await.expect("it is held");
            }
            Self::Flock(flock) => flock.turn().expect("nobody else wants it"),
            Self::Scripts(lock) => lock.turn().await.expect("nobody else wants it"),
        }
    }
}

/// How many turns a second all cycles together make, in a task each.
async fn per_second(cycles: Vec<Cycle>, time: Duration) -> f64 {
    let begun = Instant::now();
    let turns = Arc::new(AtomicU64::new(0));
    let alone = cycles.len() == 1;
    let mut tasks = JoinSet::new();
    for cycle in cycles {
        let turns = turns.clone();
        tasks.spawn(async move {
            while begun.elapsed() < time {
                cycle.turn().await;
                turns.fetch_add(1, Ordering::Relaxed);
                // Where nothing ever waits, each gives way to the others.
                if !alone {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    tasks.join_all().await;
    turns.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}
