//! Runtimes of callers come and go, and stand still.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use kilit_core::{Guard, blocking};
use kilit_testbed::{server::Redis, wait_until};
use tokio::runtime::{Builder, Runtime};

use crate::support::{
    Ask, LONG, SOON, client, eventually, granted, hold, line, lock, mutex, wait_for, within,
};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Waits, with this thread standing still, until a hold was renewed a few times.
#[track_caller]
fn wait_until_renewed(guard: &Guard) {
    for _ in 0..3 {
        let deadline = guard.deadline();
        wait_until("a renewal", SOON, || guard.deadline() > deadline);
    }
}

#[test]
fn a_hold_outlives_the_runtime_that_asked_for_it() {
    let server = Redis::start();
    let first = runtime();
    let client = first.block_on(client(server.url()));
    let guard = first.block_on(hold(&client, "x", Duration::from_millis(600)));
    drop(first);
    wait_until_renewed(&guard);
    guard.check().unwrap();
    // Nor does the client miss it.
    let second = runtime();
    second.block_on(async {
        let waiting = wait_for(mutex(&client, "x", LONG));
        eventually("it stands in line", async || line(&server, "x") == 1).await;
        guard.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    });
}

#[test]
fn a_release_outlives_the_runtime_that_drops_the_guard() {
    let server = Redis::start();
    let client = runtime().block_on(client(server.url()));
    let ending = runtime();
    let guard = ending.block_on(hold(&client, "x", LONG));
    let other = client.clone();
    ending.spawn(async move {
        let _guard = guard;
        mutex(&other, "y", LONG).acquire().await.unwrap().lost().cancelled().await;
    });
    ending.block_on(eventually("it waits", async || server.value("lock:y").is_some()));
    drop(ending);
    wait_until("both are free", SOON, || server.ask::<Vec<String>>("KEYS lock:*").is_empty());
}

#[tokio::test]
async fn a_runtime_that_stands_still_loses_nothing() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let guard = hold(&client, "x", Duration::from_millis(600)).await;
    wait_until_renewed(&guard);
    guard.check().unwrap();
    assert!(server.value("lock:x").is_some());
    guard.release().await.unwrap();
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_other() {
    let server = Redis::start();
    let stuck = runtime();
    // However long an answer may take.
    let client = stuck.block_on(client(format!("{}?timeout=60s", server.url())));
    // Its connection lives where nobody polls it from now on.
    stuck.block_on(async { hold(&client, "x", LONG).await.release().await.unwrap() });
    let other = runtime();
    other.block_on(async {
        let guard = within("a connection that answers", hold(&client, "x", LONG)).await;
        let waiting = wait_for(mutex(&client, "x", LONG));
        eventually("it stands in line", async || line(&server, "x") == 1).await;
        guard.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    });
    stuck.block_on(async { hold(&client, "x", LONG).await.release().await.unwrap() });
}

#[test]
fn a_runtime_that_ends_under_its_callers_leaves_none_of_them_waiting() {
    const CALLERS: usize = 32;
    let server = Redis::start();
    let ending = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // However long an answer may take.
    let client = ending.block_on(client(format!("{}?timeout=60s", server.url())));
    ending.block_on(async { hold(&client, "warm", LONG).await.release().await.unwrap() });
    server.stop();
    let begin = Barrier::new(CALLERS + 1);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let (mutex, handle, begin) =
                    (mutex(&client, &format!("x{number}"), LONG), ending.handle().clone(), &begin);
                scope.spawn(move || {
                    handle.block_on(async {
                        let mut acquiring = std::pin::pin!(mutex.acquire_within(SOON));
                        // It is under way from its first poll on.
                        let first = futures_util::poll!(acquiring.as_mut());
                        assert!(first.is_pending());
                        begin.wait();
                        acquiring.await
                    })
                })
            })
            .collect();
        begin.wait();
        ending.shutdown_timeout(SOON);
        server.resume();
        for caller in callers {
            drop(caller.join().unwrap().unwrap());
        }
    });
}

#[test]
fn runtimes_and_blocking_threads_share_a_client() {
    const PARTIES: usize = 4;
    const ROUNDS: usize = 40;
    let server = Redis::start();
    let client = runtime().block_on(client(server.url()));
    let (inside, begin) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2 * PARTIES)));
    let visit = |inside: &AtomicBool| {
        assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
        thread::yield_now();
        assert!(inside.swap(false, Ordering::SeqCst), "two were inside");
    };
    thread::scope(|scope| {
        for party in 0..2 * PARTIES {
            let (client, inside, begin) = (client.clone(), inside.clone(), begin.clone());
            scope.spawn(move || {
                begin.wait();
                if party % 2 == 0 {
                    // Each leaves its runtime half way.
                    for _ in 0..2 {
                        runtime().block_on(async {
                            for _ in 0..ROUNDS / 2 {
                                let guard = mutex(&client, "x", LONG).acquire_within(SOON).await.unwrap();
                                visit(&inside);
                                guard.release().await.unwrap();
                            }
                        });
                    }
                } else {
                    let mutex = blocking::Client::from(client).mutex(lock("x"));
                    for _ in 0..ROUNDS {
                        let guard = mutex.acquire_within(SOON).unwrap();
                        visit(&inside);
                        guard.release().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:*"), [""; 0]);
}
