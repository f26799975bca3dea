//! One connection to one server: many requests at a time, answered in order, and what the server pushes.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use kilit_core::{Error, ErrorKind, Result};
use redis::{
    AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, PushInfo, RedisConnectionInfo, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime::Handle,
    sync::Notify,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    combine::Combiner,
    config::{Address, Config, Login},
    failure::{Failure, Refusal, unreachable},
    pending::Pending,
    script::{CANCEL, Script, TAKE},
    tls,
};

/// A connection that is set up. Clones share it; it closes with the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    redis: MultiplexedConnection,
    server: String,
    inbox: String,
    pulse: Arc<Pulse>,
    combiners: [Arc<Combiner>; 2],
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// What moves the bytes. Who finds it silent takes it out, so that all who wait for an answer hear of it, also when the
/// runtime that polls it stands still.
type Driver = Arc<Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>;

/// What is sent and answered: silence shows in it.
#[derive(Debug, Default)]
struct Pulse {
    sent: AtomicU64,
    answered: AtomicU64,
    /// Somebody did not wait for an answer, which counts as one until it is looked into.
    given_up: AtomicBool,
    idle: AtomicBool,
    busy: Notify,
    dead: AtomicBool,
}

/// What a server is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Locks.
    Any,
    /// Locks, where only a master will do.
    Master,
    /// The master's address; nobody waits there.
    Sentinel,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    /// Connects on the current runtime, logs in, listens to `inbox`, and turns tracking on for the reads that ask for
    /// it. `keeper` ends it when it is silent.
    pub(crate) async fn open(
        address: Address,
        login: Login,
        config: Arc<Config>,
        pending: Arc<Pending>,
        inbox: String,
        role: Role,
        keeper: Handle,
    ) -> Result<Self> {
        let server = address.to_string();
        let stream = connect(&address, &config).await.map_err(|error| not_connected(&server, error))?;
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name()
            .set_db(login.db);
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &login.password {
            info = info.set_password(password.expose());
        }
        let pulse = Arc::<Pulse>::default();
        let pushed = pending.clone();
        let pushes = move |push: PushInfo| -> Result<(), ()> {
            pushed.pushed(&push);
            Ok(())
        };
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(pushes);
        let (redis, driver) = MultiplexedConnection::new_with_config(&info, stream, settings)
            .await
            .map_err(|error| setup_failed(error, &server))?;
        let driver: Driver = Arc::new(Mutex::new(Some(Box::pin(driver))));
        let tasks = [
            tokio::spawn(drive(End { driver: driver.clone(), pulse: pulse.clone(), pending })),
            keeper.spawn(end_when_silent(driver, redis.clone(), pulse.clone(), config.network.timeout)),
        ];
        let _tasks = tasks.map(AbortOnDropHandle::new);
        let combiners = [&*TAKE, &*CANCEL].map(|script| Combiner::new(script, Handle::current()));
        let connection = Self(Arc::new(Inner { redis, server, inbox, pulse, combiners, _tasks }));
        connection.set_up(role).await?;
        Ok(connection)
    }

    async fn set_up(&self, role: Role) -> Result<()> {
        if role != Role::Sentinel {
            let mut redis = self.0.redis.clone();
            // Without the right to either, waiters look by themselves.
            let tracking = async {
                let mut command = redis::cmd("CLIENT");
                command.arg("TRACKING").arg("ON").arg("OPTIN");
                self.send(&command).await
            };
            let (subscribed, tracked) = tokio::join!(redis.subscribe(&self.0.inbox), tracking);
            let (subscribed, tracked) = (subscribed.map_err(Failure::from), tracked.map(drop));
            for (what, done) in [("inbox", subscribed), ("tracking", tracked)] {
                match done {
                    Ok(()) => {}
                    Err(Failure::Refused(why)) => tracing::warn!(server = self.server(), ?why, "no {what}"),
                    Err(Failure::Silence(why)) => return Err(unreachable(self.server(), why)),
                }
            }
        }
        if role == Role::Master {
            match self.send(&redis::cmd("ROLE")).await {
                Ok(Value::Array(role)) if is_text(role.first(), b"master") => {}
                Ok(_) => return Err(unreachable(self.server(), "it is not the master")),
                // Without the right to ask, its first refusal tells.
                Err(Failure::Refused(_)) => {}
                Err(Failure::Silence(why)) => return Err(unreachable(self.server(), why)),
            }
        }
        Ok(())
    }

    /// Which server it leads to.
    pub(crate) fn server(&self) -> &str {
        &self.0.server
    }

    /// The channel on which it is told of what waits here.
    pub(crate) fn inbox(&self) -> &str {
        &self.0.inbox
    }

    /// Whether it can still be used, as far as is known.
    pub(crate) fn is_alive(&self) -> bool {
        !self.0.pulse.dead.load(Ordering::Acquire)
    }

    /// It has been silent too long for somebody: the next one gets another.
    pub(crate) fn give_up(&self) {
        self.0.pulse.dead.store(true, Ordering::Release);
    }

    /// What shares calls of a script, where that answers each step.
    pub(crate) fn combiner(&self, script: &'static Script) -> Option<&Arc<Combiner>> {
        self.0.combiners.iter().find(|combiner| std::ptr::eq(combiner.script(), script))
    }

    /// One command.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, Failure> {
        let mut request = Request::new(&self.0.pulse);
        let answer = self.0.redis.clone().send_packed_command(command).await;
        request.answered = true;
        match answer {
            Ok(Value::ServerError(error)) => Err(error.into()),
            Ok(value) => Ok(value),
            Err(error) => Err(error.into()),
        }
    }

    /// Several commands with nothing in between; an answer for each, refusals too.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let mut request = Request::new(&self.0.pulse);
        let count = commands.cmd_iter().count();
        let answers = self.0.redis.clone().send_packed_commands(commands, 0, count).await;
        request.answered = true;
        Ok(answers?)
    }
}

