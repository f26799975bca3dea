//! An operator's break: ask for the lock back, wait, and remove it.

use std::time::Duration;

use kilit_core::{Evicted, LockName, OwnerId, Result, Target, family::Lease};
use redis::{Cmd, Value};

use crate::{
    connection::Connection,
    engine::RedisLease,
    inspect::foreign_owner,
    keys::{Key, Keys},
    pending::LATE,
    record::Record,
    script::{ASK, EVICT, Script},
    topology::Request,
};

/// How often it is looked whether the holder has let go.
const LOOK: Duration = Duration::from_millis(100);

impl RedisLease {
    /// Ends the hold that is meant. kilit's own holders are asked first: a renewal that finds the mark is refused, so
    /// each has noticed within the bound. Another client cannot be asked; it notices when it looks.
    pub(crate) async fn break_hold(&self, name: &LockName, target: &Target, force: bool) -> Result<Evicted> {
        let Some(value) = self.look(name).await?.value else { return Ok(Evicted::NoSuchHold) };
        let record = Record::read(&value);
        let meant = match target {
            Target::Token(token) => record.as_ref().is_some_and(|record| record.token == Some(*token)),
            Target::Owner(owner) => match &record {
                Some(record) => record.owner == *owner,
                None => foreign_owner(&value) == *owner,
            },
        };
        if !meant {
            return Ok(Evicted::NoSuchHold);
        }
        tracing::warn!(%name, ?target, force, "an operator breaks the lock");
        let keys = self.keys(name)?;
        let Some(record) = record else { return self.remove(&keys, &value, None).await };
        let owner: OwnerId = record.owner.parse()?;
        let marked = match record.asked_back {
            true => value,
            false => {
                let marked = Record::ask_back(&value);
                if !self.compare(&ASK, &keys, &[Key::Lock], &[&value, &marked]).await? {
                    return Ok(Evicted::Ended);
                }
                marked
            }
        };
        // And what the holder may take to end its work, once it knows.
        let bound = self.assurance().loss_notice.of(record.ttl) + record.ttl / 10;
        let until = self.clock().now() + bound;
        while self.clock().now() < until {
            self.clock().sleep(LOOK.min(bound)).await;
            if self.look(name).await?.value.as_ref() != Some(&marked) {
                return Ok(Evicted::Ended);
            }
        }
        self.remove(&keys, &marked, Some(owner)).await
    }

    async fn remove(&self, keys: &Keys, value: &[u8], owner: Option<OwnerId>) -> Result<Evicted> {
        let bar = Key::Bar(owner.unwrap_or_else(OwnerId::random));
        let bar_ms = owner.map_or(0, |_| LATE.as_millis()).to_string();
        let all = [Key::Lock, Key::Line, Key::Places, bar];
        // Somebody else has it by now, or nobody: that hold is over in either case.
        self.compare(&EVICT, keys, &all, &[value, bar_ms.as_bytes()]).await?;
        Ok(Evicted::Ended)
    }

    /// A script that does something only if the value is still the same.
    async fn compare(
        &self,
        script: &'static Script,
        keys: &Keys,
        all: &[Key],
        args: &[&[u8]],
    ) -> Result<bool> {
        let write = |_: &Connection, _, command: &mut Cmd| {
            keys.write(all, command);
            command.arg(args);
        };
        let request =
            Request { script, slot: keys.slot(), steps: 1, write: &write, replicas: None, gives_up: false };
        Ok(self.topology.run(&request).await?.value == Value::Int(1))
    }
}
