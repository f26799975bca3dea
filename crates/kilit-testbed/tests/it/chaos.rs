use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use kilit_testbed::{
    chaos::{ChaosProxy, Mode},
    wait_until,
};

use crate::SOON;

/// A server that sends every byte back, and counts them first.
fn echo_server() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (addr, handled) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let count = handled.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), count.clone());
            thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                    if stream.write_all(&byte).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (addr, handled)
}

fn connect(proxy: &ChaosProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    let mut answer = [0];
    stream.write_all(&[byte])?;
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// Whether nothing comes for a moment. Long enough for loopback, and no proof; the modes' other tests are.
fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silent = stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(SOON)).unwrap();
    silent
}

fn is_reset(result: std::io::Result<u8>) -> bool {
    result.is_err_and(|error| {
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
    })
}

#[test]
fn pass_counts_what_passes() {
    let (server, _) = echo_server();
    let proxy = ChaosProxy::start(server);
    let (mut one, mut two) = (connect(&proxy), connect(&proxy));
    assert_eq!(ask(&mut one, 1).unwrap(), 1);
    assert_eq!(ask(&mut two, 2).unwrap(), 2);
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.to_server, counts.to_client, counts.dropped), (2, 2, 2, 0));
}

#[test]
fn blackhole_holds_back_and_heals_late() {
    let (server, handled) = echo_server();
    let proxy = ChaosProxy::start(server);
    let mut old = connect(&proxy);
    ask(&mut old, 1).unwrap();
    proxy.set(Mode::Blackhole);
    let mut new = connect(&proxy);
    for stream in [&mut old, &mut new] {
        stream.write_all(&[7]).unwrap();
        assert!(is_silent(stream));
    }
    assert_eq!(handled.load(Ordering::SeqCst), 1);
    proxy.set(Mode::Pass);
    for stream in [&mut old, &mut new] {
        let mut late = [0];
        stream.read_exact(&mut late).unwrap();
        assert_eq!(late, [7]);
    }
}

#[test]
fn dropped_replies_had_their_effect() {
    let (server, handled) = echo_server();
    let proxy = ChaosProxy::start(server);
    let mut stream = connect(&proxy);
    proxy.set(Mode::DropReplies);
    stream.write_all(&[7]).unwrap();
    wait_until("the request had its effect", SOON, || handled.load(Ordering::SeqCst) == 1);
    wait_until("the answer was thrown away", SOON, || proxy.counts().dropped == 1);
    assert!(is_silent(&mut stream));
    proxy.set(Mode::Pass);
    assert!(is_reset(ask(&mut stream, 8)), "a stream with a hole in it went on");
    assert_eq!(ask(&mut connect(&proxy), 9).unwrap(), 9);
}

#[test]
fn reset_ends_old_and_new_connections() {
    let (server, _) = echo_server();
    let proxy = ChaosProxy::start(server);
    let mut old = connect(&proxy);
    ask(&mut old, 1).unwrap();
    proxy.set(Mode::Reset);
    assert!(is_reset(ask(&mut old, 2)));
    assert!(
        TcpStream::connect(proxy.addr()).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
            || is_reset(ask(&mut connect(&proxy), 3))
    );
    proxy.set(Mode::Pass);
    assert_eq!(ask(&mut connect(&proxy), 4).unwrap(), 4);
}

#[test]
fn refuse_closes_the_port_and_opens_it_again() {
    let (server, _) = echo_server();
    let proxy = ChaosProxy::start(server);
    let mut old = connect(&proxy);
    ask(&mut old, 1).unwrap();
    for _ in 0..20 {
        proxy.set(Mode::Refuse);
        let refused = TcpStream::connect(proxy.addr()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        proxy.set(Mode::Pass);
        assert_eq!(ask(&mut connect(&proxy), 2).unwrap(), 2);
    }
    assert!(is_reset(ask(&mut old, 3)));
}

#[test]
fn delay_takes_its_time_both_ways() {
    let (server, _) = echo_server();
    let proxy = ChaosProxy::start(server);
    proxy.set(Mode::Delay(Duration::from_millis(30)));
    let (mut stream, start) = (connect(&proxy), Instant::now());
    ask(&mut stream, 1).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_server_that_is_down_shows_as_a_reset() {
    let closed = kilit_testbed::ports::ClosedPort::new();
    let proxy = ChaosProxy::start(closed.addr());
    assert!(is_reset(ask(&mut connect(&proxy), 1)));
}