async fn connect(address: &Address, config: &Config) -> io::Result<Pin<Box<dyn Stream>>> {
    match address {
        Address::Unix(path) => Ok(Box::pin(UnixStream::connect(&**path).await?)),
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((&**host, *port)).await?;
            stream.set_nodelay(true)?;
            match &config.tls {
                None => Ok(Box::pin(stream)),
                Some(tls) => Ok(Box::pin(tls.connect(host, stream).await?)),
            }
        }
    }
}

fn not_connected(server: &str, error: io::Error) -> Error {
    match tls::distrust(&error) {
        Some(why) => {
            Error::new(ErrorKind::Refused, format!("the certificate of the Redis server {server} {why}"))
        }
        None => unreachable(server, error),
    }
}

fn setup_failed(error: redis::RedisError, server: &str) -> Error {
    match error.kind() {
        redis::ErrorKind::RESP3NotSupported => {
            let text =
                format!("the Redis server {server} is too old: kilit needs Redis 6.2 or newer, or Valkey");
            Error::new(ErrorKind::Unsupported, text)
        }
        redis::ErrorKind::AuthenticationFailed => Error::new(
            ErrorKind::Refused,
            format!("the Redis server {server} knows no such user and password, or wants one"),
        ),
        _ => match Failure::from(error) {
            Failure::Refused(why) => why.error(server),
            Failure::Silence(why) => unreachable(server, why),
        },
    }
}

/// Moves what is sent and answered, until the connection ends.
async fn drive(end: End) {
    poll_fn(|context| match &mut *lock(&end.driver) {
        Some(driver) => driver.as_mut().poll(context),
        None => Poll::Ready(()),
    })
    .await;
}

/// Ends a connection that was silent for longer than `timeout` while something was asked: answers come in order, so one
/// that is late holds up all.
async fn end_when_silent(driver: Driver, redis: MultiplexedConnection, pulse: Arc<Pulse>, timeout: Duration) {
    pulse.silence(redis, timeout).await;
    pulse.dead.store(true, Ordering::Release);
    drop(lock(&driver).take());
}

fn lock(driver: &Driver) -> MutexGuard<'_, Option<Pin<Box<dyn Future<Output = ()> + Send>>>> {
    driver.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that the connection is over, however it ends.
struct End {
    driver: Driver,
    pulse: Arc<Pulse>,
    pending: Arc<Pending>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.pulse.dead.store(true, Ordering::Release);
        drop(lock(&self.driver).take());
        self.pending.wake_all();
    }
}

impl Pulse {
    /// Returns after more than `timeout`, and up to a half more, in which something was asked and nothing answered.
    async fn silence(&self, mut redis: MultiplexedConnection, timeout: Duration) {
        let (mut last, mut quiet) = (0, 0);
        while quiet < 3 {
            if self.given_up.swap(false, Ordering::AcqRel) {
                // Without patience, or without an answer? One more question tells, which the scripts ask as well.
                let time = redis::cmd("TIME");
                if tokio::time::timeout(timeout, redis.send_packed_command(&time)).await.is_err() {
                    return;
                }
            }
            let answered = self.answered.load(Ordering::Acquire);
            if self.sent.load(Ordering::Acquire) == answered {
                // Nothing is asked: nobody needs to wake up for it.
                self.idle.store(true, Ordering::SeqCst);
                if self.sent.load(Ordering::SeqCst) == answered {
                    self.busy.notified().await;
                }
                self.idle.store(false, Ordering::SeqCst);
                quiet = 0;
            } else if answered == last {
                quiet += 1;
            } else {
                quiet = 0;
            }
            last = answered;
            tokio::time::sleep(timeout / 2).await;
        }
    }
}

/// A request that is under way until it is dropped.
struct Request<'a> {
    pulse: &'a Pulse,
    answered: bool,
}

impl<'a> Request<'a> {
    fn new(pulse: &'a Pulse) -> Self {
        pulse.sent.fetch_add(1, Ordering::SeqCst);
        if pulse.idle.load(Ordering::SeqCst) {
            pulse.busy.notify_one();
        }
        Self { pulse, answered: false }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.pulse.given_up.store(true, Ordering::Release);
        }
        self.pulse.answered.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether a value is this text.
pub(crate) fn is_text(value: Option<&Value>, text: &[u8]) -> bool {
    match value {
        Some(Value::BulkString(bytes)) => bytes == text,
        Some(Value::SimpleString(string)) => string.as_bytes() == text,
        _ => false,
    }
}

impl Refusal {
    /// Whether a value is a refusal.
    pub(crate) fn of(value: Value) -> Result<Value, Failure> {
        match value {
            Value::ServerError(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}
