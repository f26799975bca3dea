//! Clients of one server, and what tests ask of both.

use std::{sync::Arc, time::Duration};

use kilit_core::{
    Claim, Client, ErrorKind, FencingToken, Guard, LockName, LossNotice, Mutex, Note, OwnerId, Result, Share,
    Standing, Terms,
};
use kilit_testbed::server::{Redis, Server, redis::Redislike};
use redis::FromRedisValue;
use tokio::task::JoinHandle;

/// What must happen; a test that waits so long has failed.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A TTL within which no test ends.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn open(url: impl AsRef<str>) -> Result<Client> {
    Client::open(&kilit_redis::ENGINES[0], url.as_ref().parse()?).await
}

/// A client of its own, as if in another process.
///
/// # Panics
/// When it cannot be opened.
pub(crate) async fn client(url: impl AsRef<str>) -> Client {
    let opened = open(&url).await;
    opened.unwrap_or_else(|error| panic!("{}: {error}", url.as_ref()))
}

/// The error of opening this URL.
pub(crate) async fn refusal(url: impl AsRef<str>) -> kilit_core::Error {
    open(&url).await.err().unwrap_or_else(|| panic!("{} was opened", url.as_ref()))
}

pub(crate) fn lock(name: &str) -> LockName {
    name.parse().unwrap()
}

pub(crate) fn mutex(client: &Client, name: &str, ttl: Duration) -> Mutex {
    client.mutex(lock(name)).with(Terms { ttl, ..Terms::default() }).unwrap()
}

/// A hold of `lock:NAME` that is got in one try.
pub(crate) async fn hold(client: &Client, name: &str, ttl: Duration) -> Guard {
    mutex(client, name, ttl).try_acquire().await.unwrap()
}

/// A claim as a recipe makes it, for asking the engine itself.
pub(crate) fn claim(name: &str, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim {
        name: lock(name),
        owner: OwnerId::random(),
        share: Share::EXCLUSIVE,
        ttl,
        lock_delay: Duration::ZERO,
        note: Note::new("a test").unwrap(),
        notice: LossNotice::default(),
    })
}

pub(crate) fn token(guard: &Guard) -> u64 {
    guard.token().map(FencingToken::value).unwrap().get()
}

/// Waits for a lock in the background.
pub(crate) fn wait_for(mutex: Mutex) -> JoinHandle<Result<Guard>> {
    tokio::spawn(async move { mutex.acquire_within(SOON).await })
}

/// What a waiter gets in the end.
pub(crate) async fn granted(waiting: JoinHandle<Result<Guard>>) -> Guard {
    within("the lock", waiting).await.unwrap().unwrap()
}

/// How many stand in line.
pub(crate) fn line(server: &Server<Redis>, name: &str) -> i64 {
    server.ask(&format!("ZCARD kilit1:line:{{lock:{name}}}"))
}

/// Whether one try finds the lock taken, and nothing else.
pub(crate) async fn is_busy(client: &Client, name: &str) -> bool {
    match mutex(client, name, LONG).try_acquire().await {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::Busy => true,
        Err(error) => panic!("not busy but: {error}"),
    }
}

/// The output of what must happen soon.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {SOON:?}: {what}"),
    }
}

/// Waits for what only looking can tell.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let look = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, look).await;
}

/// Waits until the keeper says so of a hold.
pub(crate) async fn until_standing(guard: &Guard, what: &str, is: impl FnMut(&Standing) -> bool) {
    within(what, guard.standing().wait_for(is)).await.unwrap();
}

/// Questions past the engine.
pub(crate) trait Ask {
    /// One command, its words separated by spaces.
    fn ask<T: FromRedisValue>(&self, command: &str) -> T;
    /// The value at a key.
    fn value(&self, key: &str) -> Option<String>;
    /// All keys.
    fn keys(&self) -> Vec<String>;
    /// How often scripts were called by clients.
    fn scripts_run(&self) -> u64;
}

impl<S: Redislike> Ask for Server<S> {
    #[track_caller]
    fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        self.query(command.split(' '))
    }

    #[track_caller]
    fn value(&self, key: &str) -> Option<String> {
        self.query(["GET", key])
    }

    #[track_caller]
    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.query(["KEYS", "*"]);
        keys.sort();
        keys
    }

    #[track_caller]
    fn scripts_run(&self) -> u64 {
        let stats = self.commandstats();
        stats.get("evalsha").copied().unwrap_or(0) + stats.get("eval").copied().unwrap_or(0)
    }
}

/// Lets a foreign client have the lock.
#[track_caller]
pub(crate) fn take_foreign(server: &Server<Redis>, name: &str, millis: u64) {
    let key = format!("lock:{name}");
    let px = millis.to_string();
    let set: Option<String> = server.query(["SET", &key, "foreign", "NX", "PX", &px]);
    assert!(set.is_some(), "{key} is taken");
}

/// Looking would take half a second. A key that expires is found by Redis within a tenth, and is pushed then.
#[track_caller]
pub(crate) fn expect_pushed(rounds: &[Duration]) {
    let quick = rounds.iter().filter(|took| **took < Duration::from_millis(250)).count();
    assert!(quick > rounds.len() / 2, "{rounds:?}");
    // One may have met a machine that stood still.
    assert!(rounds.iter().filter(|took| **took > Duration::from_secs(1)).count() <= 1, "{rounds:?}");
}
