//! The engine over TCP.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kilit_core::{
    Assurance, BoxFuture, Claim, Clock, Descriptor, Engine, EngineUrl, Error, ErrorKind, Evicted, Finding,
    LockName, LockStatus, Moment, Released, Result, Target, TokenSource,
    family::{Extended, Lease, LeaseEngine, Take},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use tokio::net::TcpStream;

use crate::{
    engine::{assurance, diagnose, look_by, taken},
    view::statuses,
    wire::{Hello, Lines, Reply, Request, VERSION, WireName, WireTarget},
};

/// What this crate registers, in builds that ask for it.
pub static ENGINES: &[Descriptor] = &[Descriptor {
    scheme: "testlease",
    aliases: &[],
    urls: &["testlease://host:port"],
    about: "A lease server for kilit's own tests.",
    settings: &[
        ("connect_timeout", "how long to try to connect [default: 5s]"),
        ("timeout", "how long to wait for an answer [default: 2s]"),
    ],
    assurance,
    open,
}];

/// How many connections are kept while nothing is asked.
const IDLE_MAX: usize = 16;

/// A client of a lease server. Each operation has a connection to itself, and leaves it for the next one when it was
/// answered: one that was given up takes its connection along.
#[derive(Debug)]
pub(crate) struct LeaseClient {
    server: String,
    connect_timeout: Duration,
    timeout: Duration,
    clock: Clock,
    assurance: Assurance,
    idle: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    lines: Lines<TcpStream>,
    source: TokenSource,
}

/// Whether an operation changes anything when it comes through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effectful {
    Yes,
    No,
}

fn open(mut url: EngineUrl) -> BoxFuture<'static, Result<Arc<dyn Engine>>> {
    Box::pin(async move {
        let range = Duration::from_millis(1)..=Duration::from_secs(60);
        let connect_timeout = url.take_duration("connect_timeout", Duration::from_secs(5), range.clone())?;
        let timeout = url.take_duration("timeout", Duration::from_secs(2), range)?;
        let [server] = url.hosts() else {
            return Err(Error::invalid(
                "a testlease URL names one server, as in `testlease://127.0.0.1:7000`",
            ));
        };
        let server = server.clone();
        if !matches!(url.path(), "" | "/") || url.user().is_some() {
            return Err(Error::invalid("a testlease URL has neither a path nor a user"));
        }
        url.finish()?;
        Ok(Arc::new(LeaseEngine::new(LeaseClient::open(server, connect_timeout, timeout).await?)) as _)
    })
}

impl LeaseClient {
    async fn open(server: String, connect_timeout: Duration, timeout: Duration) -> Result<Self> {
        let clock = Clock::system();
        let connection = connect(&server, connect_timeout, &clock).await?;
        let idle = Mutex::new(vec![connection]);
        Ok(Self { server, connect_timeout, timeout, clock, assurance: assurance(), idle })
    }

    /// The reply, and the token source of the server that gave it: one that was restarted is another.
    async fn call(&self, request: Request, effectful: Effectful) -> Result<(Reply, TokenSource)> {
        self.call_within(self.timeout, request, effectful).await
    }

    async fn call_within(
        &self,
        timeout: Duration,
        request: Request,
        effectful: Effectful,
    ) -> Result<(Reply, TokenSource)> {
        let mut connection = self.connection().await?;
        let exchange = async {
            connection.lines.write(&request).await?;
            connection
                .lines
                .read::<Reply>()
                .await?
                .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
        };
        let answered = self.clock.timeout_at(self.clock.now() + timeout, exchange).await;
        let (what, source) = match answered {
            Some(Ok(reply)) => {
                let source = connection.source.clone();
                self.keep(connection);
                return Ok((reply, source));
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(foreign(&self.server));
            }
            Some(Err(error)) => ("the connection ended before the answer".to_owned(), Some(error)),
            None => (format!("no answer within {timeout:?}"), None),
        };
        // What was sent may have arrived, or may yet.
        let kind = match effectful {
            Effectful::Yes => ErrorKind::Unknown,
            Effectful::No => ErrorKind::Unreachable,
        };
        let error = Error::new(kind, format!("{what} from {}", self.server));
        Err(source.into_iter().fold(error, Error::with_source))
    }

