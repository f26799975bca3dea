//! What a server refuses has its own name, and is never "busy".

use std::time::Duration;

use kilit_core::{Effect, Error, ErrorKind, Released, Renewal};
use kilit_testbed::{
    server::{
        Redis, Server,
        redis::{RedisCluster, RedisWithReplicas},
    },
    wait_until,
};

use crate::{
    fake::{HELLO, fake},
    support::{
        Ask, LONG, SOON, claim, client, eventually, granted, hold, is_busy, line, lock, mutex, open, refusal,
        until_standing, wait_for,
    },
};

/// Checks the kind, that nothing was done, and what the message says.
#[track_caller]
fn expect(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{word} in: {error}");
    }
}

#[tokio::test]
async fn another_type_at_the_key() {
    let server = Redis::start();
    let client = client(server.url()).await;
    for make in ["HSET lock:x f v", "RPUSH lock:x v", "ZADD lock:x 1 v", "SADD lock:x v", "XADD lock:x * f v"]
    {
        server.ask::<redis::Value>(make);
        let error = mutex(&client, "x", LONG).acquire().await.unwrap_err();
        expect(&error, ErrorKind::Refused, &["lock x", "something else than a plain string", "prefix"]);
        // Nor is it touched by what holds nothing.
        let claim = claim("x", LONG);
        let renewed = client.engine().renew(std::slice::from_ref(&claim)).await.unwrap();
        assert!(matches!(renewed[..], [Renewal::Gone(_)]), "{renewed:?}");
        assert_eq!(client.engine().release(&claim).await.unwrap(), Released::WasNotHeld);
        let status = client.inspect(Some(&lock("x"))).await.unwrap().remove(0);
        assert!(status.holders[0].foreign && status.holders[0].note.is_some(), "{status:?}");
        assert_eq!(server.ask::<i64>("DEL lock:x"), 1);
    }
    // A plain string is somebody's lock, whatever it says.
    server.ask::<()>("SET lock:x kilit1");
    assert!(is_busy(&client, "x").await);
}

#[tokio::test]
async fn a_side_key_that_somebody_has_overwritten() {
    let server = Redis::start();
    let client = client(server.url()).await;
    server.ask::<()>("SET kilit1:token 99999999999999999x");
    let error = mutex(&client, "x", LONG).acquire().await.unwrap_err();
    expect(&error, ErrorKind::Incompatible, &["token counter", "no number"]);
    server.ask::<()>("SET kilit1:line:{lock:y} string");
    let error = mutex(&client, "y", LONG).acquire().await.unwrap_err();
    expect(&error, ErrorKind::Refused, &["WRONGTYPE"]);
    assert_eq!((server.value("lock:x"), server.value("lock:y")), (None, None));
}

