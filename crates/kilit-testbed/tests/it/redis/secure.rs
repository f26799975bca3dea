//! Systems of several servers, with TLS and a password.

use kilit_core::EngineUrl;
use kilit_testbed::{
    server::redis::{Redis, RedisCluster, RedisSentinel},
    tls::{ServerCert, TestCa},
};

fn secure(ca: &TestCa) -> Redis {
    Redis::new().tls(ca, ServerCert::Good).requirepass("secret")
}

fn is_secure(url: &str) {
    let mut url: EngineUrl = url.parse().unwrap();
    assert_eq!((url.take("tls").as_deref(), url.password().unwrap().expose()), (Some("true"), "secret"));
    assert_eq!(url.hosts().len(), 3);
}

#[test]
fn sentinels_fail_over() {
    let ca = TestCa::new();
    let mut redis = RedisSentinel::start_with(&secure(&ca), &["requirepass other"]);
    is_secure(&redis.url());
    let old = redis.kill_primary();
    assert_ne!(redis.wait_for_failover(old), old);
}

#[test]
fn a_cluster_moves_keys() {
    let ca = TestCa::new();
    let cluster = RedisCluster::start_with(&secure(&ca), 3);
    is_secure(&cluster.url());
    let slot = cluster.slot(b"key");
    let from = cluster.owner(slot).unwrap();
    let to = (from + 1) % 3;
    cluster.nodes[from].command(["SET", "key", "value"]);
    cluster.move_slot(slot, to);
    assert_eq!(cluster.nodes[to].query::<String>(["GET", "key"]), "value");
}
