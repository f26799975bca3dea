//! Guards at the edges: drops, panics, runtimes that end, clients that shut down.

use kilit_core::{ErrorKind, LossReason, blocking};

use crate::script::{Answer, Asked, Stage, hang};

#[test]
fn a_guard_is_dropped_outside_any_runtime() {
    let stage = Stage::new();
    let guard =
        blocking::Client::from(stage.client.clone()).mutex("a".parse().unwrap()).try_acquire().unwrap();
    let owner = guard.owner();
    stage.next();
    drop(guard);
    assert_eq!(stage.next(), Asked::Cancel(owner));
}

#[test]
fn a_drop_waits_for_no_answer() {
    let stage = Stage::new();
    let guard =
        blocking::Client::from(stage.client.clone()).mutex("a".parse().unwrap()).try_acquire().unwrap();
    let owner = guard.owner();
    stage.next();
    let (_never, hangs) = hang();
    stage.on_cancel([hangs]);
    let (over, is_over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(guard);
        over.send(()).unwrap();
    });
    assert_eq!(stage.next(), Asked::Cancel(owner));
    is_over.recv_timeout(crate::script::SOON).expect("the drop is over, and the answer never comes");
}

#[test]
fn a_guard_outlives_the_runtime_it_was_made_in() {
    let stage = Stage::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(stage.mutex("a").try_acquire()).unwrap();
    let owner = guard.owner();
    stage.next();
    drop(runtime);
    guard.check().unwrap();
    drop(guard);
    assert_eq!(stage.next(), Asked::Cancel(owner));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_panics_lets_go() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    let owner = guard.owner();
    stage.next();
    let task = tokio::spawn(async move {
        let _guard = guard;
        panic!("as the test wants it");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(stage.next(), Asked::Cancel(owner));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_dropped_goes_on() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    let owner = guard.owner();
    stage.next();
    let (_never, hangs) = hang();
    stage.on_cancel([hangs]);
    let release = tokio::spawn(guard.release());
    assert_eq!(stage.next(), Asked::Cancel(owner));
    release.abort();
    assert_eq!(stage.next(), Asked::Cancel(owner));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_every_hold_and_reports_every_error() {
    let stage = Stage::new();
    let mut guards = vec![];
    for name in ["a", "b", "c"] {
        guards.push(stage.mutex(name).try_acquire().await.unwrap());
    }
    stage.on_cancel([Answer::Yes, Answer::Fails(ErrorKind::Refused), Answer::Yes]);
    let errors = stage.client.shutdown().await.unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].kind(), ErrorKind::Refused);
    for guard in guards {
        assert_eq!(guard.check().unwrap_err().reason, LossReason::Shutdown);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(stage.mutex("a").try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_a_wait() {
    let stage = Stage::new();
    let (_never, hangs) = hang();
    stage.on_take([hangs]);
    let mutex = stage.mutex("a");
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    let Asked::Take(owner) = stage.next() else { panic!("no claim") };
    stage.client.shutdown().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(stage.next(), Asked::Cancel(owner));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_finds_nothing_says_lost() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    stage.on_cancel([Answer::No]);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    stage.mutex("a").try_acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn run_stops_the_work_when_the_lock_is_lost() {
    let stage = Stage::new();
    let guard = stage.mutex("a").try_acquire().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);

    let guard = stage.mutex("a").try_acquire().await.unwrap();
    stage.on_extend([Answer::No]);
    let work = tokio::spawn(guard.run(std::future::pending::<()>()));
    stage.clock.advance(crate::script::TTL / 3);
    assert_eq!(work.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn futures_and_guards_move_between_threads() {
    fn moves<T: Send + Sync + 'static>() {}
    moves::<kilit_core::Client>();
    moves::<kilit_core::Guard>();
    moves::<kilit_core::SharedGuard>();
    moves::<kilit_core::Error>();
    fn sends<T: Send>(_: &T) {}
    let stage = Stage::new();
    let mutex = stage.mutex("a");
    sends(&mutex.acquire());
}
