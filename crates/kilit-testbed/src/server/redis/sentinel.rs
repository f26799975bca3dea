//! A primary, two replicas, and three sentinels that name the primary.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use super::{
    Redis, Redislike, conf,
    replicas::{is_primary, start_replica, wait_until_synced},
};
use crate::{
    Process,
    process::poll_until,
    server::{Server, Spec},
    tls::Identity,
    until_eof::until_eof,
    wait_until,
};

/// The name by which sentinels know the primary.
pub const MASTER: &str = "mymaster";

/// One sentinel.
#[derive(Clone, Debug)]
pub struct Sentinel {
    primary: SocketAddr,
    tls: Option<Identity>,
    lines: Vec<String>,
}

/// The whole. A primary that has been silent for a second is replaced when two sentinels say so.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The servers: at the start, the first is the primary.
    pub servers: Vec<Server<Redis>>,
    /// The sentinels.
    pub sentinels: Vec<Server<Sentinel>>,
}

impl RedisSentinel {
    /// Starts all of it, and waits until everyone knows of everyone.
    ///
    /// # Panics
    /// When that takes longer than half a minute.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&Redis::new(), &[])
    }

    /// The same, with every server set up like this, and these lines more in the sentinels' settings. The sentinels speak
    /// TLS when the servers do.
    ///
    /// # Panics
    /// When that takes longer than half a minute.
    #[track_caller]
    pub fn start_with(spec: &Redis, sentinel: &[&str]) -> Self {
        let primary = Server::start(spec.clone());
        let replicas: Vec<_> = (0..2).map(|_| start_replica(spec, primary.addr())).collect();
        // Before the sentinels: they ask about replicas at once, and then only every ten seconds.
        wait_until_synced(&primary, &replicas);
        let sentinel = Sentinel {
            primary: primary.addr(),
            tls: spec.identity().cloned(),
            lines: sentinel.iter().map(ToString::to_string).collect(),
        };
        let sentinels = (0..3).map(|_| Server::start(sentinel.clone())).collect();
        let servers = [primary].into_iter().chain(replicas).collect();
        let all = Self { servers, sentinels };
        wait_until("the sentinels know each other and the replicas", Duration::from_secs(30), || {
            all.sentinels.iter().all(|sentinel| sentinel.knows(2, 2))
        });
        all
    }

    /// The engine URL.
    pub fn url(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(Server::addr).collect();
        self.servers[0].spec.url_of("redis+sentinel", &sentinels, &format!("/{MASTER}"))
    }

    /// The index of the server that every living sentinel names, and that says so itself; none while they differ.
    pub fn primary(&self) -> Option<usize> {
        let mut named = self.sentinels.iter().filter_map(|sentinel| sentinel.named().ok());
        let first = named.next()?;
        let index = self.servers.iter().position(|server| server.addr() == first)?;
        (named.all(|other| other == first) && is_primary(&self.servers[index])).then_some(index)
    }

    /// Kills the primary, and tells which it was.
    ///
    /// # Panics
    /// When there is none at this moment.
    #[track_caller]
    pub fn kill_primary(&mut self) -> usize {
        let primary = self.primary().expect("a primary");
        self.servers[primary].kill();
        primary
    }

    /// Waits until all sentinels name another server than `old`, and returns which.
    ///
    /// # Panics
    /// When that takes longer than half a minute.
    #[track_caller]
    pub fn wait_for_failover(&self, old: usize) -> usize {
        let within = Duration::from_secs(30);
        poll_until(within, || self.primary().filter(|&primary| primary != old)).unwrap_or_else(|| {
            panic!("no failover within {within:?}: {:?}", self.sentinels[0].process.stdout())
        })
    }
}

impl Server<Sentinel> {
    /// Which server it names.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn named(&self) -> redis::RedisResult<SocketAddr> {
        let (ip, port): (String, String) = self.try_query(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?;
        Ok(format!("{ip}:{port}").parse().expect("sentinels name addresses"))
    }

    fn knows(&self, replicas: usize, sentinels: usize) -> bool {
        let count = |what| -> usize { self.query::<Vec<redis::Value>>(["SENTINEL", what, MASTER]).len() };
        count("REPLICAS") == replicas && count("SENTINELS") == sentinels
    }
}

impl Spec for Sentinel {
    fn command(&self, port: u16, dir: &Path) -> Command {
        let of_master = [
            &format!("monitor {MASTER} {} {} 2", self.primary.ip(), self.primary.port()),
            "auth-user {} testbed",
            "auth-pass {} any",
            "down-after-milliseconds {} 1000",
            "failover-timeout {} 3000",
            "sentinel-user testbed",
            "sentinel-pass any",
        ];
        let of_master = of_master.map(|line| format!("sentinel {}", line.replace("{}", MASTER)));
        let lines: Vec<_> = of_master.into_iter().chain(self.lines.iter().cloned()).collect();
        let mut command = until_eof("redis-server");
        command.arg(conf::write(port, dir, self.tls.as_ref(), &lines)).arg("--sentinel");
        command
    }

    fn is_ready(&self, _addr: SocketAddr, process: &Process) -> bool {
        process.stdout().contains("+monitor master")
    }
}

impl Redislike for Sentinel {}
