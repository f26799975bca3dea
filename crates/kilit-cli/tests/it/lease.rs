//! On a lease: the command is dead before the engine can give the lock to another.
//!
//! These tests need a `kilit` that was built with the feature `testlease`, at `KILIT_BIN_TESTLEASE`.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use kilit_testbed::{
    Process, Signal,
    bins::testbed,
    chaos::{ChaosProxy, Mode},
    count::open_fds,
    fence_sqlite::Stock,
    overlap::Judge,
    ports::ClosedPort,
    process::{wait_gone, wait_until_stopped},
    server::{LeaseServer, Server},
    wait_until,
};

use crate::place::{Place, SOON, guardian_of, kilit};

/// Long enough for stamps to tell before from after on a busy machine.
const TTL: &str = "5s";

/// A lease server, a link to it that can be cut, and the log of who was inside.
struct Scene {
    place: Place,
    server: Server<LeaseServer>,
    link: ChaosProxy,
}

impl Scene {
    fn new() -> Self {
        let server = LeaseServer::start();
        let link = ChaosProxy::start(server.addr());
        Self { place: Place::new(), server, link }
    }

    /// `kilit run x`, over the link or straight to the server.
    fn run(&self, at: SocketAddr, options: &[&str]) -> Command {
        let mut command = kilit_testlease();
        command.env("KILIT_ENGINE", Server::<LeaseServer>::url(at) + "?timeout=500ms");
        command.args(["run", "--ttl", TTL]).args(options).args(["x", "--"]);
        command
    }

    /// A holder over the link that writes to the log every few milliseconds and does not heed TERM.
    fn beat(&self) -> Process {
        let log = self.place.path("log");
        let mut command = self.run(self.link.addr(), &[]);
        command.arg(testbed()).args(["beat", "--ignore-term", "--id", "first"]).arg(&log);
        let holder = Process::spawn(&mut command);
        wait_until("the command is at work", SOON, || Judge::read(&log).entries().len() > 1);
        holder
    }

    /// The next holder, straight to the server.
    fn next(&self) -> Process {
        let mut command = self.run(self.server.addr(), &["--wait", "60s"]);
        command.arg(testbed()).args(["hold", "--id", "next"]).arg(self.place.path("log")).arg("20");
        Process::spawn(&mut command)
    }

    /// No line of the first follows the first of the next.
    fn judge(&self) {
        let dead_by = ::kilit::Clock::system().now();
        let verdict = Judge::read(&self.place.path("log")).killed("first", dead_by).expect_clean();
        assert_eq!(verdict.visits, 2);
    }

    fn is_held(&self) -> bool {
        let mut command = kilit_testlease();
        command.env("KILIT_ENGINE", Server::<LeaseServer>::url(self.server.addr())).args(["status", "x"]);
        Process::run(&mut command, SOON).code() == 0
    }

    fn waiters(&self) -> Option<u64> {
        let mut command = kilit_testlease();
        command.env("KILIT_ENGINE", Server::<LeaseServer>::url(self.server.addr()));
        let status = Process::run(command.args(["status", "--json", "x"]), SOON).stdout;
        serde_json::from_str::<serde_json::Value>(&status).unwrap()["waiters"].as_u64()
    }
}

fn kilit_testlease() -> Command {
    let program = std::env::var_os("KILIT_BIN_TESTLEASE").expect(
        "KILIT_BIN_TESTLEASE is unset: build kilit-cli with the feature testlease and set it to its path",
    );
    let mut command = Command::new(program);
    for (key, value) in kilit().get_envs() {
        if value.is_none() {
            command.env_remove(key);
        }
    }
    command
}

#[test]
fn a_holder_that_is_cut_off_has_its_command_dead_in_time() {
    let scene = Scene::new();
    let mut holder = scene.beat();
    let next = scene.next();
    scene.link.set(Mode::Blackhole);
    let exit = holder.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("did not answer"), "{}", exit.stderr);
    assert!(holder.family().is_empty());
    ended(next);
    scene.judge();
}

#[test]
fn a_command_that_ends_well_when_told_is_lost_all_the_same() {
    let scene = Scene::new();
    let mut command = scene.run(scene.link.addr(), &[]);
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut holder = Process::spawn(command.args(["sh", "-c", script]));
    crate::place::wait_for_line(&mut holder, "ready");
    scene.link.set(Mode::Blackhole);
    let exit = holder.wait(SOON).expect_code(79);
    assert_eq!(exit.stdout, "ready\ntold\n");
}

