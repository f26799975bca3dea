//! A holder that vanished keeps the lock closed for its lock-delay.

use std::time::{Duration, Instant};

use kilit_core::{Claim, Released};

use crate::{
    helper::Helper,
    support::{Dir, LONG, NOW, claim, cycle, release, shared, take},
};

const DELAY: Duration = Duration::from_millis(700);

#[tokio::test]
async fn an_orderly_release_delays_nobody() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let own = Claim { lock_delay: LONG, ..claim("x") };
    take(&*engine, &own, NOW).await.unwrap();
    assert_eq!(release(&*engine, &own).await, Released::Done);
    cycle(&*engine, "x").await;
    let own = Claim { lock_delay: LONG, ..shared("x") };
    take(&*engine, &own, NOW).await.unwrap();
    assert_eq!(release(&*engine, &own).await, Released::Done);
    cycle(&*engine, "x").await;
}

#[tokio::test]
async fn a_vanished_holder_delays_its_successor_once() {
    for mode in ["exclusive", "shared"] {
        let dir = Dir::new();
        let engine = dir.engine().await;
        let mut other = Helper::start(&dir, &format!("hold x {mode} {}", DELAY.as_millis()));
        other.held();
        other.0.kill();
        let start = Instant::now();
        assert_eq!(take(&*engine, &claim("x"), NOW).await, None, "{mode}");
        let seen = Instant::now();
        // Giving up does not start it anew.
        assert_eq!(take(&*engine, &claim("x"), DELAY / 4).await, None, "{mode}");
        let own = claim("x");
        assert!(take(&*engine, &own, LONG).await.is_some());
        assert!(start.elapsed() >= DELAY, "{mode}: {:?}", start.elapsed());
        assert!(seen.elapsed() < DELAY * 2, "{mode}: {:?}", seen.elapsed());
        release(&*engine, &own).await;
        cycle(&*engine, "x").await;
    }
}

#[tokio::test]
async fn without_a_delay_nobody_waits() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let mut other = Helper::hold(&dir, "x");
    other.held();
    other.0.kill();
    cycle(&*engine, "x").await;
}
