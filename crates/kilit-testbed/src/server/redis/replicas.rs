//! A primary and its replicas.

use std::{net::SocketAddr, time::Duration};

use super::Redis;
use crate::{chaos::ChaosProxy, server::Server, wait_until};

const SYNCED_WITHIN: Duration = Duration::from_secs(30);

/// A primary and replicas that have all of its data. Each follows through a proxy of its own.
///
/// A write that a replica shall miss needs its link in [`Mode::Blackhole`](crate::chaos::Mode::Blackhole) before: a replica
/// that is merely stopped finds it in its socket when it goes on.
#[derive(Debug)]
pub struct RedisWithReplicas {
    /// The primary.
    pub primary: Server<Redis>,
    /// The replicas.
    pub replicas: Vec<Server<Redis>>,
    /// What stands between the primary and the replica of the same index.
    pub links: Vec<ChaosProxy>,
}

impl RedisWithReplicas {
    /// Starts a primary and `replicas` as they come.
    ///
    /// # Panics
    /// When they are not one system within half a minute.
    #[track_caller]
    pub fn start(replicas: usize) -> Self {
        Self::start_with(&Redis::new(), replicas)
    }

    /// Starts a primary and `replicas` that are all set up like this.
    ///
    /// # Panics
    /// When they are not one system within half a minute.
    #[track_caller]
    pub fn start_with(spec: &Redis, replicas: usize) -> Self {
        let primary = Server::start(spec.clone());
        let links: Vec<_> = (0..replicas).map(|_| ChaosProxy::start(primary.addr())).collect();
        let replicas: Vec<_> = links.iter().map(|link| start_replica(spec, link.addr())).collect();
        wait_until_synced(&primary, &replicas);
        Self { primary, replicas, links }
    }

    /// Makes a replica a primary, which ends its link.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn promote(&self, replica: usize) {
        self.replicas[replica].command(["REPLICAOF", "NO", "ONE"]);
    }
}

/// Starts a server that follows another.
#[track_caller]
pub(super) fn start_replica(spec: &Redis, primary: SocketAddr) -> Server<Redis> {
    let line = format!("replicaof {} {}", primary.ip(), primary.port());
    Server::start(spec.clone().config(line))
}

/// Waits until both ends say so: a replica is counted by WAIT only when the primary has heard from it.
#[track_caller]
pub(super) fn wait_until_synced(primary: &Server<Redis>, replicas: &[Server<Redis>]) {
    wait_until("every replica has the primary's data", SYNCED_WITHIN, || {
        let online =
            primary.info("replication").values().filter(|value| value.contains("state=online")).count();
        online == replicas.len() && replicas.iter().all(is_synced)
    });
}

pub(super) fn is_synced(replica: &Server<Redis>) -> bool {
    replica.info("replication").get("master_link_status").is_some_and(|status| status == "up")
}

/// Whether it takes writes, by its own word; no when it does not answer.
pub(super) fn is_primary(server: &Server<Redis>) -> bool {
    server.try_query::<String>(["INFO", "replication"]).is_ok_and(|info| info.contains("role:master"))
}
