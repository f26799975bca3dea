//! KILL and STOP of any process of a run change nothing of exclusion.

use std::path::Path;

use kilit_testbed::{
    Process, Signal,
    bins::testbed,
    overlap::Judge,
    process::{wait_gone, wait_until_stopped},
    wait_until,
};

use crate::place::{Place, SOON, guardian_of, kill, wait_for_line};

/// A holder that writes to the log every few milliseconds, and does not heed TERM.
#[track_caller]
fn beat(place: &Place, log: &Path) -> Process {
    let testbed = testbed();
    let words = ["run", "x", "--", testbed.to_str().unwrap(), "beat", "--ignore-term", "--id", "first"];
    let kilit = Process::spawn(place.kilit(words).arg(log));
    wait_until("the command is at work", SOON, || Judge::read(log).entries().len() > 1);
    kilit
}

/// The next holder, already in line.
#[track_caller]
fn next(place: &Place, log: &Path) -> Process {
    let testbed = testbed();
    let words = ["run", "x", "--", testbed.to_str().unwrap(), "hold", "--id", "next"];
    let kilit = Process::spawn(place.kilit(words).arg(log).arg("20"));
    wait_until("the next stands in line", SOON, || place.status("x")["waiters"] == 1);
    kilit
}

/// No line of the first follows the first of the next.
#[track_caller]
fn judge(log: &Path) {
    let dead_by = kilit::Clock::system().now();
    let verdict = Judge::read(log).killed("first", dead_by).expect_clean();
    assert_eq!(verdict.visits, 2);
}

#[test]
fn kilit_is_killed() {
    let place = Place::new();
    let log = place.path("log");
    let mut first = beat(&place, &log);
    let mut next = next(&place, &log);
    let family = first.family();
    first.kill().expect_code(137);
    next.wait(SOON).expect_code(0);
    for pid in family {
        wait_gone(pid, SOON);
    }
    judge(&log);
}

#[test]
fn the_guardian_is_killed() {
    let place = Place::new();
    let log = place.path("log");
    let mut first = beat(&place, &log);
    let mut next = next(&place, &log);
    let (family, guardian) = (first.family(), guardian_of(&first));
    kill(guardian, Signal::KILL);
    let exit = first.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("guardian was killed"), "{}", exit.stderr);
    next.wait(SOON).expect_code(0);
    for pid in family {
        wait_gone(pid, SOON);
    }
    judge(&log);
}

#[test]
fn the_command_ends_even_with_kilit_and_the_guardian_together() {
    let place = Place::new();
    let mut kilit = place.hold("x");
    let (family, guardian) = (kilit.family(), guardian_of(&kilit));
    // Neither can do anything about the other's end.
    kilit.stop();
    kill(guardian, Signal::KILL);
    kilit.kill().expect_code(137);
    for pid in family {
        wait_gone(pid, SOON);
    }
}

#[test]
fn what_the_command_has_started_is_gone_before_the_lock_passes_on() {
    // The command itself ends at the first signal; the other process heeds none and writes on.
    let script = "\"$0\" beat --ignore-term --every 1 --id first \"$1\" & exec sleep 600";
    for (of_the_guardian, signal, code) in
        [(false, Signal::KILL, 137), (true, Signal::KILL, 79), (false, Signal::TERM, 143)]
    {
        let place = Place::new();
        let log = place.path("log");
        let mut kilit = place.kilit(["run", "--grace", "200ms", "x", "--", "sh", "-c", script]);
        let mut first = Process::spawn(kilit.arg(testbed()).arg(&log));
        wait_until("it is at work", SOON, || Judge::read(&log).entries().len() > 1);
        let mut next = next(&place, &log);
        let family = first.family();
        kill(if of_the_guardian { guardian_of(&first) } else { first.pid() }, signal);
        first.wait(SOON).expect_code(code);
        next.wait(SOON).expect_code(0);
        for pid in family {
            wait_gone(pid, SOON);
        }
        judge(&log);
    }
}

#[test]
fn a_run_within_a_run_is_gone_before_the_outer_lock_passes_on() {
    let place = Place::new();
    let log = place.path("log");
    // It is judged by the outer lock's token.
    let script = "\"$0\" run y -- env KILIT_TOKEN=$KILIT_TOKEN KILIT_TOKEN_SOURCE=$KILIT_TOKEN_SOURCE \
                  \"$1\" beat --ignore-term --id first \"$2\"; :";
    let mut outer = place.kilit(["run", "x", "--", "sh", "-c", script]);
    let program = outer.get_program().to_owned();
    let mut outer = Process::spawn(outer.arg(program).arg(testbed()).arg(&log));
    wait_until("it is at work", SOON, || Judge::read(&log).entries().len() > 1);
    let mut next = next(&place, &log);
    let note = place.status("y")["holders"][0]["note"].as_str().unwrap().to_owned();
    let inner: u32 = note.rsplit_once('/').unwrap().1.parse().unwrap();
    let guardian = children(inner).parse().unwrap();
    // The inner command lives on for as long as its guardian does nothing.
    kill(guardian, Signal::STOP);
    wait_until_stopped(guardian);
    outer.kill();
    wait_gone(inner, SOON);
    place.run(["run", "--wait", "300ms", "x", "--", "true"]).expect_code(75);
    kill(guardian, Signal::CONT);
    next.wait(SOON).expect_code(0);
    judge(&log);
}

