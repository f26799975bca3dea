//! What may stand for a time, and what it means.

use std::{thread, time::Duration};

use kilit_testbed::{Process, Signal, count::voluntary_switches, wait_until};

use crate::place::{Place, SOON, on_engines};

on_engines! { [file, redis] {
    zero_is_one_try_that_gets_a_free_lock,
    a_huge_wait_is_a_wait,
    a_hold_is_bounded_by_max_hold,
} }

const NONSENSE: &[&str] =
    &["-1", "-1s", "5", "", " 5s", "5s ", "1e3s", "inf", "NaN", "0x5s", "5 s", "never", "Forever"];

#[test]
fn nonsense_is_refused_on_a_free_and_on_a_busy_lock() {
    let place = Place::new();
    let _holder = place.hold("busy");
    for text in NONSENSE {
        for option in ["--wait", "--ttl", "--grace", "--max-hold", "--lock-delay"] {
            for name in ["free", "busy"] {
                let exit =
                    place.run(["run", &format!("{option}={text}"), name, "--", "true"]).expect_code(64);
                assert!(exit.stderr.contains("500ms") || text.is_empty(), "{option}={text}: {}", exit.stderr);
            }
        }
    }
    place.run(["run", "--ttl=forever", "free", "--", "true"]).expect_code(64);
}

fn zero_is_one_try_that_gets_a_free_lock(place: Place) {
    let _holder = place.hold("busy");
    for wait in ["0", "0s", "0ms"] {
        place.run(["run", &format!("--wait={wait}"), "free", "--", "true"]).expect_code(0);
        place.run(["run", &format!("--wait={wait}"), "busy", "--", "true"]).expect_code(75);
    }
    place.run(["run", "-n", "free", "--", "true"]).expect_code(0);
    place.run(["run", "-n", "--wait=1s", "free", "--", "true"]).expect_code(64);
}

fn a_huge_wait_is_a_wait(place: Place) {
    let holder = place.hold("x");
    let mut waiters: Vec<_> = ["584y", "forever", "5000000000s"]
        .map(|wait| Process::spawn(&mut place.kilit(["run", &format!("--wait={wait}"), "x", "--", "true"])))
        .into();
    wait_until("all stand in line", SOON, || place.status("x")["waiters"] == waiters.len());
    holder.signal(Signal::TERM);
    for waiter in &mut waiters {
        waiter.wait(SOON).expect_code(0);
    }
}

#[test]
fn a_ttl_outside_its_range_names_the_range() {
    let place = Place::new();
    for ttl in ["0", "0s", "1ns", "99ms", "1500us", "7days1s", "300000y"] {
        let exit = place.run(["run", &format!("--ttl={ttl}"), "x", "--", "true"]).expect_code(64);
        assert!(exit.stderr.contains("100ms to 7d"), "{}", exit.stderr);
    }
    for ttl in ["100ms", "0.5s", "7d"] {
        place.run(["run", &format!("--ttl={ttl}"), "x", "--", "true"]).expect_code(0);
    }
}

/// The first in line at a server looks twice a second, and each of the others once.
#[test]
fn idle_waiters_ask_the_server_seldom() {
    let place = Place::redis();
    let _holder = place.hold("x");
    let _waiters =
        [(); 3].map(|()| Process::spawn(&mut place.kilit(["run", "--wait", "60s", "x", "--", "true"])));
    wait_until("they stand in line", SOON, || place.status("x")["waiters"] == 3);
    let asked = || place.server().commandstats()["evalsha"];
    let before = asked();
    // Nothing is waited for: this is the time that the count is about.
    thread::sleep(Duration::from_secs(3));
    let looks = asked() - before;
    assert!((4..=16).contains(&looks), "{looks} looks over 3 s, of three");
}

#[test]
fn an_idle_waiter_sleeps() {
    let place = Place::new();
    let _holder = place.hold("x");
    let waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "true"]));
    wait_until("it stands in line", SOON, || place.status("x")["waiters"] == 1);
    let before = voluntary_switches(waiter.pid());
    // Nothing is waited for: this is the time that the count is about.
    thread::sleep(Duration::from_secs(3));
    let switches = voluntary_switches(waiter.pid()) - before;
    assert!(switches <= 20, "{switches} voluntary context switches over 3 s");
}

fn a_hold_is_bounded_by_max_hold(place: Place) {
    let exit =
        place.run(["run", "--max-hold=100ms", "--ttl=500ms", "x", "--", "sleep", "600"]).expect_code(79);
    assert!(exit.stderr.contains("longest time allowed"), "{}", exit.stderr);
    place.expect_free("x");
}
