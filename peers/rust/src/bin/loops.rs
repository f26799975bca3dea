//! The loops of kilit's bench, with rslock.
//!
//! ```text
//! loops rslock URL
//! ```
//!
//! Answers each line of stdin with a number: `uncontended TASKS MILLISECONDS` with acquisitions a second, of a lock each;
//! `drain WAITERS` with the milliseconds until all who wait for one lock have had it once.

#![forbid(unsafe_code)]

use std::{
    env, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rslock::LockManager;
use tokio::{task::JoinSet, time::sleep};

const TTL: Duration = Duration::from_secs(30);

#[tokio::main(worker_threads = 2)]
async fn main() {
    let url = env::args().nth(2).expect("usage: loops rslock URL");
    let mut locks = LockManager::new(vec![url]);
    println!("ready");
    for line in io::stdin().lines() {
        let line = line.expect("stdin can be read");
        let words: Vec<_> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().expect("a number");
        let answer = match words[0] {
            "uncontended" => uncontended(&locks, number(1), Duration::from_millis(number(2))).await,
            "drain" => drain(&mut locks, number(1)).await,
            other => panic!("what is {other}?"),
        };
        println!("{answer}");
    }
}

async fn uncontended(locks: &LockManager, tasks: u64, time: Duration) -> f64 {
    let (begun, turns) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (locks, turns, key) = (locks.clone(), turns.clone(), format!("rslock-{task}"));
        running.spawn(async move {
            while begun.elapsed() < time {
                locks.lock(key.as_bytes(), TTL).await.expect("nobody else wants it").release().await;
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    running.join_all().await;
    turns.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

async fn drain(locks: &mut LockManager, waiters: u64) -> f64 {
    // It waits for ever only in `acquire`, and by its own default for up to 200 ms between two looks.
    let gate = locks.lock("rslock-drain", TTL).await.expect("nobody has it");
    let mut running = JoinSet::new();
    for _ in 0..waiters {
        let locks = locks.clone();
        running.spawn(async move {
            locks.acquire("rslock-drain", TTL).await.expect("the lock").release().await;
        });
    }
    sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    gate.release().await;
    running.join_all().await;
    begun.elapsed().as_secs_f64() * 1e3
}
