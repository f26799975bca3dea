//! Drops, panics, runtimes that end or stand still, clients that shut down, handles after trouble.

use std::{panic, thread, time::Duration};

use kilit_core::{ErrorKind, LossReason, Terms};
use tokio::runtime;

use super::support::status;
use crate::{Harm, Subject, lock};

/// By a thread that never saw a runtime.
pub async fn a_drop_outside_a_runtime(subject: &Subject) {
    let party = subject.party().await;
    let guard = subject.mutex(&party, "dropped").acquire().await.expect("it is free");
    thread::spawn(move || drop(guard)).join().expect("a drop never panics");
    subject.expect_nothing_left("dropped").await;
}

/// While the stack unwinds.
pub async fn a_drop_in_a_panic(subject: &Subject) {
    let party = subject.party().await;
    let guard = subject.mutex(&party, "panics").acquire().await.expect("it is free");
    let thread = thread::spawn(move || {
        let _guard = guard;
        panic::resume_unwind(Box::new("as the test wants it"));
    });
    thread.join().expect_err("it panicked");
    subject.expect_nothing_left("panics").await;
}

/// A task with a guard, and one whose work panics under `Guard::run`.
pub async fn a_task_that_panics(subject: &Subject) {
    let party = subject.party().await;
    for run in [false, true] {
        let guard = subject.mutex(&party, "panics").acquire().await.expect("it is free");
        let task = tokio::spawn(async move {
            let work = async { panic::resume_unwind(Box::new("as the test wants it")) };
            match run {
                true => drop(guard.run(work).await),
                false => {
                    let _guard = guard;
                    work.await
                }
            }
        });
        assert!(task.await.expect_err("it panicked").is_panic());
        subject.expect_nothing_left("panics").await;
    }
}

/// With a holder and a waiter among its tasks.
pub async fn a_runtime_that_ends(subject: &Subject) {
    let party = subject.party().await;
    let [held, waited] = [(); 2].map(|()| subject.mutex(&party, "runtime"));
    thread::spawn(move || {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let guard = held.acquire().await.expect("it is free");
            tokio::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await
            });
            let waiter = tokio::spawn(async move { waited.acquire().await });
            tokio::time::timeout(Duration::from_millis(20), waiter).await.expect_err("it waits");
        });
    })
    .join()
    .expect("a runtime with guards in it ends in peace");
    subject.expect_nothing_left("runtime").await;
}

/// It is renewed by the client's own thread.
pub async fn a_guard_outlives_its_runtime(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let terms = Terms { ttl: Duration::from_millis(1500), ..subject.terms() };
    let mutex = a.mutex(lock("outlives")).with(terms).expect("in range");
    let guard = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(mutex.acquire()).expect("it is free")
    });
    let guard = guard.join().expect("the runtime ended");
    if let Some(first) = guard.deadline().filter(|_| a.assurance().leases) {
        subject.eventually("it is renewed", async || guard.deadline() > Some(first)).await;
    }
    guard.check().expect("it is held");
    let busy = subject.mutex(&b, "outlives").try_acquire().await;
    assert_eq!(busy.expect_err("it is held").kind(), ErrorKind::Busy);
    guard.release().await.expect("it was held");
}

/// The user's work blocks the only thread of its runtime for more than two TTLs: the hold is kept all the same.
pub async fn a_blocked_runtime_keeps_its_hold(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let terms = Terms { ttl: Duration::from_millis(1200), ..subject.terms() };
    let mutex = a.mutex(lock("blocked")).with(terms).expect("in range");
    let worker = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let guard = mutex.acquire().await.expect("it is free");
            thread::sleep(Duration::from_millis(2600));
            guard
        })
    });
    let guard = worker.join().expect("the work is done");
    guard.check().expect("it was renewed meanwhile");
    let busy = subject.mutex(&b, "blocked").try_acquire().await;
    assert_eq!(busy.expect_err("it is held").kind(), ErrorKind::Busy);
    guard.release().await.expect("it was held");
}

/// `mem::forget` is bounded by the longest hold.
pub async fn a_forgotten_guard_ends(subject: &Subject) {
    let party = subject.party().await;
    let terms = Terms { max_hold: Some(Duration::from_millis(100)), ..subject.short() };
    let guard = party.mutex(lock("forgotten")).with(terms).expect("in range").acquire().await.expect("it is free");
    std::mem::forget(guard);
    subject.expect_nothing_left("forgotten").await;
}

