//! The engine: leases on the server's clock.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use kilit_core::{
    Assurance, BoxFuture, Claim, Clock, Descriptor, Engine, EngineUrl, Error, ErrorKind, Evicted,
    FencingToken, Finding, LockName, LockStatus, LossReason, Moment, Network, Released, Result, Target,
    TokenValue,
    family::{Extended, Lease, LeaseEngine, Take},
};
use redis::Value;

use crate::{
    config::{Config, SETTINGS},
    keys::{Key, Keys},
    node::Shared,
    pending::{LATE, Pending},
    probe,
    script::{CANCEL, EXTEND, TAKE},
    topology::{Reply, Request, Topology},
};

/// What this crate registers.
pub static ENGINES: &[Descriptor] = &[Descriptor {
    scheme: "redis",
    aliases: &["rediss", "redis+unix", "redis+sentinel", "redis+cluster"],
    urls: &[
        "redis://user:password@host:port/db",
        "rediss://host:port (TLS)",
        "redis+unix:///path?db=N",
        "redis+sentinel://h1:p1,h2:p2/master",
        "redis+cluster://h1:p1,h2:p2",
    ],
    about: "One key of a Redis or Valkey server, shared with every other client's lock there.",
    settings: &ALL_SETTINGS,
    assurance: probe::unprobed,
    open,
}];

const ALL_SETTINGS: [(&str, &str); Network::SETTINGS.len() + SETTINGS.len()] = {
    let mut all = [("", ""); Network::SETTINGS.len() + SETTINGS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < SETTINGS.len() { SETTINGS[at] } else { Network::SETTINGS[at - SETTINGS.len()] };
        at += 1;
    }
    all
};

/// How soon the head of the line looks by itself, where no push comes.
const HEAD_LOOKS: Duration = Duration::from_millis(500);

/// How soon all others look: often enough to keep their places, and to find that the head is gone.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// How long a place in line lasts without a look; a dead head holds up the line for no longer.
pub(crate) const PLACE: Duration = Duration::from_secs(3);

/// When the head begins to watch the lock's key: a hold that is shorter costs no more commands.
const WATCH_AFTER: Duration = Duration::from_millis(15);

/// How many leases one script renews: it stays far below a millisecond.
const BATCH: usize = 64;

/// How many scripts of one renewal are on their way at once.
const BATCHES: usize = 32;

/// The lease on Redis.
#[derive(Debug)]
pub(crate) struct RedisLease {
    pub(crate) shared: Arc<Shared>,
    pub(crate) topology: Topology,
    assurance: Assurance,
}

fn open(url: EngineUrl) -> BoxFuture<'static, Result<Arc<dyn Engine>>> {
    Box::pin(async move {
        let config = Arc::new(Config::read(url)?);
        let shared = Arc::new(Shared { config, pending: Arc::default(), clock: Clock::system() });
        let topology = Topology::new(shared.clone());
        let assurance = probe::assurance(&topology, &shared.config).await?;
        Ok(Arc::new(LeaseEngine::new(RedisLease { shared, topology, assurance })) as _)
    })
}

impl RedisLease {
    pub(crate) fn keys(&self, name: &LockName) -> Result<Keys> {
        Keys::new(&self.shared.config.prefix, name, self.topology.is_cluster())
    }

    fn pending(&self) -> &Pending {
        &self.shared.pending
    }

    async fn ask_for(&self, claim: &Claim, keys: &Keys) -> Result<Reply> {
        let needed = self.shared.config.min_replicas;
        let patience = self.shared.config.network.timeout.min(claim.ttl / 3) / 2;
        self.topology
            .run(&Request {
                script: &TAKE,
                slot: keys.slot(),
                steps: 1,
                write: &|connection, _, command| {
                    let bar = Key::Bar(claim.owner);
                    keys.write(&[Key::Lock, Key::Counter, Key::Line, Key::Places, bar], command);
                    command
                        .arg(&claim.owner.to_hex()[..])
                        .arg(millis(claim.engine_ttl()))
                        .arg(millis(PLACE.min(claim.ttl)))
                        .arg(connection.inbox())
                        .arg(claim.note.as_str());
                },
                replicas: (needed > 0).then(|| (needed, millis(patience).max(1))),
                gives_up: false,
            })
            .await
    }

