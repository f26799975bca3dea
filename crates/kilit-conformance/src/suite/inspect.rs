//! What an operator sees and does.

use kilit_core::{ErrorKind, Evicted, Mode, Note, Target, Terms, TokenValue};

use super::support::status;
use crate::{Subject, lock};

/// Owner, token, note and mode, by the word of another client; then nothing.
pub async fn shows_the_holder(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let free = status(&b, "shown").await;
    assert!(!free.is_held() && free.mode.is_none() && free.name == lock("shown"), "{free:?}");
    let note = Note::new("nightly \"report\"; é").expect("a note");
    let terms = Terms { note: note.clone(), ..subject.terms() };
    let guard = a.mutex(lock("shown")).with(terms).expect("in range").acquire().await.expect("it is free");
    let held = status(&b, "shown").await;
    assert_eq!((held.mode, held.holders.len()), (Some(Mode::Exclusive), 1), "{held:?}");
    let holder = &held.holders[0];
    assert_eq!(holder.owner, Some(guard.owner().to_string()), "{held:?}");
    assert_eq!(holder.token.as_ref(), guard.token(), "{held:?}");
    assert_eq!(holder.note.as_deref(), Some(note.as_str()), "{held:?}");
    assert!(!holder.foreign, "{held:?}");
    if a.assurance().leases {
        assert!(holder.expires_in.is_some_and(|left| left <= guard.ttl()), "{held:?}");
    }
    guard.release().await.expect("it was held");
    let free = status(&b, "shown").await;
    assert!(!free.is_held() && free.mode.is_none(), "{free:?}");
}

/// Where the engine can say who waits.
pub async fn shows_waiters(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let guard = subject.mutex(&a, "shown").acquire().await.expect("it is free");
    if status(&b, "shown").await.queue.is_none() {
        return guard.release().await.expect("it was held");
    }
    let mutex = subject.mutex(&b, "shown");
    let waiter = tokio::spawn(async move { mutex.acquire().await });
    subject
        .eventually("the waiter is shown", async || {
            status(&a, "shown").await.queue.is_some_and(|queue| queue.len() == 1)
        })
        .await;
    guard.release().await.expect("it was held");
    let guard = subject.within("the waiter is served", waiter).await.expect("it is well").expect("it is served");
    let held = status(&a, "shown").await;
    assert!(held.is_held() && held.queue.is_some_and(|queue| queue.is_empty()));
    guard.release().await.expect("it was held");
}

/// Every lock that is held, sorted by name, and no other.
pub async fn lists_what_is_held(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let held = async || {
        let all = b.inspect(None).await.expect("the engine is well");
        let names = all.into_iter().filter(|status| status.is_held()).map(|status| status.name.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(held().await, [""; 0]);
    let mut guards = Vec::new();
    for name in ["c", "a", "b", "d"] {
        guards.push(subject.mutex(&a, name).acquire().await.expect("it is free"));
    }
    guards.pop().expect("there are four").release().await.expect("it was held");
    assert_eq!(held().await, ["a", "b", "c"]);
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    assert_eq!(held().await, [""; 0]);
}

/// Looking at a lock takes it from nobody: a try on a free one succeeds.
pub async fn disturbs_no_one(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mutex = subject.mutex(&a, "watched");
    let watch = tokio::spawn(async move {
        loop {
            b.inspect(None).await.expect("the engine is well");
            b.inspect(Some(&lock("watched"))).await.expect("the engine is well");
        }
    });
    for round in 0..200 {
        let guard = mutex.try_acquire().await;
        let guard = guard.unwrap_or_else(|error| panic!("only a look was in the way, in round {round}: {error}"));
        guard.release().await.expect("it was held");
    }
    watch.abort();
}

/// The hold is over, and the lock is free.
pub async fn evicts_by_token_and_by_owner(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    for by_token in [false, true] {
        let mutex = a.mutex(lock("evicted")).with(subject.short()).expect("in range");
        let guard = subject.within("it is free", mutex.acquire()).await.expect("it is free");
        let target = match guard.token() {
            Some(token) if by_token => Target::Token(token.value()),
            _ => Target::Owner(guard.owner().to_string()),
        };
        let evicted = subject.evict(&b, guard, target.clone()).await.expect("holds can be ended");
        assert_eq!(evicted, Evicted::Ended);
        subject.expect_nothing_left("evicted").await;
        let again = b.evict(&lock("evicted"), target, true).await.expect("the engine is well");
        assert_eq!(again, Evicted::NoSuchHold);
    }
}

/// Not another token's, not another owner's, not another lock's.
pub async fn evicts_no_other(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let guard = subject.mutex(&a, "evicted").acquire().await.expect("it is free");
    let other = subject.mutex(&a, "other").acquire().await.expect("it is free");
    let none = TokenValue::new(TokenValue::MAX).expect("in range");
    let targets = [Target::Token(none), Target::Owner("nobody".into()), Target::Owner(other.owner().to_string())];
    for target in targets {
        let evicted = b.evict(&lock("evicted"), target.clone(), true).await.expect("the engine is well");
        assert_eq!(evicted, Evicted::NoSuchHold, "{target:?}");
    }
    for guard in [guard, other] {
        guard.check().expect("it is held");
        guard.release().await.expect("it was held");
    }
}

/// And ends nothing.
pub async fn says_that_it_cannot_evict(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let guard = subject.mutex(&a, "evicted").acquire().await.expect("it is free");
    let target = Target::Owner(guard.owner().to_string());
    let error = b.evict(&lock("evicted"), target, true).await.expect_err("it cannot");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    guard.check().expect("it is held");
    guard.release().await.expect("it was held");
}
