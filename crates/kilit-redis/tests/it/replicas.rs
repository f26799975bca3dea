//! Replicas confirm, or lag behind and are promoted.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use kilit_core::{ErrorKind, Exclusion, FenceError, Guard, Loss, LossReason, Refused, blocking};
use kilit_testbed::{
    chaos::Mode,
    fence_sqlite::Stock,
    overlap::{Event, Judge, Visitor},
    server::{
        Redis,
        redis::{Persistence, RedisWithReplicas},
    },
    tempdir, wait_until,
};

use crate::support::{Ask, LONG, SOON, claim, client, eventually, hold, lock, mutex, token, within};

#[tokio::test]
async fn an_acquisition_that_replicas_do_not_confirm_is_undone() {
    let redis = RedisWithReplicas::start(1);
    let url = redis.primary.url();
    let client_of = async |wanted| client(format!("{url}?min_replicas={wanted}&timeout=400ms")).await;
    let (one, two) = (client_of(1).await, client_of(2).await);
    assert_eq!(one.assurance().exclusion, Exclusion::AsyncReplicas);

    // The script is known from here on.
    hold(&one, "x", LONG).await.release().await.unwrap();
    let monitor = redis.primary.monitor();
    let guard = hold(&one, "x", LONG).await;
    assert_eq!(redis.replicas[0].value("lock:x"), redis.primary.value("lock:x"), "it has confirmed");
    monitor.wait("WAIT", |lines| lines.iter().any(|line| line.contains("\"WAIT\"")));
    let lines = monitor.lines();
    let sender = |line: &str| line.split_once('[').unwrap().1.split_once(']').unwrap().0.to_owned();
    let by_clients: Vec<_> =
        lines.iter().filter(|line| line.contains("\"EVAL") || line.contains("\"WAIT\"")).collect();
    let [take, wait] = by_clients[..] else { panic!("{lines:#?}") };
    assert!(take.contains("EVAL") && wait.contains("\"WAIT\" \"1\""), "{lines:#?}");
    assert_eq!(sender(take), sender(wait), "WAIT counts only what its own connection has written");
    guard.release().await.unwrap();

    let error = mutex(&two, "x", LONG).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("1 of 2 replicas confirmed"), "{error}");
    // By the engine itself, before the recipe withdraws it.
    let claim = claim("x", LONG);
    two.engine().claim(&claim, Duration::ZERO).await.unwrap_err();
    assert_eq!(redis.primary.value("lock:x"), None);

    redis.links[0].set(Mode::Blackhole);
    let error = mutex(&one, "x", LONG).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("0 of 1 replicas confirmed"), "{error}");
    assert_eq!(redis.primary.value("lock:x"), None);
    redis.links[0].set(Mode::Pass);
    eventually("the replica confirms again", async || mutex(&one, "x", LONG).acquire().await.is_ok()).await;
}

/// What a primary had granted and a replica never heard of: two holders, which kilit cannot prevent here. They are
/// counted; the first one notices in time, and the fence refuses what it writes after the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_forgets_a_hold_and_the_fence_refuses_its_writes() {
    let mut redis = RedisWithReplicas::start(1);
    let dir = tempdir().unwrap();
    let mut stock = Stock::open(&dir.path().join("stock")).unwrap();
    let log = dir.path().join("log");
    let visit = |id, guard: &Guard| Visitor::new(&log, id, guard.token().cloned()).unwrap();
    let first = client(format!("{}?timeout=200ms", redis.primary.url())).await;
    redis.links[0].set(Mode::Blackhole);
    let forgotten = hold(&first, "x", Duration::from_secs(3)).await;
    let inside = visit("first", &forgotten);
    inside.write(Event::Enter).unwrap();
    stock.write(b"x", "by the first", forgotten.token().unwrap()).unwrap();
    redis.primary.kill();
    redis.promote(0);

    let second = client(redis.replicas[0].url()).await;
    let next = hold(&second, "x", LONG).await;
    forgotten.check().expect("the first cannot know yet");
    assert!(token(&next) > token(&forgotten));
    let beside = visit("second", &next);
    beside.write(Event::Enter).unwrap();
    stock.write(b"x", "by the second", next.token().unwrap()).unwrap();
    let refused = stock.write(b"x", "by the first again", forgotten.token().unwrap()).unwrap_err();
    assert!(matches!(refused, FenceError::Refused(Refused::Stale { .. })), "{refused}");
    assert_eq!(stock.read(b"x").unwrap().as_deref(), Some("by the second"));
    within("the first notices", forgotten.lost().cancelled()).await;
    inside.write(Event::Exit).unwrap();
    assert_eq!(forgotten.check().unwrap_err().reason, LossReason::Silence);
    beside.write(Event::Exit).unwrap();
    next.release().await.unwrap();

    let faults = Judge::read(&log).verdict().unwrap_err();
    println!("a failover that forgets: {} overlap, as theory predicts: {faults:?}", faults.len());
    assert_eq!(faults.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_holds_and_counters_that_are_on_disk() {
    use kilit_testbed::server::Server;
    for persistence in [None, Some(Persistence::Aof { fsync: "always" })] {
        let spec = persistence.into_iter().fold(Redis::new(), Redis::persistence);
        let mut server = Server::start(spec);
        let (one, other) = (client(server.url()).await, client(server.url()).await);
        let guard = hold(&one, "x", LONG).await;
        server.restart();
        let second = mutex(&other, "x", LONG).acquire_within(Duration::from_millis(100)).await;
        match (persistence, second) {
            (None, Ok(second)) => {
                assert!(token(&second) > token(&guard));
                assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
            }
            (Some(_), Err(error)) => {
                assert!(error.is_held_by_another(), "{error:?}");
                guard.release().await.unwrap();
            }
            (_, second) => panic!("{persistence:?}: {second:?}"),
        }
        assert_eq!(
            one.assurance().notes.iter().any(|note| note.contains("a restart can forget")),
            persistence.is_none()
        );
    }
}

/// WAIT holds up everything on its connection.
#[test]
fn claims_that_wait_for_replicas_hold_up_no_renewal() {
    let redis = RedisWithReplicas::start(1);
    let url = format!("{}?min_replicas=1", redis.primary.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(client(url));
    let guard = runtime.block_on(hold(&client, "held", Duration::from_millis(1500)));
    redis.links[0].set(Mode::Blackhole);
    let (stop, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..8 {
            let mutex = blocking::Client::from(client.clone()).mutex(lock(&format!("x{thread}")));
            let (stop, tried) = (&stop, &tried);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let error = mutex.try_acquire().unwrap_err();
                    assert!(!error.is_held_by_another(), "{error:?}");
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ended = wait_for_renewals(&guard, 8);
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
    assert!(tried.load(Ordering::Relaxed) > 0);
    runtime.block_on(guard.release()).unwrap();
}

/// Waits, with this thread standing still, until it was renewed so often, or is lost.
fn wait_for_renewals(guard: &Guard, times: usize) -> Result<(), Loss> {
    for _ in 0..times {
        let deadline = guard.deadline();
        wait_until("a renewal", SOON, || guard.deadline() > deadline || guard.check().is_err());
        guard.check()?;
    }
    Ok(())
}
