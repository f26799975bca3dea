//! A cluster: slots move, masters die.

use std::{
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use kilit_core::{Client, ErrorKind};
use kilit_testbed::{server::redis::RedisCluster, wait_until};

use crate::{
    contest::Contest,
    support::{
        Ask, LONG, SOON, client, eventually, expect_pushed, granted, hold, is_busy, mutex, token, wait_for,
        within,
    },
};

/// One for all tests that leave it as it was.
fn shared() -> Arc<RedisCluster> {
    static SHARED: Mutex<Weak<RedisCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(|broken| broken.into_inner());
    shared.upgrade().unwrap_or_else(|| {
        let new = Arc::new(RedisCluster::start());
        *shared = Arc::downgrade(&new);
        new
    })
}

async fn clients(count: usize, url: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(client(url).await);
    }
    clients
}

/// The slot of `lock:x`, who has it, and another node.
fn place_of_x(cluster: &RedisCluster) -> (u16, usize, usize) {
    let slot = cluster.slot(b"lock:x");
    let from = cluster.owner(slot).unwrap();
    (slot, from, (from + 1) % 3)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_slot_has_locks_whatever_braces_their_names_have() {
    let cluster = shared();
    let (one, other) = (client(cluster.url()).await, client(cluster.url()).await);
    let (mut used, mut took) = ([false; 3], Vec::new());
    for name in ["a", "b", "c", "d", "{", "}", "{}", "{a}", "a}b", "{}{a}", "a{b}c{d}", "}{"] {
        let guard = hold(&one, name, LONG).await;
        assert!(is_busy(&other, name).await, "{name}");
        let waiting = wait_for(mutex(&other, name, LONG));
        let in_line =
            async || !one.inspect(Some(guard.name())).await.unwrap()[0].queue.as_ref().unwrap().is_empty();
        eventually("it stands in line", in_line).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        let next = granted(waiting).await;
        took.push(begun.elapsed());
        next.release().await.unwrap();
        used[cluster.owner(cluster.slot(format!("lock:{name}").as_bytes())).unwrap()] = true;
    }
    assert_eq!(used, [true; 3]);
    expect_pushed(&took);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_holds_on_all_nodes_are_renewed() {
    let cluster = shared();
    let client = client(cluster.url()).await;
    let mut guards = Vec::new();
    for name in 0..60 {
        guards.push(hold(&client, &format!("many{name}"), Duration::from_secs(2)).await);
    }
    let deadlines: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
    wait_until("all are renewed", SOON, || {
        guards.iter().zip(&deadlines).all(|(guard, before)| guard.deadline() > *before)
    });
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// While a slot moves, a cluster serves no command on several keys of it (TRYAGAIN): claims and releases wait for the
/// end of that, renewals go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_while_it_is_held_and_contended() {
    let cluster = shared();
    let (slot, first, second) = place_of_x(&cluster);
    let contest = Contest::start(clients(4, &cluster.url()).await, "x", Duration::from_secs(10));
    let holder = client(cluster.url()).await;
    // In the same slot.
    let held = mutex(&holder, "held{lock:x}", Duration::from_secs(3));
    assert_eq!(cluster.slot(b"lock:held{lock:x}"), slot);
    let guard = held.acquire().await.unwrap();
    let until_renewed = || {
        let deadline = guard.deadline();
        wait_until("a renewal where it is now", SOON, || guard.deadline() > deadline);
    };
    contest.go_on(3).await;
    for (from, to) in [(first, second), (second, first)] {
        cluster.begin_move(slot, from, to);
        let error = held.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        assert!(error.to_string().contains("moving this slot"), "{error}");
        until_renewed();
        cluster.move_keys(slot, from, to);
        until_renewed();
        cluster.end_move(slot, from, to);
        until_renewed();
        contest.go_on(3).await;
    }
    guard.check().unwrap();
    guard.release().await.unwrap();
    let tally = contest.end().await;
    assert_eq!((tally.overlaps, tally.refused, tally.lost), (0, 0, 0), "{tally:?}");
    wait_until("it is as it was", SOON, || cluster.owner(slot) == Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_go_on_after_a_failover() {
    let mut cluster = RedisCluster::start_with_replicas();
    let url = format!("{}?timeout=500ms&connect_timeout=2s", cluster.url());
    let (slot, old, _) = place_of_x(&cluster);
    let holder = client(&url).await;
    let replicated = hold(&holder, "held{lock:x}", LONG).await;
    let contest = Contest::start(clients(4, &url).await, "x", Duration::from_secs(3));
    contest.go_on(5).await;

    cluster.kill(old);
    let new = cluster.wait_for_takeover(slot, old);
    contest.go_on(5).await;
    // Of the nodes in the URL one is dead.
    hold(&client(&url).await, "newcomer", LONG).await.release().await.unwrap();
    assert!(cluster.nodes[new].value("lock:held{lock:x}").unwrap().contains(&replicated.owner().to_string()));
    let before = token(&replicated);
    replicated.release().await.unwrap();
    let forgotten = hold(&holder, "held{lock:x}", Duration::from_secs(3)).await;
    assert!(token(&forgotten) > before);
    cluster.nodes[new].ask::<()>("DEL lock:held{lock:x}");
    within("the loss", forgotten.lost().cancelled()).await;
    let tally = contest.end().await;
    println!("a failover in a cluster: {} overlaps, {} stale writes refused", tally.overlaps, tally.refused);
    assert!(tally.visits >= 40, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_whole_is_not_busy() {
    let mut cluster = RedisCluster::start();
    let client = client(format!("{}?timeout=300ms&connect_timeout=300ms", cluster.url())).await;
    let (slot, dead, alive) = place_of_x(&cluster);
    let name = (0..)
        .map(|n| format!("y{n}"))
        .find(|name| cluster.owner(cluster.slot(format!("lock:{name}").as_bytes())) == Some(alive));
    let name = name.unwrap();
    hold(&client, &name, LONG).await.release().await.unwrap();
    cluster.kill(dead);
    wait_until("it says that it is down", SOON, || cluster.owner(slot).is_none());
    for name in ["x", &name] {
        let error = mutex(&client, name, LONG).try_acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable), "{name}: {error:?}");
    }
    let waiting = wait_for(mutex(&client, &name, LONG));
    cluster.nodes[dead].restart();
    granted(waiting).await.release().await.unwrap();
    within("x", mutex(&client, "x", LONG).acquire()).await.unwrap().release().await.unwrap();
}
