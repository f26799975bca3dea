//! What guard and keeper share of one hold: its deadline, and the news of its loss.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Loss, LossReason, Standing};
use crate::Moment;

/// A hold that is lost stays lost: every change goes through the watch's own lock.
#[derive(Debug)]
pub(crate) struct Signal {
    deadline: AtomicU64,
    /// From here on the keeper does not renew.
    keep_until: Moment,
    standing: watch::Sender<Standing>,
    lost: CancellationToken,
}

impl Signal {
    pub(crate) fn new(deadline: Option<Moment>, keep_until: Moment) -> Self {
        Self {
            deadline: AtomicU64::new(deadline.unwrap_or(Moment::FAR).as_nanos()),
            keep_until,
            standing: watch::Sender::new(Standing::Held),
            lost: CancellationToken::new(),
        }
    }

    /// The local deadline; [`Moment::FAR`] where there is none.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn keep_until(&self) -> Moment {
        self.keep_until
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        match *self.standing.borrow() {
            Standing::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// The standing at `now`: a deadline that has passed is a loss, whoever notices it first.
    pub(crate) fn check(&self, now: Moment) -> Result<(), Loss> {
        if now >= self.deadline() {
            let reason = if now >= self.keep_until { LossReason::MaxHold } else { LossReason::Silence };
            self.change(|deadline| (now >= deadline).then_some(Standing::Lost(Loss { reason, at: now })));
        }
        self.loss().map_or(Ok(()), Err)
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
        let changed = self.standing.send_if_modified(|standing| {
            if matches!(standing, Standing::Lost(_)) {
                return false;
            }
            match next(self.deadline()) {
                Some(next) if next != *standing => {
                    *standing = next;
                    true
                }
                _ => false,
            }
        });
        if changed && self.loss().is_some() {
            self.lost.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn a_lost_hold_stays_lost() {
        let signal = Signal::new(Some(at(10)), Moment::FAR);
        assert_eq!(signal.check(at(9)), Ok(()));
        assert_eq!(signal.check(at(10)).unwrap_err().reason, LossReason::Silence);
        signal.extend(Some(at(20)));
        signal.put_at_risk(at(30));
        signal.lose(LossReason::Ended, at(11));
        assert_eq!(signal.check(at(11)).unwrap_err().reason, LossReason::Silence);
        assert!(signal.lost().is_cancelled());
    }

    #[test]
    fn news_come_once() {
        let signal = Signal::new(Some(at(10)), Moment::FAR);
        let mut news = signal.standing();
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
        let signal = Signal::new(None, at(10));
        signal.put_at_risk(at(15));
        assert_eq!(signal.check(at(14)), Ok(()));
        assert_eq!(signal.check(at(15)).unwrap_err().reason, LossReason::MaxHold);
    }
}
