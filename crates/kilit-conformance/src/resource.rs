//! What the lock protects, and where exclusion is judged.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use kilit_core::FencingToken;
use tokio::task::yield_now;

/// A value that nothing but the lock protects: it is read, and written back a while later. Two visitors at once lose
/// an update, or meet.
#[derive(Debug, Default)]
pub struct Resource {
    value: AtomicU64,
    writing: AtomicBool,
    readers: AtomicU64,
    met: AtomicU64,
    tokens: Mutex<Vec<FencingToken>>,
}

impl Resource {
    /// A visit alone.
    pub async fn visit(&self, token: Option<&FencingToken>) {
        let seen = self.enter(token);
        for _ in 0..fastrand::u8(1..4) {
            yield_now().await;
        }
        self.leave(seen);
    }

    /// A visit alone, by a thread.
    pub fn visit_blocking(&self, token: Option<&FencingToken>) {
        let seen = self.enter(token);
        thread::yield_now();
        self.leave(seen);
    }

    /// A visit beside others that only look.
    pub async fn look(&self) {
        self.readers.fetch_add(1, SeqCst);
        let seen = self.value.load(SeqCst);
        let met = self.writing.load(SeqCst);
        yield_now().await;
        if met || self.writing.load(SeqCst) || self.value.load(SeqCst) != seen {
            self.met.fetch_add(1, SeqCst);
        }
        self.readers.fetch_sub(1, SeqCst);
    }

    fn enter(&self, token: Option<&FencingToken>) -> u64 {
        if self.writing.swap(true, SeqCst) || self.readers.load(SeqCst) > 0 {
            self.met.fetch_add(1, SeqCst);
        }
        if let Some(token) = token {
            self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token.clone());
        }
        self.value.load(SeqCst)
    }

    fn leave(&self, seen: u64) {
        self.value.store(seen + 1, SeqCst);
        self.writing.store(false, SeqCst);
    }

    /// Checks that the visitors never met, lost no update, and came with tokens that strictly rise.
    ///
    /// # Panics
    /// When they did not.
    #[track_caller]
    pub fn expect_exclusive(&self, visits: u64) {
        let (met, value) = (self.met.load(SeqCst), self.value.load(SeqCst));
        assert!(
            met == 0 && value == visits,
            "exclusion was violated: visitors met {met} times, and {value} of {visits} updates are left"
        );
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        for pair in tokens.windows(2) {
            assert!(
                pair[1].compare(&pair[0]).is_some_and(|order| order.is_gt()),
                "tokens do not rise: {} came after {}",
                pair[1],
                pair[0]
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[should_panic(expected = "exclusion was violated")]
    async fn visitors_without_a_lock_are_caught() {
        let resource = Resource::default();
        let (seen, other) = (resource.enter(None), resource.enter(None));
        resource.leave(seen);
        resource.leave(other);
        resource.expect_exclusive(2);
    }

    #[tokio::test]
    #[should_panic(expected = "exclusion was violated")]
    async fn a_writer_beside_a_reader_is_caught() {
        let resource = Resource::default();
        let seen = resource.enter(None);
        resource.look().await;
        resource.leave(seen);
        resource.expect_exclusive(1);
    }
}
