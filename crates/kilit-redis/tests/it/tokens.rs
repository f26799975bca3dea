//! Tokens rise over every acquisition, whatever becomes of the counter.

use std::time::Duration;

use kilit_core::{Client, ErrorKind};
use kilit_testbed::{
    server::{Redis, Server},
    wait_until,
};

use crate::support::{Ask, LONG, SOON, client, hold, mutex, token};

const COUNTER: &str = "kilit1:token";

async fn draw(client: &Client) -> u64 {
    let guard = mutex(client, "x", LONG).acquire_within(SOON).await.unwrap();
    let token = token(&guard);
    guard.release().await.unwrap();
    token
}

fn counter(server: &Server<Redis>) -> String {
    server.value(COUNTER).unwrap()
}

#[tokio::test]
async fn large_ones_are_exact_and_end() {
    let server = Redis::start();
    let client = client(server.url()).await;
    for last in [(1 << 53) - 2, (1 << 53) + 1, (1 << 60) + 1, i64::MAX as u64 - 2] {
        server.ask::<()>(&format!("SET {COUNTER} {last}"));
        assert_eq!(draw(&client).await, last + 1);
        assert_eq!(draw(&client).await, last + 2);
        assert_eq!(counter(&server), (last + 2).to_string());
    }
    let error = mutex(&client, "x", LONG).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error:?}");
    assert!(error.to_string().contains("2^63-1"), "{error}");
    assert_eq!((counter(&server), server.value("lock:x")), (i64::MAX.to_string(), None));
    // Until somebody sets it by hand.
    server.ask::<()>(&format!("SET {COUNTER} 1"));
    assert!(draw(&client).await < 1 << 53);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_rise_over_restarts_eviction_and_an_emptied_database() {
    let mut server = Server::start(Redis::new().maxmemory_policy("allkeys-random"));
    let client = client(server.url()).await;
    let mut last = draw(&client).await;
    let mut rises = async |how: &str| {
        let next = draw(&client).await;
        assert!(next > last, "{next} came after {last}, over {how}");
        last = next;
    };
    rises("nothing").await;
    server.ask::<()>("FLUSHALL");
    rises("an emptied database").await;
    server.ask::<()>(&format!("DEL {COUNTER}"));
    rises("a deleted counter").await;
    server.restart();
    rises("a restart without persistence").await;
    server.ask::<()>("CONFIG SET maxmemory 1");
    wait_until("all keys are evicted", SOON, || {
        let _ = server.try_query::<String>(["SET", "other", "value"]);
        server.ask::<i64>("DBSIZE") == 0
    });
    server.ask::<()>("CONFIG SET maxmemory 0");
    rises("eviction").await;
}

#[tokio::test]
async fn a_clock_that_jumps() {
    let server = Server::start(Redis::new().clock_shim());
    let client = client(server.url()).await;
    server.set_clock_offset_ms(1_000_000);
    let last = draw(&client).await;
    // Ahead, and back again by however much: while the counter stands, tokens rise.
    server.set_clock_offset_ms(2_000_000);
    let ahead = draw(&client).await;
    assert!(ahead > last + 900_000_000, "{ahead} after {last}");
    server.set_clock_offset_ms(-3_600_000);
    assert_eq!(draw(&client).await, ahead + 1);
    assert_eq!(draw(&client).await, ahead + 2);
    // A counter that is lost, and a clock that went back by less than the time since the last grant.
    server.ask::<()>(&format!("SET {COUNTER} {last}"));
    server.set_clock_offset_ms(1_000_500);
    server.ask::<()>(&format!("DEL {COUNTER}"));
    assert!(draw(&client).await > last);
    // By more than that: the documented limit of tokens that assume clocks.
    server.ask::<()>(&format!("DEL {COUNTER}"));
    server.set_clock_offset_ms(0);
    assert!(draw(&client).await < last);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_used_once_leave_one_counter_that_expires_a_day_after_its_value() {
    const NAMES: u64 = 5000;
    const CHECK: &str = "
        local bad = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
            local value = redis.call('GET', key)
            local due = tonumber(string.sub(value, 1, -4)) + 86400000
            if key ~= 'kilit1:token' or redis.call('PEXPIRETIME', key) ~= due then
                bad[#bad + 1] = key
            end
        end
        return bad";
    let server = Redis::start();
    let client = client(server.url()).await;
    let tasks: Vec<_> = (0..50)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                for name in (task..NAMES).step_by(50) {
                    hold(&client, &format!("n{name}"), LONG).await.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(server.ask::<u64>("DBSIZE"), 1);
    let bad: Vec<String> = server.query(["EVAL", CHECK, "0"]);
    assert_eq!(bad, [""; 0]);
    // A counter that was drawn from lives as much longer.
    hold(&client, "n0", LONG).await.release().await.unwrap();
    server.ask::<()>("SET kilit1:token 9007199254740993");
    hold(&client, "n1", LONG).await.release().await.unwrap();
    let bad: Vec<String> = server.query(["EVAL", CHECK, "0"]);
    assert_eq!(bad, [""; 0]);
    let due: u64 = server.ask("PEXPIRETIME kilit1:token");
    assert_eq!(due, 9_007_199_254_740 + Duration::from_hours(24).as_millis() as u64);
}
