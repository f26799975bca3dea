//! The line of waiters.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kilit_core::Engine;
use kilit_testbed::count;
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use crate::{
    helper::Helper,
    support::{Dir, LONG, NOW, claim, cycle, release, shared, take, until, until_waiting},
};

/// Starts `count` processes that wait for `x`, in this order.
async fn waiters(dir: &Dir, engine: &dyn Engine, count: usize) -> Vec<Helper> {
    let mut waiters = vec![];
    for n in 1..=count {
        waiters.push(Helper::hold(dir, "x"));
        until_waiting(engine, "x", n).await;
    }
    waiters
}

#[tokio::test]
async fn waiters_are_served_in_the_order_they_came() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let waiters = waiters(&dir, &*engine, 4).await;
    assert_eq!(take(&*engine, &claim("x"), NOW).await, None);
    release(&*engine, &holder).await;
    let mut last = 0;
    for (n, mut waiter) in waiters.into_iter().enumerate() {
        let token = waiter.held();
        assert!(token > last);
        last = token;
        until_waiting(&*engine, "x", 3 - n).await;
        assert_eq!(take(&*engine, &claim("x"), NOW).await, None, "held by number {n}");
        waiter.release();
    }
    cycle(&*engine, "x").await;
}

#[tokio::test]
async fn who_dies_in_the_middle_lets_nobody_through_and_holds_nobody_up() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let mut line = waiters(&dir, &*engine, 3).await;
    line[1].0.kill();
    until_waiting(&*engine, "x", 2).await;
    assert!(!line[2].has_held());
    release(&*engine, &holder).await;
    line[0].held();
    assert!(!line[2].has_held());
    line.remove(0).release();
    line[1].held();
    until("the dead place is gone", async || dir.places("x") == 0).await;
}

#[tokio::test]
async fn who_is_stopped_is_passed_by() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let mut line = waiters(&dir, &*engine, 3).await;
    line[0].0.stop();
    release(&*engine, &holder).await;
    line[1].held();
    assert!(!line[2].has_held());
    line[0].0.resume();
    line.remove(1).release();
    line[0].held();
    line.remove(0).release();
    line[0].held();
}

#[tokio::test]
async fn two_who_are_stopped_are_passed_by_in_order() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let mut line = waiters(&dir, &*engine, 4).await;
    line[0].0.stop();
    line[1].0.stop();
    release(&*engine, &holder).await;
    line[2].held();
    assert!(!line[3].has_held());
}

#[tokio::test]
async fn a_stopped_one_in_the_middle_is_passed_by_too() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let mut line = waiters(&dir, &*engine, 3).await;
    line[1].0.stop();
    release(&*engine, &holder).await;
    line[0].held();
    line.remove(0).release();
    line[1].held();
}

#[tokio::test]
async fn readers_behind_a_writer_wait_for_it() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let reader = shared("x");
    take(&*engine, &reader, NOW).await.unwrap();
    let mut writer = Helper::hold(&dir, "x");
    until_waiting(&*engine, "x", 1).await;
    assert_eq!(take(&*engine, &shared("x"), NOW).await, None, "a reader does not pass a writer");
    let mut readers: Vec<_> = (0..2).map(|_| Helper::start(&dir, "hold x shared 0")).collect();
    until_waiting(&*engine, "x", 3).await;
    // Longer than their own looks: they leave the lock to the writer.
    assert_eq!(take(&*engine, &shared("x"), Duration::from_millis(1200)).await, None);
    assert!(!readers.iter().any(Helper::has_held));
    release(&*engine, &reader).await;
    writer.held();
    assert!(!readers.iter().any(Helper::has_held));
    writer.release();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.held(), 0, "both at once"));
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_nothing() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    assert_eq!(take(&*engine, &claim("x"), Duration::from_millis(10)).await, None);
    let fds = count::open_fds(std::process::id());
    assert_eq!(dir.places("x"), 0);
    for round in 0..200 {
        let late = claim("x");
        let patience = Duration::from_micros(fastrand::u64(1..3000));
        let waiting = async {
            match round % 2 {
                0 => take(&*engine, &late, patience).await,
                // Dropped wherever it is, as a caller that gives up.
                _ => tokio::time::timeout(patience, take(&*engine, &late, LONG)).await.ok().flatten(),
            }
        };
        assert_eq!(waiting.await, None);
        release(&*engine, &late).await;
    }
    assert_eq!(dir.places("x"), 0);
    until("descriptors are as they were", async || count::open_fds(std::process::id()) <= fds + 2).await;
    release(&*engine, &holder).await;
    cycle(&*engine, "x").await;
}

