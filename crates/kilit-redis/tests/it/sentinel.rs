//! Sentinels: the master is found, and found again.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use kilit_core::{Client, ErrorKind, Exclusion, Retry};
use kilit_testbed::{
    server::redis::{Redis, RedisSentinel, RedisWithReplicas},
    tls::{ServerCert, TestCa},
};

use crate::{
    contest::Contest,
    fake::{HELLO, fake},
    support::{Ask, LONG, client, granted, hold, mutex, refusal, token, wait_for, within},
};

async fn clients(count: usize, url: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(client(url).await);
    }
    clients
}

/// Holds that the replica had not heard of are forgotten: two can be inside then, which is counted. The fence refuses
/// the older one.
#[tokio::test(flavor = "multi_thread")]
async fn contenders_go_on_after_a_failover() {
    let redis = RedisSentinel::start();
    let url = format!("{}?timeout=500ms&connect_timeout=2s", redis.url());
    let holder = client(&url).await;
    assert_eq!(holder.assurance().exclusion, Exclusion::AsyncReplicas);
    let replicated = hold(&holder, "replicated", LONG).await;
    let contest = Contest::start(clients(4, &url).await, "x", Duration::from_secs(3));
    contest.go_on(5).await;

    // Stopped, not dead: what it was sent meanwhile it finds when it goes on.
    let old = redis.primary().unwrap();
    redis.servers[old].stop();
    let new = redis.wait_for_failover(old);
    contest.go_on(5).await;
    redis.servers[old].resume();
    contest.go_on(5).await;
    assert!(redis.servers[new].value("lock:replicated").unwrap().contains(&replicated.owner().to_string()));
    // What the new master has not is lost within the bound. Who was silent all the time may speak to the old one still,
    // until the sentinels have told that: this is one who has just asked them.
    let late = client(&url).await;
    let ttl = Duration::from_secs(3);
    let forgotten = hold(&late, "x2", ttl).await;
    assert!(token(&forgotten) > token(&replicated));
    let deleted = late.clock().now();
    redis.servers[new].ask::<()>("DEL lock:x2");
    within("the loss", forgotten.lost().cancelled()).await;
    let loss = forgotten.check().unwrap_err();
    assert!(
        loss.at.since(deleted) < late.assurance().loss_notice.of(ttl) + Duration::from_secs(1),
        "{loss:?}"
    );
    hold(&late, "x2", LONG).await.release().await.unwrap();
    drop(replicated);

    let tally = contest.end().await;
    println!("a failover by sentinel: {} overlaps, {} stale writes refused", tally.overlaps, tally.refused);
    assert!(tally.visits >= 60, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_and_passwords_of_its_own() {
    let ca = TestCa::new();
    let spec = Redis::new().tls(&ca, ServerCert::Good).requirepass("s3cret");
    let mut redis = RedisSentinel::start_with(&spec, &["requirepass other"]);
    let password = redis.servers[0].dir().join("sentinels");
    std::fs::write(&password, "other\n").unwrap();
    let url = format!("{}&connect_timeout=2s&timeout=1s", redis.url());
    assert_eq!(refusal(&url).await.kind(), ErrorKind::Refused, "the sentinels have a password");
    let url = format!("{url}&sentinel_password_file={}", password.display());
    let client = client(&url).await;
    let guard = hold(&client, "x", LONG).await;
    let old = redis.kill_primary();
    redis.wait_for_failover(old);
    guard.release().await.unwrap();
    // Of the sentinels in the URL one is dead, and one is silent.
    redis.sentinels[0].kill();
    redis.sentinels[1].stop();
    hold(&crate::support::client(&url).await, "x", LONG).await.release().await.unwrap();
    let error = refusal(url.replace("mymaster", "other")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("no master `other`"), "{error}");
}

/// Sentinels that are behind name a server that is a replica by now.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_and_not_listened_to() {
    static MASTER: OnceLock<String> = OnceLock::new();
    static LISTENS: AtomicBool = AtomicBool::new(false);
    let master = Redis::start();
    let port = master.addr().port().to_string();
    MASTER.set(format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())).unwrap();
    let sentinel = fake(|command| match command {
        "HELLO" => HELLO,
        "SENTINEL" => MASTER.get().unwrap(),
        _ => {
            LISTENS.store(true, SeqCst);
            "-ERR unknown command\r\n"
        }
    });
    let client = client(format!("{}/mymaster", sentinel.replace("redis:", "redis+sentinel:"))).await;
    hold(&client, "x", LONG).await.release().await.unwrap();
    assert!(!LISTENS.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_named_must_be_the_master_in_truth() {
    let redis = RedisWithReplicas::start(1);
    let port = redis.replicas[0].addr().port().to_string();
    let named = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len()).leak();
    let named: &'static str = named;
    let sentinel = fake(move |command| match command {
        "HELLO" => HELLO,
        "SENTINEL" => named,
        _ => "-ERR not here\r\n",
    });
    let url = format!("{}/mymaster", sentinel.replace("redis:", "redis+sentinel:"));
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    assert!(error.to_string().contains("not the master"), "{error}");
    redis.promote(0);
    let client = client(&url).await;
    hold(&client, "x", LONG).await.release().await.unwrap();

    // A master that becomes a replica is waited out.
    let primary = redis.primary.addr();
    redis.replicas[0].ask::<()>(&format!("REPLICAOF {} {}", primary.ip(), primary.port()));
    let error = mutex(&client, "x", LONG).try_acquire().await.unwrap_err();
    assert!(!error.is_held_by_another() && error.retry() == Retry::Later, "{error:?}");
    let waiting = wait_for(mutex(&client, "x", LONG));
    redis.promote(0);
    granted(waiting).await.release().await.unwrap();
}
