//! How much it costs to wait, in commands and wake-ups, however many do.

use std::{process::Command, time::Duration};

use kilit_core::Client;
use kilit_testbed::{
    Process, bins,
    count::voluntary_switches,
    server::{Redis, Server, redis::Monitor},
    wait_until,
};

use crate::support::{Ask, LONG, SOON, client, eventually, hold, line, mutex, within};

/// What clients have sent.
fn commands(monitor: &Monitor) -> Vec<String> {
    monitor.lines().into_iter().filter(|line| !line.contains(" lua] ")).collect()
}

/// All of these wait at once, and each has the lock once.
async fn serve_all(server: &Server<Redis>, clients: &[Client]) {
    let holder = client(server.url()).await;
    let monitor = server.monitor();
    let guard = hold(&holder, "x", LONG).await;
    let waiters: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(turn, client)| {
            let mutex = mutex(client, "x", LONG);
            tokio::spawn(async move {
                let guard = mutex.acquire_within(SOON).await.unwrap();
                tokio::time::sleep(Duration::from_millis(turn as u64 % 11)).await;
                guard.release().await.unwrap();
            })
        })
        .collect();
    eventually("all stand in line", async || line(server, "x") == clients.len() as i64).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        within("its turn", waiter).await.unwrap();
    }
    // The rest are this test's own questions.
    let of_lock = |line: &&String| line.contains(" \"lock:x\"") || line.contains("\"CACHING\"");
    let sent = commands(&monitor).iter().filter(of_lock).count();
    let each = sent as f64 / (clients.len() + 1) as f64;
    println!("{} waiters: {each:.2} commands an acquisition", clients.len());
    assert!(each <= 6.0, "{each} commands an acquisition with {} waiters", clients.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_one_client_cost_a_few_commands_each() {
    let server = Redis::start();
    let client = client(server.url()).await;
    for waiters in [2, 3, 16, 64] {
        serve_all(&server, &vec![client.clone(); waiters]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cost_a_few_commands_each() {
    let server = Redis::start();
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(client(server.url()).await);
        // Its connections stand from here on.
        hold(clients.last().unwrap(), "warm", LONG).await.release().await.unwrap();
    }
    for waiters in [2, 3, 16, 64] {
        serve_all(&server, &clients[..waiters]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_the_head_and_nobody_else() {
    const WAITERS: usize = 16;
    let server = Redis::start();
    let client = client(server.url()).await;
    let guard = hold(&client, "x", LONG).await;
    let (served, mut serve) = tokio::sync::mpsc::unbounded_channel();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (mutex, served) = (mutex(&client, "x", LONG), served.clone());
            tokio::spawn(async move {
                let guard = mutex.acquire_within(SOON).await.unwrap();
                served.send(guard).unwrap();
            })
        })
        .collect();
    eventually("all stand in line", async || line(&server, "x") == WAITERS as i64).await;
    let messages = || server.commandstats().get("publish").copied().unwrap_or(0);
    let (mut guard, mut told) = (guard, messages());
    for left in (0..WAITERS).rev() {
        guard.release().await.unwrap();
        guard = within("the next", serve.recv()).await.unwrap();
        // One that the lock is free, one to the next that it is the head.
        assert!(messages() - told <= 2, "{} messages", messages() - told);
        told = messages();
        assert_eq!(line(&server, "x"), left as i64);
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_hardly_wakes_up() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let guard = hold(&client, "x", LONG).await;
    let wait = || {
        let mut command = Command::new(bins::kilit());
        Process::spawn(command.args(["run", "--engine", &server.url(), "x", "--", "true"]))
    };
    let mut waiters = Vec::new();
    for place in 1..=2 {
        waiters.push(wait());
        wait_until("it stands in line", SOON, || line(&server, "x") == place);
    }
    let of_all = || waiters.iter().map(|waiter| voluntary_switches(waiter.pid())).collect::<Vec<_>>();
    let (before, ran) = (of_all(), server.scripts_run());
    // What is counted is what happens in this time.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (after, ran) = (of_all(), server.scripts_run() - ran);
    let switches: Vec<_> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    println!("wake-ups of the head and the next in 3 s: {switches:?}; looks: {ran}");
    // The head looks twice a second and the next once; a look is a timer, a request and its answer, on two threads.
    assert!(ran <= 7 + 4, "{ran} looks");
    assert!(switches[0] <= 40 && switches[1] <= 20, "{switches:?}");
    guard.release().await.unwrap();
    for waiter in &mut waiters {
        waiter.wait(SOON).expect_code(0);
    }
}
