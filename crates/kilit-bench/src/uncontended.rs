//! Acquire and release where nobody else wants the lock: kilit and the bare system calls, in turn.

use std::{
    error::Error,
    fs::OpenOptions,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use kilit::{Client, LockName, Mutex};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    report::{Ratio, Report},
    stats::Spread,
};

/// What the file engine is to reach of the bare loop.
const FILE_GOAL: f64 = 0.5;

pub(crate) fn run(
    report: &mut Report,
    scratch: &Path,
    pairs: usize,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    for tasks in [1, 64] {
        for (what, url, goal) in [
            ("file", format!("file://{}", scratch.join("file").display()), Some(FILE_GOAL)),
            ("memory", "memory:".into(), None),
        ] {
            let client = runtime.block_on(kilit::open(&url))?;
            let (mut ours, mut peers, mut ratios) = (vec![], vec![], vec![]);
            for pair in 0..=pairs {
                // Whoever goes second finds the machine as the first has left it, so they take turns.
                let halves = if pair % 2 == 0 {
                    let ours = kilit_loop(&runtime, &client, tasks, time)?;
                    (ours, bare_loop(&runtime, scratch, tasks, time))
                } else {
                    let bare = bare_loop(&runtime, scratch, tasks, time);
                    (kilit_loop(&runtime, &client, tasks, time)?, bare)
                };
                // The first pair warms up.
                if pair > 0 {
                    ours.push(halves.0);
                    peers.push(halves.1);
                    ratios.push(halves.0 / halves.1);
                }
            }
            report.add_ratio(Ratio {
                what: what.into(),
                peer: "bare open + flock + unlock + close".into(),
                tasks,
                per_second: Spread::of(&ours),
                peer_per_second: Spread::of(&peers),
                ratio: Spread::of(&ratios),
                goal,
            });
        }
    }
    Ok(())
}

/// What one task does again and again.
#[derive(Clone)]
enum Cycle {
    Kilit(Mutex),
    Bare(PathBuf),
}

impl Cycle {
    async fn turn(&self) {
        match self {
            Self::Kilit(mutex) => {
                let guard = mutex.try_acquire().await.expect("nobody else wants it");
                guard.release().await.expect("it is held");
            }
            Self::Bare(path) => {
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
                let file = file.expect("the scratch directory is writable");
                file.try_lock().expect("nobody else wants it");
                file.unlock().expect("it is held");
            }
        }
    }
}

fn kilit_loop(
    runtime: &Runtime,
    client: &Client,
    tasks: usize,
    time: Duration,
) -> Result<f64, Box<dyn Error>> {
    let mutex = |i| LockName::new(format!("bench-{i}")).map(|name| Cycle::Kilit(client.mutex(name)));
    let cycles: Vec<Cycle> = (0..tasks).map(mutex).collect::<Result<_, _>>()?;
    Ok(runtime.block_on(per_second(cycles, time)))
}

fn bare_loop(runtime: &Runtime, scratch: &Path, tasks: usize, time: Duration) -> f64 {
    let cycles = (0..tasks).map(|i| Cycle::Bare(scratch.join(format!("bare-{i}")))).collect();
    runtime.block_on(per_second(cycles, time))
}

/// How many turns a second all cycles together make: one in this task, several in a task each.
async fn per_second(cycles: Vec<Cycle>, time: Duration) -> f64 {
    let begun = Instant::now();
    if let [cycle] = &cycles[..] {
        let mut turns = 0_u64;
        while begun.elapsed() < time {
            cycle.turn().await;
            turns += 1;
        }
        return turns as f64 / begun.elapsed().as_secs_f64();
    }
    let turns = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for cycle in cycles {
        let turns = turns.clone();
        tasks.spawn(async move {
            while begun.elapsed() < time {
                cycle.turn().await;
                turns.fetch_add(1, Ordering::Relaxed);
                // Neither arm ever waits, so each gives way to the other tasks.
                tokio::task::yield_now().await;
            }
        });
    }
    tasks.join_all().await;
    turns.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}
