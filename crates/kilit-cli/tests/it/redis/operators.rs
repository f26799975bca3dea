//! `status` and `break`, of our own holds and of others'.

use kilit_testbed::{Process, server::Redis, server::Server, wait_until};
use serde_json::{Value, json};

use crate::place::{Place, SOON};

/// What another client has written at the key of `name`.
fn foreign(server: &Server<Redis>, name: &str, value: &[u8]) {
    let key = format!("lock:{name}").into_bytes();
    server.command([b"SET", &key[..], value, b"PX", b"600000"]);
}

fn all(place: &Place) -> Value {
    serde_json::from_str(&place.run(["status", "--json"]).expect_code(0).stdout).unwrap()
}

#[test]
fn status_shows_a_holder_and_its_line() {
    let place = Place::redis();
    place.expect_free("x");
    let _holder =
        place.start(["run", "--note", "nightly job", "x", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    let waiters: Vec<_> = ["first", "second"]
        .into_iter()
        .enumerate()
        .map(|(before, note)| {
            let waiter = Process::spawn(&mut place.kilit(["run", "--note", note, "x", "--", "true"]));
            wait_until("it stands in line", SOON, || place.status("x")["waiters"] == before + 1);
            waiter
        })
        .collect();
    let status = place.status("x");
    let head = ["name", "engine", "held", "mode", "waiters", "capacity"].map(|key| &status[key]);
    assert_eq!(json!(head), json!(["x", "redis", true, "exclusive", 2, null]));
    assert!(status.get("path").is_none());
    let holder = &status["holders"][0];
    let token = holder["token"].as_u64().unwrap();
    assert_eq!(holder["token_text"], token.to_string());
    assert_eq!((&holder["token_source"], &holder["note"]), (&json!("redis:clock"), &json!("nightly job")));
    assert!((1..=30_000).contains(&holder["expires_in_ms"].as_u64().unwrap()), "{holder}");
    assert!(holder["since"].as_str().unwrap().ends_with('Z') && holder.get("foreign").is_none());
    for (place, note) in ["first", "second"].into_iter().enumerate() {
        let waiter = &status["queue"][place];
        assert_eq!((&waiter["note"], waiter["owner"].as_str().unwrap().len()), (&json!(note), 32));
        assert!(waiter["since"].as_str().unwrap().ends_with('Z'));
    }
    let text = place.run(["status"]).expect_code(0).stdout;
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.contains(&format!("token {token} of redis:clock")) && text.contains("waiter first"),
        "{text}"
    );
    drop(waiters);
}

#[test]
fn status_shows_other_clients_holds() {
    let place = Place::redis();
    let server = place.server();
    foreign(server, "plain", b"3108a26eec9411f1931402fc00000001");
    foreign(server, "bytes", b"\x00\xff\x1b[2J");
    server.command(["HSET", "lock:hash", "client:1", "1"]);
    server.command(["SET", "lock:for ever", "me"]);
    let holder = |name: &str| {
        let status = place.status(name);
        assert_eq!((&status["held"], &status["mode"]), (&json!(true), &json!("exclusive")), "{status}");
        let holder = status["holders"][0].clone();
        assert_eq!((&holder["foreign"], &holder["token"]), (&json!(true), &Value::Null), "{status}");
        holder
    };
    assert_eq!(holder("plain")["owner"], "3108a26eec9411f1931402fc00000001");
    assert!(holder("plain")["expires_in_ms"].as_u64().unwrap() <= 600_000);
    assert_eq!(holder("bytes")["owner"], r"\x00\xff\x1b[2J");
    assert_eq!(
        (&holder("hash")["owner"], &holder("hash")["note"]),
        (&Value::Null, &json!("a hash, no plain string"))
    );
    assert_eq!(holder("for ever")["expires_in_ms"], Value::Null);
    let names: Vec<_> =
        all(&place)["locks"].as_array().unwrap().iter().map(|lock| lock["name"].clone()).collect();
    assert_eq!(names, ["bytes", "for ever", "hash", "plain"]);
    let text = place.run(["status"]).stdout;
    assert!(text.contains("another program") && !text.replace('\n', "").contains(char::is_control), "{text}");

    let busy = place.run(["run", "--wait", "50ms", "plain", "--", "true"]).expect_code(75).stderr;
    assert!(busy.contains("held by another"), "{busy}");
    // Never "busy": waiting does not help.
    let wrong = place.run(["run", "hash", "--", "true"]).expect_code(69).stderr;
    assert!(wrong.contains("lock hash") && wrong.contains("something else than a plain string"), "{wrong}");
}

#[test]
fn status_of_all_is_of_what_is_held_or_waited_for() {
    let place = Place::redis();
    assert_eq!(all(&place), json!({"engine": "redis", "locks": []}));
    let said = place.run(["status"]).expect_code(0).stderr;
    assert_eq!(said, format!("kilit: no lock is held or waited for at redis://{}\n", place.addr()));
    let _holders = ["b", "c", "{a"].map(|name| place.hold(name));
    place.run(["run", "free", "--", "true"]).expect_code(0);
    place.server().command(["SET", "other:key", "value"]);
    let all = all(&place);
    let names: Vec<_> = all["locks"].as_array().unwrap().iter().map(|lock| &lock["name"]).collect();
    assert_eq!(names, ["b", "c", "{a"]);
}

#[test]
fn what_kilit_keeps_beside_the_locks_is_no_lock() {
    let place = Place::redis();
    for prefix in ["", "k", "kilit1", "kilit1:"] {
        let url = format!("{}?prefix={prefix}", place.url());
        let run = |args: &[&str]| Process::run(place.kilit(args).env("KILIT_ENGINE", &url), SOON);
        let program = place.kilit(["x"]).get_program().to_str().unwrap().to_owned();
        // A name that would make a key of kilit's own is refused, and says so.
        let refused = prefix == "kilit1:";
        let script =
            ["run", "x", "--", "sh", "-c", "\"$0\" run -n x -- true; \"$0\" status --json", &program];
        let exit = run(&script).expect_code(if refused { 64 } else { 0 });
        let status = if refused { run(&["status", "--json"]).expect_code(0).stdout } else { exit.stdout };
        let all: Value = serde_json::from_str(&status).unwrap();
        let names: Vec<_> = all["locks"].as_array().unwrap().iter().map(|lock| &lock["name"]).collect();
        assert_eq!(names, if refused { &[][..] } else { &["x"] }, "{prefix:?}");
    }
}

#[test]
fn break_ends_the_hold_it_names_and_no_other() {
    let place = Place::redis();
    let holder = |name: &str| place.status(name)["holders"][0].clone();
    for by in ["token", "owner"] {
        let mut running =
            place.start(["run", "--ttl", "3s", "x", "--", "sh", "-c", "echo ready; exec sleep 600"]);
        let text = |key: &str| holder("x")[key].as_str().unwrap().to_owned();
        let token = text("token_text");
        let wrong = (token.parse::<u64>().unwrap() - 1).to_string();
        let missed = place.run(["break", "x", "--token", &wrong]).expect_code(1).stderr;
        assert!(missed.contains(&format!("held now: token {token}")), "{missed}");
        let target = if by == "token" { token } else { text("owner") };
        place.run(["break", "x", &format!("--{by}"), &target]).expect_code(0);
        let exit = running.wait(SOON).expect_code(79);
        assert!(exit.stderr.contains("an operator broke the lock"), "{}", exit.stderr);
        place.run(["break", "x", &format!("--{by}"), &target]).expect_code(1);
        place.run(["run", "-n", "x", "--", "true"]).expect_code(0);
    }
}

#[test]
fn break_removes_what_other_clients_left() {
    let place = Place::redis();
    let long = b"long".repeat(250_000);
    let values: [&[u8]; 8] = [
        b"me",
        b"",
        b"\x00\xff",
        b"two words",
        "\u{1f512}".as_bytes(),
        b"two\nlines \x1b[2J",
        b"kilit1 x",
        &long,
    ];
    for value in values {
        foreign(place.server(), "x", value);
        let owner = place.status("x")["holders"][0]["owner"].as_str().unwrap().to_owned();
        let missed = place.run(["break", "x", "--owner", "another"]).expect_code(1).stderr;
        assert!(missed.contains(&format!("held now: owner {owner}")), "{missed}");
        assert!(owner.len() < 1000);
        place.run(["break", "x", "--owner", &owner]).expect_code(0);
        place.expect_free("x");
    }
}

#[test]
fn the_next_in_line_gets_what_was_broken() {
    let place = Place::redis();
    foreign(place.server(), "x", b"me");
    let mut waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "sh", "-c", "exit 7"]));
    wait_until("it stands in line", SOON, || place.status("x")["waiters"] == 1);
    place.run(["break", "x", "--owner", "me"]).expect_code(0);
    waiter.wait(SOON).expect_code(7);
}
