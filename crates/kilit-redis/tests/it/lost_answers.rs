//! Claims whose answer does not come: found out by their owner, or taken back and barred.

use std::time::Duration;

use kilit_core::{Client, ErrorKind};
use kilit_testbed::{
    chaos::{ChaosProxy, Mode},
    server::{Redis, Server},
};

use crate::support::{Ask, LONG, SOON, claim, client, eventually, hold, is_busy, mutex, within};

/// A client whose connection stands.
async fn connected(url: String) -> Client {
    let client = client(url).await;
    use_once(&client).await;
    client
}

async fn use_once(client: &Client) {
    hold(client, "warm", LONG).await.release().await.unwrap();
}

/// Neither "busy" nor anything else that was not found out.
fn says_that_nobody_knows(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unknown | ErrorKind::Unreachable)
}

/// Waits until the claim of `name` was taken back, late requests included, and checks that it stays so.
async fn expect_withdrawn(server: &Server<Redis>, name: &str) {
    let bars = || server.ask::<Vec<String>>(&format!("KEYS kilit1:bar:{{lock:{name}}}:*"));
    eventually("the withdrawal", async || !bars().is_empty()).await;
    // Whoever comes now finds it free, and leaves it so.
    let next = client(server.url()).await;
    hold(&next, name, LONG).await.release().await.unwrap();
    assert_eq!(server.value(&format!("lock:{name}")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_answer_was_lost_is_found_by_its_owner() {
    let server = Redis::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connected(format!("{}?timeout=200ms", server.url_at(proxy.addr()))).await;
    proxy.set(Mode::DropReplies);
    let mutex = mutex(&client, "x", LONG);
    let acquiring = tokio::spawn(async move { mutex.acquire_within(SOON).await });
    eventually("it is granted", async || server.value("lock:x").is_some()).await;
    let value = server.value("lock:x").unwrap();
    proxy.set(Mode::Pass);
    let guard = within("the grant is found", acquiring).await.unwrap().unwrap();
    assert_eq!(server.value("lock:x").unwrap(), value, "it was granted twice");
    assert_eq!(value.split(' ').nth(1).unwrap(), guard.owner().to_string());
    assert_eq!(value.split(' ').nth(2).unwrap(), guard.token().unwrap().value().to_string());
    guard.release().await.unwrap();
    assert_eq!(server.value("lock:x"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_leaves_nothing_while_answers_are_lost() {
    let server = Redis::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = connected(format!("{}?timeout=100ms", server.url_at(proxy.addr()))).await;
    proxy.set(Mode::DropReplies);
    let error = within("its end", mutex(&client, "x", LONG).try_acquire()).await.unwrap_err();
    assert!(says_that_nobody_knows(error.kind()), "{error:?}");
    proxy.set(Mode::Pass);
    expect_withdrawn(&server, "x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_stopped_server_finds_later_is_barred() {
    let server = Redis::start();
    let client = connected(format!("{}?timeout=100ms&connect_timeout=400ms", server.url())).await;
    server.ask::<()>("CONFIG RESETSTAT");
    for round in 0..3 {
        let name = format!("x{round}");
        use_once(&client).await;
        server.stop();
        let error = within("its end", mutex(&client, &name, LONG).try_acquire()).await.unwrap_err();
        assert!(says_that_nobody_knows(error.kind()), "{error:?}");
        server.resume();
        expect_withdrawn(&server, &name).await;
    }
    // The late claims did arrive: a round is two scripts to connect, one of those, its withdrawal, and two of the check.
    assert!(server.scripts_run() >= 3 * 6, "{}", server.scripts_run());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_is_not_busy() {
    let server = Redis::start();
    let client = connected(format!("{}?timeout=100ms&connect_timeout=400ms", server.url())).await;
    server.ask::<()>("CLIENT PAUSE 1200 ALL");
    let error = within("its end", mutex(&client, "x", LONG).try_acquire()).await.unwrap_err();
    assert!(says_that_nobody_knows(error.kind()), "{error:?}");
    expect_withdrawn(&server, "x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_do_not_add_up() {
    let server = Redis::start();
    let client = connected(format!("{}?timeout=40ms", server.url())).await;
    let mutex = mutex(&client, "x", LONG);
    for _ in 0..10 {
        server.ask::<()>("CLIENT PAUSE 120 ALL");
        let guard = mutex.acquire_within(SOON).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(server.value("lock:x"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_claim_gets_nothing_and_an_answered_one_leaves_no_bar() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let late = claim("x", LONG);
    client.engine().release(&late).await.unwrap();
    let error = client.engine().claim(&late, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(server.value("lock:x"), None);
    let bar = format!("PTTL kilit1:bar:{{lock:x}}:{}", late.owner);
    assert!((1..=60_000).contains(&server.ask::<i64>(&bar)));

    // Nothing of one that has its answer is late, however long its TTL.
    let week = claim("z", Duration::from_secs(7 * 24 * 60 * 60));
    let holder = hold(&client, "z", LONG).await;
    client.engine().claim(&week, Duration::ZERO).await.unwrap();
    client.engine().release(&week).await.unwrap();
    let bar = format!("PTTL kilit1:bar:{{lock:z}}:{}", week.owner);
    assert!((1..=60_000).contains(&server.ask::<i64>(&bar)));
    holder.release().await.unwrap();

    hold(&client, "y", LONG).await.release().await.unwrap();
    assert!(!server.keys().iter().any(|key| key.starts_with("kilit1:bar:{lock:y}")));
    assert!(!is_busy(&client, "y").await);
}
