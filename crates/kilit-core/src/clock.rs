//! The one clock of every deadline.

use std::{
    fmt,
    ops::Add,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{runtime, sys};

/// A point on the boot-time clock (`CLOCK_BOOTTIME`): it counts while the machine is suspended and is never set.
/// Meaningful on one machine until it boots again. Wall time is never used for a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The far end of time: what a sum that would overflow saturates to.
    pub const FAR: Self = Self(u64::MAX);

    /// From nanoseconds since boot.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero if that is not in the past.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment less `duration`; saturates at boot.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

/// Where deadlines are read from: the system's boot-time clock, or one that a test moves.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Manual>>);

#[derive(Debug)]
struct Manual {
    now: AtomicU64,
    moved: watch::Sender<()>,
}

impl Clock {
    /// `CLOCK_BOOTTIME`, with timers on a timerfd of the same clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still until [`advance`](Self::advance) moves it; for tests.
    pub fn manual() -> Self {
        let start = Duration::from_secs(1_000);
        Self(Some(Arc::new(Manual { now: AtomicU64::new(nanos(start)), moved: watch::Sender::new(()) })))
    }

    /// Moves a manual clock, and wakes who slept until then.
    ///
    /// # Panics
    /// On the system's clock.
    pub fn advance(&self, by: Duration) {
        let manual = self.0.as_ref().expect("only a manual clock is moved by hand");
        manual.now.fetch_add(nanos(by), Ordering::SeqCst);
        manual.moved.send_replace(());
    }

    /// Now.
    pub fn now(&self) -> Moment {
        match &self.0 {
            None => sys::boot_time(),
            Some(manual) => Moment(manual.now.load(Ordering::SeqCst)),
        }
    }

    /// Sleeps until `moment`, through a suspend as well. Cancel safe.
    ///
    /// Must be polled within kilit's own runtime, as every call of an engine is.
    pub async fn sleep_until(&self, moment: Moment) {
        match &self.0 {
            _ if moment == Moment::FAR => std::future::pending().await,
            None => match runtime::timer() {
                // It fails with its runtime alone, and with it who sleeps there.
                Some(timer) if timer.sleep_until(moment).await.is_ok() => {}
                // Boxed: most futures that may sleep never do, and are moved about.
                _ => Box::pin(sys::sleep_until(moment)).await,
            },
            Some(manual) => {
                let mut moved = manual.moved.subscribe();
                while self.now() < moment {
                    // The sender lives in `manual`, which this borrow keeps.
                    let _ = moved.changed().await;
                }
            }
        }
    }

    /// Sleeps for `duration` from now. Cancel safe; saturates.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }

    /// `future`'s output, or `None` when `deadline` comes first.
    pub async fn timeout_at<F: Future>(&self, deadline: Moment, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep_until(deadline) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate() {
        assert_eq!(Moment::from_nanos(5) + Duration::MAX, Moment::FAR);
        assert_eq!(Moment::from_nanos(5).before(Duration::MAX), Moment::from_nanos(0));
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(9)), Duration::ZERO);
    }

    #[tokio::test]
    async fn the_system_clock_sleeps() {
        let clock = Clock::system();
        let start = clock.now();
        clock.sleep(Duration::from_millis(20)).await;
        assert!(clock.now().since(start) >= Duration::from_millis(20));
        clock.sleep_until(start).await;
        assert!(
            clock
                .timeout_at(clock.now() + Duration::from_millis(1), std::future::pending::<()>())
                .await
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_manual_clock_moves_by_hand_only() {
        let clock = Clock::manual();
        let wake = clock.now() + Duration::from_secs(3600);
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(wake).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(3599));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.unwrap();
    }
}
