//! A password is never shown and never handed on.

use kilit_testbed::Process;

use crate::place::{Place, SOON, guardian_of, kilit, wait_for_line};

const SECRET: &str = "s3cret";

#[test]
fn no_output_shows_a_password() {
    let urls = [
        "nosuch://user:s3cret@127.0.0.1:1/",
        "file://user:s3cret@host/dir",
        "memory://user:s3cret@host",
        "redis://user:s3cret@127.0.0.1:1",
        "user:s3cret@host",
        "://user:s3cret@host",
        "file:///d?password=s3cret",
        "file:///d?s3cret",
    ];
    let commands: [&[&str]; 4] =
        [&["run", "-n", "x", "--", "true"], &["status"], &["doctor"], &["break", "x", "--token=1"]];
    for url in urls {
        for args in commands {
            let by_env = kilit().args(args).env("KILIT_ENGINE", url).env("KILIT_LOG", "trace").run();
            let by_flag = kilit()
                .args([&[args[0], "--engine", url], &args[1..]].concat())
                .env("KILIT_LOG", "trace")
                .run();
            for exit in [by_env, by_flag] {
                assert_ne!(exit.code(), 0, "{url} {args:?}");
                assert!(!format!("{}{}", exit.stdout, exit.stderr).contains(SECRET), "{}", exit.stderr);
            }
        }
    }
    let help = kilit().args(["run", "--help"]).env("KILIT_ENGINE", urls[0]).run();
    assert!(!help.stdout.contains(SECRET));
}

#[test]
fn the_command_and_the_guardian_do_not_inherit_secrets() {
    let place = Place::new();
    let script = "env; echo ready; read line";
    let mut command = place.kilit(["run", "--engine", &place.url(), "x", "--", "sh", "-c", script]);
    command.env("KILIT_PASSWORD", SECRET).env("KILIT_ENGINE", "redis://user:s3cret@h");
    let mut kilit = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut kilit, "ready");
    let guardian = guardian_of(&kilit);
    for file in ["environ", "cmdline"] {
        let bytes = std::fs::read(format!("/proc/{guardian}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "{file}");
    }
    drop(kilit.take_stdin());
    let exit = kilit.wait(SOON);
    assert!(!exit.stdout.contains(SECRET) && exit.stdout.contains("KILIT_TOKEN="), "{}", exit.stdout);
}

#[test]
fn an_engine_without_a_password_is_handed_on() {
    let place = Place::new();
    let exit = place.run(["run", "x", "--", "sh", "-c", "echo $KILIT_ENGINE"]).expect_code(0);
    assert_eq!(exit.stdout.trim_end(), place.url());
}

trait Run {
    fn run(&mut self) -> kilit_testbed::process::Exit;
}

impl Run for std::process::Command {
    #[track_caller]
    fn run(&mut self) -> kilit_testbed::process::Exit {
        Process::run(self, SOON)
    }
}
