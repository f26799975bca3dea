//! Nothing stays that the page does not tell of.

use kilit::ErrorKind;
use kilit_testbed::{Process, Signal, count::open_fds, wait_until};

use crate::place::{Place, SOON};

/// Connections but the testbed's own.
fn clients(place: &Place) -> usize {
    place.server().query::<String>(["CLIENT", "LIST"]).lines().count() - 1
}

fn keys(place: &Place) -> Vec<String> {
    let mut keys: Vec<String> = place.server().query(["KEYS", "*"]);
    keys.sort();
    keys
}

#[test]
fn tries_that_failed_leave_no_connection() {
    let place = Place::redis();
    place.server().command(["SET", "lock:x", "another", "PX", "600000"]);
    let before = clients(&place);
    for _ in 0..100 {
        place.run(["run", "-n", "x", "--", "true"]).expect_code(75);
    }
    wait_until("connections are as before", SOON, || clients(&place) == before);
}

#[test]
fn a_thousand_tries_of_one_process_leave_no_connection() {
    let mut place = Place::redis();
    place.server().command(["SET", "lock:x", "another", "PX", "600000"]);
    let before = clients(&place);
    let server = place.server_process().pid();
    let fds = open_fds(server);
    let locks = kilit::open_blocking(&place.url()).unwrap();
    let mutex = locks.mutex("x".parse().unwrap());
    for _ in 0..1000 {
        assert_eq!(mutex.try_acquire().unwrap_err().kind(), ErrorKind::Busy);
    }
    assert!(clients(&place) <= before + 2, "one connection for claims and one for renewals");
    drop((mutex, locks));
    wait_until("connections are as before", SOON, || clients(&place) == before);
    wait_until("so are the server's descriptors", SOON, || open_fds(server) <= fds);
}

#[test]
fn bars_and_places_end_with_the_ttl() {
    let place = Place::redis();
    let _holder = place.hold("x");
    place.run(["run", "--ttl", "2s", "-n", "x", "--", "true"]).expect_code(75);
    let mut waiter = Process::spawn(&mut place.kilit(["run", "--ttl", "2s", "x", "--", "true"]));
    wait_until("it stands in line", SOON, || place.status("x")["waiters"] == 1);
    waiter.signal(Signal::KILL);
    waiter.wait(SOON).expect_code(137);
    for key in keys(&place).iter().filter(|key| *key != "lock:x" && *key != "kilit1:token") {
        let left: i64 = place.server().query(["PTTL", key]);
        assert!((-2..=2000).contains(&left) && left != -1, "{key} stays for {left} ms");
    }
    let kept = ["kilit1:token", "lock:x"];
    wait_until("all but the hold and its counter are gone", SOON, || keys(&place) == kept);
}

#[test]
fn a_lock_that_is_found_lost_at_its_release_is_lost() {
    let place = Place::redis();
    let port = place.addr().port().to_string();
    let exit = place.run(["run", "x", "--", "redis-cli", "-p", &port, "DEL", "lock:x"]).expect_code(79);
    assert_eq!(exit.stdout, "1\n");
    assert!(exit.stderr.contains("lock x"), "{}", exit.stderr);
    // The next holder's is not touched.
    let steal = "redis-cli -p \"$0\" SET lock:x another";
    place.run(["run", "x", "--", "sh", "-c", steal, &port]).expect_code(79);
    assert_eq!(place.server().query::<String>(["GET", "lock:x"]), "another");
}

#[test]
fn a_lock_that_was_lost_leaves_no_trace() {
    let place = Place::redis();
    let mut holder = place.start(["run", "--ttl", "1s", "x", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    place.server().command(["DEL", "lock:x"]);
    holder.wait(SOON).expect_code(79);
    wait_until("the bar has ended", SOON, || keys(&place) == ["kilit1:token"]);
}
