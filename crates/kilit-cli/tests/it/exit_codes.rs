//! Every exit code.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use kilit_testbed::Process;

use crate::place::{Place, SOON, expect_no_family, kilit, on_engines};

on_engines! { [file, redis] {
    the_commands_own_code_passes_unchanged,
    death_by_a_signal_is_128_and_its_number,
    a_command_that_cannot_be_started_leaves_the_lock_free,
    without_the_lock_the_command_never_runs,
    own_exit_moves_kilits_own_outcomes_and_nothing_else,
} }

fn the_commands_own_code_passes_unchanged(place: Place) {
    for code in [0, 1, 2, 7, 64, 69, 75, 79, 125, 126, 127, 128, 137, 255] {
        let exit = place.run(["run", "x", "--", "sh", "-c", &format!("exit {code}")]).expect_code(code);
        assert_eq!((&*exit.stdout, &*exit.stderr), ("", ""));
    }
}

fn death_by_a_signal_is_128_and_its_number(place: Place) {
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139), ("HUP", 129), ("40", 168)] {
        place.run(["run", "x", "--", "bash", "-c", &format!("kill -{signal} $$; exit 3")]).expect_code(code);
    }
}

fn a_command_that_cannot_be_started_leaves_the_lock_free(place: Place) {
    let plain = place.path("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let below = plain.join("below");
    let cases = [
        ("/nosuch/command", 127, "not found"),
        ("no-such-command-in-the-path", 127, "not found"),
        (plain.to_str().unwrap(), 126, "cannot be executed"),
        (place.path("").to_str().unwrap(), 126, "cannot be executed"),
        (below.to_str().unwrap(), 126, "cannot be executed"),
    ]
    .map(|(command, code, words)| (command.to_owned(), code, words));
    for (command, code, words) in cases {
        let exit = place.run(["run", "x", "--", &command]).expect_code(code);
        assert!(exit.stderr.starts_with("kilit: ") && exit.stderr.contains(words), "{}", exit.stderr);
        place.expect_free("x");
    }
}

fn without_the_lock_the_command_never_runs(place: Place) {
    let _holder = place.hold("x");
    let marker = place.path("ran");
    for wait in [&["-n"][..], &["--wait", "0"], &["--wait=0s"], &["--wait=1ns"], &["--wait", "50ms"]] {
        let touch = ["x", "--", "touch", marker.to_str().unwrap()];
        let exit = place.run([&["run"], wait, &touch].concat()).expect_code(75);
        assert!(exit.stderr.contains("lock x: held by another"), "{}", exit.stderr);
        assert!(exit.stderr.contains("`kilit status x` on the same engine says by whom"), "{}", exit.stderr);
    }
    let failures: [(&[&str], i32); 4] = [
        (&["--engine", "file:///dev/null/x"], 69),
        (&["--engine", "memory:"], 64),
        (&["--engine", "nosuch://h"], 64),
        (&["--ttl", "1ms"], 64),
    ];
    for (options, code) in failures {
        let touch = ["free", "--", "touch", marker.to_str().unwrap()];
        place.run([&["run"], options, &touch].concat()).expect_code(code);
    }
    assert!(!marker.exists());
}

#[test]
fn wrong_usage_is_64_and_says_what_is_wrong() {
    let place = Place::new();
    let wrong: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["nosuch"], "nosuch"),
        (&["run"], "NAME"),
        (&["run", "x"], "COMMAND"),
        (&["run", "x", "--"], "COMMAND"),
        (&["run", "x", "echo", "hello"], "put `--` before the command: `kilit run NAME -- echo ...`"),
        (&["run", "--timeout", "5s", "x", "--", "true"], "is `--wait`"),
        (&["run", "-x", "--", "true"], "written `--name=-x`"),
        (&["status", "-x"], "written `--name=-x`"),
        (&["run", "", "--", "true"], "1 to 512 bytes"),
        (&["run", &"x".repeat(513), "--", "true"], "513 bytes"),
        (&["run", "x", "--name=y", "--", "true"], "--name"),
        (&["run", "--nosuch", "x", "--", "true"], "--nosuch"),
        (&["run", "--own-exit", "0", "x", "--", "true"], "1 to 255"),
        (&["run", "--own-exit", "256", "x", "--", "true"], "1 to 255"),
        (&["run", "--own-exit=-1", "x", "--", "true"], "1 to 255"),
        (&["run", "--ttl", "2s", "--grace", "2s", "x", "--", "true"], "1.078s at most"),
        (
            &["run", "--ttl", "8d", "x", "--", "true"],
            "'8d' for '--ttl <DURATION>': it is outside 100ms to 7d",
        ),
        (&["run", "--ttl", "0", "x", "--", "true"], "'0' for '--ttl <DURATION>'"),
        (&["run", "--max-hold", "0", "x", "--", "true"], "'--max-hold <DURATION>': 0 holds nothing"),
        (&["run", "--permits", "2/1", "x", "--", "true"], "2 permits out of 1"),
        (&["run", "--permits", "1", "x", "--", "true"], "1/4"),
        (
            &["run", "--permits", "1/2", "x", "--", "true"],
            "permits are needed, and it has only: exclusive, shared",
        ),
        (&["run", "--permits", "1/2", "--shared", "x", "--", "true"], "--shared"),
        (&["run", "--purpose", "fun", "x", "--", "true"], "efficiency"),
        (&["run", "--purpose", "correctness", "--shared", "x", "--", "true"], "exclusive"),
        (&["run", "--note", "two\nlines", "x", "--", "true"], "control character"),
        (
            &["run", "--lock-delay", "2h", "x", "--", "true"],
            "'2h' for '--lock-delay <DURATION>': it is outside 0 to 1h",
        ),
        (&["run", "--engine", "memory:", "x", "--", "true"], "one process only"),
        (&["run", "--engine", "file:///tmp?chek=1s", "x", "--", "true"], "check"),
        (&["status", "x", "y"], "y"),
        (&["break", "x"], "--token"),
        (&["break", "x", "--token", "0"], "9223372036854775807"),
        (&["break", "x", "--token", "y"], "'y' for '--token <N>'"),
        (&["break", "x", "--token", "1", "--owner", "y"], "--owner"),
        (&["engines", "x"], "x"),
    ];
    for (args, word) in wrong {
        let exit = place.run(*args).expect_code(64);
        assert!(exit.stderr.starts_with("kilit: ") || args.is_empty(), "{args:?}: {}", exit.stderr);
        assert!(exit.stderr.contains(word), "{args:?}: {}", exit.stderr);
        // To put `--` before what is no option would make a command of it.
        assert!(!exit.stderr.contains("as a value"), "{args:?}: {}", exit.stderr);
        assert_eq!(exit.stdout, "", "{args:?}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"], &["status", "-h"]] {
        let exit = Process::run(kilit().args(args), SOON).expect_code(0);
        assert!(exit.stdout.contains("kilit") && exit.stderr.is_empty(), "{args:?}");
    }
    let words: [(&[&str], &[&str]); 5] = [
        (&["--help"], &["completions", "man ", "64", "69", "75", "79", "126", "127"]),
        (&["run", "--help"], &["64", "69", "75", "79", "126", "127", "KILIT_TOKEN", "--own-exit", "--grace"]),
        (
            &["status", "--help"],
            &["Exit status", "locks", "queue", "/var/lib/kilit", "XDG_STATE_HOME", "KILIT_PASSWORD"],
        ),
        (&["break", "--help"], &["Exit status", "notice bound", "process that holds the lock is killed"]),
        (&["doctor", "--help"], &["Exit status", "findings"]),
    ];
    for (args, words) in words {
        let help = Process::run(kilit().args(args), SOON).stdout;
        for word in words {
            assert!(help.contains(word), "{args:?}: {word}");
        }
    }
}

