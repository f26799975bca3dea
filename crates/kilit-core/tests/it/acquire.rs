//! From a claim to a hold, or to nothing at all.

use std::time::Duration;

use kilit_core::{Effect, ErrorKind, LockName, Purpose, Retry, Terms};

use crate::script::{Answer, Asked, Stage, hang};

#[tokio::test(flavor = "multi_thread")]
async fn busy_and_timed_out_are_two_things() {
    let stage = Stage::new();
    stage.on_take([Answer::No]);
    let busy = stage.mutex("a").try_acquire().await.unwrap_err();
    assert_eq!((busy.kind(), busy.retry()), (ErrorKind::Busy, Retry::Later));
    assert_eq!(busy.to_string(), "scripted: lock a: held by another; one try was made");

    stage.on_take((0..1000).map(|_| Answer::No));
    let mutex = stage.mutex("a");
    let waiting = tokio::spawn(async move { mutex.acquire_within(Duration::from_secs(3)).await });
    while !waiting.is_finished() {
        // Slowly: time that passes while the claim is on its way counts as silence of the engine.
        stage.clock.advance(Duration::from_millis(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_withdraws_its_claim() {
    let stage = Stage::new();
    stage.on_take([Answer::No]);
    stage.mutex("a").try_acquire().await.unwrap_err();
    let Asked::Take(owner) = stage.next() else { panic!("no claim") };
    assert_eq!(stage.next(), Asked::Cancel(owner));
    stage.nothing_more();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_future_withdraws_a_claim_that_is_still_travelling() {
    let stage = Stage::new();
    let (_never, hangs) = hang();
    stage.on_take([hangs]);
    let mutex = stage.mutex("a");
    let acquiring = tokio::spawn(async move { mutex.acquire().await });
    let Asked::Take(owner) = stage.next() else { panic!("no claim") };
    acquiring.abort();
    assert_eq!(stage.next(), Asked::Cancel(owner));
    stage.client.shutdown().await.unwrap();
    stage.nothing_more();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_found_out_by_the_same_owner() {
    let stage = Stage::new();
    stage.on_take([Answer::Fails(ErrorKind::Unknown)]);
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    assert_eq!(stage.next(), Asked::Take(guard.owner()));
    assert_eq!(stage.next(), Asked::Take(guard.owner()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_stays_unknown_is_reported_as_such_and_withdrawn() {
    let stage = Stage::new();
    stage.on_take([Answer::Fails(ErrorKind::Unknown), Answer::Fails(ErrorKind::Unknown)]);
    stage.on_cancel([Answer::Fails(ErrorKind::Unreachable)]);
    let error = stage.mutex("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    let (Asked::Take(owner), Asked::Take(_)) = (stage.next(), stage.next()) else { panic!("no claims") };
    assert_eq!(stage.next(), Asked::Cancel(owner));
    assert_eq!(stage.next(), Asked::Cancel(owner), "it is tried again in the background");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_never_reached_is_given_up_after_ten_seconds() {
    let stage = Stage::new();
    stage.on_take((0..1000).map(|_| Answer::Fails(ErrorKind::Unreachable)));
    let (mutex, begun) = (stage.mutex("a"), stage.clock.now());
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    while !waiting.is_finished() {
        stage.clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
    assert!(stage.clock.now().since(begun) >= Duration::from_secs(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_also_when_the_engine_is_silent() {
    let stage = Stage::new();
    let (_never, silent) = hang();
    stage.on_take([silent]);
    let mutex = stage.mutex("a");
    let waiting = tokio::spawn(async move { mutex.acquire_within(Duration::from_secs(3)).await });
    let Asked::Take(owner) = stage.next() else { panic!("no claim") };
    while !waiting.is_finished() {
        stage.clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unreachable, Effect::Unknown), "{error}");
    assert_eq!(stage.next(), Asked::Cancel(owner), "it may have arrived");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_while_waiting_is_ridden_out() {
    let stage = Stage::new();
    stage.on_take([Answer::No]);
    stage.on_take((0..40).map(|_| Answer::Fails(ErrorKind::Unreachable)));
    let mutex = stage.mutex("a");
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    while !waiting.is_finished() {
        stage.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final() {
    let stage = Stage::new();
    stage.on_take([Answer::Fails(ErrorKind::Refused)]);
    assert_eq!(stage.mutex("a").acquire().await.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_terms_are_refused_before_anything_is_sent() {
    let stage = Stage::new();
    let second = Duration::from_secs(1);
    let good = || Terms { ttl: second, ..Terms::default() };
    let bad = [
        Terms { ttl: Duration::ZERO, ..good() },
        Terms { ttl: Duration::from_nanos(1), ..good() },
        Terms { ttl: Duration::from_millis(99), ..good() },
        Terms { ttl: second * 604_801, ..good() },
        Terms { ttl: Duration::MAX, ..good() },
        Terms { lock_delay: second * 3601, ..good() },
        Terms { max_hold: Some(Duration::ZERO), ..good() },
    ];
    for terms in bad {
        let error = stage.client.mutex(LockName::new("a").unwrap()).with(terms).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let careful = Terms { purpose: Purpose::Correctness, ..good() };
    let error = stage.client.mutex(LockName::new("a").unwrap()).with(careful).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("lost on restart"), "{error}");
    let error = stage.client.shared(LockName::new("a").unwrap()).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    stage.nothing_more();
}
