//! Signals reach the command's group once each, and never strand it.

use std::process::{ChildStdin, Stdio};

use kilit_testbed::{
    Process, Signal, is_gone,
    process::{wait_gone, wait_until_stopped},
};

use crate::place::{Place, SOON, expect_no_family, guardian_of, on_engines, wait_for_line};

on_engines! { [file, redis] {
    each_signal_is_passed_on_once,
    the_whole_group_ends_with_the_command,
    the_end_of_the_grace_after_a_term_is_a_kill,
    a_second_term_or_int_is_a_kill,
    one_that_left_the_group_lives_on_and_the_lock_is_free,
    what_a_command_leaves_behind_is_named_and_does_not_keep_the_lock,
    a_waiter_that_is_told_to_end_leaves_the_line,
} }

/// Says which signals it gets; ends by TERM, with 7. It has no process of its own that a TSTP would stop.
const LISTENER: &str = "
    for s in INT HUP QUIT USR1 USR2 WINCH TSTP CONT; do trap \"echo got $s\" $s; done
    trap 'echo got TERM; exit 7' TERM
    echo ready
    while :; do read -t 0.02; done";

/// The listener under a lock, and the pipe that keeps its stdin open.
fn listen(place: &Place) -> (Process, ChildStdin) {
    let mut command = place.kilit(["run", "--ttl=10m", "--grace=5m", "x", "--", "bash", "-c", LISTENER]);
    let mut kilit = Process::spawn_with_stdin(&mut command, Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    let stdin = kilit.take_stdin().unwrap();
    (kilit, stdin)
}

const PASSED_ON: [(Signal, &str); 9] = [
    (Signal::INT, "got INT"),
    (Signal::HUP, "got HUP"),
    (Signal::QUIT, "got QUIT"),
    (Signal::USR1, "got USR1"),
    (Signal::USR2, "got USR2"),
    (Signal::WINCH, "got WINCH"),
    (Signal::TSTP, "got TSTP"),
    (Signal::CONT, "got CONT"),
    (Signal::TERM, "got TERM"),
];

fn each_signal_is_passed_on_once(place: Place) {
    // INT begins the end, which a second TERM would hasten: each of the two has a run.
    for without in [Signal::INT, Signal::TERM] {
        let (mut kilit, _stdin) = listen(&place);
        let passed = PASSED_ON.into_iter().filter(|(signal, _)| *signal != without);
        for (signal, word) in passed.clone() {
            kilit.signal(signal);
            wait_for_line(&mut kilit, word);
        }
        kilit.signal(Signal::TERM);
        let exit = kilit.wait(SOON).expect_code(if without == Signal::INT { 7 } else { 137 });
        let expected: Vec<_> = ["ready"].into_iter().chain(passed.map(|(_, word)| word)).collect();
        assert_eq!(exit.stdout.lines().collect::<Vec<_>>(), expected);
        place.expect_free("x");
    }
}

#[test]
fn int_is_passed_on_once_and_the_command_decides() {
    let place = Place::new();
    let script = "trap 'echo got INT; exit 9' INT; echo ready; while :; do sleep 0.02; done";
    let mut kilit = place.start(["run", "x", "--", "bash", "-c", script]);
    kilit.signal(Signal::INT);
    let exit = kilit.wait(SOON).expect_code(9);
    assert_eq!(exit.stdout, "ready\ngot INT\n");
}

#[test]
fn a_signal_of_the_whole_group_is_not_doubled() {
    let place = Place::new();
    let (mut kilit, _stdin) = listen(&place);
    kilit.signal_group(Signal::USR1);
    wait_for_line(&mut kilit, "got USR1");
    kilit.signal_group(Signal::TERM);
    let exit = kilit.wait(SOON).expect_code(7);
    assert_eq!(exit.stdout, "ready\ngot USR1\ngot TERM\n");
}

fn the_whole_group_ends_with_the_command(place: Place) {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
    ] {
        // The grandchild ignores the signal; the command does not, and has a second to die of it.
        let script = "(trap '' TERM INT HUP QUIT USR1; echo ready; sleep 600; :) & sleep 600; :";
        let mut kilit = place.start(["run", "--grace", "1s", "x", "--", "sh", "-c", script]);
        kilit.signal(signal);
        kilit.wait(SOON).expect_code(code);
        expect_no_family(&kilit);
        place.expect_free("x");
    }
}