    /// What the server said to a claim.
    fn taken(&self, reply: &Reply) -> Result<Take> {
        match &reply.value {
            Value::BulkString(token) => {
                let token = std::str::from_utf8(token).ok().and_then(|text| text.parse::<u64>().ok());
                let value = TokenValue::new(token.ok_or_else(|| reply.nonsense())?)?;
                let token = FencingToken::new(self.shared.config.source.clone(), value);
                Ok(Take::Taken { token: Some(token) })
            }
            Value::Array(place) => match place[..] {
                [Value::Int(ahead), Value::Int(free_in)] => Ok(Take::Held {
                    free_in: u64::try_from(free_in).ok().map(Duration::from_millis),
                    ahead: u32::try_from(ahead).ok(),
                }),
                _ => Err(reply.nonsense()),
            },
            Value::Int(0) => {
                Err(Error::new(ErrorKind::Closed, "this claim was withdrawn, or an operator has ended it"))
            }
            _ => Err(reply.nonsense()),
        }
    }

    /// Watches the lock's key from now on. `false` when the lock is free already.
    async fn watch(&self, claim: &Claim, keys: &Keys) -> bool {
        self.pending().watch(keys.lock(), claim.owner);
        let mut commands = redis::pipe();
        commands.cmd("CLIENT").arg("CACHING").arg("YES");
        commands.cmd("GET").arg(keys.lock());
        let answers = match self.topology.connection(keys.slot()).await {
            Ok(connection) => connection.send_all(&commands).await.unwrap_or_default(),
            Err(_) => vec![],
        };
        if answers.is_empty() {
            self.pending().unwatch(keys.lock(), claim.owner);
        }
        !matches!(answers.get(1), Some(Value::Nil))
    }
}

impl Lease for RedisLease {
    fn assurance(&self) -> &Assurance {
        &self.assurance
    }

    fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    async fn take(&self, claim: &Claim) -> Result<Take> {
        let keys = self.keys(&claim.name)?;
        self.pending().ask(claim.owner, self.clock().now());
        let reply = match self.ask_for(claim, &keys).await {
            Ok(reply) => reply,
            Err(error) => {
                if error.effect() != kilit_core::Effect::Unknown {
                    self.pending().answered(claim.owner, false);
                }
                return Err(error);
            }
        };
        let take = self.taken(&reply);
        self.pending().answered(claim.owner, matches!(take, Ok(Take::Taken { .. })));
        let needed = self.shared.config.min_replicas;
        match take? {
            Take::Taken { .. } if reply.confirmed < i64::from(needed) => {
                self.cancel(claim).await?;
                let text = format!(
                    "{} of {needed} replicas confirmed the lock in time (min_replicas); it was undone",
                    reply.confirmed
                );
                Err(Error::new(ErrorKind::Refused, text))
            }
            Take::Held { free_in, ahead } => {
                // One in front is the holder.
                let is_head = ahead.is_none_or(|ahead| ahead <= 1);
                if is_head && let Some(waiter) = self.pending().waiter(claim.owner) {
                    waiter.set_head();
                }
                Ok(Take::Held { free_in: free_in.filter(|_| is_head), ahead })
            }
            taken => Ok(taken),
        }
    }

    async fn extend(&self, claims: &[Arc<Claim>]) -> Result<Vec<Extended>> {
        let mut locks = Vec::with_capacity(claims.len());
        for (place, claim) in claims.iter().enumerate() {
            let keys = self.keys(&claim.name)?;
            let slot = if self.topology.is_cluster() { keys.slot() } else { 0 };
            locks.push((slot, place, keys));
        }
        locks.sort_unstable_by_key(|(slot, place, _)| (*slot, *place));
        let mut batches = locks.chunk_by(|one, other| one.0 == other.0).flat_map(|same| same.chunks(BATCH));
        let mut under_way = FuturesUnordered::new();
        let mut extended = vec![Extended::Unanswered; claims.len()];
        let mut problem = None;
        loop {
            while under_way.len() < BATCHES
                && let Some(batch) = batches.next()
            {
                under_way.push(self.extend_batch(batch, claims));
            }
            match under_way.next().await {
                Some(Ok(batch)) => batch.into_iter().for_each(|(place, answer)| extended[place] = answer),
                Some(Err(error)) => problem = Some(error),
                None => break,
            }
        }
        match problem {
            Some(error) if extended.iter().all(|one| *one == Extended::Unanswered) => Err(error),
            _ => Ok(extended),
        }
    }

