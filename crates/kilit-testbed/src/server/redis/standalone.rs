//! One redis-server.

use std::{net::SocketAddr, path::Path, process::Command};

use super::{client::Redislike, clock, conf};
use crate::{
    Process,
    ports::free_port,
    server::{Server, Spec},
    tls::{Identity, ServerCert, TestCa},
    until_eof::until_eof,
};

/// What of the data survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// A snapshot, now and then: in a test, only when it is told to (`SAVE`).
    Rdb,
    /// A log of every write.
    Aof {
        /// When that is written through: `always`, `everysec` or `no`.
        fsync: &'static str,
    },
}

/// How a server is set up; without persistence, password and TLS as it comes.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    lines: Vec<String>,
    password: Option<String>,
    tls: Option<Identity>,
    clock_shim: bool,
    cluster: bool,
}

impl Redis {
    /// A server as it comes, to be started by [`Server::start`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a server as it comes.
    #[track_caller]
    pub fn start() -> Server<Self> {
        Server::start(Self::new())
    }

    /// A line for redis.conf. The last one about a setting counts.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Lines for redis.conf that define users, such as `user app on >secret ~lock:* &* +@all`.
    pub fn acl<'a>(self, users: impl IntoIterator<Item = &'a str>) -> Self {
        users.into_iter().fold(self, Self::config)
    }

    /// Keeps data on disk.
    pub fn persistence(self, persistence: Persistence) -> Self {
        match persistence {
            Persistence::Rdb => self.config("save 86400 1000000000"),
            Persistence::Aof { fsync } => {
                self.config("appendonly yes").config(format!("appendfsync {fsync}"))
            }
        }
    }

    /// What is thrown away when memory is full, such as `allkeys-lru`.
    pub fn maxmemory_policy(self, policy: &str) -> Self {
        self.config(format!("maxmemory-policy {policy}"))
    }

    /// Asks everybody but users of their own for this password.
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.config(format!("requirepass {password}"))
    }

    /// Speaks TLS on its port, and nothing else.
    pub fn tls(mut self, ca: &TestCa, cert: ServerCert) -> Self {
        self.tls = Some(ca.server(cert));
        self
    }

    /// Has a clock that [`Server::set_clock_offset_ms`] shifts.
    pub fn clock_shim(mut self) -> Self {
        self.clock_shim = true;
        self
    }

    /// The engine URL of several servers set up like this, or of who knows them.
    pub(super) fn url_of(&self, scheme: &str, addrs: &[SocketAddr], path: &str) -> String {
        let addrs: Vec<_> = addrs.iter().map(SocketAddr::to_string).collect();
        let tls = self.tls.as_ref().map(|tls| format!("?tls=true&ca={}", tls.ca.display()));
        format!("{scheme}://{}{}{path}{}", self.login(), addrs.join(","), tls.unwrap_or_default())
    }

    /// What stands before the host in a URL.
    fn login(&self) -> String {
        self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.tls.as_ref()
    }

    /// Is a node of a cluster.
    pub(super) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }
}

impl Server<Redis> {
    /// The engine URL of its port, with the password and the authority where it has these.
    pub fn url(&self) -> String {
        self.url_at(self.addr)
    }

    /// The same for what stands in front of it.
    pub fn url_at(&self, addr: SocketAddr) -> String {
        let login = self.spec.login();
        match &self.spec.tls {
            Some(tls) => format!("rediss://{login}localhost:{}?ca={}", addr.port(), tls.ca.display()),
            None => format!("redis://{login}{addr}"),
        }
    }

    /// The engine URL of its unix socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", conf::socket(self.dir()).display())
    }

    /// Sets how far the server's wall clock is ahead of the true one, or behind. It jumps.
    ///
    /// # Panics
    /// When the server was started without [`Redis::clock_shim`].
    pub fn set_clock_offset_ms(&self, ms: i64) {
        assert!(self.spec.clock_shim, "the server has no clock_shim");
        clock::set_offset_ms(self.dir(), ms);
    }
}

impl Spec for Redis {
    fn command(&self, port: u16, dir: &Path) -> Command {
        // Where many servers are one system, a test should not wait for their timers.
        let common = "save \"\"\nenable-debug-command local\nrepl-diskless-sync-delay 0\n\
                      repl-ping-replica-period 1\nmasteruser testbed\nmasterauth any";
        let mut lines = vec![common.to_owned()];
        if self.cluster {
            lines.push(format!(
                "cluster-enabled yes\ncluster-node-timeout 1000\ncluster-port {}",
                free_port()
            ));
            lines.extend(self.tls.is_some().then(|| "tls-cluster yes".to_owned()));
        }
        lines.extend_from_slice(&self.lines);
        let mut command = until_eof("redis-server");
        command.arg(conf::write(port, dir, self.tls.as_ref(), &lines));
        if self.clock_shim {
            clock::preload(&mut command, dir);
        }
        command
    }

    fn is_ready(&self, _addr: SocketAddr, process: &Process) -> bool {
        process.stdout().contains("Ready to accept connections")
    }
}

impl Redislike for Redis {}
