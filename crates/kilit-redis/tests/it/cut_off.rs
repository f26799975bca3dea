//! A node of a cluster that the others have left behind, and that clients still reach.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use kilit_testbed::server::Redis;

use crate::{
    fake::{HELLO, fake},
    support::{LONG, client, granted, mutex, wait_for},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_is_not_asked_for_ever() {
    static SAYS: OnceLock<[String; 2]> = OnceLock::new();
    static KNOWS: AtomicBool = AtomicBool::new(false);
    let successor = Redis::start();
    let url = fake(|command| match command {
        "HELLO" => HELLO,
        "CLUSTER" => &SAYS.get().unwrap()[usize::from(KNOWS.load(SeqCst))],
        command => {
            KNOWS.fetch_or(command.starts_with("EVAL"), SeqCst);
            "-CLUSTERDOWN The cluster is down\r\n"
        }
    });
    let has_all = |port| format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
    let port = url.rsplit_once(':').unwrap().1;
    SAYS.set([has_all(port), has_all(&successor.addr().port().to_string())]).unwrap();
    let client = client(url.replace("redis:", "redis+cluster:")).await;
    granted(wait_for(mutex(&client, "x", LONG))).await.release().await.unwrap();
}
