use kilit_core::EngineUrl;
use kilit_testbed::server::redis::RedisSentinel;

#[test]
fn a_dead_primary_is_replaced() {
    let mut redis = RedisSentinel::start();
    let url: EngineUrl = redis.url().parse().unwrap();
    assert!(url.hosts().len() == 3 && url.path() == "/mymaster", "{url:?}");
    assert_eq!(redis.primary(), Some(0));

    let old = redis.kill_primary();
    let new = redis.wait_for_failover(old);
    redis.servers[new].command(["SET", "key", "value"]);
    assert_eq!(redis.sentinels[2].named().unwrap(), redis.servers[new].addr());
}
