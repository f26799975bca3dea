//! Edges of TTLs, waits and the other terms: refused with the range, or taken as they are; never rounded to nothing.

use std::{thread, time::Duration};

use kilit_core::{ErrorKind, Purpose, TTL_RANGE, Terms};
use kilit_testbed::count;

use super::support::status;
use crate::{Subject, lock};

const NANO: Duration = Duration::from_nanos(1);

/// The same words on every engine, and nothing of the engine is touched.
pub async fn of_the_ttl(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let (shortest, longest) = (*TTL_RANGE.start(), *TTL_RANGE.end());
    let held = subject.mutex(&a, "edge").acquire().await.expect("it is free");
    let far = Duration::from_millis(i64::MAX as u64);
    for ttl in [Duration::ZERO, NANO, Duration::from_micros(1500), shortest - NANO, longest + NANO, far, Duration::MAX]
    {
        let error = b.mutex(lock("edge")).with(Terms { ttl, ..Terms::default() }).expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = format!("a TTL of {ttl:?} is outside 100ms to 7 days");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    held.check().expect("it was not touched");
    held.release().await.expect("it was held");
    for ttl in [shortest, shortest + NANO, longest - NANO, longest] {
        let mutex = b.mutex(lock("edge")).with(Terms { ttl, ..Terms::default() }).expect("in range");
        let guard = mutex.try_acquire().await.expect("it is free");
        let left = guard.remaining();
        assert!(left.is_none_or(|left| left <= ttl), "{left:?} is left of {ttl:?}");
        assert!(left.is_some() || !b.assurance().leases, "a lease has a deadline");
        assert_eq!(guard.covers(longest * 2), left.is_none(), "no lease lasts that long unrenewed");
        drop(guard);
        subject.expect_nothing_left("edge").await;
    }
}

/// Zero is one try and gets a free lock; huge saturates and is served.
pub async fn of_the_wait(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let mutex = subject.mutex(&b, "edge");
    let huge = [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(584 * 365 * 86_400)];
    for wait in [Duration::ZERO, NANO, Duration::from_secs(1)].into_iter().chain(huge) {
        let guard = mutex.acquire_within(wait).await.unwrap_or_else(|error| panic!("{wait:?}: {error}"));
        guard.release().await.expect("it was held");
    }
    for (wait, kind) in [(Duration::ZERO, ErrorKind::Busy), (NANO, ErrorKind::TimedOut)] {
        let holder = subject.mutex(&a, "edge").acquire().await.expect("it is free");
        let error = subject.within("it gives up", mutex.acquire_within(wait)).await.expect_err("it is held");
        assert_eq!(error.kind(), kind, "{wait:?}: {error}");
        assert!(error.is_held_by_another() && error.lock() == Some(&lock("edge")), "{error:?}");
        holder.release().await.expect("it was held");
    }
    for wait in huge {
        let holder = subject.mutex(&a, "edge").acquire().await.expect("it is free");
        let served = async {
            tokio::join!(mutex.acquire_within(wait), async {
                wait_for_a_waiter(subject, "edge").await;
                holder.release().await
            })
        };
        let (guard, released) = subject.within("the waiter is served", served).await;
        released.expect("it was held");
        guard.unwrap_or_else(|error| panic!("{wait:?}: {error}")).release().await.expect("it was held");
    }
    subject.expect_nothing_left("edge").await;
}

/// Until the engine shows one, or a moment where it shows none.
async fn wait_for_a_waiter(subject: &Subject, name: &str) {
    let party = subject.party().await;
    if status(&party, name).await.queue.is_none() {
        return tokio::time::sleep(Duration::from_millis(20)).await;
    }
    subject
        .eventually("somebody waits", async || {
            status(&party, name).await.queue.is_some_and(|queue| !queue.is_empty())
        })
        .await;
}

/// Lock-delay and the longest hold.
pub async fn of_the_other_terms(subject: &Subject) {
    let party = subject.party().await;
    let with = |terms| party.mutex(lock("edge")).with(terms);
    let bad = [
        Terms { lock_delay: Duration::from_secs(3600) + NANO, ..Terms::default() },
        Terms { lock_delay: Duration::MAX, ..Terms::default() },
        Terms { max_hold: Some(Duration::ZERO), ..Terms::default() },
    ];
    for terms in bad {
        assert_eq!(with(terms).expect_err("out of range").kind(), ErrorKind::Invalid);
    }
    let good = [
        Terms { lock_delay: Duration::from_secs(3600), ..Terms::default() },
        Terms { max_hold: Some(Duration::MAX), purpose: Purpose::Efficiency, ..Terms::default() },
        Terms { ttl: *TTL_RANGE.end(), lock_delay: Duration::from_secs(3600), ..Terms::default() },
    ];
    for terms in good {
        let guard = with(terms).expect("in range").try_acquire().await.expect("it is free");
        guard.check().expect("it is held");
        guard.release().await.expect("an orderly release leaves no delay");
    }
    subject.expect_nothing_left("edge").await;
}

/// A process that waits uses hardly any CPU time.
pub async fn an_idle_waiter_is_idle(subject: &Subject) {
    const WATCHED: Duration = Duration::from_millis(1500);
    let mut agent = subject.agent("wait", "idle").spawn();
    agent.said("waiting");
    let before = count::cpu_time(agent.pid());
    thread::sleep(WATCHED);
    let used = count::cpu_time(agent.pid()) - before;
    assert!(used < Duration::from_millis(25), "an idle waiter used {used:?} of CPU time in {WATCHED:?}");
    agent.end_well();
}
