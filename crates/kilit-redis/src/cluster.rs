//! The masters of a cluster, and which slots they have.
//!
//! Source: the Redis cluster specification, "Redirection and resharding".

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kilit_core::{Error, ErrorKind, Result};
use redis::Value;

use crate::{
    config::Address,
    connection::Role,
    failure::{Failure, nonsense, unreachable},
    flight::Flight,
    keys::SLOTS,
    node::{Node, Shared},
    topology::first_answer,
};

/// A cluster as its nodes described it last.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    shared: Arc<Shared>,
    map: Mutex<Map>,
    /// The map may be out of date.
    doubtful: AtomicBool,
    learning: Flight<()>,
}

#[derive(Debug, Default)]
struct Map {
    /// All that were seen, kept for their connections.
    nodes: HashMap<Address, Arc<Node>>,
    /// Who has which slot: the first and the last of a range.
    ranges: Vec<(u16, u16, Arc<Node>)>,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Address>, shared: Arc<Shared>) -> Arc<Self> {
        let (map, doubtful, learning) = (Mutex::default(), AtomicBool::new(true), Flight::default());
        Arc::new(Self { seeds, shared, map, doubtful, learning })
    }

    /// The master of a slot.
    pub(crate) async fn master(self: &Arc<Self>, slot: u16) -> Result<Arc<Node>> {
        self.refresh().await?;
        let map = self.map();
        let range = map.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
        range.map(|(_, _, node)| node.clone()).ok_or_else(|| {
            let text = format!("slot {slot} of the Redis cluster has no master; is the cluster whole?");
            self.doubt();
            Error::new(ErrorKind::Unreachable, text)
        })
    }

    /// All masters that have slots.
    pub(crate) async fn masters(self: &Arc<Self>) -> Result<Vec<Arc<Node>>> {
        self.refresh().await?;
        let mut masters: Vec<Arc<Node>> = Vec::new();
        for (_, _, node) in &self.map().ranges {
            if !masters.iter().any(|other| Arc::ptr_eq(other, node)) {
                masters.push(node.clone());
            }
        }
        Ok(masters)
    }

    /// The server of an address as a redirect names it.
    pub(crate) fn node_at(&self, address: &str) -> Result<Arc<Node>> {
        let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else {
            return Err(Error::new(
                ErrorKind::Incompatible,
                "a redirect of the Redis cluster has no address",
            ));
        };
        Ok(self.node(Address::Tcp { host: host.into(), port }))
    }

    /// The map may be out of date: it is read anew before it is used again.
    pub(crate) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Release);
    }

    /// Reads the map anew.
    pub(crate) async fn learn(self: &Arc<Self>) -> Result<()> {
        self.doubt();
        self.refresh().await
    }

    async fn refresh(self: &Arc<Self>) -> Result<()> {
        if !self.doubtful.load(Ordering::Acquire) {
            return Ok(());
        }
        let this = self.clone();
        self.learning.join(|| async move { this.ask_all().await }).await
    }

    async fn ask_all(&self) -> Result<()> {
        if !self.doubtful.load(Ordering::Acquire) {
            return Ok(());
        }
        let known: HashSet<_> = self.map().nodes.keys().chain(&self.seeds).cloned().collect();
        let ranges = first_answer(known.into_iter().map(|address| self.ask(address)).collect()).await?;
        self.doubtful.store(false, Ordering::Release);
        self.adopt(ranges);
        Ok(())
    }

    /// What one node says of the cluster.
    async fn ask(&self, address: Address) -> Result<Vec<(u16, u16, Address)>> {
        let connection = self.node(address.clone()).connection().await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let server = address.to_string();
        match connection.send(&command).await {
            Ok(Value::Array(ranges)) => ranges
                .iter()
                .map(|range| read(range, &address).ok_or_else(|| nonsense(&server, range)))
                .collect(),
            Ok(value) => Err(nonsense(&server, &value)),
            Err(Failure::Refused(why)) => Err(why.error(&server)),
            Err(Failure::Silence(why)) => Err(unreachable(&server, why)),
        }
    }

    fn adopt(&self, ranges: Vec<(u16, u16, Address)>) {
        let ranges: Vec<_> =
            ranges.into_iter().map(|(first, last, address)| (first, last, self.node(address))).collect();
        let mut map = self.map();
        map.ranges = ranges;
        let used: Vec<_> = map.ranges.iter().map(|(_, _, node)| node.address().clone()).collect();
        map.nodes.retain(|address, _| used.contains(address));
    }

    fn node(&self, address: Address) -> Arc<Node> {
        let mut map = self.map();
        let login = || self.shared.config.login.clone();
        let new = |address: &Address| Node::new(address.clone(), login(), Role::Any, self.shared.clone());
        map.nodes.entry(address.clone()).or_insert_with_key(new).clone()
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// First slot, last slot, master. An empty host is the one that was asked.
fn read(range: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    let host: Arc<str> = match (host, asked) {
        (Value::BulkString(host), _) if !host.is_empty() => std::str::from_utf8(host).ok()?.into(),
        (_, Address::Tcp { host, .. }) => host.clone(),
        (_, Address::Unix(_)) => return None,
    };
    Some((slot(first)?, slot(last)?, Address::Tcp { host, port: u16::try_from(*port).ok()? }))
}
