use std::{path::Path, process::Command, thread};

use kilit_core::Clock;
use kilit_testbed::{
    Process, Signal,
    overlap::{Event, Judge, Verdict},
    tempdir, wait_until,
};

use crate::SOON;

fn testbed(token: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilit-testbed"));
    command.env("KILIT_TOKEN", token.to_string()).env("KILIT_TOKEN_SOURCE", "test:a");
    command
}

fn run(token: u64, args: &[&str], log: &Path) {
    Process::run(testbed(token).args(args).arg(log), SOON).expect_code(0);
}

#[test]
fn the_program_is_found_from_other_crates_too() {
    assert_eq!(
        kilit_testbed::bins::testbed().canonicalize().unwrap(),
        Path::new(env!("CARGO_BIN_EXE_kilit-testbed")).canonicalize().unwrap()
    );
}

#[test]
fn enter_and_exit_are_one_visit() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    for token in 1..=2 {
        run(token, &["enter"], &log);
        run(token, &["exit"], &log);
    }
    assert_eq!(Judge::read(&log).expect_clean(), Verdict { visits: 2, killed: 0 });
    let judged = Process::run(testbed(1).arg("judge").arg(&log), SOON).expect_code(0);
    assert_eq!(judged.stdout, "2 visits\n");
}

#[test]
fn hold_in_turn_is_clean_and_at_once_is_not() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    for token in 1..=2 {
        Process::run(testbed(token).arg("hold").arg(&log).arg("1"), SOON).expect_code(0);
    }
    assert_eq!(Judge::read(&log).expect_clean().visits, 2);

    let mut long = Process::spawn(testbed(3).arg("beat").arg(&log));
    wait_until("it is inside", SOON, || Judge::read(&log).entries().len() > 5);
    Process::run(testbed(4).arg("hold").arg(&log).arg("1"), SOON).expect_code(0);
    let seen = Judge::read(&log).entries().len();
    wait_until("it works on", SOON, || Judge::read(&log).entries().len() > seen);
    long.kill();
    let id = long.pid().to_string();
    let faults = Judge::read(&log).killed(id, Clock::system().now()).verdict().unwrap_err();
    assert!(faults[0].contains("entered while"), "{faults:?}");
    let judged = Process::run(testbed(1).arg("judge").arg(&log), SOON).expect_code(1);
    assert!(judged.stderr.contains("entered while"), "{judged:?}");
}

#[test]
fn beat_ignores_term_when_told_to() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    let inside = |more: usize| wait_until("it works", SOON, || Judge::read(&log).entries().len() > more);

    let mut mild = Process::spawn(testbed(1).arg("beat").arg(&log));
    inside(0);
    mild.signal(Signal::TERM);
    mild.wait(SOON).expect_code(128 + 15);
    let mild_dead = Clock::system().now();

    let before = Judge::read(&log).entries().len();
    let mut wild = Process::spawn(testbed(2).args(["beat", "--ignore-term"]).arg(&log));
    inside(before);
    wild.signal(Signal::TERM);
    inside(Judge::read(&log).entries().len() + 5);
    wild.kill().expect_code(128 + 9);
    let judge = Judge::read(&log)
        .killed(mild.pid().to_string(), mild_dead)
        .killed(wild.pid().to_string(), Clock::system().now());
    assert_eq!(judge.expect_clean(), Verdict { visits: 2, killed: 2 });
}

#[test]
fn lines_of_many_writers_stay_whole() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    thread::scope(|scope| {
        for token in 0..8 {
            let log = &log;
            scope.spawn(move || {
                Process::run(testbed(token + 1).args(["hold", "--shared"]).arg(log).arg("5"), SOON)
                    .expect_code(0);
            });
        }
    });
    let judge = Judge::read(&log);
    assert_eq!(judge.expect_clean().visits, 8);
    assert!(judge.entries().iter().any(|entry| entry.event == Event::EnterShared));
}

#[test]
fn half_a_token_is_refused() {
    let dir = tempdir().unwrap();
    let mut command = testbed(1);
    command.env_remove("KILIT_TOKEN_SOURCE").arg("hold").arg(dir.path().join("log")).arg("1");
    assert!(Process::run(&mut command, SOON).expect_code(1).stderr.contains("KILIT_TOKEN_SOURCE"));
}

#[test]
fn a_stale_write_has_an_exit_code_of_its_own() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("stock.db");
    let write = |token: u64, source: &str, value: &str| {
        let mut command = testbed(token);
        command.env("KILIT_TOKEN_SOURCE", source).arg("write").arg(&db).args(["apples", value]);
        Process::run(&mut command, SOON)
    };
    write(2, "test:a", "two").expect_code(0);
    assert!(write(1, "test:a", "one").expect_code(3).stderr.contains("stale"));
    assert!(write(3, "test:b", "three").expect_code(4).stderr.contains("wrong source"));
    let read = Process::run(testbed(1).arg("read").arg(&db).arg("apples"), SOON);
    assert_eq!(read.expect_code(0).stdout, "two\n");
}