#[test]
fn a_command_that_is_stopped_keeps_its_lock() {
    let scene = Scene::new();
    let url = Server::<LeaseServer>::url(scene.server.addr());
    let run = |options: &[&str]| {
        let mut command = kilit_testlease();
        command
            .env("KILIT_ENGINE", &url)
            .args(["run", "--ttl", "2s"])
            .args(options)
            .args(["x", "--", "sh", "-c"]);
        command
    };
    let mut holder = run(&[]);
    let mut holder =
        Process::spawn_with_stdin(holder.arg("echo ready; read line; exit 4"), std::process::Stdio::piped());
    crate::place::wait_for_line(&mut holder, "ready");
    let command = *holder.family().iter().find(|pid| is_shell(**pid)).expect("the command's shell");
    holder.signal(Signal::TSTP);
    wait_until_stopped(command);
    // Longer than the lease: it is renewed all the while.
    Process::run(run(&["--wait", "3s"]).arg("true"), SOON).expect_code(75);
    holder.signal(Signal::CONT);
    drop(holder.take_stdin());
    holder.wait(SOON).expect_code(4);
}

#[test]
fn a_holder_whose_server_dies_gives_up_by_its_own_clock() {
    let mut scene = Scene::new();
    let mut holder = scene.beat();
    scene.server.kill();
    holder.wait(SOON).expect_code(79);
    assert!(holder.family().is_empty());
}

#[test]
fn an_outage_shorter_than_the_lease_harms_nobody() {
    let scene = Scene::new();
    let mut command = scene.run(scene.link.addr(), &[]);
    command.env("KILIT_LOG", "warn").args(["sh", "-c", "echo ready; read line; exit 7"]);
    let mut holder = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    crate::place::wait_for_line(&mut holder, "ready");
    for mode in [Mode::Reset, Mode::Blackhole] {
        let tries = |holder: &Process| holder.stderr().matches("trying again").count();
        let before = tries(&holder);
        scene.link.set(mode);
        wait_until("a renewal fails", SOON, || tries(&holder) > before);
        scene.link.set(Mode::Pass);
        let healed = scene.link.counts().to_client;
        wait_until("a renewal is answered", SOON, || scene.link.counts().to_client > healed);
    }
    drop(holder.take_stdin());
    holder.wait(SOON).expect_code(7);
    assert!(!scene.is_held());
}

#[test]
fn a_kilit_that_was_stopped_past_its_ttl_finds_its_command_dead() {
    let scene = Scene::new();
    let mut holder = scene.beat();
    let next = scene.next();
    let stopped = holder.pid();
    kill(stopped, Signal::STOP);
    wait_until_stopped(stopped);
    ended(next);
    kill(stopped, Signal::CONT);
    holder.wait(SOON).expect_code(79);
    assert!(holder.family().is_empty());
    scene.judge();
}

#[test]
fn a_kilit_that_was_killed_takes_its_command_along() {
    let scene = Scene::new();
    let mut holder = scene.beat();
    let (next, family) = (scene.next(), holder.family());
    kill(holder.pid(), Signal::KILL);
    holder.wait(SOON).expect_code(137);
    for pid in family {
        // At once, and not when the lease is about to end.
        wait_gone(pid, Duration::from_secs(2));
    }
    ended(next);
    scene.judge();
}

#[test]
fn a_guardian_that_was_killed_ends_the_run() {
    let scene = Scene::new();
    let mut holder = scene.beat();
    let next = scene.next();
    kill(guardian_of(&holder), Signal::KILL);
    holder.wait(SOON).expect_code(79);
    ended(next);
    scene.judge();
}

#[test]
fn what_an_operator_breaks_is_lost_within_the_notice_bound() {
    let scene = Scene::new();
    let mut holder = scene.beat();
    let mut command = kilit_testlease();
    let url = Server::<LeaseServer>::url(scene.server.addr());
    let status =
        Process::run(kilit_testlease().env("KILIT_ENGINE", &url).args(["status", "--json", "x"]), SOON);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let token = status["holders"][0]["token_text"].as_str().unwrap().to_owned();
    command.env("KILIT_ENGINE", &url).args(["break", "x", "--token", &token]);
    Process::run(&mut command, SOON).expect_code(0);
    Process::run(&mut command, SOON).expect_code(1);
    let exit = holder.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("the engine ended the hold"), "{}", exit.stderr);
}

