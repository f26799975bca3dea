//! Many sleepers on one timerfd: a deadline that is met, as nearly all are, costs no system call.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use crate::{Moment, sys};

/// The timer of one runtime of kilit.
#[derive(Debug)]
pub(crate) struct Timer {
    alarm: sys::Alarm,
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug)]
struct Sleepers {
    wakers: BTreeMap<(Moment, u64), Waker>,
    last_id: u64,
    /// When the alarm rings, however few still sleep until then.
    rings_at: Moment,
}

impl Timer {
    /// A timer that somebody must [run](Self::run).
    pub(crate) fn new() -> io::Result<Self> {
        let sleepers = Sleepers { wakers: BTreeMap::new(), last_id: 0, rings_at: Moment::FAR };
        Ok(Self { alarm: sys::Alarm::new()?, sleepers: Mutex::new(sleepers) })
    }

    /// Wakes the sleepers, for ever.
    pub(crate) async fn run(&self) -> io::Result<()> {
        loop {
            self.alarm.ring().await?;
            let now = sys::boot_time();
            let due = {
                let mut sleepers = self.sleepers();
                let later = sleepers.wakers.split_off(&(now, u64::MAX));
                let due = std::mem::replace(&mut sleepers.wakers, later);
                let next = sleepers.wakers.first_key_value().map_or(Moment::FAR, |((next, _), _)| *next);
                self.set(&mut sleepers, next)?;
                due
            };
            due.into_values().for_each(Waker::wake);
        }
    }

    /// Returns at `moment`. Cancel safe.
    pub(crate) async fn sleep_until(&self, moment: Moment) -> io::Result<()> {
        let mut place = Place { timer: self, moment, id: None };
        poll_fn(|context| match sys::boot_time() >= moment {
            true => Poll::Ready(Ok(())),
            false => match place.take(context.waker()) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        })
        .await
    }

    fn set(&self, sleepers: &mut Sleepers, moment: Moment) -> io::Result<()> {
        sleepers.rings_at = moment;
        self.alarm.set(moment)
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sleeper's place, left when it is dropped.
struct Place<'a> {
    timer: &'a Timer,
    moment: Moment,
    id: Option<u64>,
}

impl Place<'_> {
    fn take(&mut self, waker: &Waker) -> io::Result<()> {
        let mut sleepers = self.timer.sleepers();
        let id = *self.id.get_or_insert_with(|| {
            sleepers.last_id += 1;
            sleepers.last_id
        });
        sleepers.wakers.insert((self.moment, id), waker.clone());
        match self.moment < sleepers.rings_at {
            true => self.timer.set(&mut sleepers, self.moment),
            false => Ok(()),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.timer.sleepers().wakers.remove(&(self.moment, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_time_and_leave_nothing() {
        let timer = Arc::new(Timer::new().unwrap());
        let runs = tokio::spawn({
            let timer = timer.clone();
            async move { timer.run().await }
        });
        let start = sys::boot_time();
        let sleepers = [30_u64, 10, 20, 0].map(|ms| {
            let (timer, until) = (timer.clone(), start + Duration::from_millis(ms));
            tokio::spawn(async move {
                timer.sleep_until(until).await.unwrap();
                assert!(sys::boot_time() >= until);
            })
        });
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
        // One that gave up, for whom the alarm rings all the same.
        let until = sys::boot_time() + Duration::from_millis(20);
        let gave_up = tokio::time::timeout(Duration::from_millis(1), timer.sleep_until(until)).await;
        assert!(gave_up.is_err());
        assert!(timer.sleepers().wakers.is_empty());
        timer.sleep_until(until + Duration::from_millis(5)).await.unwrap();
        runs.abort();
    }
}
