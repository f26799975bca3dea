//! The longest hold, lock-delay, and what an engine is fit for.

use std::time::Duration;

use kilit_core::{
    Clock, ErrorKind, Exclusion, LossReason, Mode, Need, Order, Purpose, Terms, TokenStrength,
};

use crate::{Harm, Subject, lock};

/// What vanished stays closed for so much longer.
const DELAY: Duration = Duration::from_millis(700);

/// The keeper stops, the holder learns why, and the lock is free without its doing.
pub async fn max_hold_ends_the_hold(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let longest = Duration::from_millis(150);
    let terms = Terms { max_hold: Some(longest), ..subject.short() };
    let guard = a.mutex(lock("bounded")).with(terms).expect("in range").acquire().await.expect("it is free");
    let next = subject.mutex(&b, "bounded");
    let next = subject.within("the lock passes on", next.acquire()).await.expect("it passes on");
    assert_eq!(guard.check().expect_err("another has it").reason, LossReason::MaxHold);
    assert!(guard.held_for() >= longest);
    assert_eq!(guard.release().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    next.check().expect("the late release touched nothing");
    next.release().await.expect("it was held");
}

/// A hold may be shorter.
pub async fn max_hold_is_no_minimum(subject: &Subject) {
    let party = subject.party().await;
    let terms = Terms { max_hold: Some(Duration::from_secs(3600)), ..subject.terms() };
    let mutex = party.mutex(lock("bounded")).with(terms).expect("in range");
    for _ in 0..2 {
        mutex.try_acquire().await.expect("it is free").release().await.expect("it was held");
    }
    subject.expect_nothing_left("bounded").await;
}

/// A holder that fell silent keeps the lock closed for that much longer than it believes to hold it.
pub async fn lock_delay_after_a_vanished_holder(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let terms = Terms { lock_delay: DELAY, ..subject.short() };
    let guard = a.mutex(lock("delayed")).with(terms).expect("in range").acquire().await.expect("it is free");
    assert!(guard.remaining() <= Some(subject.short_ttl), "its own deadline knows nothing of the delay");
    a.link(Harm::Cut);
    let next = subject.mutex(&b, "delayed");
    let next = subject.within("the lock passes on", next.acquire()).await.expect("it passes on");
    let (granted, deadline) = (b.clock().now(), guard.deadline().expect("a lease has one"));
    assert!(granted >= deadline + DELAY, "{:?} after its deadline", granted.since(deadline));
    next.release().await.expect("it was held");
}

/// The same for a holder that was killed.
pub async fn lock_delay_after_a_killed_process(subject: &Subject) {
    let party = subject.party().await;
    let mut holder = subject.agent("hold", "delayed").ttl(subject.short_ttl).lock_delay(DELAY).spawn();
    holder.said("held");
    let before = Clock::system().now();
    holder.kill();
    let next = subject.mutex(&party, "delayed");
    let next = subject.within("the lock passes on", next.acquire()).await.expect("it passes on");
    let waited = Clock::system().now().since(before);
    assert!(waited >= DELAY, "the lock was closed for {waited:?} only");
    next.release().await.expect("it was held");
}

/// Whoever releases in order leaves no delay.
pub async fn no_lock_delay_after_a_release(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let terms = Terms { lock_delay: Duration::from_secs(3600), ..subject.terms() };
    let mutex = a.mutex(lock("delayed")).with(terms).expect("in range");
    mutex.acquire().await.expect("it is free").release().await.expect("it was held");
    let next = subject.mutex(&b, "delayed").try_acquire().await.expect("it is free at once");
    next.release().await.expect("it was held");
    drop(mutex.acquire().await.expect("it is free"));
    subject.expect_nothing_left("delayed").await;
}

/// When the lock is built, with what is missing; and efficiency is granted.
pub async fn correctness_is_refused(subject: &Subject) {
    let party = subject.party().await;
    let terms = Terms { purpose: Purpose::Correctness, ..subject.terms() };
    let error = party.mutex(lock("data")).with(terms).expect_err("its tokens are too weak");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let strength = party.assurance().token.to_string();
    assert!(error.to_string().contains(&strength), "{error}");
    party.require(Need::nothing().token(TokenStrength::Durable)).expect_err("as above");
    subject.mutex(&party, "data").try_acquire().await.expect("efficiency is granted").release().await.expect("held");
}

/// And every hold has a token.
pub async fn correctness_is_granted(subject: &Subject) {
    let party = subject.party().await;
    let terms = Terms { purpose: Purpose::Correctness, ..subject.terms() };
    let mutex = party.mutex(lock("data")).with(terms).expect("its tokens are fit for it");
    let guard = mutex.try_acquire().await.expect("it is free");
    guard.token().expect("correctness rests on it");
    guard.release().await.expect("it was held");
}

/// `require` names everything that falls short, and asks for no more than what is promised.
pub async fn needs_are_all_listed(subject: &Subject) {
    let party = subject.party().await;
    let promised = party.assurance();
    let all = Need::nothing().exclusion(promised.exclusion).token(promised.token).order(promised.order);
    party.require(all.mode(Mode::Exclusive)).expect("it promises that itself");
    let most = Need::nothing().exclusion(Exclusion::Consensus).token(TokenStrength::Consensus).order(Order::Fifo);
    let short = [
        ("exclusion", promised.exclusion < Exclusion::Consensus),
        ("token", promised.token < TokenStrength::Consensus),
        ("order", promised.order < Order::Fifo),
    ];
    match party.require(most) {
        Ok(()) => assert!(short.iter().all(|(_, short)| !short)),
        Err(error) => {
            for (what, short) in short {
                assert_eq!(error.to_string().contains(what), short, "{what}: {error}");
            }
        }
    }
}
