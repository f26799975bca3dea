//! Several servers: sentinels and a cluster.

use kilit_testbed::{Process, wait_until};

use crate::place::{Place, SOON, wait_for_line};

#[test]
fn a_hold_that_the_replica_has_outlives_a_failover() {
    let mut place = Place::redis_sentinel();
    let url = place.url() + "?min_replicas=2&timeout=500ms&connect_timeout=500ms";
    let mut command = place.kilit(["run", "x", "--", "sh", "-c", "echo ready; read line; exit 7"]);
    command.env("KILIT_ENGINE", url).env("KILIT_LOG", "warn");
    let mut holder = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut holder, "ready");
    let token = |place: &Place| place.status("x")["holders"][0]["token"].as_u64().unwrap();
    let before = token(&place);
    let mut next = Process::spawn(&mut place.kilit(["run", "x", "--", "sh", "-c", "echo $KILIT_TOKEN"]));
    wait_until("the next stands in line", SOON, || place.status("x")["waiters"] == 1);
    let system = place.sentinel_mut();
    let old = system.kill_primary();
    system.wait_for_failover(old);
    assert_eq!(token(&place), before);
    drop(holder.take_stdin());
    holder.wait(SOON).expect_code(7);
    let after: u64 = next.wait(SOON).expect_code(0).stdout.trim().parse().unwrap();
    assert!(after > before);
}

#[test]
fn status_and_doctor_see_every_server_of_a_cluster() {
    let place = Place::redis_cluster();
    // In three different slots, of three servers.
    let names = ["a", "b", "c", "d", "{a}b"];
    let _holders = names.map(|name| place.hold(name));
    let all: serde_json::Value = serde_json::from_str(&place.run(["status", "--json"]).stdout).unwrap();
    let found: Vec<_> = all["locks"].as_array().unwrap().iter().map(|lock| &lock["name"]).collect();
    assert_eq!(found, names);
    let text = place.run(["doctor"]).expect_code(0).stdout;
    assert_eq!(text.matches("version: ").count(), 3, "{text}");
    // One of them alone is no place for locks.
    let one = place.url().replace("redis+cluster", "redis");
    let one = one.split(',').next().unwrap();
    let exit = place.run(["run", "--engine", one, "x", "--", "true"]).expect_code(69);
    assert!(exit.stderr.contains("open it as redis+cluster:"), "{}", exit.stderr);
}
