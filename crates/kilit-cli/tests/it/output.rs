//! `status`, `break`, `engines`, `doctor`, completions and the man page.

use kilit_testbed::{Process, wait_until};
use serde_json::{Value, json};

use crate::place::{Place, SOON, kilit};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn status_shows_holders_and_waiters() {
    let place = Place::new();
    place.expect_free("x");
    let holder =
        place.start(["run", "--note", "nightly job", "x", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    let _waiter = Process::spawn(&mut place.kilit(["run", "x", "--", "true"]));
    wait_until("a waiter stands in line", SOON, || place.status("x")["waiters"] == 1);
    place.run(["status", "x"]).expect_code(0);

    let status = place.status("x");
    for key in ["name", "engine", "held", "mode", "holders", "waiters", "queue", "capacity", "path"] {
        assert!(keys(&status).contains(&key), "{key} in {status}");
    }
    assert_eq!(
        (&status["name"], &status["engine"], &status["held"], &status["mode"], &status["capacity"]),
        (&json!("x"), &json!("file"), &json!(true), &json!("exclusive"), &Value::Null)
    );
    let [one] = &status["holders"].as_array().unwrap()[..] else { panic!("{status}") };
    for key in ["token", "token_text", "token_source", "owner", "note", "since", "expires_in_ms", "units"] {
        assert!(keys(one).contains(&key), "{key} in {one}");
    }
    assert_eq!(one["note"], "nightly job");
    assert_eq!(one["token_text"].as_str().unwrap(), one["token"].as_u64().unwrap().to_string());
    assert_eq!(one["owner"].as_str().unwrap().len(), 32);
    assert!(one["since"].as_str().unwrap().ends_with('Z'));
    let queued = status["queue"][0]["note"].as_str().unwrap();
    assert!(queued.contains('/'), "host/pid: {queued}");

    let text = place.run(["status", "x"]).stdout;
    for word in ["x: held, exclusive", "nightly job", "token ", "waiter ", "file "] {
        assert!(text.contains(word), "{word}: {text}");
    }
    drop(holder);
}

#[test]
fn status_of_all_lists_names_in_order() {
    let place = Place::new();
    let empty: Value = serde_json::from_str(&place.run(["status", "--json"]).expect_code(0).stdout).unwrap();
    assert_eq!(empty, json!({"engine": "file", "locks": []}));
    let _holders = ["b", "c", "a"].map(|name| place.hold(name));
    place.run(["run", "free", "--", "true"]).expect_code(0);
    let all: Value = serde_json::from_str(&place.run(["status", "--json"]).expect_code(0).stdout).unwrap();
    let names: Vec<_> = all["locks"].as_array().unwrap().iter().map(|lock| &lock["name"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(place.run(["status"]).expect_code(0).stdout.matches(": held").count(), 3);
}

#[test]
fn break_ends_the_hold_it_names_and_no_other() {
    let place = Place::new();
    let mut holder = place.hold("x");
    let token = place.status("x")["holders"][0]["token_text"].as_str().unwrap().to_owned();
    let wrong = (token.parse::<u64>().unwrap() + 1).to_string();
    let missed = place.run(["break", "x", "--token", &wrong]).expect_code(1).stderr;
    assert!(missed.contains(&format!("held now: token {token}")), "{missed}");
    let missed = place.run(["break", "y", "--token", &token]).expect_code(1).stderr;
    assert!(missed.contains("it is free"), "{missed}");
    place.run(["break", "x", "--owner", &"0".repeat(32)]).expect_code(1);
    assert!(holder.try_wait().is_none());
    place.run(["break", "x", "--token", &token, "--force"]).expect_code(0);
    assert_ne!(holder.wait(SOON).code(), 0);
    place.run(["run", "-n", "x", "--", "true"]).expect_code(0);
}

#[test]
fn engines_lists_what_is_built_in() {
    let document = Process::run(kilit().args(["engines", "--json"]), SOON).expect_code(0).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    let engines = document["engines"].as_array().unwrap();
    let schemes: Vec<_> = engines.iter().map(|engine| engine["scheme"].as_str().unwrap()).collect();
    assert!(schemes.starts_with(&["file", "memory"]), "{schemes:?}");
    for engine in engines {
        assert!(!engine["urls"].as_array().unwrap().is_empty());
        let promise = keys(&engine["assurance"]);
        for key in ["exclusion", "token", "order", "modes", "leases", "loss_notice", "crash_release"] {
            assert!(promise.contains(&key), "{key}");
        }
    }
    let text = Process::run(kilit().arg("engines"), SOON).expect_code(0).stdout;
    let table = Process::run(kilit().args(["engines", "--markdown"]), SOON).expect_code(0).stdout;
    for scheme in schemes {
        assert!(text.contains(&format!("{scheme}:")) && table.contains(&format!("\n| {scheme} ")), "{table}");
    }
    assert!(table.lines().nth(1).unwrap().starts_with("| ---"));
}

#[test]
fn doctor_gives_findings() {
    let place = Place::new();
    let exit = place.run(["doctor", "--json"]);
    let document: Value = serde_json::from_str(&exit.stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let danger = findings.iter().any(|finding| finding["level"] == "danger");
    assert_eq!(exit.code(), i32::from(danger));
    for finding in findings {
        assert_eq!(keys(finding).len(), 4);
        assert!(["info", "warn", "danger"].contains(&finding["level"].as_str().unwrap()));
        assert!(finding["id"].is_string() && finding["text"].is_string() && finding["fix"].is_string());
    }
    let text = place.run(["doctor"]).stdout;
    assert!(!text.is_empty());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    let program = place.kilit(["x"]).get_program().to_str().unwrap().to_owned();
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", "\"$0\" engines | true; echo ${PIPESTATUS[0]}; \"$0\" status >&-; echo $?", &program]);
    let exit = Process::run(shell.env("KILIT_ENGINE", place.url()), SOON);
    assert_eq!(exit.stdout, "0\n0\n");
    assert!(!exit.stderr.contains("panicked"), "{}", exit.stderr);
}

#[test]
fn completions_and_the_man_page_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Process::run(kilit().args(["completions", shell]), SOON).expect_code(0).stdout;
        assert!(script.contains("doctor") && script.contains("own-exit"), "{shell}");
    }
    let page = Process::run(kilit().arg("man"), SOON).expect_code(0).stdout;
    assert!(page.contains(".TH kilit"));
    for word in [
        "KILIT RUN",
        "KILIT COMPLETIONS",
        "KILIT STATUS",
        "KILIT BREAK",
        "KILIT DOCTOR",
        "KILIT_TOKEN",
        "own\\-exit",
    ] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("KILIT GUARDIAN"));
}