#[test]
fn the_help_of_run_says_what_it_cannot_do() {
    let help = Process::run(kilit().args(["run", "--help"]), SOON).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for limit in [
        "absent under --shared",
        "not re-entrant",
        "not on any engine yet",
        "A run within a run has a group of its own",
        "left the group (setsid)",
        "killed or stopped together",
        "`pkill -9 kilit` hits both",
        "Different users or environments (sudo, cron) do not exclude each other",
    ] {
        assert!(help.contains(limit), "{limit}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_69() {
    let place = Place::new();
    let _holder = place.hold("x");
    let results: &[&[&str]] = &[
        &["status"],
        &["status", "x"],
        &["status", "x", "--json"],
        &["engines"],
        &["engines", "--json"],
        &["doctor", "--json"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
        &["run", "-h"],
    ];
    for args in results {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = place.kilit(*args).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{args:?}: {stderr}");
        assert!(stderr.starts_with("kilit: cannot write the result: No space left"), "{args:?}: {stderr}");
    }
}

fn own_exit_moves_kilits_own_outcomes_and_nothing_else(place: Place) {
    let _holder = place.hold("busy");
    let cases: &[(&[&str], i32)] = &[
        (&["-n", "busy", "--", "true"], 200),
        (&["--engine", "file:///dev/null/x", "x", "--", "true"], 200),
        (&["x", "--", "sh", "-c", "exit 75"], 75),
        (&["x", "--", "/nosuch"], 127),
        (&["x", "--", "/dev/null"], 126),
        (&["x", "--", "sh", "-c", "kill -KILL $$"], 137),
        (&["--ttl", "5", "x", "--", "true"], 64),
        (&["--engine", "memory:", "x", "--", "true"], 64),
    ];
    for (args, code) in cases {
        place.run([&["run", "--own-exit", "200"], *args].concat()).expect_code(*code);
    }
}

#[test]
fn a_lock_that_was_lost_is_79_even_if_the_command_exits_with_0() {
    let place = Place::new();
    place.run(["run", "x", "--", "true"]).expect_code(0);
    let file = place.status("x")["path"].as_str().unwrap().to_owned();
    let exit = place.run(["run", "x", "--", "rm", &file]).expect_code(79);
    assert!(exit.stderr.contains("lost"), "{}", exit.stderr);
    place.run(["run", "--own-exit", "9", "x", "--", "rm", &file]).expect_code(9);
}

#[test]
fn a_lock_that_is_lost_ends_the_command() {
    let place = Place::new();
    let engine = format!("{}?check=100ms", place.url());
    let mut holder = place.start([
        "run",
        "--engine",
        &engine,
        "x",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo ready; sleep 600 & wait",
    ]);
    let file = place.status("x")["path"].as_str().unwrap().to_owned();
    fs::remove_file(file).unwrap();
    let exit = holder.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("unlinked or replaced"), "{}", exit.stderr);
    expect_no_family(&holder);
}

#[test]
fn files_that_may_only_be_read_are_an_error_and_not_busy() {
    let place = Place::new();
    place.run(["run", "x", "--", "true"]).expect_code(0);
    // In a user namespace where nobody is root, who may write to everything.
    let plain = |args: &[&str]| {
        let (kilit, mut unshare) = (place.kilit(args), Command::new("unshare"));
        unshare.arg("--user").arg(kilit.get_program()).args(kilit.get_args());
        Process::run(unshare.env("KILIT_ENGINE", place.url()), SOON)
    };
    plain(&["run", "-n", "x", "--", "true"]).expect_code(0);
    let locks = place.path("locks/locks");
    for (path, mode, name, finding) in
        [(locks.join("x.lock"), 0o444, "x", "file-permissions"), (locks, 0o555, "new", "not-writable")]
    {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let exit = plain(&["run", "-n", name, "--", "echo", "ran"]).expect_code(69);
        assert!(exit.stderr.contains("Permission denied") && exit.stdout.is_empty(), "{}", exit.stderr);
        assert!(plain(&["doctor", "--json"]).expect_code(1).stdout.contains(finding), "{finding}");
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    }
}
