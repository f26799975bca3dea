//! Cancelling is safe: a future that is dropped at any point leaves nothing behind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use kilit_core::{Answer, Claim, Client, ErrorKind, Released, Share};
use tokio::task::JoinSet;

use super::support::{claim, grip, polled, status};
use crate::{Harm, Party, Resource, Subject};

/// No acquisition has more await points than this.
const POINTS: usize = 64;

/// A free lock, a busy lock that is released while the claim waits, and a wait that runs out: dropped after every
/// number of polls, until it ends by itself.
pub async fn acquire_at_every_await_point(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let (free, busy) = (subject.mutex(&a, "free"), subject.mutex(&a, "busy"));
    let mut ended = [false; 3];
    for polls in 0..POINTS {
        ended[0] = polled(free.try_acquire(), polls).await.is_some();
        subject.expect_nothing_left("free").await;

        let holder = subject.mutex(&b, "busy").acquire().await.expect("it is free");
        // Timed out at about the same moment as it is dropped.
        ended[1] = subject
            .within("a wait ends", polled(busy.acquire_within(Duration::from_millis(2)), polls))
            .await
            .inspect(|result| assert_eq!(result.as_ref().expect_err("b holds it").kind(), ErrorKind::TimedOut))
            .is_some();
        holder.check().expect("it is held");
        let passed_on = async { tokio::join!(polled(busy.acquire(), polls), holder.release()) };
        let (waiter, released) = subject.within("the lock passes on", passed_on).await;
        released.expect("it was held");
        ended[2] = waiter.is_some();
        drop(waiter);
        subject.expect_nothing_left("busy").await;
        if ended == [true; 3] {
            return;
        }
    }
    panic!("an acquisition has not ended after {POINTS} polls: {ended:?}");
}

/// A release goes on in the background.
pub async fn release_at_every_await_point(subject: &Subject) {
    let party = subject.party().await;
    for polls in 0..POINTS {
        let guard = subject.mutex(&party, "freed").acquire().await.expect("it is free");
        let ended = polled(guard.release(), polls).await;
        subject.expect_nothing_left("freed").await;
        if ended.is_some() {
            return;
        }
    }
    panic!("a release has not ended after {POINTS} polls");
}

/// Work under a lock that is dropped midway; a shutdown that nobody waits for.
pub async fn run_and_shutdown_at_every_await_point(subject: &Subject) {
    let mut ended = [false; 2];
    for polls in 0..POINTS {
        let party = subject.party().await;
        let guard = subject.mutex(&party, "run").acquire().await.expect("it is free");
        ended[0] = polled(guard.run(tokio::task::yield_now()), polls).await.is_some();
        subject.expect_nothing_left("run").await;
        let guard = subject.mutex(&party, "run").acquire().await.expect("it is free");
        ended[1] = polled(party.shutdown(), polls).await.is_some();
        drop(guard);
        subject.expect_nothing_left("run").await;
        if ended == [true; 2] {
            return;
        }
    }
    panic!("not ended after {POINTS} polls: {ended:?}");
}

/// Under contention, seeded.
pub async fn thousands_of_random_drops(subject: &Subject) {
    let parties = [subject.party().await, subject.party().await];
    let dropped = storm(subject, &parties, 900, seed()).await;
    println!("{dropped} claims were dropped");
    assert!(dropped > 1500, "{dropped}");
}

/// The same while links break and heal: nobody is told "no" and holds all the same.
pub async fn random_drops_under_faults(subject: &Subject) {
    let parties = [subject.party().await, subject.party().await, subject.party().await];
    let seed = seed();
    let storm = storm(subject, &parties, 120, seed);
    let nemesis = async {
        let mut random = Rng::with_seed(seed);
        loop {
            let party = random.choice(&parties).expect("there are some");
            let harms = [Harm::Cut, Harm::LoseAnswers, Harm::Slow(Duration::from_millis(3))];
            party.link(random.choice(harms).expect("there are some"));
            tokio::time::sleep(Duration::from_millis(random.u64(1..20))).await;
            party.link(Harm::None);
            tokio::time::sleep(Duration::from_millis(random.u64(1..20))).await;
        }
    };
    tokio::select! {
        dropped = storm => assert!(dropped > 100, "{dropped}"),
        () = nemesis => unreachable!(),
    }
}

