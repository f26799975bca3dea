//! Runs a command again and again under a lock in Redis, as `kilit run` does, with rslock.
//!
//! ```text
//! contest URL KEY ROUNDS COMMAND…
//! ```
//!
//! Whether the lock excluded anybody is not judged here, but by what the command leaves behind.

#![forbid(unsafe_code)]

use std::{env, process::Command, time::Duration};

use rslock::LockManager;

const TTL: Duration = Duration::from_secs(5);
/// By itself it waits for up to 200 ms between two looks.
const RETRY: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<_> = env::args().skip(1).collect();
    let [url, key, rounds, program, arguments @ ..] = &args[..] else {
        panic!("usage: contest URL KEY ROUNDS COMMAND…");
    };
    let mut locks = LockManager::new(vec![url.clone()]);
    locks.set_retry(1, RETRY);
    for _ in 0..rounds.parse().expect("ROUNDS is a number") {
        let lock = locks.acquire(key.as_bytes(), TTL).await.expect("the lock");
        let status = Command::new(program).args(arguments).status().expect("the command starts");
        assert!(status.success(), "{program}: {status}");
        lock.release().await;
    }
}
