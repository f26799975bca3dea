//! Other processes: this test program again, told what to do.

use std::{
    io::{BufRead, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use kilit_core::{FencingToken, Renewal, Share, TokenSource, TokenValue};
use kilit_testbed::{
    Process,
    overlap::{Event, Visitor},
};

use crate::support::{Dir, LONG, claim, open, release, renew, status, take};

const ROLE: &str = "KILIT_FILE_ROLE";

/// A process with a role: `hold NAME MODE DELAY`, `heed NAME`, `visit NAME LOG ROUNDS`, `look NAME`,
/// `look-on NAME`, `hold-with-child NAME`.
pub(crate) struct Helper(pub(crate) Process);

impl Helper {
    pub(crate) fn start(dir: &Dir, role: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), dir, role)
    }

    /// In a PID namespace of its own, as a container.
    pub(crate) fn contained(dir: &Dir, role: &str) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["-rpf", "--mount-proc", "--kill-child"]).arg(std::env::current_exe().unwrap());
        Self::start_by(unshare, dir, role)
    }

    fn start_by(mut command: Command, dir: &Dir, role: &str) -> Self {
        command.args(["--exact", "helper::helper", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env("KILIT_FILE_URL", dir.url());
        Self(Process::spawn_with_stdin(&mut command, Stdio::piped()))
    }

    /// Starts one that holds `lock` as soon as it can.
    pub(crate) fn hold(dir: &Dir, lock: &str) -> Self {
        Self::start(dir, &format!("hold {lock} exclusive 0"))
    }

    /// Waits until it holds the lock; its token.
    pub(crate) fn held(&mut self) -> u64 {
        self.said("held ").parse().unwrap()
    }

    /// Whether it holds it, or has.
    pub(crate) fn has_held(&self) -> bool {
        self.0.stdout().contains("held ")
    }

    /// Waits until it writes a line that begins so; the rest of that.
    pub(crate) fn said(&mut self, start: &str) -> String {
        self.0.wait_for_stdout(LONG, |text| {
            let line = text.split_inclusive('\n').find_map(|line| line.strip_suffix('\n')?.split_once(start));
            line.map(|(_, rest)| rest.to_owned())
        })
    }

    /// Lets it release, and waits for its end.
    pub(crate) fn release(mut self) {
        drop(self.0.take_stdin());
        self.0.wait(LONG).expect_code(0);
    }
}

#[test]
fn helper() {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var("KILIT_FILE_URL")) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let words: Vec<_> = role.split(' ').collect();
    let engine = runtime.block_on(open(&url)).unwrap();
    match words[..] {
        ["hold", lock, mode, delay] => {
            let mut claim = claim(lock);
            claim.lock_delay = Duration::from_millis(delay.parse().unwrap());
            if mode == "shared" {
                claim.share = Share::SHARED;
            }
            say("asks");
            let token = runtime.block_on(take(&*engine, &claim, Duration::MAX)).unwrap();
            say(&format!("held {token}"));
            std::io::stdin().lock().lines().for_each(drop);
            runtime.block_on(release(&*engine, &claim));
        }
        ["heed", lock] => runtime.block_on(async {
            let claim = claim(lock);
            let token = take(&*engine, &claim, Duration::MAX).await.unwrap();
            say(&format!("held {token}"));
            let reason = loop {
                match renew(&*engine, &claim).await {
                    Renewal::Gone(reason) => break reason,
                    Renewal::Kept(_) | Renewal::Unanswered => {
                        tokio::time::sleep(Duration::from_millis(100)).await
                    }
                }
            };
            say(&format!("lost {reason:?}"));
            release(&*engine, &claim).await;
        }),
        ["look", lock] => runtime.block_on(async {
            let lock = status(&*engine, lock).await;
            let holders: Vec<_> = lock.holders.iter().map(|holder| holder.owner.as_deref()).collect();
            say(&format!("saw {:?} {holders:?}", lock.mode));
        }),
        ["look-on", lock] => runtime.block_on(async {
            say("looks");
            loop {
                status(&*engine, lock).await;
            }
        }),
        ["hold-with-child", lock] => {
            let claim = claim(lock);
            let token = runtime.block_on(take(&*engine, &claim, Duration::MAX)).unwrap();
            let duplicate = engine.duplicate(claim.owner).unwrap().unwrap();
            let mut child = Command::new("sleep").arg("1000").stdin(duplicate).spawn().unwrap();
            say(&format!("child {}", child.id()));
            say(&format!("held {token}"));
            child.wait().unwrap();
        }
        ["visit", lock, log, rounds] => runtime.block_on(async {
            for _ in 0..rounds.parse().unwrap() {
                let claim = claim(lock);
                let value = take(&*engine, &claim, LONG).await.expect("a turn in time");
                let token = FencingToken::new(
                    TokenSource::new("file:test").unwrap(),
                    TokenValue::new(value).unwrap(),
                );
                let visitor =
                    Visitor::new(Path::new(log), std::process::id().to_string(), Some(token)).unwrap();
                visitor.write(Event::Enter).unwrap();
                visitor.write(Event::Exit).unwrap();
                release(&*engine, &claim).await;
            }
        }),
        _ => panic!("no such role: {role}"),
    }
}

fn say(line: &str) {
    println!("\n{line}");
    std::io::stdout().flush().unwrap();
}