#[test]
fn signals_do_not_harm_the_guardian() {
    let place = Place::new();
    let mut command = place.kilit(["run", "x", "--", "sh", "-c", "echo ready; read line; exit 5"]);
    let mut kilit = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    let guardian = guardian_of(&kilit);
    for signal in [
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::TSTP,
        Signal::ALARM,
        Signal::PIPE,
        Signal::ABORT,
    ] {
        kill(guardian, signal);
    }
    drop(kilit.take_stdin());
    kilit.wait(SOON).expect_code(5);
}

#[test]
fn a_stopped_guardian_does_not_hold_up_the_end() {
    let place = Place::new();
    let mut command = place.kilit(["run", "x", "--", "sh", "-c", "echo ready; read line; exit 5"]);
    let mut kilit = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    let guardian = guardian_of(&kilit);
    kill(guardian, Signal::STOP);
    wait_until_stopped(guardian);
    drop(kilit.take_stdin());
    kilit.wait(SOON).expect_code(5);
    place.run(["run", "-n", "x", "--", "true"]).expect_code(0);
}

#[test]
fn a_stopped_guardian_does_not_hold_up_a_kill() {
    let place = Place::new();
    let log = place.path("log");
    let mut first = beat(&place, &log);
    let guardian = guardian_of(&first);
    kill(guardian, Signal::STOP);
    wait_until_stopped(guardian);
    let mut next = next(&place, &log);
    first.signal(Signal::TERM);
    wait_until("TERM was taken", SOON, || {
        first.signal(Signal::TERM);
        first.try_wait().is_some()
    });
    next.wait(SOON).expect_code(0);
    judge(&log);
}

#[test]
fn a_stopped_kilit_keeps_the_lock_and_goes_on() {
    let place = Place::new();
    let log = place.path("log");
    let mut first = beat(&place, &log);
    first.stop();
    place.run(["run", "--wait", "100ms", "x", "--", "true"]).expect_code(75);
    first.resume();
    let mut next = next(&place, &log);
    first.signal(Signal::TERM);
    // The command heeds no TERM, so the end of the grace kills it.
    first.wait(SOON).expect_code(137);
    next.wait(SOON).expect_code(0);
    judge(&log);
}

#[test]
fn kilit_is_killed_while_it_waits() {
    let place = Place::new();
    let _holder = place.hold("x");
    let mut waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "true"]));
    wait_until("the waiter stands in line", SOON, || place.status("x")["waiters"] == 1);
    let family = waiter.family();
    waiter.kill();
    for pid in family {
        wait_gone(pid, SOON);
    }
    assert_eq!(place.status("x")["waiters"], 0);
}

#[test]
fn a_guardian_that_was_killed_while_kilit_waits_is_replaced() {
    let place = Place::new();
    let mut holder = place.hold("x");
    let mut waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "sh", "-c", "exit 4"]));
    wait_until("the waiter stands in line", SOON, || place.status("x")["waiters"] == 1);
    let guardian = guardian_of(&waiter);
    kill(guardian, Signal::KILL);
    wait_gone(guardian, SOON);
    holder.signal(Signal::TERM);
    holder.wait(SOON).expect_code(143);
    waiter.wait(SOON).expect_code(4);
}

#[test]
fn many_orphans_are_reaped_while_the_command_runs() {
    let place = Place::new();
    // Each inner shell ends before its background job does, which then belongs to the guardian.
    let script = "i=0; while [ $i -lt 50 ]; do sh -c 'sleep 0 &'; i=$((i+1)); done; echo ready; read line";
    let mut command = place.kilit(["run", "x", "--", "sh", "-c", script]);
    let mut kilit = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    let guardian = guardian_of(&kilit);
    wait_until("the guardian has one child left", SOON, || {
        children(guardian).split_whitespace().count() == 1
    });
    drop(kilit.take_stdin());
    kilit.wait(SOON).expect_code(1);
}

/// Their process ids.
fn children(parent: u32) -> String {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    children.trim_end().to_owned()
}
