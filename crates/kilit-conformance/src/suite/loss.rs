//! How a holder learns that it no longer holds.

use std::time::Duration;

use kilit_core::{ErrorKind, Evicted, Guard, LossReason, Mutex, Standing, Target, Terms, TokenStrength};

use crate::{Harm, Party, Subject, lock};

fn short(subject: &Subject, party: &Party) -> Mutex {
    party.mutex(lock("lost")).with(subject.short()).expect("in range")
}

/// Waits for the news of a loss for as long as the engine says it may take.
async fn noticed(subject: &Subject, party: &Party, guard: &Guard) -> LossReason {
    let bound = party.assurance().loss_notice.of(guard.ttl());
    subject.within_bound("the loss is noticed", bound, guard.lost().cancelled()).await;
    guard.check().expect_err("it is lost").reason
}

/// Many renewals, many looks: no false alarm.
pub async fn none_in_a_quiet_run(subject: &Subject) {
    let party = subject.party().await;
    let mut guards = Vec::new();
    for i in 0..12 {
        let terms = Terms { ttl: Duration::from_millis(1500), ..subject.terms() };
        let mutex = party.mutex(lock(&format!("quiet-{i}"))).with(terms).expect("in range");
        guards.push(mutex.try_acquire().await.expect("it is free"));
    }
    let alarms: Vec<_> = guards.iter().map(|guard| guard.lost().clone()).collect();
    tokio::time::sleep(Duration::from_millis(2200)).await;
    for guard in guards {
        guard.check().expect("nothing has happened to it");
        assert!(guard.covers(Duration::from_millis(1)));
        guard.release().await.expect("it was held");
    }
    assert!(alarms.iter().all(|alarm| !alarm.is_cancelled()), "a release is no loss");
}

/// A holder that is cut off gives up before the engine gives the lock to another. Its own clock tells it, so this
/// holds however late the news of it are.
pub async fn is_noticed_before_the_next_grant(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    for round in 0..3 {
        let old = short(subject, &a).acquire().await.expect("it is free");
        if round == 2 {
            // Renewed once at least: the same must hold for a deadline that a renewal gave.
            let first = old.deadline();
            subject.eventually("it is renewed", async || old.deadline() > first).await;
        }
        a.link(Harm::Cut);
        let mutex = subject.mutex(&b, "lost");
        let new = subject.within("the lock passes on", mutex.acquire()).await.expect("it passes on");
        assert_eq!(old.check().expect_err("another has it").reason, LossReason::Silence);
        assert_eq!(noticed(subject, &a, &old).await, LossReason::Silence);
        new.release().await.expect("it was held");
        a.link(Harm::None);
    }
}

/// Not only whoever looks: the alarm itself goes off before the engine gives the lock to another. By the stamps of one
/// clock, and with a TTL whose allowance for drift is more than a loaded machine sleeps late.
pub async fn the_alarm_comes_before_the_next_grant(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let terms = Terms { ttl: Duration::from_secs(6), ..subject.terms() };
    let old = a.mutex(lock("lost")).with(terms).expect("in range").acquire().await.expect("it is free");
    a.link(Harm::Cut);
    let mutex = subject.mutex(&b, "lost");
    let (alarm, granted) = tokio::join!(
        async {
            subject.within("the alarm goes off", old.lost().cancelled()).await;
            a.clock().now()
        },
        async {
            let guard = subject.within("the lock passes on", mutex.acquire()).await.expect("it passes on");
            let granted = b.clock().now();
            guard.release().await.expect("it was held");
            granted
        }
    );
    assert!(alarm < granted, "the alarm came {:?} after the next grant", alarm.since(granted));
}

/// The same where answers take their time: a deadline that counts from the answer would be too late.
pub async fn is_noticed_before_the_next_grant_when_answers_are_slow(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    a.link(Harm::Slow(subject.short_ttl / 4));
    let old = short(subject, &a).acquire().await.expect("it is free");
    a.link(Harm::Cut);
    let mutex = subject.mutex(&b, "lost");
    let new = subject.within("the lock passes on", mutex.acquire()).await.expect("it passes on");
    old.check().expect_err("another has it");
    new.release().await.expect("it was held");
    a.link(Harm::None);
}

/// An outage shorter than the TTL is a risk and no loss.
pub async fn at_risk_then_held(subject: &Subject) {
    let party = subject.party().await;
    let terms = Terms { ttl: Duration::from_secs(4), ..subject.terms() };
    let guard = party.mutex(lock("risk")).with(terms).expect("in range").acquire().await.expect("it is free");
    let mut standing = guard.standing();
    party.link(Harm::Cut);
    let at_risk = standing.wait_for(|standing| matches!(standing, Standing::AtRisk { .. }));
    let at_risk = *subject.within("it is at risk", at_risk).await.expect("the guard lives");
    match at_risk {
        Standing::AtRisk { until } => assert_eq!(Some(until), guard.deadline()),
        other => panic!("{other:?}"),
    }
    guard.check().expect("at risk is not lost");
    party.link(Harm::None);
    let held = standing.wait_for(|standing| *standing == Standing::Held);
    subject.within("it is held again", held).await.expect("the guard lives");
    guard.release().await.expect("it was held");
}