    /// An idle connection that still stands, or a new one.
    async fn connection(&self) -> Result<Connection> {
        while let Some(connection) = { self.idle().pop() } {
            // Between two operations the server has nothing to say but that the connection is over. The kernel is
            // asked itself: the runtime may not have heard of it yet.
            let said = recv(connection.lines.stream(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
            if said.is_err_and(|error| error == Errno::WOULDBLOCK) {
                return Ok(connection);
            }
        }
        connect(&self.server, self.connect_timeout, &self.clock).await
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(server: &str, within: Duration, clock: &Clock) -> Result<Connection> {
    let unreachable = |error: io::Error| {
        Error::new(ErrorKind::Unreachable, format!("cannot connect to {server}")).with_source(error)
    };
    let greet = async {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut lines = Lines::new(stream);
        lines.write(&Hello { testlease: VERSION, source: None }).await?;
        let hello = lines.read::<Hello>().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        io::Result::Ok((lines, hello))
    };
    let (lines, hello) = match clock.timeout_at(clock.now() + within, greet).await {
        None => return Err(unreachable(io::ErrorKind::TimedOut.into())),
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => return Err(foreign(server)),
        Some(Err(error)) => return Err(unreachable(error)),
        Some(Ok(greeted)) => greeted,
    };
    if hello.testlease != VERSION {
        let text = format!(
            "the lease server {server} speaks version {} of its protocol and this is version {VERSION}: use the \
             same kilit on both sides",
            hello.testlease
        );
        return Err(Error::new(ErrorKind::Incompatible, text));
    }
    let source =
        hello.source.and_then(|source| TokenSource::new(source).ok()).ok_or_else(|| foreign(server))?;
    Ok(Connection { lines, source })
}

fn foreign(server: &str) -> Error {
    let text = format!("{server} is no lease server of this version of kilit");
    Error::new(ErrorKind::Incompatible, text)
}

impl Lease for LeaseClient {
    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn take(&self, claim: &Claim) -> Result<Take> {
        match self.call(Request::Take(claim.into()), Effectful::Yes).await? {
            (Reply::Take(answer), source) => Ok(taken(answer?, &source)),
            _ => Err(foreign(&self.server)),
        }
    }

    async fn extend(&self, claims: &[Arc<Claim>]) -> Result<Vec<Extended>> {
        let leases = claims.iter().map(|claim| (&**claim).into()).collect();
        match self.call(Request::Extend(leases), Effectful::Yes).await? {
            (Reply::Extend(kept), _) if kept.len() == claims.len() => {
                Ok(kept.into_iter().map(Extended::from).collect())
            }
            _ => Err(foreign(&self.server)),
        }
    }

    async fn cancel(&self, claim: &Claim) -> Result<Released> {
        match self.call(Request::Cancel(claim.into()), Effectful::Yes).await? {
            (Reply::Cancel(true), _) => Ok(Released::Done),
            (Reply::Cancel(false), _) => Ok(Released::WasNotHeld),
            _ => Err(foreign(&self.server)),
        }
    }

    async fn hint(&self, claim: &Claim, until: Moment) {
        let until = look_by(claim, until, &self.clock);
        // A little sooner, so that its answer is here in time and leaves a connection to go on with.
        let time = until.since(self.clock.now()).mul_f64(0.9);
        let wait = self.call_within(time + self.timeout, Request::Wait(claim.into(), time), Effectful::No);
        // Without the server's word the time alone must do: no busy loop while it is away.
        if !matches!(self.clock.timeout_at(until, wait).await, Some(Ok(_))) {
            self.clock.sleep_until(until).await;
        }
    }

    async fn inspect(&self, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
        match self.call(Request::Inspect(name.cloned().map(WireName)), Effectful::No).await? {
            (Reply::Inspect(views), source) => Ok(statuses(views, name, &source)),
            _ => Err(foreign(&self.server)),
        }
    }

    async fn evict(&self, name: &LockName, target: Target, _force: bool) -> Result<Evicted> {
        let target = match target {
            Target::Token(value) => WireTarget::Token(value.get()),
            Target::Owner(owner) => WireTarget::Owner(owner),
        };
        match self.call(Request::Evict(WireName(name.clone()), target), Effectful::Yes).await? {
            (Reply::Evict(true), _) => Ok(Evicted::Ended),
            (Reply::Evict(false), _) => Ok(Evicted::NoSuchHold),
            _ => Err(foreign(&self.server)),
        }
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        // Shows whether it answers at all.
        self.call(Request::Inspect(None), Effectful::No).await?;
        Ok(diagnose())
    }
}
