use std::{path::Path, process::Command};

use kilit_core::EngineUrl;
use kilit_testbed::{
    Process, is_gone,
    server::{
        Redis, Server,
        redis::{Persistence, Redislike},
    },
    tls::{ServerCert, TestCa},
    wait_until,
};

use crate::SOON;

fn set_nx(server: &Server<Redis>, px: &str) -> bool {
    server.query::<Option<String>>(["SET", "key", "value", "NX", "PX", px]).is_some()
}

fn ttl_ms(server: &Server<impl Redislike>) -> i64 {
    server.query(["PTTL", "key"])
}

#[test]
fn it_answers_counts_and_ends() {
    let mut server = Redis::start();
    assert!(set_nx(&server, "60000") && !set_nx(&server, "60000"));
    assert_eq!(server.query::<String>(["GET", "key"]), "value");
    let stats = server.commandstats();
    assert_eq!((stats["set"], stats["get"]), (2, 1), "{stats:?}");
    assert!(server.info("server")["redis_version"].starts_with("7."));
    assert!(server.try_query::<String>(["NO-SUCH-COMMAND"]).is_err());
    let url: EngineUrl = server.url().parse().unwrap();
    assert_eq!((url.scheme(), url.hosts()), ("redis", &[server.addr().to_string()][..]));
    let url: EngineUrl = server.unix_url().parse().unwrap();
    assert!(url.scheme() == "redis+unix" && Path::new(url.path()).exists());

    let (pid, dir) = (server.process().pid(), server.dir().to_owned());
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "redis-server\n");
    drop(server);
    assert!(is_gone(pid) && !dir.exists());
}

#[test]
fn a_monitor_sees_what_scripts_call_too() {
    let server = Redis::start();
    let monitor = server.monitor();
    server.command(["EVAL", "return redis.call('set', KEYS[1], ARGV[1])", "1", "key", "v"]);
    monitor.wait("the script's write", |lines| {
        lines.iter().any(|line| line.contains("lua] \"set\" \"key\" \"v\""))
    });
    drop(server);
    assert!(monitor.lines().iter().any(|line| line.contains("\"EVAL\"")));
}

#[test]
fn a_restart_forgets_all_but_what_is_on_disk() {
    let mut forgets = Redis::start();
    let mut snapshot = Server::start(Redis::new().persistence(Persistence::Rdb));
    let mut log = Server::start(Redis::new().persistence(Persistence::Aof { fsync: "always" }));
    for server in [&forgets, &snapshot, &log] {
        assert!(set_nx(server, "600000"));
    }
    snapshot.command(["SAVE"]);
    for server in [&mut forgets, &mut snapshot, &mut log] {
        server.restart();
    }
    assert_eq!(
        [set_nx(&forgets, "1000"), set_nx(&snapshot, "1000"), set_nx(&log, "1000")],
        [true, false, false]
    );
}

#[test]
fn users_passwords_and_settings_are_set() {
    let users = ["user app on >secret ~lock:* +get", "user default off"];
    let server = Server::start(Redis::new().acl(users).maxmemory_policy("allkeys-lru").config("databases 3"));
    let policy: Vec<String> = server.query(["CONFIG", "GET", "maxmemory-policy", "databases"]);
    assert!(policy.contains(&"allkeys-lru".into()) && policy.contains(&"3".into()), "{policy:?}");
    let cli = |user, command: &[&str]| {
        let mut cli = redis_cli(server.addr().port());
        cli.args(["--no-auth-warning", "--user", user, "--pass", "secret"]).args(command);
        Process::run(&mut cli, SOON).stdout
    };
    assert_eq!(cli("app", &["GET", "lock:a"]), "\n");
    assert!(cli("app", &["GET", "other"]).contains("NOPERM"));
    assert!(cli("nobody", &["GET", "lock:a"]).contains("NOAUTH"));

    let server = Server::start(Redis::new().requirepass("secret"));
    let noauth = Process::run(redis_cli(server.addr().port()).arg("PING"), SOON).stdout;
    assert!(noauth.contains("NOAUTH"), "{noauth}");
    let url: EngineUrl = server.url().parse().unwrap();
    assert_eq!(url.password().unwrap().expose(), "secret");
    let pong = Process::run(redis_cli(server.addr().port()).args(["-a", "secret", "PING"]), SOON);
    assert_eq!(pong.stdout, "PONG\n");
}

#[test]
fn tls_is_good_or_bad_as_told() {
    let ca = TestCa::new();
    let ping = |server: &Server<Redis>, host: &str| {
        let mut cli = redis_cli(server.addr().port());
        cli.args(["-h", host, "--sni", host, "--tls", "--cacert"]).arg(ca.pem()).arg("PING");
        Process::run(&mut cli, SOON)
    };
    let good = Server::start(Redis::new().tls(&ca, ServerCert::Good));
    assert_eq!(ping(&good, "localhost").expect_code(0).stdout, "PONG\n");
    assert_eq!(good.query::<String>(["PING"]), "PONG");
    let url = good.url();
    assert!(url.starts_with("rediss://localhost:") && url.contains("?ca=/"), "{url}");
    let plain = Process::run(redis_cli(good.addr().port()).arg("PING"), SOON);
    assert_ne!(plain.code(), 0);

    let fails = |cert| ping(&Server::start(Redis::new().tls(&ca, cert)), "localhost").stderr;
    for cert in [ServerCert::Expired, ServerCert::SelfSigned] {
        assert!(fails(cert).contains("certificate verify failed"), "{cert:?}: {}", fails(cert));
    }
}

#[test]
fn its_clock_jumps_alone() {
    let server = Server::start(Redis::new().clock_shim());
    let time = || server.query::<(i64, i64)>(["TIME"]).0;
    let ours = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    assert!((time() - ours()).abs() <= 2);

    assert!(set_nx(&server, "30000"));
    server.set_clock_offset_ms(3_600_000);
    assert!((time() - ours() - 3600).abs() <= 2);
    assert!(set_nx(&server, "30000"), "the key lived on though its time had come");
    server.set_clock_offset_ms(-1500);
    assert!((3_600_000..3_700_000).contains(&ttl_ms(&server)), "{}", ttl_ms(&server));
}

#[test]
fn it_is_stopped_and_resumed() {
    let server = Redis::start();
    server.stop();
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.query::<String>(["PING"]));
        // A stopped server has taken the connection; the answer cannot be there.
        assert!(!asked.is_finished());
        server.resume();
        asked.join()
    });
    assert_eq!(asked.unwrap(), "PONG");
}

#[test]
fn a_killed_server_is_gone_for_its_clients() {
    let mut server = Redis::start();
    server.kill();
    assert!(server.try_query::<String>(["PING"]).is_err());
    server.restart();
    wait_until("it answers again", SOON, || server.try_query::<String>(["PING"]).is_ok());
}

fn redis_cli(port: u16) -> Command {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &port.to_string()]);
    cli
}
