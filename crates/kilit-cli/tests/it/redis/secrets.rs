//! A password reaches the server, and nothing else; a server that is not who it should be gets nothing.

use std::{fs, process::Stdio};

use kilit_testbed::{
    Process,
    ports::ClosedPort,
    process::Exit,
    server::Redis,
    tls::{ServerCert, TestCa},
};

use crate::place::{Place, SOON, guardian_of, kilit, wait_for_line};

const SECRET: &str = "s3cret";

fn run(url: &str, args: &[&str]) -> Exit {
    let mut command = kilit();
    command.args(args).env("KILIT_ENGINE", url).env("KILIT_LOG", "trace").env("RUST_LOG", "trace");
    Process::run(&mut command, SOON)
}

#[test]
fn no_failure_shows_a_password() {
    let place = Place::with_redis(Redis::new().requirepass("an0ther"));
    let (addr, closed) = (place.addr(), ClosedPort::new());
    let urls = [
        (format!("redis://:{SECRET}@{}", closed.addr()), 69, "cannot be reached"),
        (format!("redis://:{SECRET}@{addr}"), 69, "no such user and password"),
        (format!("redis://kilit:{SECRET}@{addr}"), 69, "no such user and password"),
        (format!("redis://:{SECRET}@no-such-host.invalid"), 69, "no-such-host.invalid"),
        (format!("redis+sentinel://:{SECRET}@{addr}/m"), 69, "wants a password"),
        (format!("redis+cluster://:{SECRET}@{}", closed.addr()), 69, "cannot be reached"),
        (format!("redis://:{SECRET}@{addr}?timeout=5"), 64, "timeout"),
        (format!("redis://{addr}?password={SECRET}"), 64, "`password`"),
        (format!("redis://{addr}"), 69, "wants a password"),
    ];
    for (url, code, words) in urls {
        let commands: [&[&str]; 4] =
            [&["run", "-n", "x", "--", "true"], &["status"], &["doctor"], &["break", "x", "--token=1"]];
        for args in commands {
            let exit = run(&url, args).expect_code(code);
            assert!(exit.stderr.contains(words), "{url}: {}", exit.stderr);
            assert!(!format!("{exit:?}").contains(SECRET), "{}", exit.stderr);
        }
    }
}

#[test]
fn a_password_that_is_right_goes_to_the_server_alone() {
    let place = Place::with_redis(Redis::new().requirepass(SECRET));
    let file = place.path("password");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let by_file = format!("redis://{}?password_file={}", place.addr(), file.display());
    let ways = [(place.url(), None), (by_file, None), (format!("redis://{}", place.addr()), Some(SECRET))];
    for (url, variable) in ways {
        let script = "env; echo ready; read line";
        let mut command = kilit();
        command
            .args(["run", "x", "--", "sh", "-c", script])
            .env("KILIT_ENGINE", &url)
            .env("KILIT_LOG", "trace");
        if let Some(password) = variable {
            command.env("KILIT_PASSWORD", password);
        }
        let mut kilit = Process::spawn_with_stdin(&mut command, Stdio::piped());
        wait_for_line(&mut kilit, "ready");
        for pid in [guardian_of(&kilit), kilit.pid()] {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            assert!(!String::from_utf8_lossy(&line).contains(SECRET));
        }
        let line = fs::read(format!("/proc/{}/cmdline", kilit.pid())).unwrap();
        let typed: Vec<_> = line.split(|&byte| byte == 0).skip(1).collect();
        assert_eq!(typed, [&b"run"[..], b"x", b"--", b"sh", b"-c", script.as_bytes(), b""]);
        drop(kilit.take_stdin());
        let exit = kilit.wait(SOON);
        assert!(
            exit.stdout.contains("KILIT_TOKEN=") && !exit.stdout.contains("KILIT_PASSWORD"),
            "{}",
            exit.stdout
        );
        assert!(!format!("{exit:?}").contains(SECRET), "{exit:?}");
    }
}

#[test]
fn a_password_that_was_typed_goes_no_further() {
    let place = Place::with_redis(Redis::new().requirepass(SECRET));
    let mut command = kilit();
    command.args(["run", "--engine", &place.url(), "x", "--", "sh", "-c", "env; echo ready; read line"]);
    let mut kilit = Process::spawn_with_stdin(&mut command, Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    let mut others = kilit.family();
    others.retain(|&pid| pid != kilit.pid());
    assert!(others.contains(&guardian_of(&kilit)));
    for pid in others {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "{file} of {pid}");
        }
    }
    drop(kilit.take_stdin());
    assert!(!format!("{:?}", kilit.wait(SOON)).contains(SECRET));
}

#[test]
fn a_server_that_cannot_be_verified_is_refused() {
    let ca = TestCa::new();
    let bad = [
        (ServerCert::SelfSigned, "is signed by no authority that is known"),
        (ServerCert::WrongHost, "is for another host"),
        (ServerCert::Expired, "has expired"),
    ];
    for (cert, words) in bad {
        let place = Place::with_redis(Redis::new().tls(&ca, cert).requirepass(SECRET));
        let monitor = place.server().monitor();
        // At once: trying again would not help.
        let exit = run(&place.url(), &["run", "x", "--", "true"]).expect_code(69);
        let last = exit.stderr.lines().last().unwrap();
        assert!(last.starts_with("kilit: ") && last.contains(words), "{last}");
        assert!(!monitor.lines().iter().any(|line| line.contains("HELLO") || line.contains("AUTH")));
        // Loudly, it can be believed all the same.
        let believed = run(&(place.url() + "&tls_verify=false"), &["run", "x", "--", "true"]).expect_code(0);
        assert!(believed.stderr.contains("whoever answers is believed"), "{}", believed.stderr);
    }
}

#[test]
fn a_server_with_a_good_certificate_is_used() {
    let ca = TestCa::new();
    let place = Place::with_redis(Redis::new().tls(&ca, ServerCert::Good).requirepass(SECRET));
    place.run(["run", "x", "--", "true"]).expect_code(0);
    // The system does not know the authority.
    let unknown = place.url().split('?').next().unwrap().to_owned();
    let exit = run(&unknown, &["run", "--wait", "0", "x", "--", "true"]).expect_code(69);
    assert!(exit.stderr.contains("name one with ca=FILE"), "{}", exit.stderr);
    // Another name than the certificate's.
    let by_address = place.url().replace("localhost", "127.0.0.1");
    run(&by_address, &["run", "x", "--", "true"]).expect_code(0);
}

#[test]
fn a_server_without_encryption_is_no_other_for_it() {
    let place = Place::redis();
    let url = format!("rediss://{}?connect_timeout=300ms", place.addr());
    let exit = run(&url, &["run", "--wait", "0", "x", "--", "true"]).expect_code(69);
    assert!(exit.stderr.contains("cannot be reached"), "{}", exit.stderr);
}
