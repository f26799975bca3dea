//! On a lease: the command is dead before the engine can give the lock to another.
//!
//! The test lease engine needs a `kilit` that was built with the feature `testlease`, at `KILIT_BIN_TESTLEASE`.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use kilit_testbed::{
    Process, Signal,
    bins::testbed,
    chaos::{ChaosProxy, Mode},
    count::open_fds,
    fence_sqlite::Stock,
    overlap::{Entry, Judge},
    ports::ClosedPort,
    process::{wait_gone, wait_until_stopped},
    wait_until,
};

use crate::place::{Place, SOON, guardian_of, kill, on_engines, wait_for_line};

/// Long enough for stamps to tell before from after on a busy machine.
const TTL: &str = "5s";

on_engines! { [testlease, redis] {
    a_holder_that_is_cut_off_has_its_command_dead_in_time,
    a_command_that_ends_well_when_told_is_lost_all_the_same,
    what_the_command_has_started_is_dead_in_time_too,
    a_command_that_is_stopped_keeps_its_lock,
    a_holder_whose_server_dies_gives_up_by_its_own_clock,
    an_outage_shorter_than_the_lease_harms_nobody,
    a_release_that_is_not_confirmed_keeps_the_commands_code,
    a_kilit_that_was_stopped_past_its_ttl_finds_its_command_dead,
    a_kilit_that_was_killed_takes_its_command_along,
    a_guardian_that_was_killed_ends_the_run,
    what_an_operator_breaks_is_lost_within_the_notice_bound,
    a_write_after_the_pause_is_refused_by_the_fence,
    an_engine_that_nobody_answers_for_is_given_up_in_time,
    an_outage_while_it_waits_is_ridden_out,
    a_wait_shorter_than_a_round_trip_still_gets_a_free_lock,
    a_waiter_that_is_killed_leaves_nothing_that_outlives_its_ttl,
    tries_that_failed_leave_nothing_with_the_engine,
    a_lock_delay_keeps_the_lock_closed_after_a_holder_that_vanished,
} }

on_engines! { [redis_cluster, redis_sentinel] { a_write_after_the_pause_is_refused_by_the_fence, } }

/// An engine at a server, a link to it that can be cut, and the log of who was inside.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) link: ChaosProxy,
}

impl Scene {
    pub(crate) fn new(place: Place) -> Self {
        let link = ChaosProxy::start(place.addr());
        Self { place, link }
    }

    /// `kilit run x`, straight to the server.
    pub(crate) fn run(&self, options: &[&str]) -> Command {
        self.run_at(&self.place.url(), options)
    }

    /// The same over the link.
    pub(crate) fn run_over_link(&self, options: &[&str]) -> Command {
        self.run_at(&self.place.url_at(self.link.addr()), options)
    }

    fn run_at(&self, url: &str, options: &[&str]) -> Command {
        let mut command = self.place.kilit(["run", "--ttl", TTL]);
        command.env("KILIT_ENGINE", format!("{url}?timeout=500ms")).args(options).args(["x", "--"]);
        command
    }

    /// A holder over the link that writes to the log every few milliseconds and does not heed TERM.
    pub(crate) fn beat(&self) -> Process {
        let log = self.place.path("log");
        let mut command = self.run_over_link(&[]);
        command.arg(testbed()).args(["beat", "--ignore-term", "--id", "first"]).arg(&log);
        let holder = Process::spawn(&mut command);
        wait_until("the command is at work", SOON, || Judge::read(&log).entries().len() > 1);
        holder
    }

    /// The next holder, straight to the server.
    pub(crate) fn next(&self) -> Process {
        let mut command = self.run(&["--wait", "60s"]);
        command.arg(testbed()).args(["hold", "--id", "next"]).arg(self.place.path("log")).arg("20");
        Process::spawn(&mut command)
    }

    /// No line of the first follows the first of the next.
    pub(crate) fn judge(&self) {
        let dead_by = ::kilit::Clock::system().now();
        let verdict = Judge::read(&self.place.path("log")).killed("first", dead_by).expect_clean();
        assert_eq!(verdict.visits, 2);
    }

    /// A moment before which the lock does not end by itself.
    fn expiry(&self) -> ::kilit::Moment {
        let now = ::kilit::Clock::system().now();
        let left = self.place.status("x")["holders"][0]["expires_in_ms"].as_u64().expect("it is a lease");
        now + Duration::from_millis(left)
    }

    fn waiters(&self) -> Option<u64> {
        self.place.status("x")["waiters"].as_u64()
    }
}

fn a_holder_that_is_cut_off_has_its_command_dead_in_time(place: Place) {
    let scene = Scene::new(place);
    let mut holder = scene.beat();
    let next = scene.next();
    scene.link.set(Mode::Blackhole);
    let expiry = scene.expiry();
    let exit = holder.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("did not answer"), "{}", exit.stderr);
    assert!(holder.family().is_empty());
    let log = Judge::read(&scene.place.path("log"));
    let last = log.entries().iter().rfind(|entry: &&Entry| entry.id == "first").unwrap();
    assert!(last.at < expiry, "its command was still at work when its lock could end");
    ended(next);
    scene.judge();
}

