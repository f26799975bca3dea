//! The state of one lease server. Pure: time comes in with every call, and nothing goes out but the answer.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fmt,
    time::Duration,
};

use kilit_core::{Claim, Error, ErrorKind, LockName, Mode, Moment, OwnerId, Share, Target, TokenValue};
use serde::{Deserialize, Serialize};

use crate::view::{LockView, PlaceView};

/// How long an owner that was cancelled or evicted gets nothing: far longer than a request can be late.
pub const BARRED_FOR: Duration = Duration::from_secs(60);

/// How long a waiter keeps its place in line without looking again: its TTL, and 3 s at most.
pub fn place_lasts(claim: &Claim) -> Duration {
    claim.ttl.min(Duration::from_secs(3))
}

/// All locks of one server.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    locks: BTreeMap<LockName, Lock>,
    barred: HashSet<OwnerId>,
    /// The barred ones in order, and until when.
    bars: VecDeque<(Moment, OwnerId)>,
}

/// The answer to a [`Machine::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taken {
    /// The lease is the owner's; an exclusive one bears a token.
    Lease(Option<u64>),
    /// It stands in line.
    InLine {
        /// How many stand in front, holders among them.
        ahead: u32,
        /// When the first of those would end by itself.
        free_in: Duration,
    },
}

/// Why a take was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The owner was cancelled or evicted before.
    Withdrawn,
    /// The lock is in use with another capacity.
    OtherCapacity(u32),
    /// The next token would leave its range.
    Exhausted,
}

/// One lock. It is kept when nobody holds it, for its counter.
#[derive(Clone, Debug, Default)]
struct Lock {
    last_token: u64,
    /// Holders and waiters, in the order in which they came.
    line: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    owner: OwnerId,
    share: Share,
    note: String,
    hold: Option<Hold>,
    since: Moment,
    until: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    token: Option<TokenValue>,
}

impl Machine {
    /// Takes the lease, or stands in line. An owner that holds gets the same token and its full TTL anew; one that
    /// waits keeps its place.
    ///
    /// # Errors
    /// [`Refusal`], with nothing changed.
    pub fn take(&mut self, claim: &Claim, now: Moment) -> Result<Taken, Refusal> {
        if self.is_barred(claim.owner, now) {
            return Err(Refusal::Withdrawn);
        }
        let lock = self.locks.entry(claim.name.clone()).or_default();
        lock.expire(now);
        lock.take(claim, now)
    }

    /// Sets the lease to `ttl` from now on, if it is the owner's. Never creates, and never adds up.
    pub fn extend(&mut self, name: &LockName, owner: OwnerId, ttl: Duration, now: Moment) -> bool {
        let held =
            self.lock(name, now).and_then(|lock| lock.place(owner)).filter(|place| place.hold.is_some());
        held.map(|place| place.until = now + ttl).is_some()
    }

    /// Ends the owner's lease, or takes it out of the line, and bars it. Whether it held.
    pub fn cancel(&mut self, name: &LockName, owner: OwnerId, now: Moment) -> bool {
        self.bar(owner, now);
        self.lock(name, now).and_then(|lock| lock.leave(owner)).is_some_and(|place| place.hold.is_some())
    }

    /// Ends the hold that `target` names, and bars its owner. Whether there was one.
    pub fn evict(&mut self, name: &LockName, target: &Target, now: Moment) -> bool {
        let Some(lock) = self.lock(name, now) else { return false };
        let is_target = |place: &&Place| match (place.hold, target) {
            (Some(hold), Target::Token(value)) => hold.token == Some(*value),
            (Some(_), Target::Owner(owner)) => place.owner.to_string() == *owner,
            (None, _) => false,
        };
        let Some(owner) = lock.line.iter().find(is_target).map(|place| place.owner) else { return false };
        self.cancel(name, owner, now)
    }

    /// Whether a take of this owner would not just stand in line.
    pub fn is_ready(&mut self, name: &LockName, owner: OwnerId, now: Moment) -> bool {
        let at = self.lock(name, now).and_then(|lock| lock.position(owner).map(|at| lock.fits(at)));
        // Who is not in line, for whatever reason, learns more from another take.
        at.unwrap_or(true)
    }

    /// One lock, or all that anyone holds or waits for, sorted by name.
    pub fn inspect(&mut self, name: Option<&LockName>, now: Moment) -> Vec<LockView> {
        let mut views = Vec::new();
        for (each, lock) in self.locks.iter_mut().filter(|(each, _)| name.is_none_or(|name| name == *each)) {
            lock.expire(now);
            if !lock.line.is_empty() {
                views.push(lock.view(each, now));
            }
        }
        views
    }

    /// Sets the counter of a lock: for tests near its end.
    pub fn set_last_token(&mut self, name: &LockName, value: u64) {
        self.locks.entry(name.clone()).or_default().last_token = value;
    }

