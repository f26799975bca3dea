//! Contenders that go on whatever happens, judged at the resource: a log of visits, and a value behind a fence.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kilit_core::{Client, FenceError, FencingToken, Refused};
use kilit_testbed::{
    TempDir,
    fence_sqlite::Stock,
    overlap::{Event, Judge, Visitor},
    tempdir,
};
use tokio::task::JoinHandle;

use crate::support::{SOON, eventually, mutex, within};

/// Several clients that take turns until they are told to stop.
pub(crate) struct Contest {
    dir: TempDir,
    stop: Arc<AtomicBool>,
    visits: Vec<Arc<AtomicU64>>,
    contenders: Vec<JoinHandle<Tally>>,
}

/// What one contender, or all, saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// How often somebody was inside.
    pub(crate) visits: u64,
    /// Writes that the fence refused as stale.
    pub(crate) refused: u64,
    /// Holds that were lost, and noticed.
    pub(crate) lost: u64,
    /// How often there were two inside, as the log has it, or a token was not above the one before.
    pub(crate) overlaps: usize,
}

impl Contest {
    pub(crate) fn start(
        clients: impl IntoIterator<Item = Client>,
        name: &'static str,
        ttl: Duration,
    ) -> Self {
        let (dir, stop) = (tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
        Stock::open(&dir.path().join("stock")).unwrap();
        let (mut visits, mut contenders) = (Vec::new(), Vec::new());
        for client in clients {
            let count = Arc::<AtomicU64>::default();
            let contender = Contender {
                id: format!("contender-{}", visits.len()),
                dir: dir.path().to_owned(),
                client,
                stop: stop.clone(),
                visits: count.clone(),
            };
            visits.push(count);
            contenders.push(tokio::spawn(contender.run(name, ttl)));
        }
        Self { dir, stop, visits, contenders }
    }

    /// Waits until each has had `more` turns from now on.
    pub(crate) async fn go_on(&self, more: u64) {
        let counts = || self.visits.iter().map(|visits| visits.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let begun = counts();
        eventually("everybody has a few more turns", async || {
            assert!(self.contenders.iter().all(|contender| !contender.is_finished()), "one has given up");
            counts().iter().zip(&begun).all(|(now, begun)| now - begun >= more)
        })
        .await;
    }

    /// The log that others may write to as well.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Ends it, and adds up.
    pub(crate) async fn end(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for contender in self.contenders {
            let one = within("the last turns", contender).await.unwrap();
            all.visits += one.visits;
            all.refused += one.refused;
            all.lost += one.lost;
        }
        let judge = Judge::read(&self.dir.path().join("log")).without_tokens();
        all.overlaps = judge.verdict().err().map_or(0, |faults| faults.len());
        println!("{all:?}");
        all
    }
}

struct Contender {
    id: String,
    dir: PathBuf,
    client: Client,
    stop: Arc<AtomicBool>,
    visits: Arc<AtomicU64>,
}

impl Contender {
    async fn run(self, name: &'static str, ttl: Duration) -> Tally {
        let mut tally = Tally::default();
        let mut stock = Stock::open(&self.dir.join("stock")).unwrap();
        let mutex = mutex(&self.client, name, ttl);
        while !self.stop.load(Ordering::Relaxed) {
            let guard = match mutex.acquire_within(SOON).await {
                Ok(guard) => guard,
                Err(error) => panic!("{} gives up: {error:?}", self.id),
            };
            let token = guard.token().unwrap().clone();
            let visitor = Visitor::new(&self.dir.join("log"), &self.id, Some(token.clone())).unwrap();
            visitor.write(Event::Enter).unwrap();
            tally.refused += u64::from(!write(&mut stock, &self.id, &token));
            tokio::time::sleep(Duration::from_millis(1)).await;
            visitor.write(Event::Exit).unwrap();
            tally.visits += 1;
            self.visits.fetch_add(1, Ordering::Relaxed);
            tally.lost += u64::from(guard.release().await.is_err());
        }
        tally
    }
}

/// Whether the fence has let it.
fn write(stock: &mut Stock, value: &str, token: &FencingToken) -> bool {
    match stock.write(b"x", value, token) {
        Ok(()) => true,
        Err(FenceError::Refused(Refused::Stale { .. })) => false,
        Err(error) => panic!("{error}"),
    }
}
