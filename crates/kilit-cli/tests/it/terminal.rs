//! On a terminal, which `script` makes.

use std::{
    io::Write,
    process::{ChildStdin, Command, Stdio},
};

use kilit_testbed::{
    Process, Signal,
    process::{Exit, wait_gone, wait_until_stopped},
    wait_until,
};

use crate::place::{Place, SOON};

/// A terminal on which bash runs a script; `$KILIT` is the command under test.
struct Terminal {
    process: Process,
    keys: ChildStdin,
}

impl Terminal {
    fn new(place: &Place, script: &str) -> Self {
        let mut terminal = Command::new("script");
        terminal
            .args(["--quiet", "--return", "--command", script, "/dev/null"])
            .env("KILIT", place.kilit(["x"]).get_program())
            .env("KILIT_ENGINE", place.url())
            .env("SHELL", "/bin/bash")
            // No words of the line editor's between the lines.
            .env("TERM", "dumb");
        let mut process = Process::spawn_with_stdin(&mut terminal, Stdio::piped());
        let keys = process.take_stdin().unwrap();
        Self { process, keys }
    }

    /// One with an interactive shell, at which `line` was typed. Waits until its command has said `ready` and its
    /// process id, and returns that.
    #[track_caller]
    fn with_shell(place: &Place, line: &str) -> (Self, u32) {
        let mut terminal = Self::new(place, "exec bash --norc -i");
        terminal.type_in(line.as_bytes());
        // A prompt may come before it.
        let pid = |text: &str| text.lines().find_map(|line| line.rsplit_once("ready ")?.1.parse().ok());
        let pid = terminal.process.wait_for_stdout(SOON, pid);
        (terminal, pid)
    }

    #[track_caller]
    fn type_in(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    #[track_caller]
    fn wait_for(&mut self, words: &str) {
        self.process.wait_for_stdout(SOON, |text| text.contains(words).then_some(()));
    }

    /// The process that holds `x`.
    fn kilit(place: &Place) -> rustix::process::Pid {
        let status = place.status("x");
        let note = status["holders"][0]["note"].as_str().unwrap();
        rustix::process::Pid::from_raw(note.rsplit_once('/').unwrap().1.parse().unwrap()).unwrap()
    }
}

/// Types `keys` at a terminal on which a shell runs `script`.
#[track_caller]
fn on_a_terminal(place: &Place, script: &str, wait_for: &str, keys: &[u8]) -> Exit {
    let mut terminal = Terminal::new(place, script);
    terminal.wait_for(wait_for);
    terminal.type_in(keys);
    drop(terminal.keys);
    terminal.process.wait(SOON)
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

/// Reads and writes lines, as a shell would start it.
const CAT: &str = "\"$KILIT\" run x -- sh -c 'echo ready $$; exec cat'";

#[test]
fn a_command_that_the_terminal_has_stopped_can_be_ended_there() {
    for (key, code) in [(b"\x03", 130), (b"\x1c", 131)] {
        let place = Place::new();
        let (mut terminal, command) = Terminal::with_shell(&place, &format!("{CAT}\n"));
        terminal.type_in(b"\x1a");
        terminal.wait_for("the lock is kept");
        wait_until_stopped(command);
        assert_eq!(place.status("x")["held"], true);
        terminal.type_in(key);
        wait_gone(command, SOON);
        terminal.type_in(b"echo code $?; exit\n");
        terminal.wait_for(&format!("code {code}"));
        terminal.process.wait(SOON).expect_code(0);
        place.expect_free("x");
    }
}

#[test]
fn a_command_that_the_terminal_has_stopped_goes_on_there() {
    let place = Place::new();
    let (mut terminal, command) = Terminal::with_shell(&place, &format!("{CAT}\n"));
    for (stops, word) in [(1, "once"), (2, "again")] {
        terminal.type_in(b"\x1a");
        terminal
            .process
            .wait_for_stdout(SOON, |text| (text.matches("the lock is kept").count() == stops).then_some(()));
        wait_until_stopped(command);
        rustix::process::kill_process(Terminal::kilit(&place), Signal::CONT).unwrap();
        // It was typed, and `cat` says it.
        terminal.type_in(format!("{word}\n").as_bytes());
        terminal.process.wait_for_stdout(SOON, |text| (text.matches(word).count() == 2).then_some(()));
    }
    terminal.type_in(b"\x04");
    wait_gone(command, SOON);
    terminal.type_in(b"exit\n");
    terminal.process.wait(SOON).expect_code(0);
}

#[test]
fn a_command_that_the_terminal_has_stopped_ends_with_it() {
    let place = Place::new();
    let (mut terminal, command) = Terminal::with_shell(&place, &format!("{CAT}\n"));
    terminal.type_in(b"\x1a");
    wait_until_stopped(command);
    terminal.wait_for("the lock is kept");
    terminal.process.kill();
    wait_gone(command, SOON);
    wait_until("the lock is free", SOON, || place.status("x")["held"] == false);
}

#[test]
fn a_background_job_gets_the_terminal_when_it_is_brought_to_the_foreground() {
    let place = Place::new();
    let script = "echo ready $$; read line; echo \"<$line>\"";
    let (mut terminal, command) =
        Terminal::with_shell(&place, &format!("\"$KILIT\" run x -- sh -c '{script}' &\n"));
    wait_until_stopped(command);
    terminal.type_in(b"fg\n");
    // Typed once, and said again by the shell.
    terminal.process.wait_for_stdout(SOON, |text| (text.matches("echo ready").count() == 2).then_some(()));
    terminal.type_in(b"typed\n");
    terminal.wait_for("<typed>");
    terminal.type_in(b"exit\n");
    terminal.process.wait(SOON).expect_code(0);
}

#[test]
fn a_group_of_another_pid_namespace_has_no_foreground_and_is_no_panic() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can make a PID namespace");
        return;
    }
    let place = Place::new();
    let exit = on_a_terminal(&place, "unshare --pid --fork \"$KILIT\" run x -- echo inside", "inside", b"");
    assert!(exit.expect_code(0).stdout.contains("inside"));
}
