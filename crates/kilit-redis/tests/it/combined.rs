//! What is asked for at once shares calls, and nothing else.

use std::{future::poll_fn, pin::Pin, task::Poll, thread};

use kilit_core::{ErrorKind, Mutex, Result};
use kilit_testbed::server::Redis;
use tokio::{runtime::Builder, task::JoinHandle};

use crate::support::{Ask, LONG, SOON, client, mutex, within};

/// Has the lock once and again in a task of its own.
fn use_often(mutex: Mutex, rounds: usize) -> JoinHandle<Result<()>> {
    tokio::spawn(async move {
        for _ in 0..rounds {
            mutex.acquire_within(SOON).await?.release().await?;
        }
        Ok(())
    })
}

/// Whether it waits still after one poll.
async fn waits<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_is_refused_is_no_others_concern() {
    let server = Redis::start();
    let client = client(server.url()).await;
    server.ask::<i64>("HSET lock:bad field value");
    server.ask::<()>("SET kilit1:line:{lock:worse} string");
    let name = |task: usize| match task % 8 {
        0 => "bad".to_owned(),
        4 => "worse".to_owned(),
        _ => format!("good{task}"),
    };
    let tasks: Vec<_> =
        (0..64).map(|task| (name(task), use_often(mutex(&client, &name(task), LONG), 20))).collect();
    for (name, task) in tasks {
        let used = within("its turns", task).await.unwrap();
        match name.starts_with("good") {
            true => used.unwrap(),
            false => assert_eq!(used.unwrap_err().kind(), ErrorKind::Refused, "{name}"),
        }
    }
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:*"), ["lock:bad"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_vanish_and_connections_that_break_cost_nobody_a_turn() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let tasks: Vec<_> =
        (0..64).map(|task| use_often(mutex(&client, &format!("x{}", task % 40), LONG), 20)).collect();
    while tasks.iter().any(|task| !task.is_finished()) {
        server.ask::<()>("SCRIPT FLUSH");
        // Not all the time: a release whose answer is lost is found done by the next try, which counts as lost.
        tokio::task::yield_now().await;
    }
    for task in tasks {
        within("its turns", task).await.unwrap().unwrap();
    }
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:*"), [""; 0]);
}

#[tokio::test]
async fn futures_that_nobody_polls_hold_up_nobody() {
    let server = Redis::start();
    let url = server.url();
    // Its connection ends with the runtime.
    let opened = thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(client(url))
    });
    let client = opened.join().unwrap();
    let mutexes: Vec<_> = (0..16).map(|idle| mutex(&client, &format!("idle{idle}"), LONG)).collect();
    for _connected in [false, true] {
        let mut idle: Vec<_> = mutexes.iter().map(|mutex| Box::pin(mutex.acquire())).collect();
        for future in &mut idle {
            assert!(waits(future).await);
        }
        let guard = within("another's turn", mutex(&client, "x", LONG).acquire()).await.unwrap();
        let mut guards = Vec::new();
        for future in idle {
            guards.push(within("an idle one's turn", future).await.unwrap());
        }
        // And so with those that let go.
        let mut idle: Vec<_> = guards.into_iter().map(|guard| Box::pin(guard.release())).collect();
        for future in &mut idle {
            assert!(waits(future).await);
        }
        within("another's release", guard.release()).await.unwrap();
        for future in idle {
            within("an idle one's release", future).await.unwrap();
        }
    }
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:*"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn futures_that_are_dropped_in_company_leave_nothing() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let others: Vec<_> =
        (0..16).map(|task| use_often(mutex(&client, &format!("x{task}"), LONG), 50)).collect();
    let dropped: Vec<_> = (0..200).map(|n| mutex(&client, &format!("dropped{}", n % 50), LONG)).collect();
    for (n, mutex) in dropped.iter().enumerate() {
        let mut future = Box::pin(mutex.acquire());
        for _ in 0..=n % 4 {
            if !waits(&mut future).await {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    for other in others {
        within("its turns", other).await.unwrap().unwrap();
    }
    client.shutdown().await.unwrap();
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:*"), [""; 0]);
}