#[tokio::test]
async fn a_replica_takes_no_locks() {
    let redis = RedisWithReplicas::start(1);
    let error = refusal(redis.replicas[0].url()).await;
    expect(&error, ErrorKind::Refused, &["is a replica", "redis+sentinel:"]);

    // One that becomes a replica later.
    let server = Redis::start();
    let client = client(server.url()).await;
    let guard = hold(&client, "x", LONG).await;
    let primary = redis.primary.addr();
    server.ask::<()>(&format!("REPLICAOF {} {}", primary.ip(), primary.port()));
    let error = mutex(&client, "y", LONG).acquire().await.unwrap_err();
    expect(&error, ErrorKind::Refused, &["read-only replica"]);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn missing_rights() {
    let users = [
        // Without the keys that kilit keeps beside a lock, without scripts, and without keys at all.
        "user narrow on >s3cret ~lock:* &* +@all",
        "user scriptless on >s3cret ~* &* +@all -eval -evalsha",
        "user keyless on >s3cret &* +@all",
    ];
    let server = Server::start(Redis::new().acl(users));
    for user in ["narrow", "scriptless", "keyless"] {
        let client = client(format!("redis://{user}:s3cret@{}", server.addr())).await;
        let error = mutex(&client, "x", LONG).acquire().await.unwrap_err();
        expect(&error, ErrorKind::Refused, &["no right"]);
        assert!(!error.to_string().contains("s3cret"));
    }
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_is_no_loss() {
    let server = Server::start(Redis::new().acl(["user app on >s3cret ~* &* +@all"]));
    let client = client(format!("redis://app:s3cret@{}", server.addr())).await;
    let held = claim("x", LONG);
    client.engine().claim(&held, Duration::ZERO).await.unwrap();
    server.ask::<()>("ACL SETUSER app -get");
    let error = client.engine().renew(std::slice::from_ref(&held)).await.unwrap_err();
    expect(&error, ErrorKind::Refused, &["no right"]);
    let error = client.engine().release(&held).await.unwrap_err();
    expect(&error, ErrorKind::Refused, &["no right"]);
    server.ask::<()>("ACL SETUSER app +get");
    assert_eq!(client.engine().release(&held).await.unwrap(), Released::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_channels_and_tracking_waiters_look_by_themselves() {
    let users = [
        "user quiet on >s3cret ~lock:* ~kilit1:* resetchannels +evalsha +eval +get +set +del +exists +time +pexpire \
         +pexpireat +pttl +incr +zadd +zrem +zrange +zrank +hset +hget +hdel +publish",
        "user least on >s3cret ~lock:* ~kilit1:* resetchannels +evalsha +eval +get +set +del +exists +time +pexpire \
         +pexpireat +pttl +incr +zadd +zrem +zrange +zrank +hset +hget +hdel",
    ];
    let server = Server::start(Redis::new().acl(users));
    for user in ["quiet", "least"] {
        let client = client(format!("redis://{user}:s3cret@{}", server.addr())).await;
        let guard = hold(&client, "x", Duration::from_millis(900)).await;
        let waiting = wait_for(mutex(&client, "x", LONG));
        until_standing(&guard, "it is renewed", |now| *now == kilit_core::Standing::Held).await;
        eventually("it stands in line", async || line(&server, "x") == 1).await;
        guard.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn no_password_and_a_wrong_one() {
    let server = Server::start(Redis::new().requirepass("s3cret"));
    let error = refusal(format!("redis://{}", server.addr())).await;
    expect(&error, ErrorKind::Refused, &["password"]);
    for wrong in [":wr0ng@", "nobody:wr0ng@", "default:wr0ng@"] {
        let error = refusal(format!("redis://{wrong}{}", server.addr())).await;
        expect(&error, ErrorKind::Refused, &["user and password"]);
        assert!(!format!("{error:?}").contains("wr0ng"));
    }
    open(server.url()).await.unwrap();
}

#[tokio::test]
async fn no_memory_left() {
    let server = Server::start(Redis::new().maxmemory_policy("noeviction"));
    let client = client(server.url()).await;
    let guard = hold(&client, "held", LONG).await;
    server.ask::<()>("CONFIG SET maxmemory 1");
    let error = mutex(&client, "x", LONG).acquire().await.unwrap_err();
    expect(&error, ErrorKind::Refused, &["out of memory", "maxmemory"]);
    // What is held can still be let go.
    guard.release().await.unwrap();
    assert_eq!(server.value("lock:held"), None);
}

#[tokio::test]
async fn snapshots_that_fail() {
    let server = Server::start(Redis::new().config("save 86400 1000000000"));
    let client = client(server.url()).await;
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    server.ask::<String>("BGSAVE");
    wait_until("the snapshot has failed", SOON, || {
        server.info("persistence")["rdb_last_bgsave_status"] == "err"
    });
    let error = mutex(&client, "x", LONG).acquire().await.unwrap_err();
    expect(&error, ErrorKind::Refused, &["cannot save them to disk"]);
}

#[tokio::test]
async fn a_node_of_a_cluster_is_not_a_server() {
    let cluster = RedisCluster::start();
    let error = refusal(cluster.nodes[0].url()).await;
    expect(&error, ErrorKind::Refused, &["part of a cluster", "redis+cluster:"]);
    // And a server is no cluster.
    let server = Redis::start();
    let error = refusal(format!("redis+cluster://{}", server.addr())).await;
    expect(&error, ErrorKind::Refused, &["cluster"]);
    // Nor a sentinel.
    let error = refusal(format!("redis+sentinel://{}/mymaster", server.addr())).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_too_old() {
    // Before version 6 there is no HELLO.
    let error = refusal(fake(|_| "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n")).await;
    expect(&error, ErrorKind::Unsupported, &["too old", "6.2"]);
    let six = fake(|command| match command {
        "HELLO" => HELLO,
        "INFO" => "$22\r\nredis_version:6.0.16\r\n\r\n",
        _ => "-ERR not now\r\n",
    });
    expect(&refusal(six).await, ErrorKind::Unsupported, &["6.0.16", "6.2"]);
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_again() {
    for refused in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
    ] {
        let url = fake(move |command| match command {
            "HELLO" => HELLO,
            _ => refused,
        });
        let error = match open(url).await {
            Ok(client) => mutex(&client, "x", LONG).try_acquire().await.unwrap_err(),
            Err(error) => error,
        };
        expect(&error, ErrorKind::Unreachable, &[&refused[1..5]]);
        assert_eq!(error.retry(), kilit_core::Retry::Later);
    }
}

#[tokio::test]
async fn a_master_that_is_made_a_replica_while_it_waits_for_its_own() {
    let url = fake(|command| match command {
        "HELLO" => HELLO,
        "EVALSHA" => "*1\r\n*0\r\n",
        "WAIT" => {
            "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n"
        }
        _ => "-ERR not now\r\n",
    });
    let client = open(format!("{url}?min_replicas=1")).await.unwrap();
    let error = mutex(&client, "x", LONG).try_acquire().await.unwrap_err();
    expect(&error, ErrorKind::Unreachable, &["replica"]);
    assert_eq!(error.retry(), kilit_core::Retry::Later);
}

#[tokio::test]
async fn no_room_for_another_client() {
    let error = refusal(fake(|_| "-ERR max number of clients reached\r\n")).await;
    expect(&error, ErrorKind::Unreachable, &["maxclients"]);
    assert_eq!(error.retry(), kilit_core::Retry::Later);
}

#[tokio::test]
async fn an_answer_that_nobody_understands_is_quoted_in_short() {
    let long: &str = Box::leak(format!("$9999\r\n{}\r\n", "x".repeat(9999)).into_boxed_str());
    let url = fake(move |command| match command {
        "HELLO" => HELLO,
        "EVALSHA" => long,
        _ => "-ERR not now\r\n",
    });
    let error = mutex(&open(url).await.unwrap(), "x", LONG).try_acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Incompatible, Effect::Unknown));
    assert!(error.to_string().len() < 500, "{error}");
}

#[tokio::test]
async fn what_is_no_redis_at_all() {
    let error = refusal(fake(|_| "HTTP/1.1 400 Bad Request\r\n\r\n")).await;
    assert_ne!(error.kind(), ErrorKind::Busy, "{error:?}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}
