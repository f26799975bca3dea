//! The fence: the resource refuses a holder that did not learn in time that its lock is gone.
//!
//! A lease alone is never enough. A holder can be stopped between its last check and its write for longer than any
//! TTL, and a packet can be late by minutes. Only the resource can refuse such a write, by comparing fencing tokens
//! *atomically with the write*. (Gray and Cheriton, 1989; Kleppmann, "How to do distributed locking", 2016.)

use std::{cmp::Ordering, collections::HashMap, fmt, sync::Mutex};

use crate::{FencingToken, TokenSource, TokenValue};

/// A resource's memory of the highest token, used within the same atomic step as the write that it guards.
///
/// Implementations are handles on something that is atomic already: an open transaction, a locked map. What they store
/// for a resource is decided by [`judge`] alone.
pub trait Fence {
    /// Why the store itself failed.
    type Error;

    /// Admits a write to `resource` under `token`, and remembers the token; the caller writes within the same atomic
    /// step. Equal to or above the highest seen is admitted.
    ///
    /// # Errors
    /// [`Refused`] with nothing changed, or the store's own error.
    fn admit(
        &mut self,
        resource: &[u8],
        token: &FencingToken,
    ) -> impl Future<Output = Result<(), FenceError<Self::Error>>> + Send;
}

/// Why a fence did not admit a write.
#[derive(Debug)]
pub enum FenceError<E> {
    /// The token was refused.
    Refused(Refused),
    /// The store failed.
    Store(E),
}

impl<E: fmt::Display> fmt::Display for FenceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for FenceError<E> {}

impl<E> From<Refused> for FenceError<E> {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// A fence's no.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// A higher token has been seen: the writer's lock is gone.
    Stale {
        /// What the writer showed.
        shown: TokenValue,
        /// The highest seen.
        highest: TokenValue,
    },
    /// The mark came from another token source, so the two have no order. An operator has to decide: when the resource
    /// has moved to another engine for good, and no holder of the old one is left, clear its mark.
    WrongSource {
        /// The source of the token shown.
        shown: TokenSource,
        /// The source of the mark.
        recorded: TokenSource,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { shown, highest } => {
                write!(f, "stale: token {shown} was shown and {highest} has been seen; the lock was lost")
            }
            Self::WrongSource { shown, recorded } => write!(
                f,
                "wrong source: the token is of {shown} and the fence's mark of {recorded}, and they have no order; when \
                 the resource has moved to another engine for good, an operator clears the mark"
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// Which tokens a fence admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Equal to or above the highest seen: a holder may write many times.
    #[default]
    AtLeast,
    /// Above the highest seen: one write a hold.
    Above,
}

/// The whole rule of a fence: `recorded` is the mark of the resource, `shown` the writer's token. `Ok` is the mark to
/// record with the write.
///
/// # Errors
/// [`Refused`]; the mark stays as it is.
pub fn judge(
    recorded: Option<&FencingToken>,
    shown: &FencingToken,
    rule: Rule,
) -> Result<FencingToken, Refused> {
    let Some(recorded) = recorded else { return Ok(shown.clone()) };
    match (shown.compare(recorded), rule) {
        (None, _) => {
            Err(Refused::WrongSource { shown: shown.source().clone(), recorded: recorded.source().clone() })
        }
        (Some(Ordering::Greater), _) | (Some(Ordering::Equal), Rule::AtLeast) => Ok(shown.clone()),
        (Some(_), _) => Err(Refused::Stale { shown: shown.value(), highest: recorded.value() }),
    }
}

/// A fence in this process's memory: for tests, and for resources that live in memory themselves.
#[derive(Debug, Default)]
pub struct MemoryFence(Mutex<HashMap<Vec<u8>, FencingToken>>);

impl MemoryFence {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `write` under the fence's own mutex if `token` is admitted.
    ///
    /// # Errors
    /// [`Refused`]; `write` was not called.
    pub fn write<T>(
        &self,
        resource: &[u8],
        token: &FencingToken,
        write: impl FnOnce() -> T,
    ) -> Result<T, Refused> {
        // A panic in `write` leaves the map whole: the mark is recorded before.
        let mut marks = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mark = judge(marks.get(resource), token, Rule::AtLeast)?;
        marks.insert(resource.to_vec(), mark);
        Ok(write())
    }
}

impl Fence for &MemoryFence {
    type Error = std::convert::Infallible;

    async fn admit(&mut self, resource: &[u8], token: &FencingToken) -> Result<(), FenceError<Self::Error>> {
        Ok(self.write(resource, token, || ())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(source: &str, value: u64) -> FencingToken {
        FencingToken::new(TokenSource::new(source).unwrap(), TokenValue::new(value).unwrap())
    }

    #[test]
    fn the_rule_over_every_small_history() {
        for recorded in 1..6 {
            for shown in 1..6 {
                let mark = token("file:a", recorded);
                let admitted = judge(Some(&mark), &token("file:a", shown), Rule::AtLeast).is_ok();
                assert_eq!(admitted, shown >= recorded);
                let admitted = judge(Some(&mark), &token("file:a", shown), Rule::Above).is_ok();
                assert_eq!(admitted, shown > recorded);
            }
        }
        assert!(judge(None, &token("file:a", 1), Rule::Above).is_ok());
    }

    #[test]
    fn another_source_is_wrong_not_stale() {
        let fence = MemoryFence::new();
        fence.write(b"stock", &token("redis:x", 1_800_000_000_000_000), || ()).unwrap();
        let refused = fence.write(b"stock", &token("etcd:y", 7), || unreachable!()).unwrap_err();
        assert!(matches!(refused, Refused::WrongSource { .. }), "{refused}");
        fence.write(b"other", &token("etcd:y", 7), || ()).unwrap();
    }

    #[test]
    fn a_stale_write_changes_nothing() {
        let fence = MemoryFence::new();
        let mut stock = 1;
        fence.write(b"stock", &token("file:a", 2), || stock = 0).unwrap();
        let refused = fence.write(b"stock", &token("file:a", 1), || stock = 9).unwrap_err();
        assert_eq!(refused.to_string(), "stale: token 1 was shown and 2 has been seen; the lock was lost");
        fence.write(b"stock", &token("file:a", 2), || ()).unwrap();
        assert_eq!(stock, 0);
    }
}