fn a_command_that_ends_well_when_told_is_lost_all_the_same(place: Place) {
    let scene = Scene::new(place);
    let mut command = scene.run_over_link(&[]);
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut holder = Process::spawn(command.args(["sh", "-c", script]));
    wait_for_line(&mut holder, "ready");
    scene.link.set(Mode::Blackhole);
    let exit = holder.wait(SOON).expect_code(79);
    assert_eq!(exit.stdout, "ready\ntold\n");
}

fn what_the_command_has_started_is_dead_in_time_too(place: Place) {
    let scene = Scene::new(place);
    let log = scene.place.path("log");
    // The command itself ends at the first signal; the other process heeds none and writes on.
    let script = "\"$0\" beat --ignore-term --id first \"$1\" & exec sleep 600";
    let mut command = scene.run_over_link(&[]);
    let mut holder = Process::spawn(command.args(["sh", "-c", script]).arg(testbed()).arg(&log));
    wait_until("it is at work", SOON, || Judge::read(&log).entries().len() > 1);
    let next = scene.next();
    scene.link.set(Mode::Blackhole);
    holder.wait(SOON).expect_code(79);
    assert!(holder.family().is_empty());
    ended(next);
    scene.judge();
}

fn a_command_that_is_stopped_keeps_its_lock(place: Place) {
    let scene = Scene::new(place);
    let run = |options: &[&str]| {
        let mut command = scene.place.kilit(["run", "--ttl", "2s"]);
        command.args(options).args(["x", "--", "sh", "-c"]);
        command
    };
    let mut holder = run(&[]);
    let mut holder =
        Process::spawn_with_stdin(holder.arg("echo ready; read line; exit 4"), std::process::Stdio::piped());
    wait_for_line(&mut holder, "ready");
    let command = *holder.family().iter().find(|pid| is_shell(**pid)).expect("the command's shell");
    holder.signal(Signal::TSTP);
    wait_until_stopped(command);
    // Longer than the lease: it is renewed all the while.
    Process::run(run(&["--wait", "3s"]).arg("true"), SOON).expect_code(75);
    holder.signal(Signal::CONT);
    drop(holder.take_stdin());
    holder.wait(SOON).expect_code(4);
}

fn a_holder_whose_server_dies_gives_up_by_its_own_clock(place: Place) {
    let mut scene = Scene::new(place);
    let mut holder = scene.beat();
    scene.place.server_process().kill();
    holder.wait(SOON).expect_code(79);
    assert!(holder.family().is_empty());
}

fn an_outage_shorter_than_the_lease_harms_nobody(place: Place) {
    let scene = Scene::new(place);
    let mut command = scene.run_over_link(&[]);
    command.env("KILIT_LOG", "warn").args(["sh", "-c", "echo ready; read line; exit 7"]);
    let mut holder = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut holder, "ready");
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
    scene.place.expect_free("x");
}

fn a_release_that_is_not_confirmed_keeps_the_commands_code(place: Place) {
    let scene = Scene::new(place);
    let mut command = scene.run_over_link(&[]);
    command.args(["sh", "-c", "echo ready; read line; exit 7"]);
    let mut holder = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut holder, "ready");
    scene.link.set(Mode::Blackhole);
    drop(holder.take_stdin());
    let exit = holder.wait(SOON).expect_code(7);
    assert!(exit.stderr.contains("the release was not confirmed"), "{}", exit.stderr);
}

