//! Renewal and loss.

use std::time::Duration;

use kilit_core::{Clock, ErrorKind, LockName, LossReason, Standing, Terms};

use crate::script::{Answer, Asked, Stage, TTL, hang};

#[tokio::test(flavor = "multi_thread")]
async fn every_hold_of_a_client_is_renewed_in_one_batch() {
    let stage = Stage::new();
    let mut guards = vec![];
    let mut owners = vec![];
    for name in ["a", "b", "c"] {
        let guard = stage.mutex(name).try_acquire().await.unwrap();
        assert_eq!(stage.next(), Asked::Take(guard.owner()));
        owners.push(guard.owner());
        guards.push(guard);
    }
    for _ in 0..3 {
        let before = guards[0].deadline().unwrap();
        stage.clock.advance(TTL / 3);
        let Asked::Extend(mut batch) = stage.next() else { panic!("not a renewal") };
        batch.sort();
        owners.sort();
        assert_eq!(batch, owners);
        until(|| guards[0].deadline().unwrap() > before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_lease_hurries_no_long_one() {
    let stage = Stage::new();
    let hold = async |ttl| {
        let mutex = stage.client.mutex(LockName::new("a").unwrap());
        let guard = mutex.with(Terms { ttl, ..Terms::default() }).unwrap().try_acquire().await.unwrap();
        stage.next();
        guard
    };
    let long = hold(TTL).await;
    // From here on it goes along with others.
    stage.clock.advance(TTL / 5);
    let short = hold(TTL / 30).await;
    stage.clock.advance(TTL / 90);
    assert_eq!(stage.next(), Asked::Extend(vec![short.owner()]));
    assert_eq!(stage.next(), Asked::Extend(vec![long.owner()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_renewal_is_tried_again_while_there_is_time() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    let deadline = guard.deadline().unwrap();
    let mut standing = guard.standing();
    stage.next();
    stage.on_extend([Answer::Fails(ErrorKind::Unreachable), Answer::Fails(ErrorKind::Unreachable)]);
    stage.clock.advance(TTL / 3);
    stage.next();
    assert_eq!(
        *standing.wait_for(|s| *s != Standing::Held).await.unwrap(),
        Standing::AtRisk { until: deadline }
    );
    guard.check().unwrap();
    for _ in 0..2 {
        assert_eq!(stage.advance_to_next(), Asked::Extend(vec![guard.owner()]));
    }
    standing.wait_for(|s| *s == Standing::Held).await.unwrap();
    assert!(guard.deadline().unwrap() > deadline);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_hangs_does_not_outlast_the_deadline() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    let (_never, hangs) = hang();
    stage.on_extend([hangs]);
    stage.next();
    stage.clock.advance(TTL / 3);
    stage.next();
    stage.clock.advance(TTL);
    guard.lost().cancelled().await;
    assert_eq!(guard.check().unwrap_err().reason, LossReason::Silence);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    // A lease that was lost by silence ends by itself: nothing is sent for it, now or later.
    stage.client.shutdown().await.unwrap();
    stage.nothing_more();
}

#[tokio::test(flavor = "multi_thread")]
async fn check_notices_before_any_timer_does() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    assert!(guard.covers(TTL / 2));
    assert!(!guard.covers(TTL));
    stage.clock.advance(TTL);
    assert_eq!(guard.check().unwrap_err().reason, LossReason::Silence);
    assert!(!guard.covers(Duration::ZERO));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_ended_is_lost_at_the_next_renewal() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    stage.on_extend([Answer::No]);
    stage.clock.advance(TTL / 3);
    guard.lost().cancelled().await;
    assert_eq!(guard.check().unwrap_err().reason, LossReason::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_waits_for_the_renewal_that_is_under_way() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    let owner = guard.owner();
    stage.next();
    let (go_on, hangs) = hang();
    stage.on_extend([hangs]);
    stage.clock.advance(TTL / 3);
    assert_eq!(stage.next(), Asked::Extend(vec![owner]));
    let release = tokio::spawn(guard.release());
    // Nothing can be waited for that must not happen; a release that does not wait would be asked for long before.
    tokio::time::sleep(Duration::from_millis(50)).await;
    stage.nothing_more();
    go_on.send(()).unwrap();
    assert_eq!(stage.next(), Asked::Cancel(owner));
    release.await.unwrap().unwrap();
    stage.clock.advance(TTL);
    stage.client.shutdown().await.unwrap();
    stage.nothing_more();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_was_lost_is_no_loss() {
    for (first, kind) in [(ErrorKind::Unknown, ErrorKind::Unknown), (ErrorKind::Unreachable, ErrorKind::Lost)]
    {
        let stage = Stage::new();
        let guard = stage.mutex("a").try_acquire().await.unwrap();
        let owner = guard.owner();
        stage.next();
        // The second try finds nothing to release: the first one's work, where that was sent.
        stage.on_cancel([Answer::Fails(first), Answer::No]);
        let release = tokio::spawn(guard.release());
        assert_eq!(stage.next(), Asked::Cancel(owner));
        assert_eq!(stage.advance_to_next(), Asked::Cancel(owner));
        let error = release.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        stage.client.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_hold_stops_renewal_and_ends_at_the_last_deadline() {
    let stage = Stage::new();
    let terms = Terms { ttl: TTL, max_hold: Some(TTL / 2), ..Terms::default() };
    let guard =
        stage.client.mutex(LockName::new("a").unwrap()).with(terms).unwrap().try_acquire().await.unwrap();
    let mut standing = guard.standing();
    stage.next();
    stage.clock.advance(TTL / 3);
    stage.next();
    until(|| guard.remaining().unwrap() > TTL * 9 / 10);
    let deadline = guard.deadline().unwrap();
    stage.clock.advance(TTL / 6);
    assert_eq!(
        *standing.wait_for(|s| *s != Standing::Held).await.unwrap(),
        Standing::AtRisk { until: deadline }
    );
    stage.clock.advance(TTL);
    guard.lost().cancelled().await;
    assert_eq!(guard.check().unwrap_err().reason, LossReason::MaxHold);
    stage.nothing_more();
}

#[test]
fn the_keeper_does_not_starve_behind_the_users_blocking_work() {
    let stage = Stage::new();
    let user = tokio::runtime::Builder::new_current_thread().build().unwrap();
    user.block_on(async {
        let guard = stage.mutex("a").try_acquire().await.unwrap();
        stage.next();
        // From here on the user's only thread never yields.
        for _ in 0..6 {
            let before = guard.deadline().unwrap();
            stage.clock.advance(TTL / 3);
            assert!(matches!(stage.next(), Asked::Extend(_)));
            until(|| guard.deadline().unwrap() > before);
        }
        guard.check().unwrap();
    });
}

#[test]
fn a_manual_clock_is_no_real_time() {
    let clock = Clock::manual();
    assert_eq!(clock.now(), clock.now());
}

/// Waits for something that the keeper's thread does soon.
fn until(done: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(std::time::Instant::now() < end, "it does not come");
        std::thread::yield_now();
    }
}