#[test]
fn a_command_that_is_stopped_is_continued_to_end() {
    let place = Place::new();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut kilit = place.start([
            "run",
            "--ttl=10m",
            "--grace=5m",
            "x",
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 600",
        ]);
        kilit.signal(Signal::TSTP);
        let is_kilit = |pid: &u32| [kilit.pid(), guardian_of(&kilit)].contains(pid);
        kilit.family().into_iter().filter(|pid| !is_kilit(pid)).for_each(wait_until_stopped);
        kilit.signal(signal);
        kilit.wait(SOON).expect_code(code);
        expect_no_family(&kilit);
    }
}

fn the_end_of_the_grace_after_a_term_is_a_kill(place: Place) {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
    let mut kilit = place.start(["run", "--grace", "100ms", "x", "--", "sh", "-c", script]);
    kilit.signal(Signal::TERM);
    kilit.wait(SOON).expect_code(137);
    expect_no_family(&kilit);
}

fn a_second_term_or_int_is_a_kill(place: Place) {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::TERM)] {
        let script = "trap 'echo got one' TERM INT; echo ready; while :; do sleep 0.02; done";
        let mut kilit =
            place.start(["run", "--ttl", "10m", "--grace", "5m", "x", "--", "bash", "-c", script]);
        kilit.signal(first);
        wait_for_line(&mut kilit, "got one");
        kilit.signal(second);
        kilit.wait(SOON).expect_code(137);
        expect_no_family(&kilit);
    }
}

fn one_that_left_the_group_lives_on_and_the_lock_is_free(place: Place) {
    let script = "setsid sh -c 'echo pid $$; exec sleep 600' & wait";
    let mut kilit = Process::spawn(&mut place.kilit(["run", "x", "--", "sh", "-c", script]));
    let pid: u32 = kilit
        .wait_for_stdout(SOON, |text| text.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok()));
    kilit.signal(Signal::TERM);
    kilit.wait(SOON).expect_code(143);
    assert!(!is_gone(pid));
    place.expect_free("x");
}

fn what_a_command_leaves_behind_is_named_and_does_not_keep_the_lock(place: Place) {
    let script = "echo fds $(ls /proc/self/fd | wc -l); sleep 600 & echo pid $!; exit 3";
    let mut kilit = Process::spawn(&mut place.kilit(["run", "x", "--", "sh", "-c", script]));
    let exit = kilit.wait(SOON).expect_code(3);
    let pid = exit.stdout.lines().find_map(|line| line.strip_prefix("pid ")).unwrap();
    assert!(exit.stderr.contains("live on") && exit.stderr.contains(pid), "{}", exit.stderr);
    assert!(!is_gone(pid.parse().unwrap()));
    place.run(["run", "-n", "x", "--", "true"]).expect_code(0);
    // stdin, stdout, stderr, and the directory that `ls` reads: nothing of the lock.
    let plain = Process::run(std::process::Command::new("sh").args(["-c", "ls /proc/self/fd | wc -l"]), SOON);
    assert_eq!(exit.stdout.lines().next().unwrap(), format!("fds {}", plain.stdout.trim()));
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let place = Place::new();
    let kilit = place.kilit(["run", "x", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(kilit.get_program()).args(kilit.get_args()).env("KILIT_ENGINE", place.url());
    let mut process = Process::spawn(&mut nohup);
    wait_for_line(&mut process, "ready");
    process.signal_group(Signal::HUP);
    process.signal(Signal::TERM);
    process.wait(SOON).expect_code(143);
}

fn a_waiter_that_is_told_to_end_leaves_the_line(place: Place) {
    let mut holder = place.hold("x");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "true"]));
        kilit_testbed::wait_until("a waiter stands in line", SOON, || place.status("x")["waiters"] == 1);
        waiter.signal(signal);
        let exit = waiter.wait(SOON).expect_code(code);
        assert!(exit.stderr.starts_with("kilit: told to end"), "{}", exit.stderr);
        expect_no_family(&waiter);
        assert_eq!(place.status("x")["waiters"], 0);
    }
    holder.signal(Signal::TERM);
    let family = holder.family();
    holder.wait(SOON).expect_code(143);
    for pid in family {
        wait_gone(pid, SOON);
    }
}