#[test]
fn the_default_engine_is_in_the_users_state() {
    let place = Place::new();
    let state = place.path("state");
    let run = |args: &[&str]| Process::run(kilit().args(args).env("XDG_STATE_HOME", &state), SOON);
    run(&["run", "x", "--", "true"]).expect_code(0);
    assert!(state.join("kilit").is_dir());
    let status: Value = serde_json::from_str(&run(&["status", "x", "--json"]).stdout).unwrap();
    assert!(status["path"].as_str().unwrap().starts_with(state.to_str().unwrap()));
    let nothing = run(&["status"]).expect_code(0);
    assert!(nothing.stderr.contains("a directory of this user alone"), "{}", nothing.stderr);
}

#[test]
fn status_says_where_it_found_nothing() {
    let place = Place::new();
    let nothing = place.run(["status"]).expect_code(0);
    let text = format!("kilit: no lock is held or waited for in {}\n", place.path("locks").display());
    assert_eq!((&*nothing.stdout, nothing.stderr), ("", text));
    assert_eq!(place.run(["status", "--json"]).expect_code(0).stderr, "");
}

#[test]
fn engines_speak_alike() {
    let text = Process::run(kilit().arg("engines"), SOON).expect_code(0).stdout;
    for about in text.lines().filter_map(|line| line.split_once(": ").filter(|_| !line.starts_with(' '))) {
        assert!(about.1.starts_with(char::is_uppercase) && about.1.ends_with('.'), "{about:?}");
    }
    for note in text.lines().filter_map(|line| line.strip_prefix("    - ")) {
        assert!(note.starts_with(char::is_lowercase) && !note.ends_with('.'), "{note}");
    }
}
