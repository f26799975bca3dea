//! Locks of their own, and the command under test.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use kilit_testbed::{
    Process, Signal, TempDir,
    process::Exit,
    server::{
        LeaseServer, Redis, Server,
        redis::{RedisCluster, RedisSentinel},
    },
    tempdir,
};
use serde_json::Value;

/// Longer than anything takes that works.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A directory for files, and an engine that nobody else uses.
pub(crate) struct Place {
    dir: TempDir,
    home: Home,
}

/// Where the locks are.
enum Home {
    Files,
    TestLease(Server<LeaseServer>),
    Redis(Server<Redis>),
    RedisCluster(RedisCluster),
    RedisSentinel(RedisSentinel),
}

/// Makes each case, a function of a place, a test on each engine.
macro_rules! on_engines {
    ([$($engine:ident),+] $cases:tt) => { $(on_engines! { $engine $cases })+ };
    ($engine:ident { $($case:ident,)+ }) => {
        mod $engine {
            $(#[test] fn $case() { super::$case(crate::place::Place::$engine()) })+
        }
    };
}
pub(crate) use on_engines;

impl Place {
    /// On the file engine.
    pub(crate) fn new() -> Self {
        Self::at(Home::Files)
    }

    /// The same, by its name.
    pub(crate) fn file() -> Self {
        Self::new()
    }

    /// At a test lease server, for a `kilit` that knows such.
    pub(crate) fn testlease() -> Self {
        Self::at(Home::TestLease(LeaseServer::start()))
    }

    /// At a Redis server as it comes.
    pub(crate) fn redis() -> Self {
        Self::with_redis(Redis::new())
    }

    /// At a Redis server that is set up like this.
    pub(crate) fn with_redis(spec: Redis) -> Self {
        Self::at(Home::Redis(Server::start(spec)))
    }

    /// At a cluster of three.
    pub(crate) fn redis_cluster() -> Self {
        Self::at(Home::RedisCluster(RedisCluster::start()))
    }

    /// At a primary and its replicas, which sentinels watch.
    pub(crate) fn redis_sentinel() -> Self {
        Self::at(Home::RedisSentinel(RedisSentinel::start()))
    }

    fn at(home: Home) -> Self {
        Self { dir: tempdir().unwrap(), home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        match &self.home {
            Home::Files => format!("file://{}", self.path("locks").display()),
            Home::TestLease(server) => Server::<LeaseServer>::url(server.addr()),
            Home::Redis(server) => server.url(),
            Home::RedisCluster(cluster) => cluster.url(),
            Home::RedisSentinel(system) => system.url(),
        }
    }

    /// The URL of what stands in front of the server.
    pub(crate) fn url_at(&self, addr: SocketAddr) -> String {
        match &self.home {
            Home::TestLease(_) => Server::<LeaseServer>::url(addr),
            Home::Redis(server) => server.url_at(addr),
            _ => panic!("there is no one server"),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match &self.home {
            Home::TestLease(server) => server.addr(),
            Home::Redis(server) => server.addr(),
            _ => panic!("there is no one server"),
        }
    }

    pub(crate) fn server_process(&mut self) -> &mut Process {
        match &mut self.home {
            Home::TestLease(server) => server.process(),
            Home::Redis(server) => server.process(),
            _ => panic!("there is no one server"),
        }
    }

    pub(crate) fn server(&self) -> &Server<Redis> {
        match &self.home {
            Home::Redis(server) => server,
            _ => panic!("this place is at no Redis server"),
        }
    }

    pub(crate) fn server_mut(&mut self) -> &mut Server<Redis> {
        match &mut self.home {
            Home::Redis(server) => server,
            _ => panic!("this place is at no Redis server"),
        }
    }

    pub(crate) fn sentinel_mut(&mut self) -> &mut RedisSentinel {
        match &mut self.home {
            Home::RedisSentinel(system) => system,
            _ => panic!("this place has no sentinels"),
        }
    }

    /// `kilit`, with the engine of this place.
    pub(crate) fn kilit<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = match &self.home {
            Home::TestLease(_) => kilit_of(env::var_os("KILIT_BIN_TESTLEASE").expect(
                "KILIT_BIN_TESTLEASE is unset: build kilit-cli with the feature testlease and set it to its path",
            )),
            _ => kilit(),
        };
        command.env("KILIT_ENGINE", self.url()).args(args);
        command
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Exit {
        Process::run(&mut self.kilit(args), SOON)
    }

    /// Starts it, and waits until its command has said `ready`.
    #[track_caller]
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Process {
        let mut process = Process::spawn(&mut self.kilit(args));
        wait_for_line(&mut process, "ready");
        process
    }

    /// A holder of `name` that lives until it is told to end.
    #[track_caller]
    pub(crate) fn hold(&self, name: &str) -> Process {
        self.start(["run", name, "--", "sh", "-c", "echo ready; exec sleep 600"])
    }

    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> Value {
        serde_json::from_str(&self.run(["status", "--json", name]).stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect_free(&self, name: &str) {
        self.run(["status", name]).expect_code(1);
    }
}

/// The command under test, with nothing of kilit's in its environment.
pub(crate) fn kilit() -> Command {
    kilit_of(env::var_os("KILIT_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_kilit").into()))
}

fn kilit_of(program: OsString) -> Command {
    let mut command = Command::new(program);
    for key in ["KILIT_ENGINE", "KILIT_PASSWORD", "KILIT_LOG", "KILIT_TOKEN", "KILIT_TOKEN_SOURCE"] {
        command.env_remove(key);
    }
    command
}

#[track_caller]
pub(crate) fn wait_for_line(process: &mut Process, line: &str) {
    process.wait_for_stdout(SOON, |text| text.lines().any(|it| it == line).then_some(()));
}

/// Nothing that it has started lives.
#[track_caller]
pub(crate) fn expect_no_family(ended: &Process) {
    assert!(ended.family().is_empty(), "these live on: {:?}", ended.family());
}

/// The guardian among what `kilit` has started.
#[track_caller]
pub(crate) fn guardian_of(kilit: &Process) -> u32 {
    let is_guardian = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.starts_with(b"kilit\0guardian\0")
    };
    kilit.family().into_iter().find(is_guardian).expect("a guardian runs")
}

#[track_caller]
pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
