//! Waiters are woken, served, and served in order where that is promised.

use std::{sync::Arc, time::Duration};

use kilit_core::{Claim, Guard, Share};
use tokio::task::JoinSet;

use super::support::{claim, grip, status};
use crate::{Agent, Harm, Subject, lock};

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
    processes_in_line(subject, 6).await.expect_served(subject).await;
    subject.expect_nothing_left("line").await;
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

/// `kill -9` of one in the middle: those behind it are served all the same, within the bound for what vanishes.
pub async fn goes_past_a_killed_waiter(subject: &Subject) {
    let mut line = processes_in_line(subject, 3).await;
    line.waiters[1].kill();
    line.waiters.remove(1);
    line.expect_served(subject).await;
}

/// One that stands still when its turn comes holds up nobody for longer than that, and is served when it goes on.
pub async fn goes_past_a_stopped_waiter(subject: &Subject) {
    let mut line = processes_in_line(subject, 3).await;
    line.waiters[0].stop();
    let mut stopped = line.waiters.remove(0);
    line.expect_served(subject).await;
    stopped.resume();
    stopped.said("held");
    stopped.end_well();
    subject.expect_nothing_left("line").await;
}

/// A holder of this process, and processes that joined one after the other.
struct ProcessesInLine {
    holder: Guard,
    waiters: Vec<Agent>,
}

async fn processes_in_line(subject: &Subject, count: usize) -> ProcessesInLine {
    let party = subject.party().await;
    let holder = subject.mutex(&party, "line").acquire().await.expect("it is free");
    let mut waiters = Vec::new();
    for number in 1..=count {
        let mut waiter = subject.agent("hold", "line").ttl(Duration::from_secs(1)).spawn();
        waiter.said("claims");
        waiters.push(waiter);
        subject
            .eventually("it stands in line", async || {
                status(&party, "line").await.queue.is_none_or(|queue| queue.len() == number)
            })
            .await;
    }
    ProcessesInLine { holder, waiters }
}

impl ProcessesInLine {
    async fn expect_served(self, subject: &Subject) {
        self.holder.release().await.expect("it was held");
        // In any order, where none is promised; each holds until it is asked to end.
        let mut waiters = self.waiters;
        while !waiters.is_empty() {
            let mut served = None;
            subject
                .eventually("the lock passes on", async || {
                    served = waiters.iter().position(|waiter| waiter.stdout().contains("held"));
                    served.is_some()
                })
                .await;
            waiters.remove(served.expect("one is served")).end_well();
        }
    }
}

/// A wait has an end also when the engine falls silent: soon after it, and not as if another held the lock.
pub async fn gives_up_in_time_when_nobody_answers(subject: &Subject) {
    const WAIT: Duration = Duration::from_millis(300);
    let party = subject.party().await;
    let mutex = subject.mutex(&party, "silent");
    // The connection stands.
    mutex.acquire().await.expect("it is free").release().await.expect("it was held");
    party.link(Harm::Cut);
    let begun = party.clock().now();
    let error = subject.within("the wait ends", mutex.acquire_within(WAIT)).await.expect_err("nobody answers");
    let took = party.clock().now().since(begun);
    assert!(!error.is_held_by_another(), "nobody said so: {error}");
    assert!(took < WAIT + Duration::from_millis(1500), "a wait of {WAIT:?} took {took:?}: {error}");
    party.link(Harm::None);
    subject.expect_nothing_left("silent").await;
}

/// The holder has not released it, and nobody tells.
pub async fn an_ended_hold_wakes_a_waiter(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let guard = subject.mutex(&a, "woken").acquire().await.expect("it is free");
    let mutex = subject.mutex(&b, "woken");
    let waiter = tokio::spawn(async move { mutex.acquire().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    (subject.break_hold.as_ref().expect("the case asks for it"))(lock("woken")).await;
    let bound = a.assurance().wait_look.of(subject.terms().ttl);
    let next = subject.within_bound("the waiter is woken", bound, waiter).await;
    let next = next.expect("it is well").expect("it is free");
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
    let bound = subject.short_ttl + a.assurance().wait_look.of(subject.terms().ttl);
    let next = subject.within_bound("the waiter is woken", bound, mutex.acquire()).await.expect("it is free");
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