#[test]
fn a_write_after_the_pause_is_refused_by_the_fence() {
    let scene = Scene::new();
    let stock = scene.place.path("stock.db");
    let write = |at: SocketAddr, gate: Option<&Path>, value: &str| {
        let mut command = scene.run(at, &["--wait", "60s"]);
        let wait =
            gate.map_or(String::new(), |gate| format!("echo ready; read line < '{}'; ", gate.display()));
        command.args(["sh", "-c", &format!("{wait}exec \"$0\" write \"$@\"")]);
        command.arg(testbed()).arg(&stock).args(["product:42", value]);
        Process::spawn(&mut command)
    };
    let gate = scene.place.path("gate");
    Process::run(Command::new("mkfifo").arg(&gate), SOON).expect_code(0);
    let mut old = write(scene.server.addr(), Some(&gate), "old");
    crate::place::wait_for_line(&mut old, "ready");
    // All of it stands still: kilit, guardian and command.
    let family = [vec![old.pid()], old.family()].concat();
    for pid in &family {
        kill(*pid, Signal::STOP);
        wait_until_stopped(*pid);
    }
    write(scene.server.addr(), None, "new").wait(SOON).expect_code(0);
    assert_eq!(Stock::open(&stock).unwrap().read(b"product:42").unwrap().as_deref(), Some("new"));
    // The command goes on first, as if the others were late: only the fence stands between it and the stock.
    let command = *family.iter().find(|pid| is_shell(**pid)).expect("the command's shell");
    kill(command, Signal::CONT);
    std::fs::write(&gate, "go\n").unwrap();
    wait_gone(command, SOON);
    assert_eq!(Stock::open(&stock).unwrap().read(b"product:42").unwrap().as_deref(), Some("new"));
    for pid in &family {
        kill(*pid, Signal::CONT);
    }
    let exit = old.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("stale"), "{}", exit.stderr);
}

#[test]
fn an_engine_that_nobody_answers_for_is_given_up_in_time() {
    let scene = Scene::new();
    let closed = ClosedPort::new();
    let begun = std::time::Instant::now();
    let mut command = scene.run(closed.addr(), &["--wait", "1s"]);
    Process::run(command.arg("true"), SOON).expect_code(69);
    scene.link.set(Mode::Blackhole);
    let mut command = scene.run(scene.link.addr(), &["--wait", "1s"]);
    command.env(
        "KILIT_ENGINE",
        Server::<LeaseServer>::url(scene.link.addr()) + "?connect_timeout=1s&timeout=500ms",
    );
    Process::run(command.arg("true"), SOON).expect_code(69);
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
}

#[test]
fn a_wait_shorter_than_a_round_trip_still_gets_a_free_lock() {
    let scene = Scene::new();
    for wait in ["0", "1ns", "100us"] {
        let mut command = scene.run(scene.server.addr(), &["--wait", wait]);
        Process::run(command.arg("true"), SOON).expect_code(0);
    }
    let holder = scene.beat();
    for wait in ["0", "1ns", "100us"] {
        let mut command = scene.run(scene.server.addr(), &["--wait", wait]);
        Process::run(command.arg("true"), SOON).expect_code(75);
    }
    drop(holder);
}

#[test]
fn a_waiter_that_is_killed_leaves_nothing_that_outlives_its_ttl() {
    let scene = Scene::new();
    let holder = scene.beat();
    let mut waiter = scene.next();
    wait_until("it stands in line", SOON, || scene.waiters() == Some(1));
    waiter.kill().expect_code(137);
    wait_until("its place is gone", SOON, || scene.waiters() == Some(0));
    drop(holder);
}

#[test]
fn tries_that_failed_leave_nothing_with_the_engine() {
    let mut scene = Scene::new();
    let _holder = scene.beat();
    let server = scene.server.process().pid();
    let before = open_fds(server);
    for wait in [["0"; 40].as_slice(), &["500ms"; 3]].concat() {
        Process::run(scene.run(scene.server.addr(), &["--wait", wait]).arg("true"), SOON).expect_code(75);
        assert_eq!(scene.waiters(), Some(0), "at once, and not when its TTL has passed");
    }
    wait_until("connections are as before", SOON, || open_fds(server) <= before);
}

#[test]
fn a_hand_over_between_processes_does_not_take_a_poll() {
    let scene = Scene::new();
    let mut xargs = Command::new("sh");
    xargs
        .args(["-c", "seq 8 | xargs -P8 -I{} \"$0\" run x --wait 30s -- \"$1\" hold --id {} \"$2\" 20"])
        .arg(kilit_testlease().get_program())
        .arg(testbed())
        .arg(scene.place.path("log"))
        .env("KILIT_ENGINE", Server::<LeaseServer>::url(scene.server.addr()));
    let begun = std::time::Instant::now();
    Process::run(&mut xargs, SOON).expect_code(0);
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
    assert_eq!(Judge::read(&scene.place.path("log")).expect_clean().visits, 8);
}

fn ended(mut process: Process) {
    process.wait(SOON * 2).expect_code(0);
}

fn kill(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn is_shell(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh")
}
