//! Shared holds and permits, where there are any; refused where there are none.

use std::{sync::Arc, time::Duration};

use kilit_core::{ErrorKind, Mode, Need, Purpose, Share, Shared, Terms};
use tokio::task::JoinSet;

use super::support::{claim, grip, status};
use crate::{Party, Resource, Subject, lock};

fn shared(subject: &Subject, party: &Party, name: &str) -> Shared {
    party.shared(lock(name)).with(subject.terms()).expect("in range")
}

/// Of one client and of several.
pub async fn holds_are_beside_each_other(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mut guards = Vec::new();
    for party in [&a, &a, &b] {
        guards.push(shared(subject, party, "read").try_acquire().await.expect("others only share"));
    }
    let status = status(&b, "read").await;
    assert_eq!((status.mode, status.holders.len()), (Some(Mode::Shared), 3), "{status:?}");
    guards.iter().for_each(|guard| guard.check().expect("it is held"));
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    subject.expect_nothing_left("read").await;
}

/// Both ways; and the last reader that leaves lets a writer in.
pub async fn excludes_exclusive(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let writer = subject.mutex(&a, "read");
    let guard = writer.try_acquire().await.expect("it is free");
    for party in [&a, &b] {
        let error = shared(subject, party, "read").try_acquire().await.expect_err("a writer is in");
        assert_eq!(error.kind(), ErrorKind::Busy);
    }
    guard.release().await.expect("it was held");
    let one = shared(subject, &a, "read").try_acquire().await.expect("it is free");
    let two = shared(subject, &b, "read").try_acquire().await.expect("it is free");
    assert_eq!(writer.try_acquire().await.expect_err("readers are in").kind(), ErrorKind::Busy);
    one.release().await.expect("it was held");
    assert_eq!(writer.try_acquire().await.expect_err("a reader is in").kind(), ErrorKind::Busy);
    two.release().await.expect("it was held");
    writer.try_acquire().await.expect("all have left").release().await.expect("it was held");
}

/// Judged at the resource.
pub async fn readers_and_writers_under_contention(subject: &Subject) {
    let resource = Arc::new(Resource::default());
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let party = subject.party().await;
        let (writer, reader) = (subject.mutex(&party, "read"), shared(subject, &party, "read"));
        let resource = resource.clone();
        tasks.spawn(async move {
            for _ in 0..12 {
                if task % 3 == 0 {
                    let guard = writer.acquire().await.expect("everyone is served");
                    resource.visit(guard.token()).await;
                    guard.release().await.expect("it was held");
                } else {
                    let guard = reader.acquire().await.expect("everyone is served");
                    resource.look().await;
                    guard.release().await.expect("it was held");
                }
            }
        });
    }
    subject.within("everyone was served", tasks.join_all()).await;
    resource.expect_exclusive(24);
    subject.expect_nothing_left("read").await;
}

/// A reader that comes after a writer waits behind it.
pub async fn a_writer_is_not_starved(subject: &Subject) {
    let party = subject.party().await;
    let engine = party.engine();
    let [reader, late] = [(); 2].map(|()| claim("read", Share::SHARED));
    let writer = claim("read", Share::EXCLUSIVE);
    assert!(grip(&party, &reader).await);
    assert!(!grip(&party, &writer).await, "a reader is in");
    assert!(!grip(&party, &late).await, "a writer is in front");
    engine.release(&reader).await.expect("the engine is well");
    assert!(grip(&party, &writer).await, "it was first");
    assert!(!grip(&party, &late).await, "a writer is in");
    engine.release(&writer).await.expect("the engine is well");
    assert!(grip(&party, &late).await, "it is its turn");
    engine.release(&late).await.expect("the engine is well");
    subject.expect_nothing_left("read").await;
}

/// A fence that compares the highest token would refuse the older of two rightful readers.
pub async fn has_no_token_and_no_correctness(subject: &Subject) {
    let party = subject.party().await;
    let terms = Terms { purpose: Purpose::Correctness, ..subject.terms() };
    let error = party.shared(lock("read")).with(terms).expect_err("it has no token");
    assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "{error}");
    let guard = shared(subject, &party, "read").try_acquire().await.expect("it is free");
    let status = status(&party, "read").await;
    assert!(status.holders.iter().all(|holder| holder.token.is_none()), "{status:?}");
    guard.release().await.expect("it was held");
}

/// Before anything is sent.
pub async fn is_refused(subject: &Subject) {
    let party = subject.party().await;
    let error = party.shared(lock("read")).with(subject.terms()).expect_err("it has no shared holds");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = party.shared(lock("read")).try_acquire().await.expect_err("it has no shared holds");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let need = party.require(Need::nothing().mode(Mode::Shared)).expect_err("it has no shared holds");
    assert!(need.to_string().contains("shared holds"), "{need}");
    subject.expect_nothing_left("read").await;
}

/// As many as there are, of one capacity, and never beside a lock of the same name.
pub async fn permits_are_counted(subject: &Subject) {
    let party = subject.party().await;
    let permit = |units| claim("permits", Share::permits(units, 3).expect("in range"));
    let (two, one, more) = (permit(2), permit(1), permit(1));
    assert!(grip(&party, &two).await && grip(&party, &one).await, "three are free");
    assert!(!grip(&party, &more).await, "none is left");
    for share in [Share::EXCLUSIVE, Share::SHARED, Share::permits(1, 4).expect("in range")] {
        let mixed = claim("permits", share);
        let error = party.engine().claim(&mixed, Duration::ZERO).await.expect_err("it is a semaphore of three");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    party.engine().release(&one).await.expect("the engine is well");
    assert!(grip(&party, &more).await, "one was given back");
    for claim in [&two, &more] {
        party.engine().release(claim).await.expect("the engine is well");
    }
    subject.expect_nothing_left("permits").await;
}

/// At start-up, by name.
pub async fn permits_are_refused(subject: &Subject) {
    let party = subject.party().await;
    let error = party.require(Need::nothing().mode(Mode::Permit)).expect_err("it has no permits");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("permits are needed"), "{error}");
}
