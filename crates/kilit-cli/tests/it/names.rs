//! Names are bytes.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, process::Command};

use kilit_testbed::Process;

use crate::place::{Place, SOON, on_engines};

on_engines! { [file, redis, redis_cluster] {
    every_name_is_a_lock_of_its_own,
    the_command_has_the_bytes_of_the_name,
} }

/// No two of them are the same lock.
const NAMES: &[&[u8]] = &[
    b"a/b",
    b"a//b",
    b"/a",
    b"a/",
    b"a%2Fb",
    b".",
    b"..",
    b"...",
    b"a.b",
    b"\x01",
    b"\x7f",
    b"CR\r\nLF",
    b" ",
    b"\t",
    b"*",
    b"?",
    b"'\";$(true)",
    "é".as_bytes(),
    "e\u{301}".as_bytes(),
    "\u{1f512}".as_bytes(),
    b"\xff",
    b"\xfe",
    "\u{fffd}".as_bytes(),
    b"{}",
    b"{a}",
    b"A",
    b"a",
    b"-n",
    b"--help",
    b"--",
    b"-",
    b"__kilit",
    b"plumless",
    b"buckeroo",
    b"job-139467",
    b"job-232812",
    "\u{85}".as_bytes(),
    "\u{e000}".as_bytes(),
    "\u{fff0}".as_bytes(),
    b"{",
    b"}",
    b"a}b",
    b"zookeeper",
    b"/zookeeper/x",
    b"counter",
];

fn name(bytes: &[u8]) -> Vec<u8> {
    [b"--name=", bytes].concat()
}

fn every_name_is_a_lock_of_its_own(place: Place) {
    let long: Vec<Vec<u8>> = [255, 256, 511, 512].map(|length| vec![b'x'; length]).to_vec();
    let mut accents = "é".repeat(256).into_bytes();
    let names: Vec<&[u8]> =
        NAMES.iter().copied().chain(long.iter().map(|name| &name[..])).chain([&accents[..]]).collect();
    let mut holders = Vec::new();
    for name_bytes in &names {
        let arg = name(name_bytes);
        let args = [b"run", &arg[..], b"-n", b"--", b"sh", b"-c", b"echo ready; exec sleep 600"];
        // Were it the lock of one before, `-n` would find it taken.
        holders.push(place.start(args.map(OsStr::from_bytes)));
        let busy =
            place.run([b"run", &arg[..], b"-n", b"--", b"true"].map(OsStr::from_bytes)).expect_code(75);
        assert!(!busy.stderr.trim_end().contains(char::is_control), "{}", busy.stderr);
        let text = place.run([b"status", &arg[..]].map(OsStr::from_bytes)).expect_code(0).stdout;
        let lines = text.lines().filter(|line| !line.starts_with("  file "));
        assert!(lines.count() == 2 && !text.replace('\n', "").contains(char::is_control), "{text}");
        let exit = place.run([b"status", &arg[..], b"--json"].map(OsStr::from_bytes)).expect_code(0);
        let status: serde_json::Value = serde_json::from_str(&exit.stdout).unwrap();
        assert_eq!(status["name"].as_str(), std::str::from_utf8(name_bytes).ok());
        assert_eq!(status.get("name_base64").is_some(), status["name"].is_null());
    }
    let all: serde_json::Value = serde_json::from_str(&place.run(["status", "--json"]).stdout).unwrap();
    assert_eq!(all["locks"].as_array().unwrap().len(), names.len());
    drop(holders);
    accents.push(b'x');
    let too_long = name(&accents);
    place.run([b"run", &too_long[..], b"--", b"true"].map(OsStr::from_bytes)).expect_code(64);
}

#[test]
fn a_name_that_status_prints_can_be_typed_back() {
    let place = Place::new();
    for bytes in NAMES {
        let text = place.run([b"status", &name(bytes)[..]].map(OsStr::from_bytes)).expect_code(1).stdout;
        let word = text.trim_end().strip_suffix(": free").expect("nobody holds it");
        let typed = Process::run(
            Command::new("bash").args(["-c", &format!("printf %s {word} | od -An -v -tx1")]),
            SOON,
        );
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(typed.stdout.split_whitespace().collect::<String>(), hex, "{word}");
    }
    let _holder = place.hold("my job");
    assert!(place.run(["status"]).stdout.starts_with("'my job': held"));
    let busy = place.run(["run", "-n", "my job", "--", "true"]).expect_code(75).stderr;
    assert!(busy.contains("`kilit status 'my job'`"), "{busy}");
    let missed = place.run(["break", "my job", "--token", "9999"]).expect_code(1).stderr;
    assert!(missed.contains("lock 'my job': there is no hold"), "{missed}");
}

fn the_command_has_the_bytes_of_the_name(place: Place) {
    for bytes in NAMES {
        let arg = name(bytes);
        let args = [b"run", &arg[..], b"--", b"sh", b"-c", b"printf %s \"$KILIT_NAME\" | od -An -v -tx1"];
        let exit = place.run(args.map(OsStr::from_bytes)).expect_code(0);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(exit.stdout.split_whitespace().collect::<String>(), hex);
    }
}

#[test]
fn a_name_that_is_not_utf8_is_given_in_base64() {
    let place = Place::new();
    let args = [&b"status"[..], b"--json", b"\xff\xfe"].map(OsStr::from_bytes);
    let exit = place.run(args).expect_code(1);
    let status: serde_json::Value = serde_json::from_str(&exit.stdout).unwrap();
    assert!(status["name"].is_null());
    assert_eq!(status["name_base64"], "//4=");
}

#[test]
fn a_dashed_name_triggers_no_option() {
    let place = Place::new();
    let exit = place.run(["run", "--name", "--help", "--", "sh", "-c", "echo $KILIT_NAME"]).expect_code(0);
    assert_eq!(exit.stdout, "--help\n");
    // Without `--name=` it is an option, and the name is missing.
    Process::run(&mut place.kilit(["run", "-n", "--", "true"]), SOON).expect_code(64);
}

#[test]
fn a_name_that_is_the_hash_of_a_long_one_is_another_lock() {
    let place = Place::new();
    let long = "é".repeat(256);
    let _holder = place.hold(&long);
    let path = place.status(&long)["path"].as_str().unwrap().to_owned();
    let stem = Path::new(&path).file_stem().unwrap().to_str().unwrap();
    for name in [stem, stem.strip_prefix("%sha256-").expect("its file is called by a hash")] {
        place.run(["run", "-n", name, "--", "true"]).expect_code(0);
    }
}
