//! The claims of this client that are on their way or wait: what wakes them, and whose answer was lost.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kilit_core::{Moment, OwnerId};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

/// How long a request can be late, far beyond any time-out: for that long an owner is barred that may still have one
/// on its way.
pub(crate) const LATE: Duration = Duration::from_secs(60);

/// From how many on claims are forgotten whose withdrawal was never answered.
const MANY: usize = 1024;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<OwnerId, Entry>,
    /// Who is told of the next change of a lock's key.
    watched: HashMap<Vec<u8>, Vec<OwnerId>>,
    /// How many claims there are when it is looked next which of them can be forgotten.
    tidy_at: usize,
}

#[derive(Debug)]
struct Entry {
    /// How many of its requests were not answered.
    unanswered: u32,
    /// Its withdrawal has begun.
    withdrawn: bool,
    since: Moment,
    waiter: Arc<Waiter>,
}

/// What wakes one claim.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    free: AtomicBool,
    head: AtomicBool,
    woken: Notify,
}

impl Pending {
    /// A request of this claim leaves. It counts as unanswered until [`answered`](Self::answered).
    pub(crate) fn ask(&self, owner: OwnerId, now: Moment) {
        let mut table = self.table();
        if table.claims.len() >= table.tidy_at.max(MANY) {
            table.claims.retain(|_, entry| {
                now.since(entry.since) < LATE || !(entry.withdrawn || entry.unanswered > 0)
            });
            // Where many wait, not each of them goes through them all.
            table.tidy_at = 2 * table.claims.len();
        }
        let entry = table.claims.entry(owner).or_insert_with(|| Entry {
            unanswered: 0,
            withdrawn: false,
            since: now,
            waiter: Arc::default(),
        });
        entry.unanswered += 1;
        entry.since = now;
        // What is pushed from here on may overtake the answer.
        entry.waiter.head.store(false, Ordering::Release);
    }

    /// A request of this claim was answered; `over` when the claim waits no more.
    pub(crate) fn answered(&self, owner: OwnerId, over: bool) {
        let mut table = self.table();
        let Some(entry) = table.claims.get_mut(&owner) else { return };
        entry.unanswered -= 1;
        if over && entry.unanswered == 0 {
            table.claims.remove(&owner);
        }
    }

    /// What wakes this claim, while it waits.
    pub(crate) fn waiter(&self, owner: OwnerId) -> Option<Arc<Waiter>> {
        self.table().claims.get(&owner).map(|entry| entry.waiter.clone())
    }

    /// The claim is withdrawn or released. Whether a request of it may still be on its way.
    pub(crate) fn withdraw(&self, owner: OwnerId, now: Moment) -> bool {
        let mut table = self.table();
        let Some(entry) = table.claims.get_mut(&owner) else { return false };
        (entry.withdrawn, entry.since) = (true, now);
        entry.unanswered > 0
    }

    /// The claim was withdrawn or released, and the server has said so.
    pub(crate) fn forget(&self, owner: OwnerId) {
        self.table().claims.remove(&owner);
    }

    /// Wakes this claim at the next change of the lock's key.
    pub(crate) fn watch(&self, key: &[u8], owner: OwnerId) {
        let mut table = self.table();
        let owners = table.watched.entry(key.to_vec()).or_default();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// Whether this claim will be woken at the next change of the lock's key.
    pub(crate) fn is_watching(&self, key: &[u8], owner: OwnerId) -> bool {
        self.table().watched.get(key).is_some_and(|owners| owners.contains(&owner))
    }

    /// It waits no more.
    pub(crate) fn unwatch(&self, key: &[u8], owner: OwnerId) {
        let mut table = self.table();
        if let Some(owners) = table.watched.get_mut(key) {
            owners.retain(|other| *other != owner);
            if owners.is_empty() {
                table.watched.remove(key);
            }
        }
    }

    /// What a server pushed: a message to an inbox, or a change of a key.
    pub(crate) fn pushed(&self, push: &PushInfo) {
        match (&push.kind, &push.data[..]) {
            (PushKind::Message, [_, Value::BulkString(message)]) => self.message(message),
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                for key in keys {
                    if let Value::BulkString(key) = key {
                        self.changed(key);
                    }
                }
            }
            // The whole database was emptied.
            (PushKind::Invalidate, _) => self.wake_all(),
            _ => {}
        }
    }

    /// Anything may have happened: a connection has ended.
    pub(crate) fn wake_all(&self) {
        let mut table = self.table();
        table.watched.clear();
        for entry in table.claims.values() {
            entry.waiter.wake(&entry.waiter.free);
        }
    }

    fn message(&self, message: &[u8]) {
        let Some((what, owner)) = message.split_at_checked(5) else { return };
        let Some(owner) = std::str::from_utf8(owner).ok().and_then(|owner| owner.parse().ok()) else {
            return;
        };
        let Some(waiter) = self.waiter(owner) else { return };
        match what {
            b"free " => waiter.wake(&waiter.free),
            b"head " => waiter.wake(&waiter.head),
            _ => {}
        }
    }

    fn changed(&self, key: &[u8]) {
        let mut table = self.table();
        for owner in table.watched.remove(key).unwrap_or_default() {
            if let Some(entry) = table.claims.get(&owner) {
                entry.waiter.wake(&entry.waiter.free);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    fn wake(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Release);
        self.woken.notify_one();
    }

    /// Whether it is the first in line, as far as is known.
    pub(crate) fn is_head(&self) -> bool {
        self.head.load(Ordering::Acquire)
    }

    /// The server said so in an answer.
    pub(crate) fn set_head(&self) {
        self.head.store(true, Ordering::Release);
    }

    /// Whether the lock may be free since the last time this was asked.
    pub(crate) fn take_free(&self) -> bool {
        self.free.swap(false, Ordering::AcqRel)
    }

    /// Returns when something has changed.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_nobody_answers_are_forgotten_and_those_that_wait_are_not() {
        let (pending, begun) = (Pending::default(), Moment::from_nanos(0));
        let waiting = OwnerId::random();
        pending.ask(waiting, begun);
        pending.answered(waiting, false);
        for number in 1..2 * MANY {
            let owner = OwnerId::random();
            pending.ask(owner, begun);
            // Of every other one the answer that was lost is that of its withdrawal.
            if number % 2 == 0 {
                pending.answered(owner, false);
                assert!(!pending.withdraw(owner, begun), "nothing of it is on its way");
            }
        }
        assert_eq!(pending.table().claims.len(), 2 * MANY);
        pending.ask(OwnerId::random(), begun + LATE);
        assert_eq!(pending.table().claims.len(), 2);
        assert!(pending.waiter(waiting).is_some());
    }
}
