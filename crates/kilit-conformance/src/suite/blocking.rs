//! The face for programs without a runtime.

use std::{thread, time::Duration};

use kilit_core::{ErrorKind, Evicted, LossReason, OwnerId, Target, Terms, blocking};

use crate::Subject;

/// Each call as its async twin.
pub async fn has_the_same_answers(subject: &Subject) {
    let client = blocking::Client::from(subject.party().await.client);
    let terms = subject.terms();
    let checks = thread::spawn(move || {
        let mutex = client.mutex("blocking".parse().expect("a name")).with(terms).expect("in range");
        let guard = mutex.try_acquire().expect("it is free");
        assert_eq!(mutex.try_acquire().expect_err("it is held").kind(), ErrorKind::Busy);
        let late = mutex.acquire_within(Duration::from_millis(10));
        assert_eq!(late.expect_err("it is held").kind(), ErrorKind::TimedOut);
        guard.check().expect("it is held");
        assert_eq!(guard.token().is_some(), client.assurance().token > kilit_core::TokenStrength::None);
        look_around(&client, &guard);
        guard.release().expect("it was held");
        if client.assurance().modes.shared {
            share(&client, &mutex);
        }
        drop(mutex.acquire_within(Duration::from_secs(10)).expect("it is free"));
        let guard = mutex.acquire().expect("a drop frees it");
        client.shutdown().expect("every release was answered");
        assert_eq!(guard.check().expect_err("it is over").reason, LossReason::Shutdown);
        assert_eq!(mutex.try_acquire().expect_err("closed").kind(), ErrorKind::Closed);
    });
    checks.join().expect("the thread is well");
    subject.expect_nothing_left("blocking").await;
}

/// What an operator asks, while `guard` holds.
fn look_around(client: &blocking::Client, guard: &blocking::Guard) {
    let status = client.inspect(Some(guard.name())).expect("the engine is well").remove(0);
    assert_eq!(status.holders[0].owner, Some(guard.owner().to_string()));
    let nobody = Target::Owner(OwnerId::random().to_string());
    assert_eq!(client.evict(guard.name(), nobody, false).expect("the engine is well"), Evicted::NoSuchHold);
    client.diagnose().expect("the engine is well");
    guard.check().expect("looking ends nothing");
}

fn share(client: &blocking::Client, mutex: &blocking::Mutex) {
    let shared = client.shared("blocking".parse().expect("a name")).with(Terms::default()).expect("in range");
    let guards = [
        shared.try_acquire().expect("it is free"),
        shared.acquire_within(Duration::from_secs(10)).expect("it can be shared"),
        shared.acquire().expect("it can be shared"),
    ];
    assert_eq!(mutex.try_acquire().expect_err("it is shared").kind(), ErrorKind::Busy);
    for guard in guards {
        guard.check().expect("it is held");
        guard.release().expect("it was held");
    }
}

/// It blocks its thread there, and the lock passes between both faces.
pub async fn works_within_a_runtime(subject: &Subject) {
    let party = subject.party().await;
    let client = blocking::Client::from(party.client.clone());
    let mutex = client.mutex("blocking".parse().expect("a name")).with(subject.terms()).expect("in range");
    let guard = subject.mutex(&party, "blocking").acquire().await.expect("it is free");
    assert_eq!(mutex.try_acquire().expect_err("it is held").kind(), ErrorKind::Busy);
    guard.release().await.expect("it was held");
    let guard = mutex.acquire().expect("it is free");
    let waiter = tokio::spawn({
        let mutex = subject.mutex(&party, "blocking");
        async move { mutex.acquire().await }
    });
    guard.release().expect("it was held");
    drop(subject.within("the waiter is served", waiter).await.expect("it is well").expect("it is free"));
    subject.expect_nothing_left("blocking").await;
}
