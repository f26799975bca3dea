//! What an operator sees, as it goes over the wire and as core shows it.

use std::time::{Duration, SystemTime};

use kilit_core::{
    FencingToken, Holder, LockName, LockStatus, Mode, OwnerId, Share, TokenSource, TokenValue, Waiter,
};
use serde::{Deserialize, Serialize};

use crate::text;

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    /// Its name.
    #[serde(with = "text::name")]
    pub name: LockName,
    /// Holders and waiters, in the order in which they came.
    pub line: Vec<PlaceView>,
}

/// One holder or waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceView {
    /// The claim.
    #[serde(with = "text::display")]
    pub owner: OwnerId,
    /// The claim's note.
    pub note: String,
    /// How much of the lock.
    #[serde(with = "text::share")]
    pub share: Share,
    /// Whether it holds.
    pub holds: bool,
    /// Its token.
    pub token: Option<u64>,
    /// How long it has held or waited.
    pub since: Duration,
    /// How long until it ends by itself.
    pub ends_in: Duration,
}

impl LockView {
    /// As core shows it.
    pub fn into_status(self, source: &TokenSource) -> LockStatus {
        // For people alone: the server counts on another clock.
        let ago = |time: Duration| SystemTime::now().checked_sub(time);
        let (holding, waiting): (Vec<_>, Vec<_>) = self.line.into_iter().partition(|place| place.holds);
        let mode = holding.first().map(|place| place.share.mode());
        let permits = holding.iter().chain(&waiting).map(|place| place.share);
        let capacity = permits.filter(|share| share.mode() == Mode::Permit).map(Share::capacity).next();
        let token = |value: u64| Some(FencingToken::new(source.clone(), TokenValue::new(value).ok()?));
        let holder = |place: PlaceView| Holder {
            token: place.token.and_then(token),
            owner: Some(place.owner.to_string()),
            note: Some(place.note),
            since: ago(place.since),
            expires_in: Some(place.ends_in),
            units: capacity.map(|_| place.share.units()),
            foreign: false,
        };
        let waiter = |place: PlaceView| Waiter {
            owner: Some(place.owner.to_string()),
            note: Some(place.note),
            since: ago(place.since),
        };
        LockStatus {
            mode,
            holders: holding.into_iter().map(holder).collect(),
            queue: Some(waiting.into_iter().map(waiter).collect()),
            capacity,
            ..LockStatus::free(self.name)
        }
    }
}

/// What core shows of an inspection: a lock that was asked for by name is in it though it is free.
pub fn statuses(views: Vec<LockView>, name: Option<&LockName>, source: &TokenSource) -> Vec<LockStatus> {
    let mut statuses: Vec<_> = views.into_iter().map(|view| view.into_status(source)).collect();
    if let (Some(name), true) = (name, statuses.is_empty()) {
        statuses.push(LockStatus { queue: Some(vec![]), ..LockStatus::free(name.clone()) });
    }
    statuses
}
