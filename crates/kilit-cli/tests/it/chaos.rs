//! Signals at any moment to any process of a run, judged at the resource.

use std::{
    env,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use kilit_testbed::{Process, Signal, bins::testbed, overlap::Judge, process::wait_gone, wait_until};

use crate::place::{Place, SOON};

/// Where holds are leases, long enough for a busy machine.
const TTL: &str = "3s";

/// Numbers that look random and come again with the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[test]
fn no_signal_at_any_moment_lets_two_in() {
    contest(&Place::new());
}

/// A holder that is killed keeps the others waiting until its lease has ended.
#[test]
fn no_signal_at_any_moment_lets_two_in_on_a_lease() {
    contest(&Place::redis());
}

fn contest(place: &Place) {
    let seed = env::var("KILIT_TEST_SEED").map_or(0x6b69_6c69, |seed| seed.parse().expect("a number"));
    let rounds = env::var("KILIT_TEST_ROUNDS").map_or(60, |rounds| rounds.parse().expect("a number"));
    println!("KILIT_TEST_SEED={seed} KILIT_TEST_ROUNDS={rounds}");
    let (log, stop) = (place.path("log"), AtomicBool::new(false));
    let mut killed = Vec::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| compete(place, &log, &stop));
        }
        let mut dice = Dice(seed);
        for round in 0..rounds {
            let id = format!("victim-{round}");
            disturb(place, &log, &id, &mut dice);
            killed.push((id, kilit::Clock::system().now()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let judge = killed.into_iter().fold(Judge::read(&log), |judge, (id, dead_by)| judge.killed(id, dead_by));
    judge.expect_clean();
    place.run(["run", "--wait", "30s", "x", "--", "true"]).expect_code(0);
    wait_until("the places of the dead are gone", SOON, || place.status("x")["waiters"] == 0);
}

/// Takes the lock again and again, undisturbed.
fn compete(place: &Place, log: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut command = place.kilit(["run", "--ttl", TTL, "x", "--"]);
        Process::run(command.arg(testbed()).arg("hold").arg(log).arg("1"), SOON).expect_code(0);
    }
}

/// A holder, or one that waits to be one, meets a signal. When this returns, all of it is gone.
fn disturb(place: &Place, log: &Path, id: &str, dice: &mut Dice) {
    let mut command = place.kilit(["run", "--ttl", TTL, "x", "--"]);
    let command: &mut Command = command.arg(testbed()).args(["beat", "--every", "1", "--id", id]).arg(log);
    let mut victim = Process::spawn(command);
    // Any moment: before it waits, while it does, at the start of the command, at its work.
    thread::sleep(Duration::from_micros(dice.roll(25_000)));
    let family = victim.family();
    let targets: Vec<_> = family.iter().copied().filter(|&pid| is_kilit(pid)).collect();
    if let Some(&target) = targets.get(dice.roll(2) as usize % targets.len().max(1)) {
        let pid = rustix::process::Pid::from_raw(target as i32).unwrap();
        let signal = [Signal::KILL, Signal::TERM, Signal::STOP][dice.roll(3) as usize];
        let _ = rustix::process::kill_process(pid, signal);
        if signal == Signal::STOP {
            thread::sleep(Duration::from_micros(dice.roll(20_000)));
            let _ = rustix::process::kill_process(pid, Signal::CONT);
        }
    }
    // It may have outlived that, as a guardian does a TERM.
    victim.signal(Signal::TERM);
    victim.wait(SOON);
    for pid in victim.family().into_iter().chain(family) {
        wait_gone(pid, SOON);
    }
}

fn is_kilit(pid: u32) -> bool {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let program = arguments.split(|&byte| byte == 0).next().unwrap_or_default();
    program.ends_with(b"/kilit") || program == b"kilit"
}
