//! Which server has a lock, and who says so.

use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};
use kilit_core::{Effect, Error, ErrorKind, Result, Retry};
use redis::{Cmd, Value};

use crate::{
    cluster::Cluster,
    config::Servers,
    connection::{Connection, Role},
    failure::{Failure, Redirect, Refusal, nonsense, unknown},
    node::{Node, Shared},
    script::Script,
    sentinel::Sentinel,
};

/// How often one request is sent on to another server.
const REDIRECTS: usize = 6;

/// The servers of one client.
#[derive(Debug)]
pub(crate) enum Topology {
    Standalone(Arc<Node>),
    Sentinel(Arc<Sentinel>),
    Cluster(Arc<Cluster>),
}

/// Some steps of one script, all in one slot.
pub(crate) struct Request<'a> {
    pub(crate) script: &'static Script,
    pub(crate) slot: u16,
    /// How many.
    pub(crate) steps: usize,
    /// Writes keys and then arguments of a step, for the connection on which it leaves.
    pub(crate) write: &'a (dyn Fn(&Connection, usize, &mut Cmd) + Sync),
    /// How many replicas are waited for, and how long in ms.
    pub(crate) replicas: Option<(u32, u64)>,
    /// Whether a caller that drops it has waited too long: the next one then gets another connection.
    pub(crate) gives_up: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    /// How many replicas have confirmed, where they were waited for.
    pub(crate) confirmed: i64,
    /// Who answered.
    pub(crate) from: Connection,
}

impl Reply {
    /// It is none that the script gives.
    pub(crate) fn nonsense(&self) -> Error {
        nonsense(self.from.server(), &self.value)
    }
}

