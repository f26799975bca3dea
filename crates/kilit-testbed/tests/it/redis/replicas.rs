use kilit_testbed::{
    chaos::Mode,
    server::{
        Server,
        redis::{Redis, RedisWithReplicas},
    },
};

fn lock(server: &Server<Redis>) -> bool {
    server.query::<Option<String>>(["SET", "key", "value", "NX", "PX", "60000"]).is_some()
}

#[test]
fn replicas_confirm_and_one_is_promoted() {
    let mut redis = RedisWithReplicas::start(2);
    let mut primary = redis.primary.connection();
    redis::cmd("SET").arg("key").arg("value").exec(&mut primary).unwrap();
    // On the connection of the write: WAIT is about that alone.
    let confirmed: usize = redis::cmd("WAIT").arg(2).arg(10_000).query(&mut primary).unwrap();
    assert_eq!(confirmed, 2);
    let refused = redis.replicas[0].try_query::<String>(["SET", "key", "other"]).unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"));

    redis.primary.kill();
    redis.promote(1);
    assert!(!lock(&redis.replicas[1]), "the replica lacks the write");
}

#[test]
fn a_failover_forgets_what_did_not_reach_the_replica() {
    let mut redis = RedisWithReplicas::start(1);
    redis.links[0].set(Mode::Blackhole);
    assert!(lock(&redis.primary));
    redis.primary.kill();
    redis.promote(0);
    assert!(lock(&redis.replicas[0]), "the replica has what was sent into a black hole");
}
