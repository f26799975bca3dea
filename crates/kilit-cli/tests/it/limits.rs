//! The system has no room: no thread, no process, no descriptor.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use kilit_testbed::{Process, Signal, process::wait_gone, wait_until};

use crate::place::{Place, SOON, guardian_of, wait_for_line};

#[test]
fn without_a_thread_the_command_is_ended_all_the_same() {
    let place = Place::new();
    let words = [
        "run",
        "--grace=100ms",
        "x",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo ready; while :; do sleep 1; done",
    ];
    let mut kilit = Process::spawn(as_nobody(&mut kilit_for_all(&place, words)));
    wait_for_line(&mut kilit, "ready");
    let pid = kilit.pid().to_string();
    Process::run(as_nobody(Command::new("prlimit").args(["--nproc=1:1", "--pid", &pid])), SOON)
        .expect_code(0);
    kilit.signal(Signal::TERM);
    kilit.wait(SOON).expect_code(137);
    place.expect_free("x");
}

#[test]
fn a_process_that_cannot_be_had_is_no_fault_of_the_command() {
    let place = Place::new();
    let mut holder = place.hold("x");
    let mut waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "true"]));
    wait_until("the waiter stands in line", SOON, || place.status("x")["waiters"] == 1);
    let guardian = guardian_of(&waiter);
    // It is sent the command's stdin and the lock's file; a spawn takes more.
    let limit = fs::read_dir(format!("/proc/{guardian}/fd")).unwrap().count() + 2;
    let limit = format!("--nofile={limit}:{limit}");
    Process::run(Command::new("prlimit").args([&limit, "--pid", &guardian.to_string()]), SOON).expect_code(0);
    holder.signal(Signal::TERM);
    holder.wait(SOON).expect_code(143);
    let exit = waiter.wait(SOON).expect_code(69);
    assert!(exit.stderr.starts_with("kilit: cannot start the command: "), "{}", exit.stderr);
    wait_gone(guardian, SOON);
    place.expect_free("x");
}

#[test]
fn without_descriptors_nothing_is_begun() {
    let place = Place::new();
    place.run(["run", "x", "--", "true"]).expect_code(0);
    for arguments in ["run x -- true", "status x"] {
        let codes: Vec<_> = (4..40)
            .map(|limit| {
                let script = format!("ulimit -n {limit}; exec \"$0\" {arguments}");
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", &script])
                    .arg(place.kilit(["x"]).get_program())
                    .env("KILIT_ENGINE", place.url());
                let exit = Process::run(&mut shell, SOON);
                assert!(!exit.stderr.contains("panicked"), "{limit}: {}", exit.stderr);
                let said = exit.stderr.contains("oo many open files");
                assert_eq!(said, exit.code() > 1, "{limit}: {} {}", exit.code(), exit.stderr);
                exit.code()
            })
            .collect();
        let good = codes[35];
        assert!(
            codes.iter().all(|&code| code == 69 || code == 127 || code == good),
            "{arguments}: {codes:?}"
        );
        assert!(codes.contains(&69), "{codes:?}");
    }
}

/// `kilit`, where any user can execute it and lock.
fn kilit_for_all<const N: usize>(place: &Place, args: [&str; N]) -> Command {
    let (command, program) = (place.kilit(args), place.path("kilit"));
    // Not by this process: what another thread forks meanwhile would have the copy open, and nobody could execute it.
    Process::run(Command::new("cp").arg(command.get_program()).arg(&program), SOON).expect_code(0);
    fs::set_permissions(program.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
    let mut copy = Command::new(program);
    copy.args(args).env("KILIT_ENGINE", place.url());
    copy
}

/// By a user whom limits bind, where this is root.
fn as_nobody(command: &mut Command) -> &mut Command {
    const NOBODY: u32 = 65534;
    if rustix::process::getuid().is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}
