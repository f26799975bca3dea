//! Release and renewal go by identity, never by name.

use kilit_core::{Claim, ErrorKind, Guard, Released, Renewal, Share};

use super::support::{claim, grip, status};
use crate::{Harm, Party, Subject, lock};

/// A late release of an old hold touches no newer one, of the same process too.
pub async fn goes_by_identity(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    for newer in [&a, &b] {
        let old = claim("identity", Share::EXCLUSIVE);
        assert!(grip(&a, &old).await, "it is free");
        assert_eq!(release(&a, &old).await, Released::Done);
        let guard = subject.mutex(newer, "identity").acquire().await.expect("it is free");
        assert_eq!(release(&a, &old).await, Released::WasNotHeld);
        expect_held(subject, &b, &guard).await;
        // A claim that never held anything.
        assert_eq!(release(&a, &claim("identity", Share::EXCLUSIVE)).await, Released::WasNotHeld);
        expect_held(subject, &b, &guard).await;
        guard.release().await.expect("it was held");
    }
}

async fn release(party: &Party, claim: &Claim) -> Released {
    party.engine().release(claim).await.expect("the engine is well")
}

async fn expect_held(subject: &Subject, by_the_word_of: &Party, guard: &Guard) {
    guard.check().expect("it is held");
    let status = status(by_the_word_of, "identity").await;
    assert_eq!(status.holders.len(), 1, "{status:?}");
    if let Some(owner) = &status.holders[0].owner {
        assert_eq!(*owner, guard.owner().to_string(), "{status:?}");
    }
    let busy = subject.mutex(by_the_word_of, "identity").try_acquire().await;
    assert_eq!(busy.expect_err("it is held").kind(), ErrorKind::Busy);
}

/// The second release says so.
pub async fn twice_is_once(subject: &Subject) {
    let party = subject.party().await;
    let mine = claim("twice", Share::EXCLUSIVE);
    assert!(grip(&party, &mine).await, "it is free");
    assert_eq!(release(&party, &mine).await, Released::Done);
    assert_eq!(release(&party, &mine).await, Released::WasNotHeld);
    subject.expect_nothing_left("twice").await;
}

/// It is an error of its own kind, and the newer hold stays.
pub async fn of_a_lost_lock_says_so(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let old = a.mutex(lock("identity")).with(subject.short()).expect("in range");
    let old = old.acquire().await.expect("it is free");
    subject.take_away(&a, &old).await;
    let new = subject.mutex(&b, "identity");
    let new = subject.within("the lock passes on", new.acquire()).await.expect("it passes on");
    if a.link.is_some() {
        a.link(Harm::None);
    }
    assert_eq!(old.release().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    expect_held(subject, &b, &new).await;
    new.release().await.expect("it was held");
}

/// Neither of what was released nor of what was never held.
pub async fn renewal_never_creates(subject: &Subject) {
    let party = subject.party().await;
    let (released, never) = (claim("renewed", Share::EXCLUSIVE), claim("renewed", Share::EXCLUSIVE));
    assert!(grip(&party, &released).await, "it is free");
    let kept = party.engine().renew(std::slice::from_ref(&released)).await.expect("the engine is well");
    assert!(matches!(kept[..], [Renewal::Kept(_)]), "{kept:?}");
    release(&party, &released).await;
    let gone = party.engine().renew(&[released, never]).await.expect("the engine is well");
    assert!(matches!(gone[..], [Renewal::Gone(_), Renewal::Gone(_)]), "{gone:?}");
    subject.expect_nothing_left("renewed").await;
}

/// Dropping the guard is enough, and dropping the last handle of its client with it.
pub async fn by_drop_frees(subject: &Subject) {
    let party = subject.party().await;
    drop(subject.mutex(&party, "dropped").acquire().await.expect("it is free"));
    subject.expect_nothing_left("dropped").await;
    let guard = subject.mutex(&party, "dropped").acquire().await.expect("it is free");
    drop(party);
    drop(guard);
    subject.expect_nothing_left("dropped").await;
}

/// `kill -9`: the lock is free again within the bound that the engine states.
pub async fn of_a_killed_process_is_the_engines(subject: &Subject) {
    let party = subject.party().await;
    let mut holder = subject.agent("hold", "killed").ttl(subject.short_ttl).spawn();
    holder.said("held");
    let busy = subject.mutex(&party, "killed").try_acquire().await;
    assert_eq!(busy.expect_err("it is held").kind(), ErrorKind::Busy);
    holder.kill();
    let next = subject.mutex(&party, "killed");
    let assurance = party.assurance();
    let bound = assurance.crash_release.of(subject.short_ttl) + assurance.wait_look.of(subject.short_ttl);
    let next = subject.within_bound("the lock is free", bound, next.acquire()).await.expect("it is free");
    next.release().await.expect("it was held");
    subject.expect_nothing_left("killed").await;
}
