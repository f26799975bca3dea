//! The server is away for a while, or for good.

use std::{
    net::UdpSocket,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use kilit_testbed::{
    Process,
    bins::testbed,
    chaos::Mode,
    overlap::Judge,
    ports::ClosedPort,
    server::{Redis, redis::Persistence},
    wait_until,
};

use crate::{
    lease::Scene,
    place::{Place, SOON, wait_for_line},
};

#[test]
fn a_server_that_is_started_again_with_its_data_harms_nobody() {
    let spec = Redis::new().persistence(Persistence::Aof { fsync: "always" });
    let mut scene = Scene::new(Place::with_redis(spec));
    let mut holder = with_stdin(&scene);
    let token = token(&scene);
    let mut next = scene.next();
    wait_until("the next stands in line", SOON, || scene.place.status("x")["waiters"] == 1);
    scene.place.server_mut().kill();
    wait_until("a renewal fails", SOON, || holder.stderr().contains("trying again"));
    scene.place.server_mut().restart();
    let healed = scene.link.counts().to_client;
    wait_until("a renewal is answered", SOON, || scene.link.counts().to_client > healed);
    assert_eq!(self::token(&scene), token);
    drop(holder.take_stdin());
    holder.wait(SOON).expect_code(7);
    next.wait(SOON).expect_code(0);
}

#[test]
fn restarts_in_the_middle_of_a_contest_let_no_two_in() {
    let mut place = Place::with_redis(Redis::new().persistence(Persistence::Aof { fsync: "always" }));
    let mut contest = Contest::start(&place, &place.url());
    for restart in 1..=4 {
        contest.wait_for(restart * Contest::VISITS / 5);
        place.server_mut().restart();
    }
    contest.end();
}

#[test]
fn a_link_that_fails_in_the_middle_of_a_contest_lets_no_two_in() {
    let scene = Scene::new(Place::redis());
    let url = scene.place.url_at(scene.link.addr()) + "?timeout=100ms";
    let mut contest = Contest::start(&scene.place, &url);
    let modes = [Mode::Reset, Mode::DropReplies, Mode::Refuse, Mode::Blackhole];
    for (fault, mode) in modes.into_iter().cycle().take(16).enumerate() {
        contest.wait_for((fault + 1) * Contest::VISITS / 17);
        scene.link.set(mode);
        // Nothing is waited for: this is how long it lasts.
        std::thread::sleep(Duration::from_millis(70 * (fault as u64 % 5)));
        scene.link.set(Mode::Pass);
    }
    contest.end();
}

/// Four processes that run a command again and again.
struct Contest {
    log: PathBuf,
    loops: Vec<Process>,
}

impl Contest {
    const RUNS: usize = 25;
    const VISITS: usize = 4 * Self::RUNS;

    fn start(place: &Place, url: &str) -> Self {
        let script = "i=0; while [ $i -lt $1 ]; do \"$2\" run --ttl 5s x -- \"$3\" hold \"$4\" 5 || exit; i=$((i+1)); done";
        let log = place.path("log");
        let start = |_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh", &Self::RUNS.to_string()]).arg(place.kilit(["x"]).get_program());
            Process::spawn(shell.arg(testbed()).arg(&log).env("KILIT_ENGINE", url))
        };
        let loops = (0..4).map(start).collect();
        Self { log, loops }
    }

    fn wait_for(&mut self, visits: usize) {
        wait_until("the contest goes on", SOON, || {
            for one in &mut self.loops {
                one.try_wait().map(|exit| exit.expect_code(0));
            }
            // Each has two lines.
            Judge::read(&self.log).entries().len() >= visits * 2
        });
    }

    fn end(self) {
        for mut one in self.loops {
            one.wait(SOON * 2).expect_code(0);
        }
        assert_eq!(Judge::read(&self.log).expect_clean().visits, Self::VISITS);
    }
}

#[test]
fn a_server_that_forgot_the_lock_takes_it_away() {
    let mut scene = Scene::new(Place::redis());
    let mut holder = with_stdin(&scene);
    scene.place.server_mut().restart();
    let exit = holder.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("the engine ended the hold"), "{}", exit.stderr);
}

#[test]
fn a_clock_that_jumps_ahead_takes_the_lock_away() {
    let scene = Scene::new(Place::with_redis(Redis::new().clock_shim()));
    let mut holder = with_stdin(&scene);
    scene.place.server().set_clock_offset_ms(3_600_000);
    let exit = holder.wait(SOON).expect_code(79);
    assert!(exit.stderr.contains("the engine ended the hold"), "{}", exit.stderr);
    // One that jumps back lengthens nothing that a holder goes by, and tokens rise all the same.
    let token = |offset: i64| -> u64 {
        scene.place.server().set_clock_offset_ms(offset);
        let mut run = scene.run(&[]);
        Process::run(run.args(["sh", "-c", "echo $KILIT_TOKEN"]), SOON).stdout.trim().parse().unwrap()
    };
    assert!(token(3_600_000) < token(0));
}

#[test]
fn an_outage_within_the_bound_changes_nothing() {
    std::thread::scope(|scope| {
        for mode in [Mode::Reset, Mode::Blackhole, Mode::Refuse, Mode::DropReplies] {
            scope.spawn(move || is_ridden_out(mode));
        }
    });
}

