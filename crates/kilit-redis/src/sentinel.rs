//! The master that the sentinels name.
//!
//! Source: "Guidelines for Redis clients with support for Redis Sentinel" of the Redis manual.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilit_core::{Error, ErrorKind, Result};
use redis::Value;

use crate::{
    config::{Address, Login},
    connection::Role,
    failure::Failure,
    flight::Flight,
    node::{Node, Shared},
    topology::first_answer,
};

/// The sentinels, and the master they named last.
#[derive(Debug)]
pub(crate) struct Sentinel {
    sentinels: Vec<Arc<Node>>,
    name: String,
    shared: Arc<Shared>,
    master: Mutex<Option<Arc<Node>>>,
    asking: Flight<Arc<Node>>,
}

impl Sentinel {
    pub(crate) fn new(sentinels: Vec<Address>, name: String, login: Login, shared: Arc<Shared>) -> Arc<Self> {
        let node = |address| Node::new(address, login.clone(), Role::Sentinel, shared.clone());
        let sentinels = sentinels.into_iter().map(node).collect();
        Arc::new(Self { sentinels, name, shared, master: Mutex::default(), asking: Flight::default() })
    }

    /// The master, as last named, or as the first sentinel to answer names it now.
    pub(crate) async fn master(self: &Arc<Self>) -> Result<Arc<Node>> {
        if let Some(master) = self.last() {
            return Ok(master);
        }
        let this = self.clone();
        self.asking.join(|| async move { this.ask_all().await }).await
    }

    async fn ask_all(&self) -> Result<Arc<Node>> {
        if let Some(master) = self.last() {
            return Ok(master);
        }
        let address =
            first_answer(self.sentinels.iter().map(|sentinel| self.ask(sentinel)).collect()).await?;
        let login = self.shared.config.login.clone();
        let master = Node::new(address, login, Role::Master, self.shared.clone());
        *self.slot() = Some(master.clone());
        Ok(master)
    }

    async fn ask(&self, sentinel: &Arc<Node>) -> Result<Address> {
        let connection = sentinel.connection().await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(&self.name);
        let server = sentinel.address().to_string();
        match connection.send(&command).await {
            Ok(Value::Array(parts)) => match &parts[..] {
                [Value::BulkString(host), Value::BulkString(port)] => {
                    let host = std::str::from_utf8(host).ok();
                    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
                    let address = host.zip(port).map(|(host, port)| Address::Tcp { host: host.into(), port });
                    address.ok_or_else(|| crate::failure::nonsense(&server, &Value::Array(parts.clone())))
                }
                _ => Err(crate::failure::nonsense(&server, &Value::Array(parts))),
            },
            Ok(_) => Err(Error::new(
                ErrorKind::Refused,
                format!("the sentinel {server} knows no master `{}`", self.name.escape_debug()),
            )),
            Err(Failure::Refused(why)) => Err(why.error(&server)),
            Err(Failure::Silence(why)) => Err(crate::failure::unreachable(&server, why)),
        }
    }

    /// It may not be the master any more.
    pub(crate) fn doubt(&self, node: &Arc<Node>) {
        self.slot().take_if(|master| Arc::ptr_eq(master, node));
    }

    /// Whoever it is.
    pub(crate) fn forget(&self) {
        *self.slot() = None;
    }

    fn last(&self) -> Option<Arc<Node>> {
        self.slot().clone()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Node>>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
