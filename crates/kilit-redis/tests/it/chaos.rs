//! Everything at once: whatever breaks, there is one holder at a time, and afterwards everybody goes on.

use std::time::{Duration, Instant};

use kilit_testbed::{
    chaos::{ChaosProxy, Mode},
    server::Redis,
};

use crate::{
    contest::Contest,
    support::{Ask, client, eventually},
};

const CLIENTS: usize = 6;
const FOR: Duration = Duration::from_secs(4);

/// Longer than all that is done to a client in that time: no hold ends by itself, so there is no excuse.
const TTL: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn one_holder_at_a_time_whatever_breaks() {
    let server = Redis::start();
    let proxies: Vec<_> = (0..CLIENTS).map(|_| ChaosProxy::start(server.addr())).collect();
    let mut clients = Vec::new();
    for proxy in &proxies {
        let settings = "timeout=100ms&connect_timeout=200ms";
        clients.push(client(format!("{}?{settings}", server.url_at(proxy.addr()))).await);
    }
    let contest = Contest::start(clients, "x", TTL);
    let begun = Instant::now();
    // The same each time, as far as the machine lets it.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    while begun.elapsed() < FOR {
        let proxy = &proxies[draw(CLIENTS as u64) as usize];
        match draw(20) {
            0 => proxy.set(Mode::Blackhole),
            1 => proxy.set(Mode::DropReplies),
            2 => proxy.set(Mode::Reset),
            3 => proxy.set(Mode::Refuse),
            4 => proxy.set(Mode::Delay(Duration::from_millis(draw(150)))),
            5 => server.ask::<()>("SCRIPT FLUSH"),
            6 => drop(server.ask::<i64>("CLIENT KILL TYPE pubsub")),
            7 => {
                server.stop();
                tokio::time::sleep(Duration::from_millis(draw(200))).await;
                server.resume();
            }
            _ => proxy.set(Mode::Pass),
        }
        tokio::time::sleep(Duration::from_millis(draw(40))).await;
    }
    for proxy in &proxies {
        proxy.set(Mode::Pass);
    }
    contest.go_on(3).await;
    let tally = contest.end().await;
    assert_eq!((tally.overlaps, tally.refused), (0, 0), "{tally:?}");
    let stays = |key: &String| key == "kilit1:token" || key.starts_with("kilit1:bar:{lock:x}:");
    eventually("nothing else is left", async || server.keys().iter().all(stays)).await;
}
