//! Waiters are woken, served, and served in order where that is promised.

use std::{sync::Arc, time::Duration};

use kilit_core::{Claim, Share};
use tokio::task::JoinSet;

use super::support::{claim, grip};
use crate::{Harm, Subject, lock};

/// Many waiters at once, each with a limit: whoever loses a race waits on.
pub async fn everyone_is_served(subject: &Subject) {
    let mut waiters = JoinSet::new();
    for _ in 0..4 {
        let party = subject.party().await;
        for _ in 0..5 {
            let (mutex, patience) = (subject.mutex(&party, "served"), subject.patience);
            waiters.spawn(async move {
                let guard = mutex.acquire_within(patience).await.expect("everyone is served");
                tokio::time::sleep(Duration::from_millis(5)).await;
                guard.release().await.expect("it was held");
            });
        }
    }
    subject.within("everyone is served", waiters.join_all()).await;
    subject.expect_nothing_left("served").await;
}

/// Processes that want the lock once each.
pub async fn everyone_is_served_between_processes(subject: &Subject) {
    let party = subject.party().await;
    let guard = subject.mutex(&party, "served").acquire().await.expect("it is free");
    let mut agents: Vec<_> = (0..6).map(|_| subject.agent("hold", "served").spawn()).collect();
    agents.iter_mut().for_each(|agent| drop(agent.said("claims")));
    guard.release().await.expect("it was held");
    // Each holds until it is asked to end, and they are served in any order.
    while !agents.is_empty() {
        let mut served = None;
        subject
            .eventually("the lock passes on", async || {
                served = agents.iter().position(|agent| agent.stdout().contains("held"));
                served.is_some()
            })
            .await;
        agents.remove(served.expect("one is served")).end_well();
    }
    subject.expect_nothing_left("served").await;
}

/// Releases that race the moment at which a waiter begins to listen.
pub async fn no_wake_up_is_lost(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let (mine, theirs) = (subject.mutex(&a, "woken"), subject.mutex(&b, "woken"));
    for round in 0..150_u32 {
        let guard = mine.acquire().await.expect("it is free");
        let release = async {
            for _ in 0..round % 12 {
                tokio::task::yield_now().await;
            }
            guard.release().await
        };
        let both = async { tokio::join!(theirs.acquire(), release) };
        let (guard, released) = subject.within("the waiter is woken", both).await;
        released.expect("it was held");
        guard.expect("the lock passes on").release().await.expect("it was held");
    }
}

/// The holder has not released it, and nobody tells.
pub async fn an_ended_hold_wakes_a_waiter(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let guard = subject.mutex(&a, "woken").acquire().await.expect("it is free");
    let mutex = subject.mutex(&b, "woken");
    let waiter = tokio::spawn(async move { mutex.acquire().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    (subject.break_hold.as_ref().expect("the case asks for it"))(lock("woken")).await;
    let next = subject.within("the waiter is woken", waiter).await.expect("it is well").expect("it is free");
    drop(guard);
    next.check().expect("the old holder's drop touched nothing");
    next.release().await.expect("it was held");
}

/// The lease of a silent holder ends while somebody waits.
pub async fn an_expired_hold_wakes_a_waiter(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mutex = a.mutex(lock("woken")).with(subject.short()).expect("in range");
    let guard = mutex.acquire().await.expect("it is free");
    a.link(Harm::Cut);
    let mutex = subject.mutex(&b, "woken");
    let next = subject.within("the waiter is woken", mutex.acquire()).await.expect("it is free");
    guard.check().expect_err("another has it");
    next.release().await.expect("it was held");
}

/// Whoever joined first is served first, whatever client it is of.
pub async fn is_first_come_first_served(subject: &Subject) {
    let parties = [subject.party().await, subject.party().await];
    let line = join(subject, 5).await;
    for (turn, claim) in line.iter().enumerate() {
        for (later, other) in line.iter().enumerate().skip(turn) {
            let holds = grip(&parties[later % 2], other).await;
            assert_eq!(holds, later == turn, "number {later} at turn {turn}");
        }
        parties[0].engine().release(claim).await.expect("the engine is well");
    }
    subject.expect_nothing_left("line").await;
}

/// One in the middle leaves: the one behind still waits for those in front.
pub async fn goes_past_a_waiter_that_left(subject: &Subject) {
    let party = subject.party().await;
    let line = join(subject, 4).await;
    let [holder, first, middle, last] = &line[..] else { panic!("there are four") };
    party.engine().release(middle).await.expect("the engine is well");
    assert!(!grip(&party, last).await, "two are in front");
    assert!(!grip(&party, first).await, "one is in front");
    party.engine().release(holder).await.expect("the engine is well");
    assert!(!grip(&party, last).await, "one is in front");
    assert!(grip(&party, first).await, "it is its turn");
    party.engine().release(first).await.expect("the engine is well");
    assert!(grip(&party, last).await, "it is its turn");
    party.engine().release(last).await.expect("the engine is well");
    subject.expect_nothing_left("line").await;
}

/// A claim whose patience ended is served before those who came later.
pub async fn keeps_its_place(subject: &Subject) {
    let party = subject.party().await;
    let line = join(subject, 2).await;
    let [holder, waits] = &line[..] else { panic!("there are two") };
    party.engine().release(holder).await.expect("the engine is well");
    let newcomer = subject.mutex(&party, "line").try_acquire().await;
    newcomer.expect_err("it does not pass a line");
    assert!(grip(&party, waits).await, "it is its turn");
    party.engine().release(waits).await.expect("the engine is well");
    subject.expect_nothing_left("line").await;
}

/// Claims that stand in line, the first as its holder.
async fn join(subject: &Subject, length: usize) -> Vec<Arc<Claim>> {
    let party = subject.party().await;
    let line: Vec<_> = (0..length).map(|_| claim("line", Share::EXCLUSIVE)).collect();
    for (place, claim) in line.iter().enumerate() {
        assert_eq!(grip(&party, claim).await, place == 0, "number {place}");
    }
    line
}
