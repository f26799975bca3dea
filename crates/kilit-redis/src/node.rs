//! One server, and the connections to it, which are made anew when they end.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kilit_core::{Clock, Result, runtime};
use tokio::{
    runtime::{Handle, Id},
    sync::oneshot,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    config::{Address, Config, Login},
    connection::{Connection, Role},
    failure::unreachable,
    flight::Flight,
    pending::Pending,
};

/// How soon a runtime that is not blocked begins with what it is given.
const STARTS_WITHIN: Duration = Duration::from_secs(1);

/// What the connections of one client have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) clock: Clock,
}

/// One server.
///
/// The keeper has a connection of its own, on its own runtime, so that renewals never wait for the user's work. Who
/// calls from another runtime gets a second one that lives there: an answer then needs no hop between threads. When
/// several runtimes call, the first of them has it, and the others use the keeper's.
#[derive(Debug)]
pub(crate) struct Node {
    address: Address,
    login: Login,
    role: Role,
    shared: Arc<Shared>,
    keeper: Arc<Link>,
    caller: Arc<Link>,
}

#[derive(Debug)]
struct Link {
    inbox: String,
    state: Mutex<State>,
    connecting: Flight<Option<Connection>>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Connection>,
    /// Where it lives.
    runtime: Option<Id>,
    /// A runtime that did not run what it was given: its thread is blocked by who waits for us.
    stands_still: Option<Id>,
}

impl Node {
    pub(crate) fn new(address: Address, login: Login, role: Role, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { address, login, role, shared, keeper: Link::new(), caller: Link::new() })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A connection that stands, or a new one.
    pub(crate) async fn connection(&self) -> Result<Connection> {
        if let Some(handle) = runtime::caller()
            && self.caller.is_for(handle.id())
            && let Some(connection) = self.connection_on(&self.caller, handle).await?
        {
            return Ok(connection);
        }
        let connection = self.connection_on(&self.keeper, Handle::current()).await?;
        connection.ok_or_else(|| unreachable(&self.address.to_string(), "the keeper's thread stands still"))
    }

    /// `None` where that runtime stands still.
    async fn connection_on(&self, link: &Arc<Link>, runtime: Handle) -> Result<Option<Connection>> {
        if let Some(connection) = link.standing() {
            return Ok(Some(connection));
        }
        let connect = || {
            connect(
                self.address.clone(),
                self.login.clone(),
                self.role,
                self.shared.clone(),
                link.clone(),
                runtime,
            )
        };
        link.connecting.join(connect).await
    }
}

/// A new connection, which is the link's from then on.
async fn connect(
    address: Address,
    login: Login,
    role: Role,
    shared: Arc<Shared>,
    link: Arc<Link>,
    runtime: Handle,
) -> Result<Option<Connection>> {
    if let Some(connection) = link.standing() {
        return Ok(Some(connection));
    }
    let Shared { config, pending, clock } = &*shared;
    let open = Connection::open(
        address.clone(),
        login,
        config.clone(),
        pending.clone(),
        link.inbox.clone(),
        role,
        Handle::current(),
    );
    let (starts, started) = oneshot::channel();
    let opening = AbortOnDropHandle::new(runtime.spawn(async {
        let _ = starts.send(());
        open.await
    }));
    let within = config.network.connect_timeout;
    let connection = match clock.timeout_at(clock.now() + STARTS_WITHIN, started).await {
        None => None,
        Some(_) => match clock.timeout_at(clock.now() + within, opening).await {
            Some(Ok(opened)) => Some(opened?),
            // It has ended.
            Some(Err(_)) => None,
            None => return Err(unreachable(&address.to_string(), format!("no answer within {within:?}"))),
        },
    };
    let mut state = link.state();
    state.stands_still = connection.is_none().then(|| runtime.id());
    if connection.is_some() {
        (state.connection, state.runtime) = (connection.clone(), Some(runtime.id()));
    }
    Ok(connection)
}

impl Link {
    fn new() -> Arc<Self> {
        let inbox = format!("kilit1:inbox:{:016x}", fastrand::u64(..));
        Arc::new(Self { inbox, state: Mutex::default(), connecting: Flight::default() })
    }

    fn standing(&self) -> Option<Connection> {
        self.state().connection.clone().filter(Connection::is_alive)
    }

    /// Whether its connection lives on that runtime, or may.
    fn is_for(&self, runtime: Id) -> bool {
        let state = self.state();
        let lives = state.connection.as_ref().is_some_and(Connection::is_alive);
        state.stands_still != Some(runtime) && (!lives || state.runtime == Some(runtime))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
