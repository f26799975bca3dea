use kilit_core::EngineUrl;
use kilit_testbed::{server::redis::RedisCluster, wait_until};

use crate::SOON;

#[test]
fn every_slot_is_served_and_moves() {
    let cluster = RedisCluster::start();
    let url: EngineUrl = cluster.url().parse().unwrap();
    assert_eq!((url.scheme(), url.hosts().len()), ("redis+cluster", 3));
    assert_eq!([0, 8000, 16383].map(|slot| cluster.owner(slot)), [Some(0), Some(1), Some(2)]);

    let (key, other) = ("lock:{a}", "other:{a}");
    let slot = cluster.slot(key.as_bytes());
    let from = cluster.owner(slot).unwrap();
    let to = (from + 1) % 3;
    let ask = |node: usize, key| cluster.nodes[node].try_query::<String>(["GET", key]);
    let error = |node, key| ask(node, key).unwrap_err().code().map(str::to_owned);
    cluster.nodes[from].command(["SET", key, "value"]);

    assert_eq!(error(to, key).as_deref(), Some("MOVED"));
    cluster.begin_move(slot, from, to);
    assert_eq!(ask(from, key).unwrap(), "value");
    assert_eq!(error(from, other).as_deref(), Some("ASK"));
    cluster.move_keys(slot, from, to);
    assert_eq!(error(from, key).as_deref(), Some("ASK"));
    cluster.end_move(slot, from, to);
    assert_eq!(error(from, key).as_deref(), Some("MOVED"));
    assert_eq!(ask(to, key).unwrap(), "value");
    wait_until("all know of it", SOON, || cluster.owner(slot) == Some(to));
    cluster.move_slot(slot, from);
    assert_eq!(ask(from, key).unwrap(), "value");
}

#[test]
fn the_replica_takes_over_from_a_dead_master() {
    let mut cluster = RedisCluster::start_with_replicas();
    let slot = cluster.slot(b"key");
    let old = cluster.owner(slot).unwrap();
    let mut master = cluster.nodes[old].connection();
    redis::cmd("SET").arg("key").arg("value").exec(&mut master).unwrap();
    assert_eq!(redis::cmd("WAIT").arg(1).arg(10_000).query::<usize>(&mut master).unwrap(), 1);

    cluster.kill(old);
    let new = cluster.wait_for_takeover(slot, old);
    assert_eq!(new, old + 3);
    assert_eq!(cluster.nodes[new].query::<String>(["GET", "key"]), "value");

    cluster.nodes[old].restart();
    wait_until("the old master follows", SOON, || {
        cluster.nodes[old].info("replication").get("master_link_status").is_some_and(|status| status == "up")
    });
    assert_eq!(cluster.owner(slot), Some(new));
}
