//! What the servers say of themselves, and what kilit can promise on them.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use kilit_core::{Assurance, Bound, Error, ErrorKind, Exclusion, Modes, Order, Result, TokenStrength};
use redis::Value;

use crate::{
    config::Config,
    connection::Connection,
    engine::{LOOK, PLACE},
    failure::{Failure, unreachable},
    record::micros,
    topology::Topology,
};

/// The oldest version with all that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// One server. `None`: it does not tell, or this user may not ask.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) server: String,
    pub(crate) version: Option<String>,
    pub(crate) is_replica: bool,
    pub(crate) replicas: Option<u32>,
    pub(crate) saves: Option<bool>,
    pub(crate) appends: Option<bool>,
    pub(crate) fsync: Option<String>,
    pub(crate) policy: Option<String>,
    pub(crate) maxmemory: Option<u64>,
    pub(crate) cluster: bool,
    pub(crate) min_replicas_to_write: Option<u32>,
    /// How far its clock is ahead of this machine's, in ms, and how exactly that is known.
    pub(crate) clock_ahead: Option<(i64, u64)>,
}

/// What is promised where nothing was asked.
pub(crate) fn unprobed() -> Assurance {
    Assurance {
        engine: "redis",
        exclusion: Exclusion::AsyncReplicas,
        token: TokenStrength::ClockAssumed,
        clock_accepted: false,
        order: Order::Any,
        modes: Modes { exclusive: true, shared: false, permits: false },
        leases: true,
        // A renewal every third of the TTL, and a tenth for its answer.
        loss_notice: Bound { ttl_percent: 44, fixed: Duration::ZERO },
        crash_release: Bound::ONE_TTL,
        wait_look: Bound::fixed(LOOK),
        notes: vec![
            "depends on one server's clock: a jump ahead ends leases early".into(),
            format!("a waiter that dies holds up the line for {:?} at most", PLACE + LOOK),
        ],
    }
}

/// What can be promised on these servers.
pub(crate) async fn assurance(topology: &Topology, config: &Config) -> Result<Assurance> {
    let facts = examine(topology).await?;
    let mut assurance = Assurance { clock_accepted: config.clock_accepted, ..unprobed() };
    let lonely = facts.iter().all(|one| one.replicas == Some(0)) && !topology.fails_over();
    if lonely {
        assurance.exclusion = Exclusion::OneNode;
    }
    for one in &facts {
        fit(one, topology)?;
    }
    let notes = &mut assurance.notes;
    if !lonely {
        notes.push("a failover can forget a hold that no replica had yet".into());
    }
    if !facts.iter().all(|one| one.appends == Some(true) && one.fsync.as_deref() == Some("always")) {
        notes.push("a restart can forget a hold: not every write is on disk before it is answered".into());
    }
    if facts.iter().any(|one| one.evicts() != Some(false)) {
        notes.push("the server may evict locks when its memory is full".into());
    }
    Ok(assurance)
}

/// Refuses what cannot work at all.
fn fit(facts: &Facts, topology: &Topology) -> Result<()> {
    let server = &facts.server;
    let version = facts.version.as_deref().and_then(|text| {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    });
    if version.is_some_and(|version: (u32, u32)| version < OLDEST) {
        let text = format!(
            "the Redis server {server} is version {}: kilit needs Redis 6.2 or newer, or Valkey",
            facts.version.as_deref().unwrap_or_default()
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if facts.cluster && !topology.is_cluster() {
        let text = format!("the Redis server {server} is part of a cluster; open it as redis+cluster:");
        return Err(Error::new(ErrorKind::Refused, text));
    }
    if facts.is_replica && !topology.fails_over() {
        let text = format!(
            "the Redis server {server} is a replica, which takes no locks; name the master, or use redis+sentinel:"
        );
        return Err(Error::new(ErrorKind::Refused, text));
    }
    Ok(())
}

/// Asks every server.
pub(crate) async fn examine(topology: &Topology) -> Result<Vec<Facts>> {
    let mut all = Vec::new();
    for connection in topology.connections().await? {
        all.push(Facts::of(&connection).await?);
    }
    Ok(all)
}

impl Facts {
    async fn of(connection: &Connection) -> Result<Self> {
        let mut commands = redis::pipe();
        commands.cmd("INFO");
        commands.cmd("CONFIG").arg("GET").arg("save");
        commands.cmd("CONFIG").arg("GET").arg("appendfsync");
        commands.cmd("CONFIG").arg("GET").arg("min-replicas-to-write");
        let answers = connection.send_all(&commands).await.map_err(|failure| failed(failure, connection))?;
        let info = answers.first().map(info).unwrap_or_default();
        let config = |place: usize| answers.get(place).and_then(setting);
        let is = |key: &str, value: &str| info.get(key).map(|found| found == value);
        Ok(Self {
            server: connection.server().to_owned(),
            version: info.get("redis_version").cloned(),
            is_replica: is("role", "slave").unwrap_or(false),
            replicas: info.get("connected_slaves").and_then(|count| count.parse().ok()),
            saves: config(1).map(|save| !save.is_empty()),
            appends: is("aof_enabled", "1"),
            fsync: config(2),
            policy: info.get("maxmemory_policy").cloned(),
            maxmemory: info.get("maxmemory").and_then(|bytes| bytes.parse().ok()),
            cluster: is("cluster_enabled", "1").unwrap_or(false),
            min_replicas_to_write: config(3).and_then(|count| count.parse().ok()),
            clock_ahead: clock_ahead(connection).await,
        })
    }

    /// Whether locks, which all have a TTL, can be thrown away for want of memory.
    pub(crate) fn evicts(&self) -> Option<bool> {
        Some(self.maxmemory? > 0 && self.policy.as_deref()? != "noeviction")
    }
}

/// Between two readings of this machine's wall clock, which is shown and decides nothing.
async fn clock_ahead(connection: &Connection) -> Option<(i64, u64)> {
    let before = SystemTime::now();
    let answer = connection.send(&redis::cmd("TIME")).await.ok()?;
    let after = SystemTime::now();
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(seconds), Value::BulkString(rest)] = &parts[..] else { return None };
    let rest: u32 = std::str::from_utf8(rest).ok()?.parse().ok()?;
    let theirs = micros(&format!("{}{rest:06}", std::str::from_utf8(seconds).ok()?))?;
    let millis = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH).ok().and_then(|time| i64::try_from(time.as_millis()).ok())
    };
    let (before, after) = (millis(before)?, millis(after)?);
    let uncertain = (after - before).unsigned_abs() / 2;
    Some((millis(theirs)? - (before + after) / 2, uncertain))
}

fn info(value: &Value) -> HashMap<String, String> {
    let text = match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => return HashMap::new(),
    };
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The value of the one setting that was asked for.
fn setting(value: &Value) -> Option<String> {
    let value = match value {
        Value::Map(pairs) => &pairs.first()?.1,
        Value::Array(parts) => parts.get(1)?,
        _ => return None,
    };
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn failed(failure: Failure, connection: &Connection) -> Error {
    match failure {
        Failure::Refused(why) => why.error(connection.server()),
        Failure::Silence(why) => unreachable(connection.server(), why),
    }
}
