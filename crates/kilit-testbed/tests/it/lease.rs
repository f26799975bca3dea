//! The test lease engine through a real network stack, with faults on the wire.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use kilit_core::{
    Answer, Claim, Client, Engine, ErrorKind, LockName, LossNotice, Note, OwnerId, Released, Renewal, Share,
    Terms,
};
use kilit_testbed::{
    Process,
    chaos::{ChaosProxy, Mode},
    ports::ClosedPort,
    server::{LeaseServer, Server},
    wait_until,
};
use kilit_testlease::ENGINES;

use crate::SOON;

const TTL: Duration = Duration::from_secs(30);

async fn open(addr: SocketAddr, settings: &str) -> kilit_core::Result<Arc<dyn Engine>> {
    let url = format!("{}?{settings}", Server::<LeaseServer>::url(addr));
    (ENGINES[0].open)(url.parse().unwrap()).await
}

fn claim() -> Claim {
    Claim {
        name: LockName::new("x").unwrap(),
        owner: OwnerId::random(),
        share: Share::EXCLUSIVE,
        ttl: TTL,
        lock_delay: Duration::ZERO,
        note: Note::of_this_process(),
        notice: LossNotice::default(),
    }
}

async fn is_granted(engine: &Arc<dyn Engine>, claim: &Claim) -> bool {
    matches!(engine.claim(claim, Duration::ZERO).await.unwrap(), Answer::Granted(_))
}

async fn is_held(engine: &Arc<dyn Engine>) -> bool {
    engine.inspect(None).await.unwrap().iter().any(|status| status.is_held())
}

/// A server, a proxy in front of it, a client through the proxy and one beside it.
async fn setup(settings: &str) -> (Server<LeaseServer>, ChaosProxy, Arc<dyn Engine>, Arc<dyn Engine>) {
    let server = LeaseServer::start();
    let proxy = ChaosProxy::start(server.addr());
    let through = open(proxy.addr(), settings).await.unwrap();
    let beside = open(server.addr(), "").await.unwrap();
    (server, proxy, through, beside)
}

#[tokio::test]
async fn a_closed_port_and_a_silent_server_are_unreachable() {
    let closed = ClosedPort::new();
    let error = open(closed.addr(), "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let proxy = ChaosProxy::start(closed.addr());
    proxy.set(Mode::Blackhole);
    let error = open(proxy.addr(), "connect_timeout=50ms").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_a_release_clears_it() {
    let (_server, proxy, through, beside) = setup("timeout=100ms&connect_timeout=100ms").await;
    proxy.set(Mode::DropReplies);
    let mine = claim();
    let error = through.claim(&mine, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(is_held(&beside).await, "the take had its effect");
    proxy.set(Mode::Pass);
    assert_eq!(through.release(&mine).await.unwrap(), Released::Done);
    assert!(!is_held(&beside).await);
}

#[tokio::test]
async fn a_take_that_was_held_up_does_not_come_after_the_release() {
    let (_server, proxy, through, beside) = setup("timeout=100ms&connect_timeout=100ms").await;
    proxy.set(Mode::Blackhole);
    let mine = claim();
    let error = through.claim(&mine, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    beside.release(&mine).await.unwrap();
    let passed = proxy.counts().to_server;
    proxy.set(Mode::Pass);
    wait_until("the take arrives", SOON, || proxy.counts().to_server > passed);
    // The next one goes through the same proxy after it.
    let next = claim();
    assert!(is_granted(&through, &next).await);
    assert!(!is_granted(&beside, &claim()).await);
    assert_eq!(through.release(&next).await.unwrap(), Released::Done);
}

#[tokio::test]
async fn a_reset_connection_is_made_again() {
    let (_server, proxy, through, _beside) = setup("").await;
    let [mine] = &[Arc::new(claim())];
    assert!(is_granted(&through, mine).await);
    for mode in [Mode::Reset, Mode::Refuse] {
        proxy.set(mode);
        through.renew(std::slice::from_ref(mine)).await.unwrap_err();
        proxy.set(Mode::Pass);
        let renewed = through.renew(std::slice::from_ref(mine)).await.unwrap();
        assert!(matches!(renewed[..], [Renewal::Kept(_)]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_rides_out_an_outage() {
    let (_server, proxy, through, beside) = setup("").await;
    let first = claim();
    assert!(is_granted(&beside, &first).await);
    let second = Client::new(through).unwrap().mutex(first.name.clone());
    let waiting = tokio::spawn(async move { second.acquire_within(SOON).await });
    while beside.inspect(None).await.unwrap()[0].queue.as_ref().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let connections = proxy.counts().connections;
    proxy.set(Mode::Reset);
    wait_until("it tries again", SOON, || proxy.counts().connections > connections);
    proxy.set(Mode::Pass);
    beside.release(&first).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().token().unwrap().value().get(), 2);
}

#[tokio::test]
async fn a_holder_that_is_cut_off_is_told_before_the_server_ends_its_lease() {
    let (_server, proxy, through, beside) = setup("").await;
    let terms = Terms { ttl: Duration::from_millis(600), ..Terms::default() };
    let mutex = Client::new(through).unwrap().mutex(claim().name).with(terms).unwrap();
    let guard = mutex.acquire().await.unwrap();
    proxy.set(Mode::Blackhole);
    let lost = guard.lost();
    tokio::time::timeout(SOON, lost.cancelled()).await.unwrap();
    let next = claim();
    let Ok(Answer::Granted(grant)) = beside.claim(&next, SOON).await else { panic!("the lease never ended") };
    assert_eq!(grant.token.unwrap().value().get(), 2);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    proxy.set(Mode::Pass);
    let renewed = beside.renew(&[Arc::new(next)]).await.unwrap();
    assert!(matches!(renewed[..], [Renewal::Kept(_)]), "what came late has touched the next hold");
}

#[tokio::test]
async fn a_server_that_restarted_is_not_taken_for_the_one_before() {
    let mut server = LeaseServer::start();
    let engine = open(server.addr(), "").await.unwrap();
    let mine = Arc::new(claim());
    let Ok(Answer::Granted(before)) = engine.claim(&mine, Duration::ZERO).await else { panic!("it is free") };
    server.restart();
    let renewed = engine.renew(std::slice::from_ref(&mine)).await.unwrap();
    assert!(matches!(renewed[..], [Renewal::Gone(_)]));
    let Ok(Answer::Granted(after)) = engine.claim(&claim(), Duration::ZERO).await else {
        panic!("it is free")
    };
    assert_eq!(before.token.unwrap().compare(&after.token.unwrap()), None, "the tokens are of one source");
}

#[tokio::test]
async fn a_stopped_server_is_unreachable_and_goes_on() {
    let mut server = LeaseServer::start();
    let engine = open(server.addr(), "timeout=50ms&connect_timeout=50ms").await.unwrap();
    server.process().stop();
    let error = engine.inspect(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    server.process().resume();
    let engine = open(server.addr(), "").await.unwrap();
    assert!(is_granted(&engine, &claim()).await);
}

#[test]
fn a_server_ends_with_its_test() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilit-testbed"));
    command.args(["lease-server", "--until-eof"]);
    let mut process = Process::spawn_with_stdin(&mut command, Stdio::piped());
    let mut stdin = process.take_stdin().unwrap();
    stdin.write_all(b"anything").unwrap();
    let port = process.wait_for_stdout(SOON, |text| text.trim().parse::<u16>().ok());
    assert!(port > 0 && fs::exists(format!("/proc/{}", process.pid())).unwrap());
    drop(stdin);
    process.wait(SOON).expect_code(0);
}