    async fn cancel(&self, claim: &Claim) -> Result<Released> {
        let keys = self.keys(&claim.name)?;
        self.pending().unwatch(keys.lock(), claim.owner);
        let uncertain = self.pending().withdraw(claim.owner, self.clock().now());
        let reply = self
            .topology
            .run(&Request {
                script: &CANCEL,
                slot: keys.slot(),
                steps: 1,
                write: &|_, _, command| {
                    keys.write(&[Key::Lock, Key::Line, Key::Places, Key::Bar(claim.owner)], command);
                    // The bar may not outlive the TTL: a ghost that comes later costs no more than that.
                    let ttl = claim.engine_ttl();
                    let bar = if uncertain { ttl } else { ttl.min(LATE) };
                    command.arg(&claim.owner.to_hex()[..]).arg(millis(bar)).arg(i32::from(uncertain));
                },
                replicas: None,
                gives_up: false,
            })
            .await?;
        self.pending().forget(claim.owner);
        match reply.value {
            Value::Int(1) => Ok(Released::Done),
            Value::Int(0) => Ok(Released::WasNotHeld),
            _ => Err(reply.nonsense()),
        }
    }

    async fn hint(&self, claim: &Claim, until: Moment) {
        let (Some(waiter), Ok(keys)) = (self.pending().waiter(claim.owner), self.keys(&claim.name)) else {
            return self.clock().sleep_until(until).await;
        };
        let begun = self.clock().now();
        // A watch lasts until the key changes.
        let mut watching = self.pending().is_watching(keys.lock(), claim.owner);
        while !waiter.take_free() {
            // Its place lasts for as long as its TTL, or less.
            let look = begun + LOOK.min(claim.ttl / 3);
            let next = match (waiter.is_head(), watching) {
                (false, _) => until.min(look),
                (true, true) => until.min(look.min(begun + HEAD_LOOKS)),
                (true, false) => until.min(begun + WATCH_AFTER),
            };
            if self.clock().timeout_at(next, waiter.woken()).await.is_some() {
                continue;
            }
            if !waiter.is_head() || watching || next >= until {
                break;
            }
            watching = true;
            if !self.watch(claim, &keys).await {
                break;
            }
        }
    }

    async fn inspect(&self, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
        match name {
            Some(name) => Ok(vec![self.look_at(name).await?]),
            None => self.look_at_all().await,
        }
    }

    async fn evict(&self, name: &LockName, target: Target, force: bool) -> Result<Evicted> {
        self.break_hold(name, &target, force).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.examine().await
    }
}

impl RedisLease {
    /// One script: the leases of one server, or of one slot in a cluster.
    async fn extend_batch(
        &self,
        batch: &[(u16, usize, Keys)],
        claims: &[Arc<Claim>],
    ) -> Result<Vec<(usize, Extended)>> {
        let reply = self
            .topology
            .run(&Request {
                script: &EXTEND,
                slot: batch[0].0,
                steps: batch.len(),
                write: &|_, step, command| {
                    let (_, place, keys) = &batch[step];
                    let claim = &claims[*place];
                    keys.write(&[Key::Lock], command);
                    command.arg(&claim.owner.to_hex()[..]).arg(millis(claim.engine_ttl()));
                },
                replicas: None,
                gives_up: true,
            })
            .await?;
        let Value::Array(answers) = &reply.value else { return Err(reply.nonsense()) };
        let extended = batch.iter().zip(answers).map(|((_, place, _), answer)| {
            let extended = match answer {
                Value::Int(1) => Extended::Kept,
                Value::Int(2) => Extended::Gone(LossReason::Broken),
                Value::Int(0) => Extended::Gone(LossReason::Ended),
                _ => Extended::Unanswered,
            };
            (*place, extended)
        });
        Ok(extended.collect())
    }
}

/// As the server counts time. A TTL is far below what would not fit.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
