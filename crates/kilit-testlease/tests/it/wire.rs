use std::{net::SocketAddr, sync::Arc, time::Duration};

use kilit_core::{
    Answer, Clock, Engine, EngineUrl, Error, ErrorKind, Evicted, Released, Renewal, Share, Target, TokenValue,
};
use kilit_testlease::{ENGINES, Node, serve};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{claim, name};

/// A server on loopback that is gone when this is.
struct Server {
    addr: SocketAddr,
    node: Arc<Node>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, node) = (listener.local_addr().unwrap(), Arc::new(Node::new(Clock::system())));
        Self { addr, node: node.clone(), task: tokio::spawn(serve(listener, node)) }
    }

    async fn open(&self) -> Arc<dyn Engine> {
        open(&format!("testlease://{}", self.addr)).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn open(url: &str) -> Result<Arc<dyn Engine>, Error> {
    (ENGINES[0].open)(url.parse::<EngineUrl>().unwrap()).await
}

async fn token(engine: &Arc<dyn Engine>, claim: &kilit_core::Claim, patience: Duration) -> Option<u64> {
    match engine.claim(claim, patience).await.unwrap() {
        Answer::Granted(grant) => Some(grant.token.map_or(0, |token| token.value().get())),
        Answer::Waiting { .. } => None,
    }
}

#[tokio::test]
async fn every_operation_goes_over_the_wire() {
    let server = Server::start().await;
    let (one, two) = (server.open().await, server.open().await);
    let odd_name = kilit_core::LockName::new(b"a/b\n\xff%").unwrap();
    let [mine, theirs] = &[(); 2].map(|()| Arc::new(claim("x", Share::EXCLUSIVE)));
    let mut odd = claim("x", Share::permits(2, 3).unwrap());
    odd.name = odd_name.clone();

    assert_eq!(token(&one, mine, Duration::ZERO).await, Some(1));
    assert_eq!(token(&one, mine, Duration::ZERO).await, Some(1));
    assert_eq!(token(&two, theirs, Duration::ZERO).await, None);
    assert_eq!(token(&two, &odd, Duration::ZERO).await, Some(0));

    let renewed = one.renew(&[mine.clone(), theirs.clone()]).await.unwrap();
    assert!(matches!(renewed[..], [Renewal::Kept(Some(_)), Renewal::Gone(_)]), "{renewed:?}");

    let statuses = two.inspect(None).await.unwrap();
    let names: Vec<_> = statuses.iter().map(|status| &status.name).collect();
    assert_eq!(names, [&odd_name, &name("x")]);
    assert_eq!((statuses[0].capacity, statuses[0].holders[0].units), (Some(3), Some(2)));
    assert_eq!(statuses[1].queue.as_ref().unwrap().len(), 1);

    let first = Target::Token(TokenValue::new(1).unwrap());
    assert_eq!(two.evict(&name("x"), first.clone(), false).await.unwrap(), Evicted::Ended);
    assert_eq!(two.evict(&name("x"), first, false).await.unwrap(), Evicted::NoSuchHold);
    assert_eq!(one.release(mine).await.unwrap(), Released::WasNotHeld);
    assert_eq!(token(&two, theirs, Duration::ZERO).await, Some(2));
    assert_eq!(two.release(theirs).await.unwrap(), Released::Done);
    assert_eq!(one.release(&odd).await.unwrap(), Released::Done);
    assert!(server.node.inspect(None).is_empty());
    assert_eq!(one.diagnose().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_release_wakes_the_next_in_line_over_the_wire() {
    let server = Server::start().await;
    let (one, two) = (server.open().await, server.open().await);
    let (first, second) = (claim("x", Share::EXCLUSIVE), claim("x", Share::EXCLUSIVE));
    token(&one, &first, Duration::ZERO).await.unwrap();
    let waiting = tokio::spawn(async move { token(&two, &second, Duration::from_secs(20)).await });
    while server.node.inspect(None)[0].line.len() < 2 {
        tokio::task::yield_now().await;
    }
    one.release(&first).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Some(2));
}

#[tokio::test]
async fn refusals_are_told() {
    let server = Server::start().await;
    let engine = server.open().await;
    let mine = claim("x", Share::EXCLUSIVE);
    server.node.machine().set_last_token(&mine.name, TokenValue::MAX);
    let error = engine.claim(&mine, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    engine.release(&mine).await.unwrap();
    let error = engine.claim(&mine, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn bad_urls_are_refused_before_anything_is_sent() {
    for bad in [
        "testlease:",
        "testlease://a:1,b:2",
        "testlease://a:1/path",
        "testlease://me@a:1",
        "testlease://a:1?colour=red",
        "testlease://a:1?timeout=0",
        "testlease://a:1?connect_timeout=5",
    ] {
        assert_eq!(open(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
    }
}

/// What a server of another version says.
#[tokio::test]
async fn other_versions_and_other_programs_are_refused() {
    for greeting in ["{\"testlease\":2,\"more\":[]}\n", "-ERR unknown command\r\n", "{}\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting.as_bytes()).await.unwrap();
            stream
        });
        let error = open(&format!("testlease://{addr}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{greeting}: {error}");
        drop(server.await);
    }
}

/// What a client of another version hears: our version, and the end of the connection.
#[tokio::test]
async fn a_server_refuses_other_versions() {
    let server = Server::start().await;
    for greeting in ["{\"testlease\":2}\n", "GET / HTTP/1.1\r\n"] {
        let mut stream = BufReader::new(TcpStream::connect(server.addr).await.unwrap());
        stream.write_all(greeting.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.starts_with("{\"testlease\":1"), "{line}");
        line.clear();
        // Closed, or reset where the rest of what was sent is unread.
        assert!(stream.read_line(&mut line).await.is_ok_and(|read| read == 0) || line.is_empty());
    }
}

#[tokio::test]
async fn rubbish_ends_a_connection_and_nothing_else() {
    let server = Server::start().await;
    let engine = server.open().await;
    let mine = claim("x", Share::EXCLUSIVE);
    token(&engine, &mine, Duration::ZERO).await.unwrap();
    for rubbish in [
        "{\"Take\":{}}\n",
        "{\"Inspect\":\"%zz\"}\n",
        "[1,2\n",
        "{\"Evict\":[\"x\",{\"Token\":0}]}\n",
        "\u{fffd}\n",
    ] {
        let mut stream = BufReader::new(TcpStream::connect(server.addr).await.unwrap());
        stream.write_all(b"{\"testlease\":1}\n").await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        stream.write_all(rubbish.as_bytes()).await.unwrap();
        line.clear();
        assert!(matches!(stream.read_line(&mut line).await, Ok(0) | Err(_)), "{rubbish}: {line}");
    }
    assert_eq!(engine.release(&mine).await.unwrap(), Released::Done);
}