/// Guards keep what they need.
pub async fn a_client_is_as_good_as_its_last_guard(subject: &Subject) {
    let (party, other) = (subject.party().await, subject.party().await);
    let terms = Terms { ttl: Duration::from_millis(1500), ..subject.terms() };
    let guard = party.mutex(lock("last")).with(terms).expect("in range").acquire().await.expect("it is free");
    let (leases, first) = (party.assurance().leases, guard.deadline());
    drop(party.client);
    if leases {
        subject.eventually("it is renewed", async || guard.deadline() > first).await;
    }
    guard.check().expect("it is held");
    let busy = subject.mutex(&other, "last").try_acquire().await;
    assert_eq!(busy.expect_err("it is held").kind(), ErrorKind::Busy);
    guard.release().await.expect("it was held");
    subject.expect_nothing_left("last").await;
}

/// The same mutex, and the same name by the same client, work after a loss.
pub async fn a_handle_is_usable_after_a_loss(subject: &Subject) {
    let party = subject.party().await;
    let mutex = party.mutex(lock("again")).with(subject.short()).expect("in range");
    for _ in 0..2 {
        let guard = subject.within("the lock is free", mutex.acquire()).await.expect("the lock is free");
        subject.take_away(&party, &guard).await;
        subject.within("the loss is noticed", guard.lost().cancelled()).await;
        if party.link.is_some() {
            party.link(Harm::None);
        }
        assert_eq!(guard.release().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    }
    let other = subject.mutex(&party, "again");
    subject.within("the lock is free", other.acquire()).await.expect("it is free").release().await.expect("it was held");
}

/// Live guards learn that they are lost, all locks are free at once, and the client refuses new claims.
pub async fn shutdown_ends_all_and_closes(subject: &Subject) {
    let party = subject.party().await;
    let mut guards = Vec::new();
    for name in ["one", "two", "three"] {
        guards.push(subject.mutex(&party, name).acquire().await.expect("it is free"));
    }
    drop(guards.pop());
    party.shutdown().await.expect("every release was answered");
    for guard in guards {
        assert_eq!(guard.check().expect_err("the client was shut down").reason, LossReason::Shutdown);
        assert!(guard.lost().is_cancelled());
        assert_eq!(guard.release().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    }
    for name in ["one", "two", "three"] {
        let error = subject.mutex(&party, name).try_acquire().await.expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed);
        // At once, and not when a lease has ended.
        assert!(!status(&subject.party().await.client, name).await.is_held());
        subject.expect_nothing_left(name).await;
    }
    party.shutdown().await.expect("there is nothing left to do");
}

/// A claim that waits when its client is shut down ends, and what it was given meanwhile is given back.
pub async fn shutdown_while_waiting(subject: &Subject) {
    let (a, b) = (subject.party().await, subject.party().await);
    let holder = subject.mutex(&b, "waits").acquire().await.expect("it is free");
    let mutex = subject.mutex(&a, "waits");
    let waiter = tokio::spawn(async move { mutex.acquire().await.map(|guard| guard.check()) });
    if status(&b, "waits").await.queue.is_some() {
        subject
            .eventually("it waits", async || status(&b, "waits").await.queue.is_some_and(|queue| !queue.is_empty()))
            .await;
    }
    a.shutdown().await.expect("nothing is held");
    holder.release().await.expect("it was held");
    let outcome = subject.within("the waiter has an end", waiter).await.expect("it is well");
    match outcome {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
        Ok(held) => drop(held.expect_err("the client was shut down")),
    }
    subject.expect_nothing_left("waits").await;
}

/// One error a lock whose release was not answered; none is skipped because another failed.
pub async fn shutdown_reports_every_error(subject: &Subject) {
    let party = subject.party().await;
    let mut guards = Vec::new();
    for name in ["one", "two", "three"] {
        guards.push(party.mutex(lock(name)).with(subject.short()).expect("in range").acquire().await.expect("free"));
    }
    party.link(Harm::Cut);
    let errors = party.shutdown().await.expect_err("no release was answered");
    assert_eq!(errors.len(), 3, "{errors:?}");
    let mut names: Vec<_> = errors.iter().filter_map(|error| error.lock()).map(|name| name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["one", "three", "two"], "{errors:?}");
    assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unreachable)));
    party.link(Harm::None);
    for name in ["one", "two", "three"] {
        subject.expect_nothing_left(name).await;
    }
}