/// Tasks that acquire and lose patience at random points; how many were dropped.
async fn storm(subject: &Subject, parties: &[Party], rounds: usize, seed: u64) -> usize {
    let (dropped, visits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let resource = Arc::new(Resource::default());
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let mutex = subject.mutex(&parties[task % parties.len()], "storm");
        let (dropped, visits, resource) = (dropped.clone(), visits.clone(), resource.clone());
        let mut random = Rng::with_seed(seed.wrapping_add(1 + task as u64));
        tasks.spawn(async move {
            for _ in 0..rounds {
                let acquire = mutex.acquire_within(Duration::from_secs(10));
                let lose_patience = async {
                    match random.u8(0..10) {
                        0 => std::future::pending().await,
                        1..5 => tokio::time::sleep(Duration::from_micros(random.u64(0..4000))).await,
                        _ => {
                            for _ in 0..random.u8(0..8) {
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                };
                let guard = tokio::select! {
                    guard = acquire => guard,
                    () = lose_patience => {
                        dropped.fetch_add(1, SeqCst);
                        continue;
                    }
                };
                // Faults may have ended the wait.
                let Ok(guard) = guard else { continue };
                resource.visit(guard.token()).await;
                visits.fetch_add(1, SeqCst);
                match random.u8(0..3) {
                    0 => drop(guard),
                    1 => drop(polled(guard.release(), random.usize(0..4)).await),
                    _ => drop(guard.release().await),
                }
            }
        });
    }
    subject.within("the storm passes", tasks.join_all()).await;
    let visits = visits.load(SeqCst);
    assert!(visits > 0, "nobody had the patience to hold the lock");
    resource.expect_exclusive(visits as u64);
    subject.expect_nothing_left("storm").await;
    dropped.load(SeqCst)
}

/// What random choices grow from: `KILIT_SEED` is printed, and read where it is set.
fn seed() -> u64 {
    let seed = std::env::var("KILIT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("KILIT_SEED={seed}");
    seed
}

/// A process counts its own descriptors and threads before and after hundreds of drops and of failed tries.
pub async fn leaks_neither_descriptors_nor_threads(subject: &Subject) {
    let mut agent = subject.agent("sweep", "swept").spawn();
    agent.said("swept");
    agent.end_well();
    if subject.assurance().await.exclusion > kilit_core::Exclusion::Process {
        subject.expect_nothing_left("swept").await;
    }
}

/// A claim that reaches the engine after its own withdrawal gets nothing.
pub async fn a_late_claim_is_barred(subject: &Subject) {
    let party = subject.party().await;
    let late = claim("late", Share::EXCLUSIVE);
    let withdrawn = party.engine().release(&late).await.expect("the engine is well");
    assert_eq!(withdrawn, Released::WasNotHeld);
    let is_granted = async |claim: &Claim| {
        matches!(party.engine().claim(claim, Duration::ZERO).await, Ok(Answer::Granted(_)))
    };
    assert!(!is_granted(&late).await, "it was withdrawn before");
    subject.expect_nothing_left("late").await;

    // The same for one that waited. One that was held was answered: nothing of it can be late.
    let (held, waits) = (claim("late", Share::EXCLUSIVE), claim("late", Share::EXCLUSIVE));
    assert!(grip(&party, &held).await);
    assert!(!grip(&party, &waits).await);
    for claim in [&waits, &held] {
        party.engine().release(claim).await.expect("the engine is well");
    }
    assert!(!is_granted(&waits).await, "it was withdrawn before");
    subject.expect_nothing_left("late").await;
}

/// The link is cut while claims travel, their callers give up, and the claims arrive when it heals.
pub async fn a_claim_that_travels_is_barred(subject: &Subject) {
    let party = subject.party().await;
    let mutex = subject.mutex(&party, "travels");
    // The connection stands.
    mutex.try_acquire().await.expect("it is free").release().await.expect("it was held");
    for _ in 0..5 {
        party.link(Harm::Cut);
        let gave_up = tokio::time::timeout(Duration::from_millis(30), mutex.acquire()).await;
        assert!(gave_up.is_err(), "nothing passes");
        party.link(Harm::None);
        subject.expect_nothing_left("travels").await;
    }
}

/// Neither by its end nor by being dropped.
pub async fn a_waiter_that_gives_up_touches_no_one(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let holder = subject.mutex(&a, "kept").acquire().await.expect("it is free");
    let waiters: [&Client; 2] = [&a, &b];
    for client in waiters {
        let mutex = subject.mutex(client, "kept");
        let error = mutex.acquire_within(Duration::from_millis(20)).await.expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(tokio::time::timeout(Duration::from_millis(20), mutex.acquire()).await.is_err());
    }
    holder.check().expect("nobody touched it");
    let mut all = JoinSet::new();
    for _ in 0..20 {
        let mutex = subject.mutex(&b, "kept");
        all.spawn(async move { mutex.try_acquire().await.expect_err("it is held").kind() });
    }
    assert!(all.join_all().await.iter().all(|kind| *kind == ErrorKind::Busy));
    let status = status(&b, "kept").await;
    assert_eq!(status.holders.len(), 1, "{status:?}");
    holder.release().await.expect("it was held");
    subject.expect_nothing_left("kept").await;
}