/// From a renewal on, the TTL of five seconds without grace and margin are 4.3 s; the rest is for a busy machine.
fn is_ridden_out(mode: Mode) {
    const OUTAGE: Duration = Duration::from_secs(3);
    let scene = Scene::new(Place::redis());
    let mut holder = with_stdin(&scene);
    scene.link.set(mode);
    // Nothing is waited for: this is how long it is away, and then the deadline passes that it had.
    std::thread::sleep(OUTAGE);
    assert!(holder.stderr().contains("trying again"), "{mode:?} was no outage");
    scene.link.set(Mode::Pass);
    std::thread::sleep(OUTAGE);
    drop(holder.take_stdin());
    holder.wait(SOON).expect_code(7);
    scene.place.expect_free("x");
}

#[test]
fn what_is_not_there_is_given_up_in_time() {
    let place = Place::redis();
    let (closed, stopped) = (ClosedPort::new(), &place);
    stopped.server().stop();
    for addr in [closed.addr(), stopped.addr()] {
        for (wait, longest) in [("1s", 1), ("0", 0)] {
            let url = place.url_at(addr) + "?connect_timeout=300ms";
            for args in [&["run", "--wait", wait, "x", "--", "echo", "ran"][..], &["status"], &["doctor"]] {
                let begun = Instant::now();
                let exit = Process::run(place.kilit(args).env("KILIT_ENGINE", &url), SOON).expect_code(69);
                assert!(exit.stderr.contains(&addr.to_string()), "{}", exit.stderr);
                assert_eq!(exit.stdout, "");
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(longest) + SLACK, "{args:?} took {took:?}");
            }
        }
    }
}

#[test]
fn a_name_server_that_is_silent_holds_nothing_up() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can mount another resolv.conf");
        return;
    }
    let place = Place::redis();
    // Bound, and never read from.
    let silent = UdpSocket::bind("127.0.0.53:53").or_else(|_| UdpSocket::bind("127.0.0.54:53")).unwrap();
    let conf = place.path("resolv.conf");
    let nameserver =
        format!("nameserver {}\noptions timeout:25 attempts:1\n", silent.local_addr().unwrap().ip());
    std::fs::write(&conf, nameserver).unwrap();
    for wait in ["0", "1s"] {
        let mount = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", mount]).arg(&conf).arg(place.kilit(["x"]).get_program());
        let url = "redis://redis.example?connect_timeout=500ms";
        unshare.args(["run", "--engine", url, "--wait", wait, "x", "--", "true"]);
        let begun = Instant::now();
        let exit = Process::run(&mut unshare, SOON).expect_code(69);
        assert!(exit.stderr.contains("redis.example"), "{}", exit.stderr);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_server_that_dies_during_the_clean_up_holds_nothing_up() {
    let mut scene = Scene::new(Place::redis());
    let _holder = scene.place.hold("x");
    // So that there is time between the last look and the withdrawal.
    scene.link.set(Mode::Delay(Duration::from_millis(50)));
    let monitor = scene.place.server().monitor();
    let (begun, began_at) = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64());
    let mut waiter = Process::spawn(scene.run_over_link(&["--wait", "2s"]).arg("true"));
    // It is on its way when the wait ends, and until then there is another every half a second.
    monitor.wait("the last look", |lines| {
        lines.iter().any(|line| line.contains(" lua] \"ZADD\"") && time_of(line) > began_at + 2.0)
    });
    scene.place.server_mut().kill();
    let exit = waiter.wait(SOON);
    assert!(begun.elapsed() < Duration::from_secs(2) + SLACK, "{:?}", begun.elapsed());
    // The second, where the machine was too busy to kill in time.
    assert!([75, 69].contains(&exit.code()), "{}", exit.stderr);
}

#[test]
fn the_end_of_a_wait_says_what_was_last() {
    let scene = Scene::new(Place::redis());
    let _holder = scene.place.hold("x");
    let busy = Process::run(scene.run_over_link(&["--wait", "300ms"]).arg("true"), SOON).expect_code(75);
    assert!(busy.stderr.contains("held by another until the wait was over"), "{}", busy.stderr);
    for mode in [Mode::Blackhole, Mode::Reset] {
        scene.link.set(Mode::Pass);
        let mut waiter = Process::spawn(scene.run_over_link(&["--wait", "3s"]).arg("true"));
        wait_until("it stands in line", SOON, || scene.place.status("x")["waiters"] == 1);
        scene.link.set(mode);
        let exit = waiter.wait(SOON).expect_code(69);
        assert!(!exit.stderr.contains("held by another"), "{}", exit.stderr);
    }
}

/// How much later than asked for an end may come. Any of the time-outs that it could wrongly wait for is longer.
const SLACK: Duration = Duration::from_secs(2);

/// A holder over the link that ends with 7 when its stdin does, and logs renewals that fail.
fn with_stdin(scene: &Scene) -> Process {
    let mut command = scene.run_over_link(&[]);
    command.env("KILIT_LOG", "warn").args(["sh", "-c", "echo ready; read line; exit 7"]);
    let mut holder = Process::spawn_with_stdin(&mut command, std::process::Stdio::piped());
    wait_for_line(&mut holder, "ready");
    holder
}

fn token(scene: &Scene) -> String {
    scene.place.status("x")["holders"][0]["token_text"].as_str().unwrap().to_owned()
}

/// A line of MONITOR begins with it.
fn time_of(line: &str) -> f64 {
    line.split(' ').next().and_then(|time| time.parse().ok()).expect("a time")
}