    fn lock(&mut self, name: &LockName, now: Moment) -> Option<&mut Lock> {
        let lock = self.locks.get_mut(name)?;
        lock.expire(now);
        Some(lock)
    }

    fn bar(&mut self, owner: OwnerId, now: Moment) {
        if self.barred.insert(owner) {
            self.bars.push_back((now + BARRED_FOR, owner));
        }
    }

    fn is_barred(&mut self, owner: OwnerId, now: Moment) -> bool {
        while let Some((_, over)) = self.bars.pop_front_if(|(until, _)| *until <= now) {
            self.barred.remove(&over);
        }
        self.barred.contains(&owner)
    }
}

impl Lock {
    fn take(&mut self, claim: &Claim, now: Moment) -> Result<Taken, Refusal> {
        let capacity = claim.share.capacity();
        if let Some(other) = self.line.iter().find(|place| place.share.capacity() != capacity) {
            return Err(Refusal::OtherCapacity(other.share.capacity()));
        }
        let at = self.position(claim.owner).unwrap_or(self.line.len());
        let hold = match self.line.get(at).and_then(|place| place.hold) {
            Some(hold) => Some(hold),
            None if self.fits_at(at, claim.share) => Some(Hold { token: self.draw(claim.share)? }),
            None => None,
        };
        let lasts = if hold.is_some() { claim.engine_ttl() } else { place_lasts(claim) };
        let was = self.line.get(at);
        let place = Place {
            owner: claim.owner,
            share: claim.share,
            note: claim.note.as_str().to_owned(),
            since: was.filter(|was| was.hold.is_some() == hold.is_some()).map_or(now, |was| was.since),
            hold,
            until: now + lasts,
        };
        self.line.splice(at..self.line.len().min(at + 1), [place]);
        Ok(match hold {
            Some(hold) => Taken::Lease(hold.token.map(TokenValue::get)),
            None => {
                let front = &self.line[..at];
                let first = front.iter().map(|place| place.until).min().unwrap_or(now);
                Taken::InLine { ahead: u32::try_from(at).unwrap_or(u32::MAX), free_in: first.since(now) }
            }
        })
    }

    /// The whole rule: a claim holds when the units of everyone in front and its own fit the capacity.
    fn fits_at(&self, at: usize, share: Share) -> bool {
        let front: u64 = self.line[..at].iter().map(|place| u64::from(place.share.units())).sum();
        front + u64::from(share.units()) <= u64::from(share.capacity())
    }

    fn fits(&self, at: usize) -> bool {
        self.fits_at(at, self.line[at].share)
    }

    /// Only an exclusive hold has a token: a fence could not tell several holders apart by order.
    fn draw(&mut self, share: Share) -> Result<Option<TokenValue>, Refusal> {
        if share.mode() != Mode::Exclusive {
            return Ok(None);
        }
        let token = self.last_token.checked_add(1).and_then(|next| TokenValue::new(next).ok());
        let token = token.ok_or(Refusal::Exhausted)?;
        self.last_token = token.get();
        Ok(Some(token))
    }

    fn expire(&mut self, now: Moment) {
        self.line.retain(|place| place.until > now);
    }

    fn position(&self, owner: OwnerId) -> Option<usize> {
        self.line.iter().position(|place| place.owner == owner)
    }

    fn place(&mut self, owner: OwnerId) -> Option<&mut Place> {
        self.line.iter_mut().find(|place| place.owner == owner)
    }

    fn leave(&mut self, owner: OwnerId) -> Option<Place> {
        self.position(owner).map(|at| self.line.remove(at))
    }

    fn view(&self, name: &LockName, now: Moment) -> LockView {
        let place = |place: &Place| PlaceView {
            owner: place.owner,
            note: place.note.clone(),
            share: place.share,
            holds: place.hold.is_some(),
            token: place.hold.and_then(|hold| hold.token).map(TokenValue::get),
            since: now.since(place.since),
            ends_in: place.until.since(now),
        };
        LockView { name: name.clone(), line: self.line.iter().map(place).collect() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withdrawn => f.write_str("this claim was released or evicted; claim anew"),
            Self::OtherCapacity(u32::MAX) => {
                f.write_str("it is in use as a lock; use another name for a semaphore")
            }
            Self::OtherCapacity(permits) => write!(
                f,
                "it is in use as a semaphore of {permits} permits: every holder must agree on that number"
            ),
            Self::Exhausted => f.write_str("the next fencing token would be above 2^63-1; use another name"),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Exhausted => ErrorKind::Exhausted,
            Refusal::Withdrawn | Refusal::OtherCapacity(_) => ErrorKind::Refused,
        };
        Self::new(kind, refusal.to_string())
    }
}
