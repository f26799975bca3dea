//! Connections on which nothing comes any more, as behind a firewall that has forgotten them.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use kilit_testbed::server::{Redis, Server};

use crate::support::{LONG, client, eventually, hold, mutex};

/// A way to a server that can forget its connections: they stay open, and nothing passes them ever again.
struct Firewall {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    forgotten: Arc<AtomicUsize>,
}

impl Firewall {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (accepted, forgotten) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let this = Self { addr, accepted: accepted.clone(), forgotten: forgotten.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let number = accepted.fetch_add(1, SeqCst);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let forgotten = forgotten.clone();
                    thread::spawn(move || relay(from, to, || number < forgotten.load(SeqCst)));
                }
            }
        });
        this
    }

    fn forget(&self) {
        self.forgotten.store(self.accepted.load(SeqCst), SeqCst);
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, is_forgotten: impl Fn() -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !is_forgotten() && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

async fn is_got_soon(client: &kilit_core::Client) -> bool {
    // Less patience than it takes to find a connection silent.
    match mutex(client, "x", LONG).acquire_within(Duration::from_millis(20)).await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_replaced_though_nobody_waits_for_its_answers() {
    let server: Server<Redis> = Redis::start();
    let firewall = Firewall::before(server.addr());
    let client = client(format!("{}?timeout=1s", server.url_at(firewall.addr))).await;
    hold(&client, "warm", LONG).await.release().await.unwrap();
    firewall.forget();
    eventually("it is replaced", async || is_got_soon(&client).await).await;
}
