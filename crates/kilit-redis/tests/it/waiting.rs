//! Who waits is woken, whatever ends the hold in front.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use kilit_core::Client;
use kilit_testbed::{
    Process, bins,
    chaos::{ChaosProxy, Mode},
    server::{
        Redis, Server,
        redis::{Monitor, Persistence},
    },
};

use crate::support::{
    Ask, LONG, SOON, client, eventually, expect_pushed, granted, hold, is_busy, line, mutex, take_foreign,
    wait_for, within,
};

/// For a machine that is busy with something else.
const SLACK: Duration = Duration::from_secs(3);

/// Waits until the head watches the key.
fn until_watched(monitor: &Monitor, times: usize) {
    monitor.wait("the head watches", |lines| {
        lines.iter().filter(|line| line.contains("\"GET\" \"lock:x\"") && !line.contains("lua]")).count()
            >= times
    });
}

/// How long a waiter stays asleep after `wake`, in each of several rounds.
async fn rounds(client: &Client, server: &Server<Redis>, mut wake: impl FnMut(usize)) -> Vec<Duration> {
    let monitor = server.monitor();
    let mut all = Vec::new();
    for round in 0..8 {
        take_foreign(server, "x", 60_000);
        let waiting = wait_for(mutex(client, "x", LONG));
        until_watched(&monitor, round + 1);
        let begun = Instant::now();
        wake(round);
        granted(waiting).await.release().await.unwrap();
        all.push(begun.elapsed());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_delete_wakes_the_head() {
    let server = Redis::start();
    let client = client(server.url()).await;
    expect_pushed(&rounds(&client, &server, |_| server.ask::<()>("DEL lock:x")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_database_wakes_the_head() {
    let server = Redis::start();
    let client = client(server.url()).await;
    expect_pushed(&rounds(&client, &server, |_| server.ask::<()>("FLUSHALL")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_foreign_lease_wakes_the_head() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let taken = rounds(&client, &server, |_| server.ask::<()>("PEXPIRE lock:x 20")).await;
    expect_pushed(&taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_connections_are_killed_is_woken_none_the_less() {
    let server = Redis::start();
    let client = client(server.url()).await;
    take_foreign(&server, "x", 60_000);
    let waiting = wait_for(mutex(&client, "x", LONG));
    let monitor = server.monitor();
    for round in 0..3 {
        until_watched(&monitor, round + 1);
        assert!(server.ask::<i64>("CLIENT KILL TYPE pubsub") > 0);
    }
    drop(monitor);
    let begun = Instant::now();
    server.ask::<()>("DEL lock:x");
    granted(waiting).await.release().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_outlives_its_server() {
    let mut server = Server::start(Redis::new().persistence(Persistence::Aof { fsync: "always" }));
    let client = client(server.url()).await;
    let guard = hold(&client, "x", LONG).await;
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let mutex = mutex(&client, "x", LONG);
            tokio::spawn(async move { mutex.acquire_within(SOON).await.unwrap().release().await.unwrap() })
        })
        .collect();
    eventually("all stand in line", async || line(&server, "x") == 3).await;
    server.kill();
    server.restart();
    eventually("all stand in line again", async || line(&server, "x") == 3).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        within("its turn", waiter).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_races_the_wait_is_never_missed() {
    let server = Redis::start();
    let (one, other) = (client(server.url()).await, client(server.url()).await);
    let (mine, theirs) = (mutex(&one, "x", LONG), mutex(&other, "x", LONG));
    let begun = Instant::now();
    let mut guard = mine.try_acquire().await.unwrap();
    for round in 0..300 {
        let next = if round % 2 == 0 { &theirs } else { &mine };
        let (released, taken) = tokio::join!(guard.release(), next.acquire_within(SOON));
        released.unwrap();
        guard = taken.unwrap();
    }
    // One that is missed costs half a second.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_the_race_goes_on_waiting() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let monitor = server.monitor();
    take_foreign(&server, "x", 60_000);
    let waiting = wait_for(mutex(&client, "x", LONG));
    for other in 0..3 {
        until_watched(&monitor, other + 1);
        server.ask::<()>(&format!("SET lock:x other{other} PX 60000"));
    }
    until_watched(&monitor, 4);
    assert!(!waiting.is_finished());
    server.ask::<()>("DEL lock:x");
    granted(waiting).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_waiters_are_all_served() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let mutex = mutex(&client, "x", LONG);
            tokio::spawn(async move {
                let guard = mutex.acquire_within(SOON).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                guard.release().await.unwrap();
            })
        })
        .collect();
    for waiter in waiters {
        within("its turn", waiter).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_stands_behind_a_line_and_a_foreign_client_need_not() {
    let server = Redis::start();
    let proxy = ChaosProxy::start(server.addr());
    let (first, newcomer) = (client(server.url_at(proxy.addr())).await, client(server.url()).await);
    take_foreign(&server, "x", 60_000);
    let waiting = wait_for(mutex(&first, "x", LONG));
    eventually("it stands in line", async || line(&server, "x") == 1).await;
    // The head cannot take what is free now.
    proxy.set(Mode::Blackhole);
    server.ask::<()>("DEL lock:x");
    assert!(is_busy(&newcomer, "x").await, "it has passed the line");
    take_foreign(&server, "x", 60_000);
    proxy.set(Mode::Pass);
    server.ask::<()>("DEL lock:x");
    granted(waiting).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_head_holds_up_the_line_no_longer_than_its_place_lasts() {
    let server = Redis::start();
    let next = client(server.url()).await;
    take_foreign(&server, "x", 60_000);
    let mut command = Command::new(bins::kilit());
    let mut head = Process::spawn(command.args(["run", "--engine", &server.url(), "x", "--", "true"]));
    eventually("the first stands in line", async || line(&server, "x") == 1).await;
    let behind = wait_for(mutex(&next, "x", LONG));
    eventually("the next stands in line", async || line(&server, "x") == 2).await;
    head.kill();
    server.ask::<()>("DEL lock:x");
    let begun = Instant::now();
    let guard = granted(behind).await;
    // A place lasts three seconds without a look, and who is behind looks every second.
    assert!(begun.elapsed() < Duration::from_secs(4) + SLACK, "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_of_the_head_wakes_the_next_at_once() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let guard = hold(&client, "x", LONG).await;
        let head = wait_for(mutex(&client, "x", LONG));
        eventually("the first stands in line", async || line(&server, "x") == 1).await;
        let behind = wait_for(mutex(&client, "x", LONG));
        eventually("the next stands in line", async || line(&server, "x") == 2).await;
        head.abort();
        eventually("the first has left", async || line(&server, "x") == 1).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        let guard = granted(behind).await;
        rounds.push(begun.elapsed());
        guard.release().await.unwrap();
    }
    expect_pushed(&rounds);
}
