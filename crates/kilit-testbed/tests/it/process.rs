use std::{
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio},
    time::Duration,
};

use kilit_testbed::{
    Process, Signal, is_gone,
    process::{wait_gone, wait_until, wait_until_stopped},
};

use crate::SOON;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn pid_line(text: &str) -> Option<u32> {
    text.strip_suffix('\n')?.parse().ok()
}

#[test]
fn output_and_code_are_kept() {
    let exit = Process::run(&mut sh("echo out; echo err >&2; exit 7"), SOON).expect_code(7);
    assert_eq!((&*exit.stdout, &*exit.stderr), ("out\n", "err\n"));
    Process::run(&mut sh("kill -KILL $$"), SOON).expect_code(128 + 9);
}

#[test]
fn a_deadline_fails_with_the_output() {
    let mut process = Process::spawn(&mut sh("echo so far; exec sleep 60"));
    process.wait_for_stdout(SOON, |text| text.contains("so far").then_some(()));
    let wait = catch_unwind(AssertUnwindSafe(|| process.wait(Duration::from_millis(20))));
    let message = *wait.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("so far") && message.contains("sleep 60"), "{message}");
}

#[test]
fn a_process_that_ends_without_the_expected_output_fails() {
    let mut process = Process::spawn(&mut sh("echo other"));
    let wait = catch_unwind(AssertUnwindSafe(|| process.wait_for_stdout(SOON, pid_line)));
    assert!(wait.unwrap_err().downcast::<String>().unwrap().contains("other"));
}

#[test]
fn dropping_kills_and_reaps() {
    let process = Process::spawn(Command::new("sleep").arg("60"));
    let pid = process.pid();
    assert!(!is_gone(pid));
    drop(process);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "not reaped");
}

#[test]
fn a_panic_kills_too() {
    let mut pid = 0;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let process = Process::spawn(Command::new("sleep").arg("60"));
        pid = process.pid();
        panic!("a test fails");
    }));
    panicked.unwrap_err();
    assert!(is_gone(pid));
}

/// Descendants that left the group and the session, whose parents are dead, and that are stopped.
#[test]
fn dropping_kills_all_descendants() {
    let mut process = Process::spawn(&mut sh("setsid sh -c 'echo $$; kill -STOP $$' & exit 0"));
    process.wait(SOON);
    wait_until("the descendant writes", SOON, || pid_line(&process.stdout()).is_some());
    let pid = pid_line(&process.stdout()).unwrap();
    wait_until_stopped(pid);
    assert_eq!(process.family(), [pid]);
    drop(process);
    assert!(is_gone(pid));
}

#[test]
fn signals_reach_the_process_or_its_group() {
    let trap = "trap 'echo got it; exit 3' TERM; echo up; while :; do sleep 0.01; done";
    let mut process = Process::spawn(&mut sh(trap));
    process.wait_for_stdout(SOON, |text| text.contains("up").then_some(()));
    process.signal(Signal::TERM);
    assert!(process.wait(SOON).expect_code(3).stdout.contains("got it"));

    let mut process = Process::spawn(&mut sh("sleep 60 & echo $!; wait"));
    let member = process.wait_for_stdout(SOON, pid_line);
    process.signal_group(Signal::KILL);
    process.wait(SOON).expect_code(128 + 9);
    wait_gone(member, SOON);
}

#[test]
fn stop_and_resume() {
    let mut process = Process::spawn_with_stdin(&mut sh("read line; echo $line"), Stdio::piped());
    process.stop();
    process.take_stdin().unwrap().write_all(b"hello\n").unwrap();
    assert!(!is_gone(process.pid()));
    assert_eq!(process.stdout(), "");
    process.resume();
    assert_eq!(process.wait(SOON).expect_code(0).stdout, "hello\n");
}

#[test]
fn stdin_can_be_a_pipe() {
    let mut process = Process::spawn_with_stdin(&mut Command::new("cat"), Stdio::piped());
    process.take_stdin().unwrap().write_all(b"hello").unwrap();
    assert_eq!(process.wait(SOON).stdout, "hello");
}

#[test]
fn a_zombie_is_gone() {
    let process = Process::spawn(&mut Command::new("true"));
    // Nobody has waited for it yet.
    wait_until("it has ended", SOON, || is_gone(process.pid()));
    assert!(std::path::Path::new(&format!("/proc/{}", process.pid())).exists());
    assert!(is_gone(i32::MAX as u32));
}

#[test]
#[should_panic(expected = "not within 5ms: pigs fly")]
fn waiting_in_vain_names_what_was_waited_for() {
    wait_until("pigs fly", Duration::from_millis(5), || false);
}
