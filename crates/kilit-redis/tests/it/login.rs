//! How a server is reached: TLS, sockets, users, passwords, databases; and that none of it is told to anybody.

use std::{fs, time::Duration};

use kilit_core::{Client, ErrorKind};
use kilit_testbed::{
    chaos::{ChaosProxy, Mode},
    server::{Redis, Server},
    tempdir,
    tls::{ServerCert, TestCa},
};

use crate::support::{
    Ask, LONG, client, eventually, granted, hold, line, mutex, refusal, until_standing, wait_for,
};

const SECRET: &str = "s3cret";

async fn works(client: &Client) {
    hold(client, "x", LONG).await.release().await.unwrap();
}

#[tokio::test]
async fn a_server_is_verified_unless_that_is_switched_off() {
    let ca = TestCa::new();
    let good = Server::start(Redis::new().tls(&ca, ServerCert::Good));
    works(&client(good.url()).await).await;
    works(&client(format!("{}&tls=true", good.url())).await).await;
    let unknown_authority = TestCa::new();
    let port = good.addr().port();
    let error = refusal(format!("rediss://localhost:{port}?ca={}", unknown_authority.pem().display())).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    works(&client(format!("rediss://localhost:{port}?tls_verify=false")).await).await;

    for (cert, word) in [
        (ServerCert::WrongHost, "is for another host"),
        (ServerCert::Expired, "expired"),
        (ServerCert::SelfSigned, "no authority that is known"),
    ] {
        let bad = Server::start(Redis::new().tls(&ca, cert));
        let error = refusal(bad.url()).await;
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(word), "{cert:?}: {error}");
        works(&client(format!("{}&tls_verify=false", bad.url())).await).await;
    }
    // Each of the two speaks where the other is expected.
    let plain = Redis::start();
    for url in [
        format!("redis://localhost:{port}?connect_timeout=300ms"),
        format!("rediss://{}?connect_timeout=300ms&tls_verify=false", plain.addr()),
    ] {
        let error = refusal(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Incompatible), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_it_has_one() {
    let ca = TestCa::new();
    let server = Server::start(Redis::new().tls(&ca, ServerCert::Good).config("tls-auth-clients yes"));
    let error = refusal(server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    let (dir, mine) = (tempdir().unwrap(), ca.server(ServerCert::Good));
    let [cert, key] = [("cert.pem", &mine.cert), ("key.pem", &mine.key)].map(|(name, text)| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    works(&client(format!("{}&cert={}&key={}", server.url(), cert.display(), key.display())).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_connections_break_and_wake_as_plain_ones_do() {
    let ca = TestCa::new();
    let server = Server::start(Redis::new().tls(&ca, ServerCert::Good).requirepass(SECRET));
    let proxy = ChaosProxy::start(server.addr());
    let client = client(format!("{}&timeout=200ms", server.url_at(proxy.addr()))).await;
    let guard = hold(&client, "x", Duration::from_secs(2)).await;
    let waiting = wait_for(mutex(&client, "x", LONG));
    eventually("it stands in line", async || line(&server, "x") == 1).await;
    proxy.set(Mode::Refuse);
    until_standing(&guard, "the outage is noticed", |now| *now != kilit_core::Standing::Held).await;
    proxy.set(Mode::Pass);
    until_standing(&guard, "it is held again", |now| *now == kilit_core::Standing::Held).await;
    guard.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_and_a_database() {
    let server = Redis::start();
    let socket = client(server.unix_url()).await;
    let guard = hold(&socket, "x", LONG).await;
    assert!(server.value("lock:x").is_some());
    guard.release().await.unwrap();

    // The same key of another database is another lock; pushes come there as well.
    let of_three = [format!("{}/3", server.url()), format!("{}?db=3", server.unix_url())];
    let [one, other] = [client(&of_three[0]).await, client(&of_three[1]).await];
    let (zero, three) = (hold(&socket, "x", LONG).await, hold(&one, "x", LONG).await);
    assert_ne!(zero.owner(), three.owner());
    assert!(server.info("keyspace")["db3"].starts_with("keys="));
    let waiting = wait_for(mutex(&other, "x", LONG));
    let in_line =
        async || !one.inspect(Some(three.name())).await.unwrap()[0].queue.as_ref().unwrap().is_empty();
    eventually("it stands in line", in_line).await;
    three.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
    zero.release().await.unwrap();
    let error = refusal(format!("{}/99", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
}

#[tokio::test]
async fn a_password_comes_by_url_or_file_and_is_told_to_nobody() {
    let users = ["user app on >s3cret ~* &* +@all", "user default off"];
    let server = Server::start(Redis::new().acl(users));
    let dir = tempdir().unwrap();
    let file = dir.path().join("password");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let addr = server.addr();
    let by_url = client(format!("redis://app:{SECRET}@{addr}")).await;
    works(&by_url).await;
    works(&client(format!("redis://app@{addr}?password_file={}", file.display())).await).await;
    works(&client(format!("redis://{addr}?user=app&password_file={}", file.display())).await).await;
    let guard = hold(&by_url, "y", LONG).await;
    let shown = format!("{by_url:?} {:?} {guard:?}", by_url.engine());
    assert!(!shown.contains(SECRET), "{shown}");
    for (scheme, login, path) in [
        ("redis", format!("app:{SECRET}x@"), ""),
        ("redis", format!(":{SECRET}@"), ""),
        ("rediss", format!("app:{SECRET}@"), ""),
        ("redis+cluster", format!("app:{SECRET}@"), ""),
        ("redis+sentinel", format!("app:{SECRET}@"), "/mymaster"),
    ] {
        let error = refusal(format!("{scheme}://{login}{addr}{path}?connect_timeout=500ms")).await;
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
}
