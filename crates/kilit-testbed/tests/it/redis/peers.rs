use std::{path::Path, process::Command};

use kilit_testbed::{
    Process, bins,
    overlap::Judge,
    peers::Peer,
    server::{Redis, Server},
    tempdir,
};

use crate::SOON;

const ROUNDS: usize = 5;

fn hold(log: &Path) -> Command {
    let mut hold = Command::new(bins::testbed());
    hold.arg("hold").arg(log).arg("2");
    hold
}

/// All of them at once; how often somebody was inside.
fn contest(server: &Server<Redis>, peers: &[Peer]) -> usize {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    let start = |peer: &Peer| Process::spawn(&mut peer.contest(&server.url(), "lock:x", ROUNDS, &hold(&log)));
    let contenders: Vec<_> = peers.iter().map(start).collect();
    for mut contender in contenders {
        contender.wait(SOON).expect_code(0);
    }
    Judge::read(&log).without_tokens().expect_clean().visits
}

#[test]
fn peers_exclude_each_other() {
    let server = Redis::start();
    let peers = [Peer::RedisPy, Peer::NodeRedlock, Peer::Rslock, Peer::RedisPy];
    assert_eq!(contest(&server, &peers), peers.len() * ROUNDS);
    assert_eq!(contest(&server, &[Peer::PythonRedisLock; 2]), 2 * ROUNDS);
}

#[test]
fn a_peer_whose_lock_is_taken_away_fails() {
    let server = Redis::start();
    for peer in [Peer::RedisPy, Peer::PythonRedisLock, Peer::NodeRedlock] {
        let mut del = Command::new("redis-cli");
        del.args(["-p", &server.addr().port().to_string(), "DEL", "lock:x"]);
        let exit = Process::run(&mut peer.contest(&server.url(), "lock:x", 1, &del), SOON);
        assert_ne!(exit.code(), 0, "{peer:?}");
    }
}
