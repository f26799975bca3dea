//! Many processes on one name, judged at the resource.

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use kilit_testbed::{Process, bins::testbed, overlap::Judge, process::Exit};

use crate::place::{Place, SOON, expect_no_family};

/// Runs of each of 8 processes: 200, or as many as `KILIT_TEST_RUNS` says.
fn runs() -> usize {
    env::var("KILIT_TEST_RUNS").map_or(200, |runs| runs.parse().expect("KILIT_TEST_RUNS is a number"))
}

#[test]
fn eight_processes_never_overlap_and_tokens_rise() {
    let place = Place::new();
    let log = place.path("log");
    let script =
        "i=0; while [ $i -lt \"$1\" ]; do \"$2\" run x -- \"$3\" hold \"$4\" 1 || exit; i=$((i+1)); done";
    let kilit = place.kilit(["x"]).get_program().to_owned();
    let mut loops: Vec<_> = (0..8)
        .map(|_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh", &runs().to_string()]).arg(&kilit).arg(testbed()).arg(&log);
            Process::spawn(shell.env("KILIT_ENGINE", place.url()))
        })
        .collect();
    for one in &mut loops {
        let Exit { stdout, stderr, .. } = one.wait(Duration::from_secs(600)).expect_code(0);
        assert_eq!((&*stdout, &*stderr), ("", ""));
        expect_no_family(one);
    }
    assert_eq!(Judge::read(&log).expect_clean().visits, 8 * runs());
    let status = place.status("x");
    assert_eq!((&status["held"], &status["waiters"]), (&false.into(), &0.into()));
}

#[test]
fn a_hand_over_between_processes_does_not_take_a_poll() {
    let place = Place::new();
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
