//! On a terminal, which `script` makes.

use std::process::{Command, Stdio};

use kilit_testbed::{Process, process::Exit};

use crate::place::{Place, SOON};

/// Types `keys` at a terminal on which a shell runs `script`; `$KILIT` is the command under test.
#[track_caller]
fn on_a_terminal(place: &Place, script: &str, wait_for: &str, keys: &[u8]) -> Exit {
    use std::io::Write;
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--command", script, "/dev/null"])
        .env("KILIT", place.kilit(["x"]).get_program())
        .env("KILIT_ENGINE", place.url())
        .env("SHELL", "/bin/bash");
    let mut process = Process::spawn_with_stdin(&mut terminal, Stdio::piped());
    process.wait_for_stdout(SOON, |text| text.contains(wait_for).then_some(()));
    process.take_stdin().unwrap().write_all(keys).unwrap();
    process.wait(SOON)
}

#[test]
fn the_command_reads_from_the_terminal() {
    let place = Place::new();
    let script = "\"$KILIT\" run x -- sh -c 'echo ready; read line; echo \"<$line>\"; exit 5'";
    let exit = on_a_terminal(&place, script, "ready", b"typed\n").expect_code(5);
    assert!(exit.stdout.contains("<typed>"), "{}", exit.stdout);
}

#[test]
fn the_terminal_comes_back() {
    let place = Place::new();
    let script = "\"$KILIT\" run x -- true; echo ready; read line; echo \"<$line>\"";
    let exit = on_a_terminal(&place, script, "ready", b"typed\n").expect_code(0);
    assert!(exit.stdout.contains("<typed>"), "{}", exit.stdout);
}

#[test]
fn an_interrupt_of_the_terminal_comes_once() {
    let place = Place::new();
    let command = "trap 'echo got INT' INT; echo ready; sleep 1; sleep 1; exit 6";
    let script = format!("\"$KILIT\" run x -- bash -c {command:?}");
    let exit = on_a_terminal(&place, &script, "ready", b"\x03").expect_code(6);
    assert_eq!(exit.stdout.matches("got INT").count(), 1, "{}", exit.stdout);
}

#[test]
fn in_a_pipeline_the_command_gets_the_terminal_when_it_asks() {
    let place = Place::new();
    let script = "\"$KILIT\" run x -- bash -c 'echo ready; read line; echo \"<$line>\"; exit 5' | cat; \
                  echo ${PIPESTATUS[0]}";
    let exit = on_a_terminal(&place, script, "ready", b"typed\n").expect_code(0);
    assert!(exit.stdout.contains("<typed>") && exit.stdout.trim_end().ends_with('5'), "{}", exit.stdout);
}

#[test]
fn in_a_pipeline_another_member_may_read_from_the_terminal() {
    let place = Place::new();
    let script = "\"$KILIT\" run x -- bash -c 'echo ready; exec sleep 600' \
                  | { read word; echo $word; read line < /dev/tty; echo \"<$line>\"; \"$KILIT\" status x; kill -TERM 0; }";
    let exit = on_a_terminal(&place, script, "ready", b"typed\n");
    assert!(exit.stdout.contains("<typed>") && exit.stdout.contains("x: held"), "{}", exit.stdout);
    place.expect_free("x");
}
