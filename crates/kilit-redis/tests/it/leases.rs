//! Leases end, are renewed and are lost as they should be, whatever else is done to the key.

use std::time::Duration;

use kilit_core::{ErrorKind, LossReason, Released, Renewal, Standing, Terms};
use kilit_testbed::{
    chaos::{ChaosProxy, Mode},
    server::{Redis, Server},
};

use crate::support::{
    Ask, LONG, SOON, claim, client, eventually, hold, lock, mutex, open, until_standing, within,
};

#[tokio::test]
async fn one_write_carries_value_condition_and_ttl() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let monitor = server.monitor();
    let guard = hold(&client, "x", Duration::from_secs(30)).await;
    monitor.wait("the write", |lines| lines.iter().any(|line| line.contains("\"SET\" \"lock:x\"")));
    let value = server.value("lock:x").unwrap();
    assert!(value.starts_with(&format!("kilit1 {} {} ", guard.owner(), guard.token().unwrap().value())));
    let lines = monitor.lines();
    let on_key = |line: &&String| line.contains("lua]") && line.contains("\"lock:x\"");
    let reads = |line: &&String| line.contains("\"GET\"") || line.contains("\"EXISTS\"");
    let writes: Vec<_> = lines.iter().filter(on_key).filter(|line| !reads(line)).collect();
    assert_eq!(writes.len(), 1, "{lines:#?}");
    assert!(writes[0].ends_with("\"NX\" \"PX\" \"30000\""), "{writes:?}");
}

#[tokio::test]
async fn a_ttl_out_of_range_is_refused_before_anything_is_sent() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let guard = hold(&client, "x", Duration::from_secs(30)).await;
    let before = server.scripts_run();
    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(99), Duration::MAX] {
        let refused = client.mutex(lock("x")).with(Terms { ttl, ..Terms::default() }).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("100ms to 7 days"), "{refused}");
    }
    assert_eq!(server.scripts_run(), before);
    assert!(server.ask::<i64>("PTTL lock:x") > 25_000);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn renewal_never_creates_and_never_adds_up() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let engine = client.engine();
    let claim = claim("x", Duration::from_secs(2));
    engine.claim(&claim, Duration::ZERO).await.unwrap();
    for _ in 0..50 {
        let renewed = engine.renew(std::slice::from_ref(&claim)).await.unwrap();
        assert!(matches!(renewed[..], [Renewal::Kept(Some(_))]), "{renewed:?}");
        assert!((1..=2000).contains(&server.ask::<i64>("PTTL lock:x")));
    }
    let is_gone = async || {
        let renewed = engine.renew(std::slice::from_ref(&claim)).await.unwrap();
        assert!(matches!(renewed[..], [Renewal::Gone(LossReason::Ended)]), "{renewed:?}");
        assert_eq!(engine.release(&claim).await.unwrap(), Released::WasNotHeld);
    };
    // Somebody's who writes of us.
    let other = format!("kilit1 0123456789abcdef0123456789abcdef 1 1 5000 {} 1", claim.owner);
    server.query::<()>(["SET", "lock:x", &other, "PX", "5000"]);
    is_gone().await;
    assert_eq!(server.value("lock:x"), Some(other));
    server.ask::<()>("SET lock:x foreign PX 5000");
    is_gone().await;
    assert_eq!(server.value("lock:x").as_deref(), Some("foreign"));
    assert!(server.ask::<i64>("PTTL lock:x") > 2000);
    server.ask::<()>("DEL lock:x");
    is_gone().await;
    server.ask::<()>("HSET lock:x field value");
    is_gone().await;
    assert_eq!(server.ask::<String>("TYPE lock:x"), "hash");
}

