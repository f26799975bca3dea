//! A cluster of three masters.

use std::{net::SocketAddr, ops::Range, time::Duration};

use super::{Redis, client::fields, replicas::is_synced};
use crate::{process::poll_until, server::Server, wait_until};

const SLOTS: usize = 16384;
const MASTERS: usize = 3;
const WITHIN: Duration = Duration::from_secs(30);

/// Three masters with a third of the slots each, and a replica of each where it was asked for. A node that has been silent
/// for a second counts as dead.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes: first the masters, then their replicas in the same order.
    pub nodes: Vec<Server<Redis>>,
    ids: Vec<String>,
}

impl RedisCluster {
    /// Starts three masters.
    ///
    /// # Panics
    /// When they are no cluster within half a minute.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&Redis::new(), MASTERS)
    }

    /// Starts three masters with a replica each.
    ///
    /// # Panics
    /// When they are no cluster within half a minute.
    #[track_caller]
    pub fn start_with_replicas() -> Self {
        Self::start_with(&Redis::new(), 2 * MASTERS)
    }

    /// Starts three masters, and replicas of them up to this many nodes, all set up like this.
    ///
    /// # Panics
    /// When they are no cluster within half a minute.
    #[track_caller]
    pub fn start_with(spec: &Redis, nodes: usize) -> Self {
        let spec = spec.clone().cluster();
        let nodes: Vec<_> = (0..nodes).map(|_| Server::start(spec.clone())).collect();
        let ids = nodes.iter().map(|node| node.query(["CLUSTER", "MYID"])).collect();
        let cluster = Self { nodes, ids };
        for (index, slots) in share_of_slots().enumerate() {
            let node = &cluster.nodes[index];
            node.command([
                "CLUSTER",
                "ADDSLOTSRANGE",
                &slots.start.to_string(),
                &(slots.end - 1).to_string(),
            ]);
            // Otherwise they begin equal, and quarrel first.
            node.command(["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        cluster.introduce();
        cluster.wait_until_ok();
        for replica in MASTERS..cluster.nodes.len() {
            cluster.nodes[replica].command(["CLUSTER", "REPLICATE", &cluster.ids[replica % MASTERS]]);
        }
        wait_until("every replica is known and has its master's data", WITHIN, || {
            let replicas = cluster.nodes.len() - MASTERS;
            cluster.nodes[MASTERS..].iter().all(is_synced)
                && cluster.nodes.iter().all(|node| node.cluster_nodes().matches("slave ").count() == replicas)
        });
        cluster
    }

    /// The engine URL, with every node.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(Server::addr).collect();
        self.nodes[0].spec.url_of("redis+cluster", &nodes, "")
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// When nobody answers.
    #[track_caller]
    pub fn slot(&self, key: &[u8]) -> u16 {
        let ask = |node: &Server<Redis>| node.try_query([b"CLUSTER", &b"KEYSLOT"[..], key]).ok();
        self.nodes.iter().find_map(ask).expect("a node that answers")
    }

    /// The index of the node that serves a slot, by the word of every living node; none while they differ, or the cluster
    /// is down.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        let mut owners = self.nodes.iter().filter_map(|node| node.try_owner(slot));
        let first = owners.next()?;
        let index = self.nodes.iter().position(|node| Some(node.addr()) == first)?;
        (owners.all(|other| other == first) && self.is_ok()).then_some(index)
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Waits until another node than `old` serves the slot, and returns which. After a master's death that is its replica.
    ///
    /// # Panics
    /// When that takes longer than half a minute.
    #[track_caller]
    pub fn wait_for_takeover(&self, slot: u16, old: usize) -> usize {
        poll_until(WITHIN, || self.owner(slot).filter(|&owner| owner != old))
            .unwrap_or_else(|| panic!("nobody took over within {WITHIN:?}:\n{}", self.account()))
    }

    /// Begins to move a slot: until that is ended, `from` answers with ASK for keys that it does not have.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.nodes[to].command(["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.nodes[from].command(["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves the keys of a slot whose move has begun.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], self.nodes[to].addr());
        let (ip, port) = (to.ip().to_string(), to.port().to_string());
        loop {
            let keys: Vec<Vec<u8>> = from.query(["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
            if keys.is_empty() {
                return;
            }
            let to = ["MIGRATE", &ip, &port, "", "0", "5000", "AUTH2", "testbed", "any", "KEYS"];
            let to = to.map(|word| word.as_bytes().to_vec());
            from.command(to.into_iter().chain(keys));
        }
    }

    /// Ends the move of a slot: `from` answers with MOVED.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let others = (0..MASTERS).filter(|&node| node != from && node != to);
        // In this order there is no moment at which nobody owns it.
        for node in [to, from].into_iter().chain(others) {
            self.nodes[node].command(["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]]);
        }
    }

    /// Moves a slot with its keys, from whoever has it.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        let from = self.owner(slot).expect("an owner");
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    /// Waits until every living node says that the cluster works.
    ///
    /// # Panics
    /// When that takes longer than half a minute.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        let ok = poll_until(WITHIN, || self.is_ok().then_some(()));
        ok.unwrap_or_else(|| panic!("no cluster within {WITHIN:?}:\n{}", self.account()));
    }

    /// Everybody to everybody, which is sooner than by hearsay.
    fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..index] {
                let (addr, bus) = (other.addr(), other.bus_port());
                node.command(["CLUSTER", "MEET", &addr.ip().to_string(), &addr.port().to_string(), &bus]);
            }
        }
    }

    fn is_ok(&self) -> bool {
        let infos = self.nodes.iter().filter_map(|node| node.try_query::<String>(["CLUSTER", "INFO"]).ok());
        let known = self.nodes.len().to_string();
        let is_ok = |info: String| {
            let info = fields(&info);
            info["cluster_state"] == "ok" && info["cluster_known_nodes"] == known
        };
        infos.map(is_ok).reduce(|all, one| all && one).unwrap_or(false)
    }

    fn account(&self) -> String {
        let nodes = self.nodes.iter();
        nodes
            .map(|node| node.try_query(["CLUSTER", "NODES"]).unwrap_or_else(|error| format!("{error}\n")))
            .collect()
    }
}

impl Server<Redis> {
    fn cluster_nodes(&self) -> String {
        self.query(["CLUSTER", "NODES"])
    }

    fn bus_port(&self) -> String {
        self.query::<(String, String)>(["CONFIG", "GET", "cluster-port"]).1
    }

    /// Where it says that a slot is served: none when it does not answer, and nowhere when nobody serves it.
    fn try_owner(&self, slot: u16) -> Option<Option<SocketAddr>> {
        let nodes: String = self.try_query(["CLUSTER", "NODES"]).ok()?;
        Some(nodes.lines().find_map(|line| serves(line, slot)))
    }
}

/// The address in a line of CLUSTER NODES, when it is of the node that serves the slot:
/// `ID IP:PORT@BUS FLAGS MASTER PING PONG EPOCH LINK SLOTS…`.
fn serves(line: &str, slot: u16) -> Option<SocketAddr> {
    let fields: Vec<_> = line.split(' ').collect();
    let within = |slots: &&str| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        // Those in brackets are just being moved, and are no numbers.
        first.parse().is_ok_and(|first| last.parse().is_ok_and(|last| (first..=last).contains(&slot)))
    };
    fields.get(8..)?.iter().find(|slots| within(slots))?;
    fields[1].split('@').next()?.parse().ok()
}

fn share_of_slots() -> impl Iterator<Item = Range<usize>> {
    (0..MASTERS).map(|index| SLOTS * index / MASTERS..SLOTS * (index + 1) / MASTERS)
}
