//! Many processes on one name, judged at the resource.

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use kilit_testbed::{Process, bins::testbed, overlap::Judge, peers::Peer, process::Exit};

use crate::place::{Place, SOON, expect_no_family, on_engines};

on_engines! { [file, testlease, redis, redis_cluster, redis_sentinel] {
    a_hand_over_between_processes_does_not_take_a_poll,
} }

/// How often each foreign client comes in, meanwhile.
const FOREIGN_ROUNDS: usize = 20;

/// Runs of each of 8 processes: 200, or as many as `KILIT_TEST_RUNS` says.
fn runs() -> usize {
    env::var("KILIT_TEST_RUNS").map_or(200, |runs| runs.parse().expect("KILIT_TEST_RUNS is a number"))
}

#[test]
fn eight_processes_never_overlap_and_tokens_rise() {
    contest(&Place::new(), []);
}

#[test]
fn eight_processes_and_two_foreign_clients_never_overlap() {
    let place = Place::redis();
    contest(&place, [Peer::RedisPy, Peer::NodeRedlock]);
    let left: Vec<String> = place.server().query(["KEYS", "*"]);
    assert_eq!(left, ["kilit1:token"], "but the counter, nothing stays");
    let expiry: i64 = place.server().query(["PTTL", &left[0]]);
    assert!((0..=86_400_000).contains(&expiry), "and that for a day: {expiry} ms");
}

/// All at once, with nobody but `kilit` having tokens.
#[track_caller]
fn contest<const N: usize>(place: &Place, foreign: [Peer; N]) {
    let log = place.path("log");
    let script =
        "i=0; while [ $i -lt \"$1\" ]; do \"$2\" run x -- \"$3\" hold \"$4\" 1 || exit; i=$((i+1)); done";
    let kilit = place.kilit(["x"]).get_program().to_owned();
    let ours: Vec<_> = (0..8)
        .map(|_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh", &runs().to_string()]).arg(&kilit).arg(testbed()).arg(&log);
            Process::spawn(shell.env("KILIT_ENGINE", place.url()))
        })
        .collect();
    let foreigners = foreign.map(|peer| {
        let mut work = Command::new(testbed());
        work.arg("hold").arg(&log).args(["1", "--id", &format!("{peer:?}")]);
        Process::spawn(&mut peer.contest(&place.url(), "lock:x", FOREIGN_ROUNDS, &work))
    });
    for mut one in ours.into_iter().chain(foreigners) {
        let Exit { stdout, stderr, .. } = one.wait(Duration::from_secs(600)).expect_code(0);
        assert_eq!((&*stdout, &*stderr), ("", ""));
        expect_no_family(&one);
    }
    let (judge, names) = (Judge::read(&log), foreign.map(|peer| format!("{peer:?}")));
    let log = judge.entries();
    assert!(log.iter().all(|entry| names.contains(&entry.id) != entry.token.is_some()), "ours have tokens");
    let last_of_ours = log.iter().rfind(|entry| entry.token.is_some()).unwrap().at;
    for name in &names {
        assert!(log.iter().any(|entry| entry.id == *name && entry.at < last_of_ours), "{name} came too late");
    }
    assert_eq!(judge.without_tokens().expect_clean().visits, 8 * runs() + N * FOREIGN_ROUNDS);
    let status = place.status("x");
    assert_eq!((&status["held"], &status["waiters"]), (&false.into(), &0.into()));
}

fn a_hand_over_between_processes_does_not_take_a_poll(place: Place) {
    let log = place.path("log");
    let kilit = place.kilit(["x"]).get_program().to_owned();
    let mut xargs = Command::new("sh");
    xargs
        .args(["-c", "seq 8 | xargs -P8 -I{} \"$0\" run x --wait 30s -- \"$1\" hold --id {} \"$2\" 20"])
        .arg(kilit)
        .arg(testbed())
        .arg(&log);
    let begun = Instant::now();
    // Whoever only looks once a second finds it held, most times.
    Process::run(xargs.env("KILIT_ENGINE", place.url()), SOON).expect_code(0);
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
    assert_eq!(Judge::read(&log).expect_clean().visits, 8);
}