/// Something else than kilit ended it.
pub async fn of_an_ended_hold_is_noticed(subject: &Subject) {
    let party = subject.party().await;
    let guard = short(subject, &party).acquire().await.expect("it is free");
    (subject.break_hold.as_ref().expect("the case asks for it"))(lock("lost")).await;
    let reason = noticed(subject, &party, &guard).await;
    assert!(!reason.by_silence(), "the engine could say so: {reason}");
    assert_eq!(guard.release().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    subject.expect_nothing_left("lost").await;
}

/// An operator ended it.
pub async fn of_an_evicted_hold_is_noticed(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let guard = short(subject, &a).acquire().await.expect("it is free");
    let target = Target::Owner(guard.owner().to_string());
    let name = lock("lost");
    let (evicted, reason) = tokio::join!(b.evict(&name, target, true), async {
        let reason = noticed(subject, &a, &guard).await;
        drop(guard);
        reason
    });
    assert_eq!(evicted.expect("holds can be ended"), Evicted::Ended);
    assert!(!reason.by_silence(), "the engine could say so: {reason}");
}

/// The engine's clock jumps: every lease ends at once, and a renewal never brings one back.
pub async fn of_a_clock_that_jumps_is_noticed(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let old = short(subject, &a).acquire().await.expect("it is free");
    (subject.jump.as_ref().expect("the case asks for it"))(Duration::from_secs(3600)).await;
    let mutex = subject.mutex(&b, "lost");
    let new = subject.within("the lock is free", mutex.acquire()).await.expect("the lock is free");
    noticed(subject, &a, &old).await;
    new.check().expect("the old holder's renewal took nothing");
    new.release().await.expect("it was held");
}

/// An engine that forgets leases when it restarts: the holder learns.
pub async fn of_a_restart_is_noticed(subject: &Subject) {
    let party = subject.party().await;
    let guard = short(subject, &party).acquire().await.expect("it is free");
    (subject.restart.as_ref().expect("the case asks for it"))(()).await;
    if party.assurance().token < TokenStrength::Durable {
        noticed(subject, &party, &guard).await;
        guard.check().expect_err("the engine knows nothing of it");
    }
    drop(guard);
    subject.expect_nothing_left("lost").await;
}

/// A hold that is lost stays lost, also when all is well again and nobody has taken the lock.
pub async fn stays(subject: &Subject) {
    let party = subject.party().await;
    let guard = short(subject, &party).acquire().await.expect("it is free");
    subject.take_away(&party, &guard).await;
    let reason = noticed_by_any_means(subject, &guard).await;
    if party.link.is_some() {
        party.link(Harm::None);
    }
    subject.expect_nothing_left("lost").await;
    assert_eq!(guard.check().expect_err("it stays lost").reason, reason);
    assert!(!guard.covers(Duration::ZERO));
    assert!(matches!(*guard.standing().borrow(), Standing::Lost(_)), "also for those who look late");
    assert_eq!(guard.release().await.expect_err("it is lost").kind(), ErrorKind::Lost);
}

/// `Guard::run` drops the work when the lock is lost.
pub async fn stops_the_work(subject: &Subject) {
    let party = subject.party().await;
    let guard = short(subject, &party).acquire().await.expect("it is free");
    subject.take_away(&party, &guard).await;
    let work = guard.run(std::future::pending::<()>());
    let error = subject.within("the work is stopped", work).await.expect_err("the lock was lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
}

async fn noticed_by_any_means(subject: &Subject, guard: &Guard) -> LossReason {
    subject.within("the loss is noticed", guard.lost().cancelled()).await;
    guard.check().expect_err("it is lost").reason
}

/// The request was done and its answer never came: the caller holds the lock, or nobody does in the end.
pub async fn of_the_answer_leaves_nothing_unknown(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    a.link(Harm::LoseAnswers);
    let mutex = subject.mutex(&a, "unknown");
    let claim = async {
        tokio::join!(mutex.acquire_within(Duration::from_millis(500)), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            a.link(Harm::None);
        })
        .0
    };
    match subject.within("the claim has an end", claim).await {
        Ok(guard) => {
            guard.check().expect("it is held");
            let busy = subject.mutex(&b, "unknown").try_acquire().await;
            assert_eq!(busy.expect_err("another holds it").kind(), ErrorKind::Busy);
            guard.release().await.expect("it was held");
        }
        Err(error) => assert!(!error.is_held_by_another(), "nobody else ever asked: {error}"),
    }
    subject.expect_nothing_left("unknown").await;
}
