//! What an operator sees: who holds a lock and who waits for it.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use kilit_core::{FencingToken, Holder, LockName, LockStatus, Mode, Result, Waiter};
use redis::Value;

use crate::{
    connection::Connection,
    engine::RedisLease,
    failure::{Failure, nonsense, unreachable},
    keys::{Key, name_of_line},
    record::{Record, micros},
    script::INSPECT,
    topology::Request,
};

/// How many locks are looked at at once.
const AT_ONCE: usize = 32;

/// How much of another client's value is shown, in characters.
const SHOWN: usize = 256;

/// A lock as the server shows it.
pub(crate) struct Look {
    /// What stands at the key; `None` where it is free.
    pub(crate) value: Option<Vec<u8>>,
    /// The key's type, where it is no string.
    other: Option<String>,
    expires_in: Option<Duration>,
    waiters: Vec<Waiter>,
}

impl RedisLease {
    /// One lock.
    pub(crate) async fn look_at(&self, name: &LockName) -> Result<LockStatus> {
        let look = self.look(name).await?;
        Ok(self.status(name, look))
    }

    /// Every lock that is held or waited for, sorted by name. The servers are scanned, not stopped: a lock that is
    /// taken meanwhile may be missing.
    pub(crate) async fn look_at_all(&self) -> Result<Vec<LockStatus>> {
        let prefix = &self.shared.config.prefix;
        let mut names = BTreeSet::new();
        for connection in self.topology.connections().await? {
            for key in scan(&connection, &[&glob(prefix)[..], b"*"].concat()).await? {
                let name = key.strip_prefix(&prefix[..]).and_then(|name| LockName::new(name).ok());
                // What kilit keeps beside the locks can begin with the prefix too.
                names.extend(name.filter(|name| self.keys(name).is_ok()));
            }
            for line in scan(&connection, b"kilit1:line:{*").await? {
                names.extend(name_of_line(&line, prefix));
            }
        }
        let looks = stream::iter(names).map(|name| async move { self.look_at(&name).await });
        let all: Vec<_> = looks.buffered(AT_ONCE).try_collect().await?;
        Ok(all
            .into_iter()
            .filter(|lock| lock.is_held() || lock.queue.iter().any(|line| !line.is_empty()))
            .collect())
    }

    pub(crate) async fn look(&self, name: &LockName) -> Result<Look> {
        let keys = self.keys(name)?;
        let reply = self
            .topology
            .run(&Request {
                script: &INSPECT,
                slot: keys.slot(),
                steps: 1,
                write: &|_, _, command| keys.write(&[Key::Lock, Key::Line, Key::Places], command),
                replicas: None,
                gives_up: false,
            })
            .await?;
        read(&reply.value).ok_or_else(|| reply.nonsense())
    }

    fn status(&self, name: &LockName, look: Look) -> LockStatus {
        let record = look.value.as_deref().and_then(Record::read);
        let holder = match (record, &look.value, &look.other) {
            (Some(record), _, _) => Some(Holder {
                token: record.token.map(|value| FencingToken::new(self.shared.config.source.clone(), value)),
                owner: Some(record.owner),
                note: Some(record.note),
                since: record.since,
                ..Holder::default()
            }),
            (None, Some(value), _) => {
                Some(Holder { owner: Some(foreign_owner(value)), foreign: true, ..Holder::default() })
            }
            (None, None, Some(kind)) => Some(Holder {
                note: Some(format!("a {kind}, no plain string")),
                foreign: true,
                ..Holder::default()
            }),
            (None, None, None) => None,
        };
        LockStatus {
            mode: holder.is_some().then_some(Mode::Exclusive),
            holders: holder
                .map(|holder| Holder { expires_in: look.expires_in, ..holder })
                .into_iter()
                .collect(),
            queue: Some(look.waiters),
            ..LockStatus::free(name.clone())
        }
    }
}

/// Another client's value as text that can be printed and typed back: some write random bytes, and it may be long.
pub(crate) fn foreign_owner(value: &[u8]) -> String {
    let mut text = match std::str::from_utf8(value) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => value.escape_ascii().to_string(),
    };
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn read(value: &Value) -> Option<Look> {
    let Value::Array(parts) = value else { return None };
    let [kind, Value::BulkString(value), Value::Int(pttl), Value::Array(waiters)] = &parts[..] else {
        return None;
    };
    let kind = text(kind)?;
    let waiters = waiters.chunks_exact(3).map(|waiter| {
        let [owner, since, place] = waiter else { return None };
        Some(Waiter {
            owner: Some(text(owner)?),
            since: micros(&text(since)?),
            note: text(place)?.splitn(3, ' ').nth(2).map(str::to_owned),
        })
    });
    Some(Look {
        value: (kind == "string").then(|| value.clone()),
        other: (kind != "string" && kind != "none").then_some(kind),
        expires_in: u64::try_from(*pttl).ok().map(Duration::from_millis),
        waiters: waiters.collect::<Option<_>>()?,
    })
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// All keys of a server that match.
async fn scan(connection: &Connection, pattern: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
        let value = connection.send(&command).await.map_err(|failure| match failure {
            Failure::Refused(why) => why.error(connection.server()),
            Failure::Silence(why) => unreachable(connection.server(), why),
        })?;
        let Value::Array(parts) = &value else { return Err(nonsense(connection.server(), &value)) };
        let [Value::BulkString(next), Value::Array(found)] = &parts[..] else {
            return Err(nonsense(connection.server(), &value));
        };
        keys.extend(found.iter().filter_map(|key| match key {
            Value::BulkString(key) => Some(key.clone()),
            _ => None,
        }));
        if next == b"0" {
            return Ok(keys);
        }
        cursor = next.clone();
    }
}

/// A pattern that matches these bytes alone.
fn glob(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [b'\\', *byte]).collect()
}
