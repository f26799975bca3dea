use std::{os::unix::process::ExitStatusExt, process::Stdio};

use kilit_testbed::{Process, process::wait_gone, until_eof::until_eof, wait_until};

use crate::SOON;

fn sleep() -> Process {
    let process = Process::spawn_with_stdin(until_eof("sleep").arg("60"), Stdio::piped());
    let comm = format!("/proc/{}/comm", process.pid());
    wait_until("it is the program", SOON, || {
        std::fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")
    });
    process
}

/// A test that is killed closes its pipes.
#[test]
fn it_is_killed_when_stdin_ends() {
    let mut process = sleep();
    drop(process.take_stdin());
    assert_eq!(process.wait(SOON).status.signal(), Some(9));
}

#[test]
fn nothing_is_left_when_it_ends_before() {
    let mut process = sleep();
    let family = process.family();
    assert_eq!(family.len(), 2);
    process.kill();
    for pid in family {
        wait_gone(pid, SOON);
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let mut process = Process::spawn_with_stdin(&mut until_eof("no-such-program"), Stdio::piped());
    let exit = process.wait(SOON).expect_code(1);
    assert!(exit.stderr.contains("no-such-program"), "{}", exit.stderr);
}
