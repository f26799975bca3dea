//! `kilit doctor`.

use kilit_testbed::{
    Process,
    process::Exit,
    server::{Redis, redis::Persistence},
};
use serde_json::Value;

use crate::place::{Place, SOON};

fn findings(exit: &Exit) -> Vec<Value> {
    let document: Value = serde_json::from_str(&exit.stdout).unwrap();
    document["findings"].as_array().unwrap().clone()
}

/// The level of a finding, `none` without one.
fn level(exit: &Exit, id: &str) -> String {
    let found = findings(exit).into_iter().find(|finding| finding["id"] == id);
    found.map_or("none".into(), |finding| finding["level"].as_str().unwrap().to_owned())
}

fn examine(place: &Place) -> Exit {
    place.run(["doctor", "--json"])
}

#[test]
fn eviction_is_a_danger() {
    let danger = Redis::new().maxmemory_policy("allkeys-lru").config("maxmemory 100mb");
    let exit = examine(&Place::with_redis(danger)).expect_code(1);
    assert_eq!(level(&exit, "eviction"), "danger");
    let harmless = [
        Redis::new(),
        Redis::new().maxmemory_policy("noeviction").config("maxmemory 100mb"),
        Redis::new().maxmemory_policy("allkeys-lru"),
    ];
    for spec in harmless {
        assert_eq!(level(&examine(&Place::with_redis(spec)).expect_code(0), "eviction"), "none");
    }
}

#[test]
fn what_a_restart_forgets_is_said() {
    let always = Redis::new().persistence(Persistence::Aof { fsync: "always" });
    assert_eq!(level(&examine(&Place::with_redis(always)).expect_code(0), "persistence"), "info");
    let weaker = [
        (Redis::new(), "forgets all locks and tokens"),
        (Redis::new().persistence(Persistence::Rdb), "since the last snapshot"),
        (Redis::new().persistence(Persistence::Aof { fsync: "everysec" }), "last second or so"),
    ];
    for (spec, words) in weaker {
        let exit = examine(&Place::with_redis(spec)).expect_code(0);
        assert_eq!(level(&exit, "persistence"), "warn");
        assert!(exit.stdout.contains(words), "{}", exit.stdout);
    }
}

#[test]
fn a_clock_that_is_wrong_is_found() {
    let place = Place::with_redis(Redis::new().clock_shim());
    assert_eq!(level(&examine(&place).expect_code(0), "clock"), "info");
    for (ms, words) in [(3_600_000, "ms ahead of"), (-60_000, "ms behind")] {
        place.server().set_clock_offset_ms(ms);
        let exit = examine(&place).expect_code(0);
        assert_eq!(level(&exit, "clock"), "warn");
        assert!(exit.stdout.contains(words), "{}", exit.stdout);
        let text = place.run(["doctor"]).stdout;
        assert!(text.contains("-> set both clocks by NTP"), "{text}");
    }
}

#[test]
fn a_server_that_may_not_be_asked_counts_as_the_weaker() {
    let place = Place::with_redis(Redis::new().acl(["user app on >secret ~* &* +@all -info -config"]));
    let url = format!("redis://app:secret@{}", place.addr());
    let exit = Process::run(place.kilit(["doctor", "--json"]).env("KILIT_ENGINE", url), SOON).expect_code(0);
    assert_eq!([level(&exit, "rights"), level(&exit, "eviction")], ["warn", "warn"]);
}
