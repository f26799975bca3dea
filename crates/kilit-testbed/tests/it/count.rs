use std::{process::Command, time::Duration};

use kilit_testbed::{Process, count, wait_until};

use crate::SOON;

#[test]
fn a_busy_process_shows() {
    let process = Process::spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
    wait_until("it has used CPU time", SOON, || count::cpu_time(process.pid()) > Duration::from_millis(50));
    assert_eq!(count::threads(process.pid()), 1);
}

#[test]
fn a_process_that_sleeps_often_shows() {
    let script = "while :; do sleep 0.001; done";
    let process = Process::spawn(Command::new("sh").args(["-c", script]));
    wait_until("it has slept often", SOON, || count::voluntary_switches(process.pid()) > 20);
}

#[test]
fn an_idle_process_does_not() {
    let process = Process::spawn(Command::new("sleep").arg("60"));
    let pid = process.pid();
    wait_until("it sleeps", SOON, || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(" S ")
    });
    assert!(count::voluntary_switches(pid) <= 20);
}

#[test]
fn open_descriptors_show() {
    let script = "echo up; exec sleep 60";
    let fds = |script: &str| {
        let mut process = Process::spawn(Command::new("sh").args(["-c", script]));
        process.wait_for_stdout(SOON, |text| text.contains("up").then_some(()));
        let comm = format!("/proc/{}/comm", process.pid());
        wait_until("it sleeps", SOON, || std::fs::read_to_string(&comm).unwrap() == "sleep\n");
        count::open_fds(process.pid())
    };
    // Programs hold others open for a moment while they start.
    wait_until("two more show", SOON, || {
        fds(&format!("exec 8</dev/null 9</dev/null; {script}")) == fds(script) + 2
    });
}
