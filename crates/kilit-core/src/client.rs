//! A client: one engine, and the keeper of what is held there.

use std::{fmt, sync::Arc};

use crate::{
    Assurance, Clock, Descriptor, Engine, EngineUrl, Error, Evicted, Finding, LockName, LockStatus, Need,
    Result, Target,
    guard::keeper::Keeper,
    recipe::{Mutex, Shared},
    runtime::{Lifeline, Runtime},
};

/// An opened engine. Cheap to clone: clones share one keeper, which lives on a thread of its own until the last clone
/// and the last guard are gone.
///
/// Its futures can be awaited on any executor. See [`blocking`](crate::blocking) for programs that have none.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    keeper: Arc<Keeper>,
    runtime: Runtime,
}

impl Client {
    /// Opens the engine that `url` names, and finds out what it promises.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for bad settings, before anything is sent; then the engine's own.
    ///
    /// # Cancel safety
    /// Nothing is held yet; dropping the future drops what was opened.
    pub async fn open(descriptor: &Descriptor, url: EngineUrl) -> Result<Self> {
        let (runtime, lifeline) = Runtime::start()?;
        let engine = runtime.enter((descriptor.open)(url)).await;
        Ok(Self::with_runtime(engine.map_err(|error| error.on_engine(descriptor.scheme))?, runtime, lifeline))
    }

    /// A client of an engine that was made by hand.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) when the system gives no thread.
    pub fn new(engine: Arc<dyn Engine>) -> Result<Self> {
        let (runtime, lifeline) = Runtime::start()?;
        Ok(Self::with_runtime(engine, runtime, lifeline))
    }

    fn with_runtime(engine: Arc<dyn Engine>, runtime: Runtime, lifeline: Lifeline) -> Self {
        let keeper = Arc::new(Keeper::new(engine));
        runtime.spawn(keeper.clone().run(lifeline));
        Self(Arc::new(Inner { keeper, runtime }))
    }

    /// What the engine promises.
    pub fn assurance(&self) -> &Assurance {
        self.engine().assurance()
    }

    /// Checks that the engine promises what the program needs; for start-up.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported), with everything that falls short.
    pub fn require(&self, need: Need) -> Result<()> {
        self.assurance().require(need)
    }

    /// A lock with one holder at a time.
    pub fn mutex(&self, name: LockName) -> Mutex {
        Mutex::new(self.clone(), name)
    }

    /// Shared holds of a lock: many at a time, and never beside an exclusive one.
    pub fn shared(&self, name: LockName) -> Shared {
        Shared::new(self.clone(), name)
    }

    /// Holders and waiters of one lock, or of every lock that has any, sorted by name.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Cancel safety
    /// It changes nothing, and can be dropped at any point.
    pub async fn inspect(&self, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
        self.named(self.0.runtime.enter(self.engine().inspect(name)).await)
    }

    /// An operator's break: asks the holder to stop, waits one notice bound, then ends the hold that `target` names.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the engine cannot do it, then the engine's own.
    ///
    /// # Cancel safety
    /// What was asked for is not taken back: the hold may end later. [`inspect`](Self::inspect) says.
    pub async fn evict(&self, name: &LockName, target: Target, force: bool) -> Result<Evicted> {
        self.named(self.0.runtime.enter(self.engine().evict(name, target, force)).await)
    }

    /// Looks at the engine's settings and says what endangers locks there.
    ///
    /// # Errors
    /// The engine's.
    ///
    /// # Cancel safety
    /// As [`inspect`](Self::inspect).
    pub async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.named(self.0.runtime.enter(self.engine().diagnose()).await)
    }

    /// Ends all that this client holds and waits until every release was answered, those of dropped guards too, for
    /// 5 s at most. Live guards learn that their lock is lost; claims that wait, and new ones, are refused as
    /// [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    /// One for each release in the background that failed, of which 64 are kept, and one for all that were not
    /// answered.
    ///
    /// # Cancel safety
    /// Once it was polled the client is shut down; dropping the future only stops the waiting for the answers.
    pub async fn shutdown(&self) -> Result<(), Vec<Error>> {
        self.0.runtime.enter(self.0.keeper.drain()).await
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.0.keeper.engine()
    }

    /// The clock of its deadlines.
    pub fn clock(&self) -> &Clock {
        self.engine().clock()
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.0.keeper
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.on_engine(self.assurance().engine))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keeper.end();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(self.engine()).finish()
    }
}
