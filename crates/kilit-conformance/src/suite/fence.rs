//! The fence: what neither engine nor guard can do, the resource does.

use kilit_core::{FencingToken, MemoryFence, Refused};
use kilit_testbed::tempdir;

use crate::{Subject, lock};

/// A holder that lost its lock without having learnt it writes late: its write is refused, and the newer holder's
/// writes are admitted before and after.
pub async fn refuses_the_holder_that_did_not_learn(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let (fence, mut stock) = (MemoryFence::new(), vec![]);
    let mut write = |token: Option<&FencingToken>, who| {
        fence.write(b"stock", token.expect("the engine has tokens"), || stock.push(who))
    };
    let mutex = a.mutex(lock("fenced")).with(subject.short()).expect("in range");
    let old = mutex.acquire().await.expect("it is free");
    write(old.token(), "old").expect("it holds the lock");
    subject.take_away(&a, &old).await;
    let new = subject.mutex(&b, "fenced");
    let new = subject.within("the lock passes on", new.acquire()).await.expect("it passes on");
    write(new.token(), "new").expect("it holds the lock");
    let late = write(old.token(), "late").expect_err("it lost the lock");
    assert!(matches!(late, Refused::Stale { .. }), "{late}");
    write(new.token(), "new").expect("it holds the lock");
    assert_eq!(stock, ["old", "new", "new"]);
    new.release().await.expect("it was held");
}

/// A process stands still for longer than its TTL and then writes: it knows before it does anything else, and the
/// resource, a row of a database that is shared between processes, refuses it.
pub async fn refuses_a_stopped_process(subject: &Subject) {
    let dir = tempdir().expect("a temporary directory");
    let store = dir.path().join("store");
    let start = |ttl| subject.agent("hold", "fenced").ttl(ttl).arg("--store").arg(&store).spawn();
    let mut old = start(subject.short_ttl);
    old.said("held");
    old.ask("write");
    assert_eq!(old.said("wrote"), "admitted");
    old.stop();
    let mut new = start(subject.terms().ttl);
    new.said("held");
    new.ask("write");
    assert_eq!(new.said("wrote"), "admitted");
    old.resume();
    old.ask("check");
    assert_eq!(old.said("checked"), "lost");
    old.ask("overwrite");
    assert_eq!(old.said("overwrote"), "stale");
    new.ask("overwrite");
    assert_eq!(new.said("overwrote"), "admitted");
    // Its late release touches nothing.
    old.end_with(1, "lost");
    new.ask("check");
    assert_eq!(new.said("checked"), "held");
    new.end_well();
}

/// Newer is always admitted, whatever way the lock passed on: a fence must not refuse who holds.
pub async fn never_refuses_the_rightful(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let fence = MemoryFence::new();
    for round in 0..10 {
        let party = if round % 3 == 0 { &b } else { &a };
        let guard = subject.mutex(party, "fenced").acquire().await.expect("it is free");
        for _ in 0..2 {
            let token = guard.token().expect("the engine has tokens");
            fence.write(b"stock", token, || ()).expect("it holds the lock");
        }
        guard.release().await.expect("it was held");
    }
}