fn a_kilit_that_was_stopped_past_its_ttl_finds_its_command_dead(place: Place) {
    let scene = Scene::new(place);
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

fn a_kilit_that_was_killed_takes_its_command_along(place: Place) {
    let scene = Scene::new(place);
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

fn a_guardian_that_was_killed_ends_the_run(place: Place) {
    let scene = Scene::new(place);
    let mut holder = scene.beat();
    let next = scene.next();
    kill(guardian_of(&holder), Signal::KILL);
    holder.wait(SOON).expect_code(79);
    ended(next);
    scene.judge();
}

fn what_an_operator_breaks_is_lost_within_the_notice_bound(place: Place) {
    let scene = Scene::new(place);
    let mut holder = scene.beat();
    let token = scene.place.status("x")["holders"][0]["token_text"].as_str().unwrap().to_owned();
    scene.place.run(["break", "x", "--token", &token]).expect_code(0);
    scene.place.run(["break", "x", "--token", &token]).expect_code(1);
    let exit = holder.wait(SOON).expect_code(79);
    let words = ["an operator broke the lock", "the engine ended the hold"];
    assert!(words.iter().any(|words| exit.stderr.contains(words)), "{}", exit.stderr);
}

fn a_write_after_the_pause_is_refused_by_the_fence(place: Place) {
    let stock = place.path("stock.db");
    let write = |gate: Option<&Path>, value: &str| {
        let mut command = place.kilit(["run", "--ttl", TTL, "--wait", "60s", "x", "--"]);
        let wait =
            gate.map_or(String::new(), |gate| format!("echo ready; read line < '{}'; ", gate.display()));
        command.args(["sh", "-c", &format!("{wait}exec \"$0\" write \"$@\"")]);
        command.arg(testbed()).arg(&stock).args(["product:42", value]);
        Process::spawn(&mut command)
    };
    let gate = place.path("gate");
    Process::run(Command::new("mkfifo").arg(&gate), SOON).expect_code(0);
    let mut old = write(Some(&gate), "old");
    wait_for_line(&mut old, "ready");
    // All of it stands still: kilit, guardian and command.
    let family = [vec![old.pid()], old.family()].concat();
    for pid in &family {
        kill(*pid, Signal::STOP);
        wait_until_stopped(*pid);
    }
    write(None, "new").wait(SOON).expect_code(0);
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

fn an_engine_that_nobody_answers_for_is_given_up_in_time(place: Place) {
    let scene = Scene::new(place);
    let (closed, begun) = (ClosedPort::new(), Instant::now());
    scene.link.set(Mode::Blackhole);
    for addr in [closed.addr(), scene.link.addr()] {
        for wait in ["1s", "0"] {
            let mut command = scene.place.kilit(["run", "--wait", wait, "x", "--", "true"]);
            let url = scene.place.url_at(addr) + "?connect_timeout=1s&timeout=500ms";
            Process::run(command.env("KILIT_ENGINE", url), SOON).expect_code(69);
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
}

fn an_outage_while_it_waits_is_ridden_out(place: Place) {
    let scene = Scene::new(place);
    let mut holder = scene.place.hold("x");
    let mut patient = Process::spawn(scene.run_over_link(&["--wait", "60s"]).args(["sh", "-c", "exit 7"]));
    wait_until("it stands in line", SOON, || scene.waiters() == Some(1));
    scene.link.set(Mode::Reset);
    // As long as it is away, nobody is heard of; at the end of a wait that counts.
    let mut late = scene.run_over_link(&["--wait", "1s"]);
    Process::run(late.arg("true"), SOON).expect_code(69);
    scene.link.set(Mode::Pass);
    wait_until("it stands in line again", SOON, || scene.waiters() == Some(1));
    holder.signal(Signal::TERM);
    holder.wait(SOON).expect_code(143);
    patient.wait(SOON).expect_code(7);
}

fn a_wait_shorter_than_a_round_trip_still_gets_a_free_lock(place: Place) {
    let scene = Scene::new(place);
    for wait in ["0", "1ns", "100us"] {
        let mut command = scene.run(&["--wait", wait]);
        Process::run(command.arg("true"), SOON).expect_code(0);
    }
    let holder = scene.beat();
    for wait in ["0", "1ns", "100us"] {
        let mut command = scene.run(&["--wait", wait]);
        Process::run(command.arg("true"), SOON).expect_code(75);
    }
    drop(holder);
}

fn a_waiter_that_is_killed_leaves_nothing_that_outlives_its_ttl(place: Place) {
    let scene = Scene::new(place);
    let holder = scene.beat();
    let mut waiter = scene.next();
    wait_until("it stands in line", SOON, || scene.waiters() == Some(1));
    waiter.kill().expect_code(137);
    wait_until("its place is gone", SOON, || scene.waiters() == Some(0));
    drop(holder);
}

fn a_lock_delay_keeps_the_lock_closed_after_a_holder_that_vanished(place: Place) {
    let script = ["--", "sh", "-c", "echo ready; exec sleep 600"];
    let mut holder =
        place.start([&["run", "--ttl", "500ms", "--lock-delay", "1h", "x"], &script[..]].concat());
    holder.kill();
    place.run(["run", "--wait", "1s", "x", "--", "true"]).expect_code(75);
    // An end in order is another thing.
    let mut holder =
        place.start([&["run", "--ttl", "500ms", "--lock-delay", "1h", "y"], &script[..]].concat());
    holder.signal(Signal::TERM);
    holder.wait(SOON).expect_code(143);
    place.run(["run", "-n", "y", "--", "true"]).expect_code(0);
}

fn tries_that_failed_leave_nothing_with_the_engine(place: Place) {
    let mut scene = Scene::new(place);
    let _holder = scene.beat();
    let server = scene.place.server_process().pid();
    // The holder's own are those over the link.
    let others = |scene: &Scene| open_fds(server) - scene.link.counts().connections as usize;
    let before = others(&scene);
    for wait in [["0"; 40].as_slice(), &["500ms"; 3]].concat() {
        Process::run(scene.run(&["--wait", wait]).arg("true"), SOON).expect_code(75);
        assert_eq!(scene.waiters(), Some(0), "at once, and not when its TTL has passed");
    }
    wait_until("connections are as before", SOON, || others(&scene) <= before);
}

fn ended(mut process: Process) {
    process.wait(SOON * 2).expect_code(0);
}

fn is_shell(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh")
}
