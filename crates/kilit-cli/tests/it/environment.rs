//! What the command finds: environment, arguments, stdin, stdout, stderr.

use std::{ffi::OsStr, io::Write, os::unix::ffi::OsStrExt, process::Stdio};

use kilit_testbed::Process;

use crate::place::{Place, SOON, kilit, on_engines, wait_for_line};

on_engines! { [file, redis] {
    tokens_rise_from_run_to_run,
    nested_runs_give_the_inner_token,
} }

#[test]
fn the_command_knows_its_lock() {
    let place = Place::new();
    let script = "echo $KILIT_NAME; echo $KILIT_TTL_MS; echo $KILIT_TOKEN; echo $KILIT_TOKEN_SOURCE";
    let exit = place.run(["run", "--ttl", "1500ms", "my lock", "--", "sh", "-c", script]).expect_code(0);
    let lines: Vec<_> = exit.stdout.lines().collect();
    let [name, ttl, token, source] = lines[..] else { panic!("{lines:?}") };
    assert_eq!((name, ttl), ("my lock", "1500"));
    assert!(token.parse::<u64>().unwrap() > 0);
    assert!(source.starts_with("file:"), "{source}");
}

fn tokens_rise_from_run_to_run(place: Place) {
    let token = || -> u64 {
        let exit = place.run(["run", "x", "--", "sh", "-c", "echo $KILIT_TOKEN"]).expect_code(0);
        exit.stdout.trim().parse().unwrap()
    };
    let tokens: Vec<_> = (0..5).map(|_| token()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn a_shared_holder_has_no_token_not_even_an_outer_ones() {
    let place = Place::new();
    let mut kilit = place.kilit(["run", "--shared", "x", "--", "sh", "-c"]);
    kilit.arg("echo ${KILIT_TOKEN-none} ${KILIT_TOKEN_SOURCE-none}");
    kilit.env("KILIT_TOKEN", "7").env("KILIT_TOKEN_SOURCE", "outer");
    assert_eq!(Process::run(&mut kilit, SOON).expect_code(0).stdout, "none none\n");
}

#[test]
fn shared_holders_share_and_exclude_others() {
    let place = Place::new();
    let _one = place.start(["run", "--shared", "x", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    place.run(["run", "--shared", "-n", "x", "--", "true"]).expect_code(0);
    place.run(["run", "-n", "x", "--", "true"]).expect_code(75);
    assert_eq!(place.status("x")["mode"], "shared");
}

fn nested_runs_give_the_inner_token(place: Place) {
    let program = place.kilit(["x"]).get_program().to_str().unwrap().to_owned();
    let script = "echo $KILIT_NAME $KILIT_TOKEN; \"$0\" run inner -- sh -c 'echo $KILIT_NAME $KILIT_TOKEN'";
    place.run(["run", "inner", "--", "true"]).expect_code(0);
    let exit = place.run(["run", "outer", "--", "sh", "-c", script, &program]).expect_code(0);
    let lines: Vec<_> = exit.stdout.lines().collect();
    assert!(lines[0].starts_with("outer ") && lines[1].starts_with("inner "), "{lines:?}");
}

#[test]
fn arguments_and_streams_pass_byte_for_byte() {
    let place = Place::new();
    let odd = OsStr::from_bytes(b"\xff\n -n --help '\"");
    let script = "cat; printf %s \"$1\"; printf err >&2";
    let mut kilit = place.kilit(["run", "x", "--", "sh", "-c", script, "sh"]);
    let mut process = Process::spawn_with_stdin(kilit.arg(odd), Stdio::piped());
    process.take_stdin().unwrap().write_all(b"from stdin\0").unwrap();
    let exit = process.wait(SOON).expect_code(0);
    assert_eq!(exit.stdout, format!("from stdin\0{}", odd.to_string_lossy()));
    assert_eq!(exit.stderr, "err");
}

#[test]
fn options_after_the_dashes_are_the_commands() {
    let place = Place::new();
    assert_eq!(place.run(["run", "x", "--", "echo", "-n", "--wait", "--"]).stdout, "--wait --");
}

#[test]
fn the_command_leads_a_group_of_its_own() {
    let place = Place::new();
    let exit =
        place.run(["run", "x", "--", "sh", "-c", "echo $$; cut -d' ' -f5 /proc/$$/stat"]).expect_code(0);
    let ids: Vec<_> = exit.stdout.split_whitespace().collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn stdin_that_stays_open_holds_nothing_up() {
    let place = Place::new();
    let mut command = place.kilit(["run", "x", "--", "sh", "-c", "echo ready"]);
    let mut kilit = Process::spawn_with_stdin(&mut command, Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    kilit.wait(SOON).expect_code(0);
}

#[test]
fn a_wrong_engine_is_blamed_on_the_variable_that_named_it() {
    let place = Place::new();
    for (url, words) in [("bogus", "no scheme"), ("nosuch://h", "nosuch"), ("file:///d?chek=1s", "chek")] {
        for args in [&["status"][..], &["run", "x", "--", "true"]] {
            let exit = Process::run(kilit().args(args).env("KILIT_ENGINE", url), SOON).expect_code(64);
            assert!(exit.stderr.starts_with("kilit: KILIT_ENGINE: "), "{}", exit.stderr);
            assert!(exit.stderr.contains(words), "{}", exit.stderr);
        }
        let typed = place.run(["status", "--engine", url]).expect_code(64);
        assert!(!typed.stderr.contains("KILIT_ENGINE"), "{}", typed.stderr);
    }
}
