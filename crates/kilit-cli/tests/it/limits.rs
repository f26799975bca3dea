//! The system gives less than usual: no thread, no process, no descriptor, no sight of what others run.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use kilit_testbed::{Process, Signal, process::wait_gone, wait_until};

use crate::place::{Place, SOON, guardian_of, kill, wait_for_line};

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

#[test]
fn a_member_that_is_hidden_is_waited_for() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can mount /proc with hidepid");
        return;
    }
    let place = Place::new();
    let sudo = place.path("sudo");
    Process::run(Command::new("cp").arg("/usr/bin/setpriv").arg(&sudo), SOON).expect_code(0);
    fs::set_permissions(&sudo, Permissions::from_mode(0o4755)).unwrap();
    let script = "\"$0\" --reuid 0 sleep 600 & wait";
    let kilit = kilit_for_all(&place, ["run", "--grace=100ms", "x", "--", "sh", "-c", script]);
    let mut hidden = Command::new("unshare");
    let mount = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    hidden
        .args(["--mount", "sh", "-c", mount, "sh"])
        .arg(kilit.get_program())
        .args(kilit.get_args())
        .arg(sudo);
    let mut kilit = Process::spawn(hidden.env("KILIT_ENGINE", place.url()));
    let sleeper = |kilit: &Process| {
        let sleeps =
            |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00600\0");
        kilit.family().into_iter().find(sleeps)
    };
    wait_until("root sleeps", SOON, || sleeper(&kilit).is_some());
    let sleeper = sleeper(&kilit).unwrap();
    kilit.signal(Signal::TERM);
    // The shell has ended, and what root runs has not.
    wait_until("only root's process is left", SOON, || kilit.family().len() <= 3);
    place.run(["run", "--wait=300ms", "x", "--", "true"]).expect_code(75);
    kill(sleeper, Signal::KILL);
    kilit.wait(SOON).expect_code(143);
    place.expect_free("x");
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