#[tokio::test]
async fn giving_up_at_the_moment_of_the_grant_loses_nothing() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    cycle(&*engine, "x").await;
    for _ in 0..300 {
        let (holder, late) = (claim("x"), claim("x"));
        take(&*engine, &holder, NOW).await.unwrap();
        let patience = Duration::from_micros(fastrand::u64(100..1500));
        let waiting = async {
            drop(tokio::time::timeout(patience, take(&*engine, &late, LONG)).await);
            release(&*engine, &late).await;
        };
        let releasing = async {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(100..1500))).await;
            release(&*engine, &holder).await;
        };
        tokio::join!(waiting, releasing);
        assert_eq!(dir.places("x"), 0);
        cycle(&*engine, "x").await;
    }
}

/// Counts how often waiters were woken, and how often that was by an event.
#[derive(Clone, Default)]
struct Wakes(Arc<(AtomicUsize, AtomicUsize)>);

impl<S: tracing::Subscriber> Layer<S> for Wakes {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        struct Visit(bool);
        impl tracing::field::Visit for Visit {
            fn record_bool(&mut self, _: &tracing::field::Field, value: bool) {
                self.0 |= value;
            }
            fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
        }
        if event.metadata().target() == "kilit_file::wait" {
            let mut visit = Visit(false);
            event.record(&mut visit);
            let (events, looks) = &*self.0;
            if visit.0 { events } else { looks }.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn a_hand_over_wakes_a_few_and_no_herd() {
    let wakes = Wakes::default();
    let subscriber = tracing_subscriber::registry().with(wakes.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let local = tokio::task::LocalSet::new();
    let order = Rc::new(RefCell::new(vec![]));
    local
        .run_until(async {
            let mut tasks = vec![];
            for n in 0..64 {
                let (engine, order) = (engine.clone(), order.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    let claim = claim("x");
                    take(&*engine, &claim, LONG * 3).await.expect("a turn in time");
                    order.borrow_mut().push(n);
                    release(&*engine, &claim).await;
                }));
                // In order.
                until("it stands in line", async || dir.places("x") == n + 1).await;
            }
            let before = wakes.0.0.load(Ordering::Relaxed);
            release(&*engine, &holder).await;
            for task in tasks {
                task.await.unwrap();
            }
            let by_event = wakes.0.0.load(Ordering::Relaxed) - before;
            assert!(by_event >= 64, "they are woken and do not look by chance: {by_event}");
            assert!(by_event <= 64 * 3, "{by_event} wake-ups for 64 hand-overs");
        })
        .await;
    assert!(order.borrow().is_sorted(), "{:?}", order.borrow());
}

#[tokio::test]
async fn an_idle_waiter_sleeps() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.unwrap();
    let line = waiters(&dir, &*engine, 2).await;
    let before: Vec<_> = line.iter().map(|waiter| count::voluntary_switches(waiter.0.pid())).collect();
    let cpu: Vec<_> = line.iter().map(|waiter| count::cpu_time(waiter.0.pid())).collect();
    // The time is what is measured here.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for ((waiter, before), cpu) in line.iter().zip(before).zip(cpu) {
        let switches = count::voluntary_switches(waiter.0.pid()) - before;
        assert!(switches <= 20, "{switches} voluntary context switches in 3 s");
        assert!(count::cpu_time(waiter.0.pid()) - cpu < Duration::from_millis(50));
    }
}

#[tokio::test]
async fn a_file_that_is_nobodys_place_does_not_end_the_numbers() {
    let dir = Dir::new();
    let engine = dir.engine().await;
    let holder = claim("x");
    take(&*engine, &holder, NOW).await.expect("it is free");
    let line = dir.path().join("lines").join("x");
    std::fs::create_dir_all(&line).unwrap();
    std::fs::write(line.join(u64::MAX.to_string()), "").unwrap();
    let waiter = claim("x");
    let waiting = take(&*engine, &waiter, LONG);
    let releasing = async {
        until_waiting(&*engine, "x", 1).await;
        release(&*engine, &holder).await
    };
    assert!(tokio::join!(waiting, releasing).0.is_some());
}
