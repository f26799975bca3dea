//! What an engine's set-up gives the suite.

use std::{any::Any, fmt, future::ready, ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use kilit_core::{Assurance, BoxFuture, Client, Evicted, Guard, LockName, Mutex, Result, Target, Terms};

/// A party of the lock: an independent client, as if of a process of its own.
#[derive(Debug)]
pub struct Party {
    /// The client.
    pub client: Client,
    /// Its way to the engine, where the set-up can harm that.
    pub link: Option<Link>,
}

impl Deref for Party {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl From<Client> for Party {
    fn from(client: Client) -> Self {
        Self { client, link: None }
    }
}

impl Party {
    /// Harms its way to the engine, or heals it.
    ///
    /// # Panics
    /// When there is no [`Link`].
    pub fn link(&self, harm: Harm) {
        (self.link.as_ref().expect("the case asks for a link").0)(harm);
    }
}

/// One party's way to the engine.
#[derive(Clone)]
pub struct Link(Arc<dyn Fn(Harm) + Send + Sync>);

impl Link {
    /// A link that `set` harms and heals. When `set` returns, the harm is in effect.
    pub fn new(set: impl Fn(Harm) + Send + Sync + 'static) -> Self {
        Self(Arc::new(set))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

/// What is wrong with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Nothing.
    None,
    /// Nothing passes. What was sent may arrive when it heals.
    Cut,
    /// Requests arrive, answers do not.
    LoseAnswers,
    /// Every request or answer takes this much longer.
    Slow(Duration),
}

type Hook<T> = Arc<dyn Fn(T) -> BoxFuture<'static, ()> + Send + Sync>;
type Connect = Box<dyn Fn() -> BoxFuture<'static, Party> + Send + Sync>;

/// One engine as the suite sees it: a lock space of its own, new for each case, and ways to harm it.
pub struct Subject {
    connect: Connect,
    pub(crate) url: Option<String>,
    pub(crate) agent: Option<PathBuf>,
    pub(crate) evicts: bool,
    pub(crate) patience: Duration,
    pub(crate) short_ttl: Duration,
    pub(crate) break_hold: Option<Hook<LockName>>,
    pub(crate) restart: Option<Hook<()>>,
    pub(crate) jump: Option<Hook<Duration>>,
    pub(crate) last_token: Option<Hook<(LockName, u64)>>,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Subject {
    /// A lock space on which `connect` opens one more independent client.
    pub fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Party> + Send + 'static,
    {
        Self {
            connect: Box::new(move || Box::pin(connect())),
            url: None,
            agent: None,
            evicts: true,
            patience: Duration::from_secs(15),
            short_ttl: Duration::from_millis(400),
            break_hold: None,
            restart: None,
            jump: None,
            last_token: None,
            kept: Vec::new(),
        }
    }

    /// The URL by which other processes open the same space; or one of their own, where it excludes within a process.
    pub fn url(self, url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..self }
    }

    /// How long a case waits for what must happen: generous, since it is an error when it ends.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The TTL of holds that shall end by themselves [default: 400 ms].
    pub fn short_ttl(self, short_ttl: Duration) -> Self {
        Self { short_ttl, ..self }
    }

    /// An operator cannot end a hold here.
    pub fn without_evict(self) -> Self {
        Self { evicts: false, ..self }
    }

    /// Ends whatever hold there is on a lock, behind kilit's back.
    pub fn break_hold<F>(self, hook: impl Fn(LockName) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { break_hold: Some(Arc::new(move |name| Box::pin(hook(name)))), ..self }
    }

    /// Stops the engine as by a power cut, and starts it again.
    pub fn restart<F>(self, hook: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { restart: Some(Arc::new(move |()| Box::pin(hook()))), ..self }
    }

    /// Sets the engine's own clock forward, and no other.
    pub fn jump(self, hook: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        let hook = move |by| {
            hook(by);
            Box::pin(ready(())) as BoxFuture<'static, ()>
        };
        Self { jump: Some(Arc::new(hook)), ..self }
    }

    /// Makes the engine believe that this was the last token it drew for a lock that nobody has used yet.
    pub fn last_token(self, hook: impl Fn(LockName, u64) + Send + Sync + 'static) -> Self {
        let hook = move |(name, token)| {
            hook(name, token);
            Box::pin(ready(())) as BoxFuture<'static, ()>
        };
        Self { last_token: Some(Arc::new(hook)), ..self }
    }

    /// Keeps something for as long as the subject lives: a server, a temporary directory.
    pub fn keep(mut self, what: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(what));
        self
    }

    /// One more independent client.
    pub async fn party(&self) -> Party {
        (self.connect)().await
    }

    /// Terms of a hold that shall not end by itself, on a machine however slow.
    pub fn terms(&self) -> Terms {
        Terms { ttl: Duration::from_secs(20), ..Terms::default() }
    }

    /// Terms of a hold that shall end by itself when it is not renewed.
    pub fn short(&self) -> Terms {
        Terms { ttl: self.short_ttl, ..Terms::default() }
    }

    /// A mutex on [`terms`](Self::terms).
    pub fn mutex(&self, client: &Client, name: &str) -> Mutex {
        client.mutex(lock(name)).with(self.terms()).expect("the terms are in range")
    }

    /// `future`'s output.
    ///
    /// # Panics
    /// Naming `what`, when patience ends first.
    pub async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        match tokio::time::timeout(self.patience, future).await {
            Ok(output) => output,
            Err(_) => panic!("not within {:?}: {what}", self.patience),
        }
    }

    /// As [`within`](Self::within), for what an engine has stated a bound for. The slack is for a loaded machine.
    ///
    /// # Panics
    /// Naming `what`, when it takes longer.
    pub async fn within_bound<T>(&self, what: &str, bound: Duration, future: impl Future<Output = T>) -> T {
        const SLACK: Duration = Duration::from_secs(3);
        match tokio::time::timeout(bound + SLACK, future).await {
            Ok(output) => output,
            Err(_) => panic!("not within the stated {bound:?}, nor {SLACK:?} later: {what}"),
        }
    }

    /// Waits until `holds` says yes. Where there is an event to wait for, wait for that instead.
    ///
    /// # Panics
    /// Naming `what`, when patience ends first.
    pub async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let look = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        self.within(what, look).await;
    }

    /// Waits until nobody holds the lock or waits for it, and finds it free.
    ///
    /// # Panics
    /// When patience ends first.
    pub async fn expect_nothing_left(&self, name: &str) {
        let party = self.party().await;
        self.eventually("nobody holds the lock or waits for it", async || {
            let all = party.inspect(Some(&lock(name))).await.expect("the engine is well");
            all.iter().all(|status| {
                status.holders.is_empty() && status.queue.as_ref().is_none_or(|queue| queue.is_empty())
            })
        })
        .await;
        let guard = self.mutex(&party, name).try_acquire().await.expect("the lock is free");
        guard.release().await.expect("it is held");
    }

    /// An operator's break by `by` of a holder that obeys: as soon as it learns of the loss it lets go.
    ///
    /// # Panics
    /// When the holder does not learn of it in time.
    pub async fn evict(&self, by: &Party, guard: Guard, target: Target) -> Result<Evicted> {
        let name = guard.name().clone();
        let obey = async {
            self.within("the holder learns of the break", guard.lost().cancelled()).await;
            drop(guard);
        };
        tokio::join!(by.evict(&name, target, true), obey).0
    }

    /// Takes `guard`'s hold away without its doing, by any means there is; the guard has not learnt it yet, and the
    /// lock is free or will be after its TTL.
    pub async fn take_away(&self, party: &Party, guard: &Guard) {
        let name = guard.name().clone();
        if let Some(break_hold) = &self.break_hold {
            break_hold(name).await;
        } else if party.link.is_some() && party.assurance().leases {
            party.link(Harm::Cut);
        } else {
            let target = Target::Owner(guard.owner().to_string());
            self.party().await.evict(&name, target, true).await.expect("the set-up says that it evicts");
        }
    }

    /// What the engine promises, by the word of a fresh client.
    pub async fn assurance(&self) -> Assurance {
        self.party().await.assurance().clone()
    }
}

/// A lock's name.
///
/// # Panics
/// When it is none.
pub fn lock(name: &str) -> LockName {
    name.parse().expect("a lock name")
}
