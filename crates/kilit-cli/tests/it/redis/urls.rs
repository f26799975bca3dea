//! What a Redis URL may say, and what it means for a run.

use kilit_testbed::Process;

use crate::place::{Place, SOON, kilit};

#[test]
fn a_bad_url_is_refused_before_anything_is_sent() {
    let wrong = [
        ("redis:", "names no host"),
        ("redis://", "names no host"),
        ("redis://h:99999", "`name:port`"),
        ("redis://a,b", "names one server"),
        ("redis://h/x", "0 to 65535"),
        ("redis://h/1?db=2", "named twice"),
        ("redis://u@h", "needs a password"),
        ("redis://h?min_replicas=many", "0 to 64"),
        ("redis://h?timeout=0", "outside"),
        ("redis://h?timeout=5", "unit"),
        ("redis://h?accept=all", "clock"),
        ("redis://h?tls=maybe", "true or false"),
        ("redis://h?ca=/etc/passwd", "ca"),
        ("rediss://h?ca=/no/such/file", "/no/such/file"),
        ("redis+unix:", "socket's path"),
        ("redis+sentinel://h", "master's name"),
        ("redis+cluster://h/1", "database 0"),
        ("redis://h?prefx=a", "`prefx`"),
    ];
    for (url, words) in wrong {
        for args in
            [&["run", "x", "--", "echo", "ran"][..], &["status"], &["doctor"], &["break", "x", "--token=1"]]
        {
            let exit = Process::run(kilit().args(args).env("KILIT_ENGINE", url), SOON).expect_code(64);
            assert!(exit.stderr.contains(words), "{url}: {}", exit.stderr);
            assert_eq!(exit.stdout, "");
        }
    }
}

#[test]
fn an_unknown_setting_lists_the_known_ones() {
    let exit = Process::run(kilit().args(["status", "--engine", "redis://h?prefx=a"]), SOON).expect_code(64);
    for setting in [
        "tls",
        "ca",
        "cert",
        "key",
        "user",
        "password_file",
        "connect_timeout",
        "timeout",
        "prefix",
        "db",
        "min_replicas",
        "accept",
        "source",
    ] {
        let known = exit.stderr.split("it knows: ").nth(1).unwrap();
        assert!(known.trim_end().split(", ").any(|known| known == setting), "{setting}: {known}");
    }
}

#[test]
fn a_ttl_outside_its_range_is_refused_and_the_hold_untouched() {
    let place = Place::redis();
    let _holder = place.hold("x");
    let ttl = |place: &Place| place.status("x")["holders"][0]["expires_in_ms"].as_u64().unwrap();
    for wrong in ["0", "-1s", "1us", "1ns", "99ms", "8d", "300000y", "9223372036854775807ms"] {
        let exit = place.run(["run", &format!("--ttl={wrong}"), "x", "--", "true"]).expect_code(64);
        assert!(
            exit.stderr.contains("100ms to 7d") || exit.stderr.contains("unit"),
            "{wrong}: {}",
            exit.stderr
        );
    }
    assert!((1..=30_000).contains(&ttl(&place)));
    for (given, ms) in [("100ms", "100"), ("1500us", "64"), ("7d", "604800000")] {
        let exit = place.run(["run", &format!("--ttl={given}"), "y", "--", "sh", "-c", "echo $KILIT_TTL_MS"]);
        assert!(exit.stdout.trim() == ms || exit.code().to_string() == ms, "{given}: {exit:?}");
    }
}

#[test]
fn the_key_is_the_name_behind_the_prefix() {
    let place = Place::redis();
    let key = |query: &str, name: &str| -> String {
        let url = place.url() + query;
        let script =
            "redis-cli -p \"$0\" --scan --pattern '*42*'; redis-cli -p \"$0\" -n 3 --scan --pattern '*42*'";
        let port = place.addr().port().to_string();
        let mut run = place.kilit(["run", name, "--", "sh", "-c", script, &port]);
        let exit = Process::run(run.env("KILIT_ENGINE", url), SOON).expect_code(0);
        exit.stdout.lines().find(|key| !key.starts_with("kilit1:")).unwrap().to_owned()
    };
    assert_eq!(key("", "product:42"), "lock:product:42");
    assert_eq!(key("?prefix=", "product:42"), "product:42");
    assert_eq!(key("?prefix=shop/", "{42}"), "shop/{42}");
    assert_eq!(key("/3", "product:42"), "lock:product:42");
    // A name cannot reach what kilit keeps beside the locks.
    let url = place.url() + "?prefix=";
    let mut run = place.kilit(["run", "kilit1:token", "--", "true"]);
    let exit = Process::run(run.env("KILIT_ENGINE", url), SOON).expect_code(64);
    assert!(exit.stderr.contains("kept for kilit's own"), "{}", exit.stderr);
}

#[test]
fn a_socket_is_a_server_too() {
    let place = Place::redis();
    let _holder = place.hold("x");
    let by_socket =
        |args: &[&str]| Process::run(place.kilit(args).env("KILIT_ENGINE", place.server().unix_url()), SOON);
    by_socket(&["run", "-n", "x", "--", "true"]).expect_code(75);
    by_socket(&["run", "-n", "y", "--", "true"]).expect_code(0);
    by_socket(&["status", "x"]).expect_code(0);
}

#[test]
fn correctness_needs_a_word() {
    let place = Place::redis();
    let run = |url: String| {
        let mut run = place.kilit(["run", "--purpose", "correctness", "x", "--", "true"]);
        Process::run(run.env("KILIT_ENGINE", url), SOON)
    };
    let refused = run(place.url()).expect_code(64);
    assert!(refused.stderr.contains("accept=clock"), "{}", refused.stderr);
    run(place.url() + "?accept=clock").expect_code(0);
    for option in [&["--shared"][..], &["--permits", "1/2"]] {
        place.run([&["run"], option, &["x", "--", "true"]].concat()).expect_code(64);
    }
}
