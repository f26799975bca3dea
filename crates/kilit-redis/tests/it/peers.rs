//! Other people's clients on the same key: they exclude us, and we them.

use std::{process::Command, time::Duration};

use kilit_core::Client;
use kilit_testbed::{
    Process, bins,
    peers::Peer,
    server::{Redis, Server},
};

use crate::{
    contest::Contest,
    support::{Ask, client},
};

const WITHIN: Duration = Duration::from_secs(60);

async fn clients(server: &Server<Redis>) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client(server.url()).await);
    }
    clients
}

/// Eight of ours and two of theirs; how often anybody was inside.
async fn contest(peer: Peer, rounds: usize) {
    let server = Redis::start();
    let contest = Contest::start(clients(&server).await, "x", Duration::from_secs(5));
    contest.go_on(1).await;
    let mut work = Command::new(bins::testbed());
    work.arg("hold").arg(contest.log()).arg("2");
    let theirs: Vec<_> =
        (0..2).map(|_| Process::spawn(&mut peer.contest(&server.url(), "lock:x", rounds, &work))).collect();
    let done = tokio::task::spawn_blocking(move || {
        for mut process in theirs {
            process.wait(WITHIN).expect_code(0);
        }
    });
    done.await.unwrap();
    contest.go_on(1).await;
    let tally = contest.end().await;
    assert_eq!((tally.overlaps, tally.refused, tally.lost), (0, 0, 0), "{peer:?}: {tally:?}");
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:x"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_py() {
    contest(Peer::RedisPy, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_redis_lock() {
    contest(Peer::PythonRedisLock, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_redlock() {
    contest(Peer::NodeRedlock, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rslock() {
    contest(Peer::Rslock, 5).await;
}