#[tokio::test]
async fn a_hold_that_somebody_deletes_is_lost_within_the_bound_and_its_client_goes_on() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let ttl = Duration::from_secs(2);
    let guard = hold(&client, "x", ttl).await;
    let bound = client.assurance().loss_notice.of(ttl);
    let deleted = client.clock().now();
    server.ask::<()>("DEL lock:x");
    within("the loss", guard.lost().cancelled()).await;
    let Err(loss) = guard.check() else { panic!("it is lost") };
    assert_eq!(loss.reason, LossReason::Ended);
    assert!(loss.at.since(deleted) < bound + Duration::from_secs(1), "{:?}", loss.at.since(deleted));
    assert_eq!(server.value("lock:x"), None);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);

    // Another task of the same client, and a loss that only the release finds.
    let guard = hold(&client, "x", LONG).await;
    server.ask::<()>("DEL lock:x");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    server.ask::<()>("HSET lock:x field value");
    assert_eq!(mutex(&client, "x", LONG).acquire().await.unwrap_err().kind(), ErrorKind::Refused);
    server.ask::<()>("DEL lock:x");
    hold(&client, "x", LONG).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_gives_up_before_another_can_have_it() {
    let server = Redis::start();
    let proxy = ChaosProxy::start(server.addr());
    let cut_off = client(format!("{}?timeout=200ms", server.url_at(proxy.addr()))).await;
    let other = client(server.url()).await;
    let guard = hold(&cut_off, "x", Duration::from_secs(1)).await;
    proxy.set(Mode::Blackhole);
    let next = mutex(&other, "x", LONG).acquire_within(SOON).await.unwrap();
    let granted = other.clock().now();
    let Err(loss) = guard.check() else { panic!("two holders") };
    assert_eq!(loss.reason, LossReason::Silence);
    assert!(loss.at < granted, "{loss:?}, and the next had it at {granted:?}");

    // What was sent into the black hole arrives now, and touches nothing.
    let (value, answered) = (server.value("lock:x").unwrap(), proxy.counts().to_client);
    proxy.set(Mode::Pass);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    eventually("late requests arrive", async || proxy.counts().to_client > answered).await;
    assert!(mutex(&cut_off, "x", LONG).try_acquire().await.unwrap_err().is_held_by_another());
    assert_eq!(server.value("lock:x").unwrap(), value);
    next.release().await.unwrap();
    assert_eq!(server.value("lock:x"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_shorter_than_the_ttl_changes_nothing() {
    let server = Redis::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = client(format!("{}?timeout=200ms", server.url_at(proxy.addr()))).await;
    let guard = hold(&client, "x", Duration::from_secs(3)).await;
    let value = server.value("lock:x");
    for mode in [Mode::Refuse, Mode::Blackhole, Mode::DropReplies, Mode::Reset] {
        proxy.set(mode);
        until_standing(&guard, "the outage is noticed", |now| matches!(now, Standing::AtRisk { .. })).await;
        proxy.set(Mode::Pass);
        until_standing(&guard, "it is held again", |now| *now == Standing::Held).await;
    }
    guard.check().unwrap();
    assert_eq!(server.value("lock:x"), value);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_renewed_after_a_release() {
    const TTL: Duration = Duration::from_millis(300);
    let server = Redis::start();
    let proxy = ChaosProxy::start(server.addr());
    let client = client(server.url_at(proxy.addr())).await;
    let loops = (0..64_u64).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            let mutex = mutex(&client, &format!("x{task}"), TTL);
            for round in 0..5 {
                let guard = mutex.try_acquire().await.unwrap();
                // Around the first renewal.
                tokio::time::sleep(Duration::from_millis(80 + (task * 7 + round * 13) % 40)).await;
                // A machine that stood still may have lost it.
                let _ = guard.release().await;
            }
        })
    });
    let loops: Vec<_> = loops.collect();
    for delay in [0, 5, 30, 15].map(Duration::from_millis) {
        proxy.set(Mode::Delay(delay));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    proxy.set(Mode::Pass);
    for task in loops {
        within("all rounds", task).await.unwrap();
    }
    client.shutdown().await.unwrap();
    assert_eq!(server.ask::<Vec<String>>("KEYS lock:*"), [""; 0]);
    let ran = server.scripts_run();
    // Silence has no event: longer than a TTL, in which each hold would be renewed three times.
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(server.scripts_run(), ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_clock_that_jumps_ends_leases_and_never_lengthens_them() {
    let server = Server::start(Redis::new().clock_shim());
    let client = client(server.url()).await;
    let ttl = Duration::from_secs(2);
    let ahead = hold(&client, "x", ttl).await;
    server.set_clock_offset_ms(3_600_000);
    // Redis reads its clock when it has something to do.
    within("the loss", ahead.lost().cancelled()).await;
    assert_eq!(ahead.check().unwrap_err().reason, LossReason::Ended);
    assert_eq!(server.value("lock:x"), None, "a renewal has created it");

    let back = hold(&client, "x", ttl).await;
    server.set_clock_offset_ms(0);
    assert!(server.ask::<i64>("PTTL lock:x") > 3_000_000);
    assert!(back.remaining().unwrap() <= ttl);
    // The next renewal puts it right.
    eventually("a renewal", async || server.ask::<i64>("PTTL lock:x") <= 2000).await;
    assert!(back.remaining().unwrap() <= ttl);
    back.release().await.unwrap();
    assert!(open(server.url()).await.is_ok());
}
