//! Servers that do not have the scripts.

use std::time::Duration;

use kilit_core::{Renewal, Target};
use kilit_testbed::server::Redis;

use crate::support::{Ask, LONG, claim, client, hold, is_busy, lock, mutex};

#[tokio::test(flavor = "multi_thread")]
async fn every_script_is_sent_whole_where_it_is_missing() {
    let server = Redis::start();
    let client = client(server.url()).await;
    let claim = claim("x", LONG);
    let flush = || server.ask::<()>("SCRIPT FLUSH");
    for _ in 0..3 {
        flush();
        client.engine().claim(&claim, Duration::ZERO).await.unwrap();
        flush();
        let renewed = client.engine().renew(std::slice::from_ref(&claim)).await.unwrap();
        assert!(matches!(renewed[..], [Renewal::Kept(_)]), "{renewed:?}");
        flush();
        assert!(client.inspect(Some(&lock("x"))).await.unwrap()[0].is_held());
        flush();
        assert_eq!(client.engine().release(&claim).await.unwrap(), kilit_core::Released::Done);
    }
    let guard = hold(&client, "y", Duration::from_millis(300)).await;
    flush();
    // Asking for it back is one script, removing it another.
    let owner = Target::Owner(guard.owner().to_string());
    let name = lock("y");
    let (evicted, ()) = tokio::join!(client.evict(&name, owner, true), async {
        guard.lost().cancelled().await;
        flush();
    });
    evicted.unwrap();
    assert!(!is_busy(&client, "y").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_two_steps_changes_nothing_more_than_it_must() {
    let mut server = Redis::start();
    let client = client(server.url()).await;
    let guard = hold(&client, "x", LONG).await;
    server.restart();
    assert_eq!(guard.release().await.unwrap_err().kind(), kilit_core::ErrorKind::Lost);
    let guard = mutex(&client, "x", LONG).acquire_within(crate::support::SOON).await.unwrap();
    guard.release().await.unwrap();
}