impl Topology {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let login = shared.config.login.clone();
        match shared.config.servers.clone() {
            Servers::Standalone(address) => Self::Standalone(Node::new(address, login, Role::Any, shared)),
            Servers::Sentinel { sentinels, master, login } => {
                Self::Sentinel(Sentinel::new(sentinels, master, login, shared))
            }
            Servers::Cluster(seeds) => Self::Cluster(Cluster::new(seeds, shared)),
        }
    }

    /// Whether locks have servers of their own.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether another server takes over when one fails.
    pub(crate) fn fails_over(&self) -> bool {
        !matches!(self, Self::Standalone(_))
    }

    /// A connection to each server that has locks.
    pub(crate) async fn connections(&self) -> Result<Vec<Connection>> {
        let nodes = match self {
            Self::Standalone(node) => vec![node.clone()],
            Self::Sentinel(sentinel) => vec![sentinel.master().await?],
            Self::Cluster(cluster) => cluster.masters().await?,
        };
        let mut connections = Vec::new();
        for node in nodes {
            connections.push(self.connect(&node).await?);
        }
        Ok(connections)
    }

    /// A connection to the server of this slot.
    pub(crate) async fn connection(&self, slot: u16) -> Result<Connection> {
        let node = match self {
            Self::Standalone(node) => return node.connection().await,
            Self::Sentinel(sentinel) => sentinel.master().await?,
            Self::Cluster(cluster) => cluster.master(slot).await?,
        };
        self.connect(&node).await
    }

    async fn connect(&self, node: &Arc<Node>) -> Result<Connection> {
        node.connection().await.inspect_err(|_| self.doubt(node))
    }

    /// This server may not be the one any more: who knows is asked again.
    fn doubt(&self, node: &Arc<Node>) {
        match self {
            Self::Standalone(_) => {}
            Self::Sentinel(sentinel) => sentinel.doubt(node),
            Self::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// Runs a script where its keys are, wherever they have gone.
    pub(crate) async fn run(&self, request: &Request<'_>) -> Result<Reply> {
        let (mut whole, mut ask): (bool, Option<String>) = (false, None);
        for _ in 0..REDIRECTS {
            let connection = match (ask.as_deref(), self) {
                (Some(address), Self::Cluster(cluster)) => cluster.node_at(address)?.connection().await?,
                _ => self.connection(request.slot).await?,
            };
            let answer = {
                let mut impatient = Impatient(request.gives_up.then_some(&connection));
                let answer = self.send(&connection, request, whole, ask.take().is_some()).await;
                impatient.0 = None;
                answer
            };
            let refusal = match answer {
                Ok((value, confirmed)) => return Ok(Reply { value, confirmed, from: connection }),
                Err(Failure::Silence(why)) => {
                    self.doubt_all();
                    return Err(unknown(connection.server(), &why));
                }
                Err(Failure::Refused(refusal)) => refusal,
            };
            match (refusal.redirect(), self) {
                (Some(Redirect::SendWhole), _) if !whole => whole = true,
                (Some(Redirect::Moved), Self::Cluster(cluster)) => cluster.learn().await?,
                (Some(Redirect::Ask(address)), Self::Cluster(_)) => ask = Some(address),
                (Some(Redirect::Demoted), Self::Sentinel(_) | Self::Cluster(_)) => {
                    self.doubt_all();
                    connection.give_up();
                    // Which server it is now may not be settled yet.
                    return Err(refusal.error(connection.server()).with_retry(Retry::Later));
                }
                (Some(Redirect::CutOff), Self::Cluster(cluster)) => {
                    cluster.doubt();
                    return Err(refusal.error(connection.server()));
                }
                _ => return Err(refusal.error(connection.server())),
            }
        }
        let text = "the servers of the cluster send each request on to one another; is a slot being moved?";
        Err(Error::new(ErrorKind::Unreachable, text).with_effect(Effect::None))
    }

    /// Sends it on one connection, with what must go with it and nothing in between.
    async fn send(
        &self,
        connection: &Connection,
        request: &Request<'_>,
        whole: bool,
        asking: bool,
    ) -> Result<(Value, i64), Failure> {
        let step = |step| {
            let mut command = Cmd::with_capacity(10, 400);
            (request.write)(connection, step, &mut command);
            command
        };
        let combiner = connection.combiner(request.script);
        let alone = asking || request.replicas.is_some() || self.is_cluster();
        if let Some(combiner) = combiner.filter(|_| !alone) {
            return Ok((combiner.step(connection, step(0)).await?, 0));
        }
        let steps: Vec<_> = (0..request.steps).map(step).collect();
        let mut commands = redis::Pipeline::new();
        if asking {
            commands.add_command(redis::cmd("ASKING"));
        }
        commands.add_command(request.script.command(whole, &steps));
        if let Some((count, millis)) = request.replicas {
            commands.cmd("WAIT").arg(count).arg(millis);
        }
        let mut values = connection.send_all(&commands).await?.into_iter().skip(usize::from(asking));
        let value = match (Refusal::of(values.next().unwrap_or(Value::Nil))?, combiner) {
            (Value::Array(mut answers), Some(_)) => Refusal::of(answers.pop().unwrap_or(Value::Nil))?,
            (value, _) => value,
        };
        // After a refusal nothing is held: whoever claims withdraws what failed.
        match values.next().map(Refusal::of).transpose()? {
            Some(Value::Int(confirmed)) => Ok((value, confirmed)),
            _ => Ok((value, 0)),
        }
    }

    fn doubt_all(&self) {
        match self {
            Self::Standalone(_) => {}
            Self::Sentinel(sentinel) => sentinel.forget(),
            Self::Cluster(cluster) => cluster.doubt(),
        }
    }
}

/// Gives a connection up, unless its answer came.
struct Impatient<'a>(Option<&'a Connection>);

impl Drop for Impatient<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.give_up();
        }
    }
}

/// The first answer of several servers that are asked at once: a dead one among them holds up nobody. Where all fail, the
/// error that says more than that one cannot be reached.
pub(crate) async fn first_answer<T>(asked: Vec<impl Future<Output = Result<T>>>) -> Result<T> {
    let mut asked: FuturesUnordered<_> = asked.into_iter().collect();
    let mut said = Error::new(ErrorKind::Unreachable, "there is nobody to ask");
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            Err(error) if said.kind() == ErrorKind::Unreachable => said = error,
            Err(_) => {}
        }
    }
    Err(said)
}
