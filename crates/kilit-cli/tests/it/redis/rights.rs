//! The rights that the page asks for: they are enough, and each of them is needed.

use std::{collections::HashMap, fs, path::Path};

use kilit_testbed::{Process, wait_until};

use crate::place::{Place, SOON, wait_for_line};

/// As it stands on the page, after the name of the user and the password.
const RIGHTS: &str = "~lock:* ~kilit1:* resetchannels &kilit1:inbox:* +eval +evalsha +time +type +get +set +del \
    +exists +incr +pttl +pexpire +pexpireat +zadd +zrange +zrank +zrem +hset +hget +hdel +publish +subscribe \
    +client|tracking +client|caching +scan +info +config|get";

#[test]
fn the_rights_on_the_page_are_enough_and_each_is_needed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engines/redis.md");
    let page = fs::read_to_string(page).unwrap();
    let words: Vec<_> = RIGHTS.split_whitespace().collect();
    let on_page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(on_page.contains(&words.join(" ")), "the page has other rights");

    let place = Place::redis();
    assert_eq!(denied(&place, &words), [""; 0]);
    let needless: Vec<_> = (0..words.len())
        .filter(|&left_out| {
            let others: Vec<_> =
                words.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, word)| *word).collect();
            words[left_out] != "resetchannels" && denied(&place, &others).is_empty()
        })
        .map(|at| words[at])
        .collect();
    assert_eq!(needless, [""; 0]);
}

#[test]
fn a_right_that_is_missing_is_named_and_nothing_stays_held() {
    let place = Place::redis();
    let setuser =
        [&["ACL", "SETUSER", "app", "on", ">secret"][..], &RIGHTS.split_whitespace().collect::<Vec<_>>()];
    place.server().command(setuser.concat());
    let run = |rest: &str| {
        let url = format!("redis://app:secret@{}{rest}", place.addr());
        Process::run(place.kilit(["run", "x", "--", "true"]).env("KILIT_ENGINE", url), SOON)
    };
    run("").expect_code(0);
    for (rest, command) in [("/3", "select"), ("?min_replicas=1", "wait")] {
        let exit = run(rest).expect_code(69);
        assert!(exit.stderr.contains("no right") && exit.stderr.contains(command), "{}", exit.stderr);
        place.expect_free("x");
    }
}

/// What the server refuses a user with these rights, while everything is done that can be done with locks.
fn denied(place: &Place, rights: &[&str]) -> Vec<String> {
    let server = place.server();
    for command in
        [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["ACL", "LOG", "RESET"], &["CONFIG", "RESETSTAT"]]
    {
        server.command(command);
    }
    server.command([&["ACL", "SETUSER", "app", "reset", "on", ">secret"], rights].concat());
    let kilit = |args: &[&str]| {
        let mut command = place.kilit(args);
        command.env("KILIT_ENGINE", format!("redis://app:secret@{}", place.addr()));
        command
    };
    let run = |args: &[&str]| Process::run(&mut kilit(args), SOON);
    let denied = || -> Vec<String> {
        let log: Vec<HashMap<String, String>> = server.query(["ACL", "LOG"]);
        log.into_iter().map(|mut entry| entry.remove("object").unwrap()).collect()
    };
    // A counter that is ahead of the clock, and a lock of another client.
    server.command(["SET", "kilit1:token", "9000000000000000"]);
    server.command(["SET", "lock:foreign", "another"]);
    run(&["run", "--wait", "0", "ahead", "--", "true"]);
    run(&["run", "--wait", "0", "foreign", "--", "true"]);
    run(&["break", "foreign", "--owner", "another"]);
    run(&["doctor"]);
    run(&["status"]);
    if denied().is_empty() {
        let hold = ["run", "--ttl", "500ms", "x", "--", "sh", "-c", "echo ready; exec sleep 600"];
        let mut holder = Process::spawn(&mut kilit(&hold));
        wait_for_line(&mut holder, "ready");
        let mut waiter = Process::spawn(&mut kilit(&["run", "x", "--", "true"]));
        let watches = || server.commandstats().get("client|caching").is_some_and(|&calls| calls > 0);
        wait_until("it watches the lock", SOON, || watches() || !denied().is_empty());
        let token = place.status("x")["holders"][0]["token_text"].as_str().unwrap().to_owned();
        run(&["break", "x", "--token", &token]);
        let mut over = || holder.try_wait().is_some() && waiter.try_wait().is_some();
        wait_until("the next had its turn", SOON, || over() || !denied().is_empty());
    }
    denied()
}
