//! What guard, keeper and engine share of one hold: its deadline, and the news of its loss.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Loss, LossReason, Standing};
use crate::Moment;

/// A hold that is lost stays lost: every change goes through one mutex. Reading the deadline does not.
///
/// The watch and the cancellation token are made when somebody asks for them: most holds come and go unwatched.
#[derive(Debug)]
pub(crate) struct Signal {
    deadline: AtomicU64,
    /// From here on the keeper does not renew.
    keep_until: AtomicU64,
    is_lost: AtomicBool,
    standing: Mutex<Standing>,
    watch: OnceLock<watch::Sender<Standing>>,
    lost: OnceLock<CancellationToken>,
}

impl Default for Signal {
    fn default() -> Self {
        Self {
            deadline: AtomicU64::new(Moment::FAR.as_nanos()),
            keep_until: AtomicU64::new(Moment::FAR.as_nanos()),
            is_lost: AtomicBool::new(false),
            standing: Mutex::new(Standing::Held),
            watch: OnceLock::new(),
            lost: OnceLock::new(),
        }
    }
}

impl Signal {
    /// The engine granted the hold.
    pub(crate) fn grant(&self, deadline: Option<Moment>, keep_until: Moment) {
        self.keep_until.store(keep_until.as_nanos(), Ordering::Release);
        if deadline.is_some() {
            self.extend(deadline);
        }
    }

    /// The local deadline; [`Moment::FAR`] where there is none.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn keep_until(&self) -> Moment {
        Moment::from_nanos(self.keep_until.load(Ordering::Acquire))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Standing> {
        let standing = self.standing();
        self.watch.get_or_init(|| watch::Sender::new(*standing)).subscribe()
    }

    pub(crate) fn lost(&self) -> &CancellationToken {
        let standing = self.standing();
        let lost = self.lost.get_or_init(CancellationToken::new);
        if matches!(*standing, Standing::Lost(_)) {
            lost.cancel();
        }
        lost
    }

    /// The standing at `now`: a deadline that has passed is a loss, whoever notices it first.
    pub(crate) fn check(&self, now: Moment) -> Result<(), Loss> {
        if now < self.deadline() && !self.is_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = if now >= self.keep_until() { LossReason::MaxHold } else { LossReason::Silence };
        // A renewal may have come between.
        self.change(|deadline| (now >= deadline).then_some(Standing::Lost(Loss { reason, at: now })));
        match *self.standing() {
            Standing::Lost(loss) => Err(loss),
            _ => Ok(()),
        }
    }

    /// Whether it is held, and no clock has a say in it.
    pub(crate) fn is_endless(&self) -> bool {
        self.deadline() == Moment::FAR && !self.is_lost.load(Ordering::Acquire)
    }

    /// The engine confirmed the hold.
    pub(crate) fn extend(&self, deadline: Option<Moment>) {
        let deadline = deadline.unwrap_or(Moment::FAR);
        self.change(|_| {
            self.deadline.store(deadline.as_nanos(), Ordering::Release);
            Some(Standing::Held)
        });
    }

    /// No more word of the engine is expected before the deadline, `latest` where there was none.
    pub(crate) fn put_at_risk(&self, latest: Moment) {
        self.change(|deadline| {
            let until = if deadline == Moment::FAR { latest } else { deadline };
            self.deadline.store(until.as_nanos(), Ordering::Release);
            Some(Standing::AtRisk { until })
        });
    }

    /// The hold is over.
    pub(crate) fn lose(&self, reason: LossReason, at: Moment) {
        self.change(|_| Some(Standing::Lost(Loss { reason, at })));
    }

    fn change(&self, next: impl FnOnce(Moment) -> Option<Standing>) {
        let mut standing = self.standing();
        if matches!(*standing, Standing::Lost(_)) {
            return;
        }
        let Some(next) = next(self.deadline()).filter(|next| next != &*standing) else { return };
        *standing = next;
        let is_lost = matches!(next, Standing::Lost(_));
        self.is_lost.store(is_lost, Ordering::Release);
        if let Some(watch) = self.watch.get() {
            watch.send_replace(next);
        }
        if let (true, Some(lost)) = (is_lost, self.lost.get()) {
            lost.cancel();
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an engine tells the holder that it has ended the hold, without being asked. Travels with the
/// [claim](crate::Claim), and its clones with the claim's; a new one has no holder yet, and tells nobody.
#[derive(Clone, Default)]
pub struct LossNotice(Arc<Signal>);

impl LossNotice {
    /// The hold of this claim is over, as of `at` on the engine's clock of deadlines. Never blocks.
    pub fn lost(&self, reason: LossReason, at: Moment) {
        self.0.lose(reason, at);
    }

    /// What the holder is told by.
    pub(crate) fn signal(&self) -> &Signal {
        &self.0
    }
}

impl fmt::Debug for LossNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossNotice")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn granted(deadline: Option<Moment>, keep_until: Moment) -> Signal {
        let signal = Signal::default();
        signal.grant(deadline, keep_until);
        signal
    }

    #[test]
    fn a_lost_hold_stays_lost() {
        let signal = granted(Some(at(10)), Moment::FAR);
        let early = signal.lost().clone();
        assert_eq!(signal.check(at(9)), Ok(()));
        assert_eq!(signal.check(at(10)).unwrap_err().reason, LossReason::Silence);
        signal.extend(Some(at(20)));
        signal.put_at_risk(at(30));
        signal.lose(LossReason::Ended, at(11));
        assert_eq!(signal.check(at(9)).unwrap_err().reason, LossReason::Silence);
        assert!(early.is_cancelled() && signal.lost().is_cancelled());
    }

    #[test]
    fn who_asks_late_is_told_all_the_same() {
        let signal = granted(Some(at(10)), Moment::FAR);
        LossNotice::default().lost(LossReason::Ended, at(1));
        signal.lose(LossReason::Broken, at(1));
        assert!(signal.lost().is_cancelled());
        assert!(matches!(*signal.watch().borrow(), Standing::Lost(Loss { reason: LossReason::Broken, .. })));
    }

    #[test]
    fn news_come_once() {
        let signal = granted(Some(at(10)), Moment::FAR);
        let mut news = signal.watch();
        signal.extend(Some(at(20)));
        assert!(!news.has_changed().unwrap(), "held is no news to a holder");
        signal.put_at_risk(at(99));
        assert_eq!(*news.borrow_and_update(), Standing::AtRisk { until: at(20) });
        signal.extend(Some(at(30)));
        assert_eq!(*news.borrow_and_update(), Standing::Held);
        assert_eq!(signal.deadline(), at(30));
    }

    #[test]
    fn past_the_longest_hold_the_reason_says_so() {
        let signal = granted(None, at(10));
        signal.put_at_risk(at(15));
        assert_eq!(signal.check(at(14)), Ok(()));
        assert_eq!(signal.check(at(15)).unwrap_err().reason, LossReason::MaxHold);
    }

    #[test]
    fn a_loss_before_the_grant_is_kept() {
        let signal = Signal::default();
        signal.lose(LossReason::Broken, at(1));
        signal.grant(None, Moment::FAR);
        assert_eq!(signal.check(at(2)).unwrap_err().reason, LossReason::Broken);
    }
}
