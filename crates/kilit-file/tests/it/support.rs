//! An engine in a directory of its own, and claims on it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kilit_core::{
    Answer, Claim, Engine, EngineUrl, Error, LockName, LockStatus, Note, OwnerId, Released, Renewal, Result,
    Share,
};
use kilit_testbed::TempDir;

/// Longer than anything here takes; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// One try.
pub(crate) const NOW: Duration = Duration::ZERO;

/// A directory for one test.
#[derive(Debug)]
pub(crate) struct Dir(TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(kilit_testbed::tempdir().unwrap())
    }

    /// What does not exist yet.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("kilit")
    }

    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.path().join("locks").join(format!("{name}.lock"))
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}?check=100ms", self.path().display())
    }

    pub(crate) async fn engine(&self) -> Arc<dyn Engine> {
        open(&self.url()).await.unwrap()
    }

    /// How many waiters and shared holders have a file there.
    pub(crate) fn places(&self, name: &str) -> usize {
        std::fs::read_dir(self.path().join("lines").join(name)).map_or(0, Iterator::count)
    }

    /// How many blocks of tokens were drawn, as the counter says.
    pub(crate) fn blocks(&self) -> u64 {
        let bytes = std::fs::read(self.path().join("counter")).unwrap();
        let generation = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        generation(512).max(generation(1024)) - 1
    }
}

pub(crate) async fn open(url: &str) -> Result<Arc<dyn Engine>> {
    (kilit_file::ENGINES[0].open)(url.parse::<EngineUrl>()?).await
}

pub(crate) fn name(name: &str) -> LockName {
    name.parse().unwrap()
}

pub(crate) fn claim(lock: &str) -> Claim {
    Claim {
        name: name(lock),
        owner: OwnerId::random(),
        share: Share::EXCLUSIVE,
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        note: Note::of_this_process(),
        notice: Default::default(),
    }
}

pub(crate) fn shared(lock: &str) -> Claim {
    Claim { share: Share::SHARED, ..claim(lock) }
}

/// Claims; the token when it was granted (0 for a shared one), `None` when patience ended.
pub(crate) async fn take(engine: &dyn Engine, claim: &Claim, patience: Duration) -> Option<u64> {
    try_take(engine, claim, patience).await.unwrap()
}

pub(crate) async fn try_take(
    engine: &dyn Engine,
    claim: &Claim,
    patience: Duration,
) -> Result<Option<u64>, Error> {
    Ok(match engine.claim(claim, patience).await? {
        Answer::Granted(grant) => Some(grant.token.map_or(0, |token| token.value().get())),
        Answer::Waiting { .. } => None,
    })
}

pub(crate) async fn release(engine: &dyn Engine, claim: &Claim) -> Released {
    engine.release(claim).await.unwrap()
}

/// Takes it at once, and lets go.
pub(crate) async fn cycle(engine: &dyn Engine, lock: &str) -> u64 {
    let claim = claim(lock);
    let token = take(engine, &claim, NOW).await.expect("it is free");
    assert_eq!(release(engine, &claim).await, Released::Done);
    token
}

pub(crate) async fn renew(engine: &dyn Engine, claim: &Claim) -> Renewal {
    engine.renew(&[Arc::new(claim.clone())]).await.unwrap()[0]
}

pub(crate) async fn status(engine: &dyn Engine, lock: &str) -> LockStatus {
    engine.inspect(Some(&name(lock))).await.unwrap().pop().expect("one was asked for")
}

/// Waits until `count` stand in line.
pub(crate) async fn until_waiting(engine: &dyn Engine, lock: &str, count: usize) {
    until(&format!("{count} wait"), async || status(engine, lock).await.queue.unwrap().len() == count).await;
}

/// Looks again and again until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LONG, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
