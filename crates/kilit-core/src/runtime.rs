//! kilit's own runtime: one thread a client, where the keeper lives.
//!
//! Renewal must not starve behind the user's blocking work, must outlive the user's runtime, and must work for programs
//! that have none. So each client has a thread with a runtime of its own, and every future of an engine is polled *by
//! the caller* but with that runtime entered: an uncontended claim costs no hop between threads, and sockets and timers
//! are served by the keeper's thread.

use std::{cell::Cell, future::poll_fn, pin::pin, sync::mpsc, thread};

use tokio::{
    runtime::{self, Handle},
    sync::oneshot,
};

use crate::{Error, ErrorKind, Result};

thread_local! {
    /// Around whose poll this thread's engine call is.
    static CALLER: Cell<Option<Handle>> = const { Cell::new(None) };
    /// Whether this thread stands still until a call is over.
    static BLOCKING: Cell<bool> = const { Cell::new(false) };
}

/// Gives the caller's runtime back when a poll has ended, by a panic as well.
struct Outer<'a>(Option<Handle>, &'a mut Option<Handle>);

impl Drop for Outer<'_> {
    fn drop(&mut self) {
        *self.1 = CALLER.replace(self.0.take());
    }
}

/// For engines: the runtime of who called, while one of their futures is polled. A socket that lives there answers
/// without a hop between threads. `None` where there is none, where its thread is blocked, and for the keeper.
///
/// It may stop, or stand still, at any time: nothing that others wait for may depend on it.
pub fn caller() -> Option<Handle> {
    let caller = CALLER.take();
    CALLER.set(caller.clone());
    caller
}

/// Runs a call to its end on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            BLOCKING.set(self.0);
        }
    }
    let _before = Before(BLOCKING.replace(true));
    pollster::block_on(future)
}

/// A handle on the runtime's thread, which ends when the [`Lifeline`] is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Runtime(runtime::Handle);

/// Keeps the thread alive; nothing is ever sent.
#[derive(Debug)]
pub(crate) struct Lifeline(#[allow(dead_code)] oneshot::Sender<()>);

impl Runtime {
    /// Starts the thread.
    pub(crate) fn start() -> Result<(Self, Lifeline)> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Refused, "the system gives no thread or epoll for the keeper")
                .with_source(error)
        };
        let (lifeline, end) = oneshot::channel();
        let (report, started) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("kilit-keeper".into())
            .spawn(move || match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _ = report.send(Ok(runtime.handle().clone()));
                    let _ = runtime.block_on(end);
                    // Blocking work of an engine may still run; a process that ends does not wait for it.
                    runtime.shutdown_background();
                }
                Err(error) => drop(report.send(Err(error))),
            })
            .map_err(failed)?;
        let handle = started
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")))
            .map_err(failed)?;
        Ok((Self(handle), Lifeline(lifeline)))
    }

    /// Polls `future` where the caller polls, with this runtime entered. The one around it is [`caller`] meanwhile.
    pub(crate) async fn enter<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut caller = if BLOCKING.get() { None } else { Handle::try_current().ok() };
        poll_fn(|context| {
            let _entered = self.0.enter();
            let _outer = Outer(CALLER.replace(caller.take()), &mut caller);
            future.as_mut().poll(context)
        })
        .await
    }

    /// Runs a task on the runtime's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_sees_the_runtime_of_its_caller() {
        let (keeper, _lifeline) = Runtime::start().unwrap();
        let seen = keeper.enter(async { (caller().map(|it| it.id()), Handle::current().id()) }).await;
        assert_eq!(seen, (Some(Handle::current().id()), keeper.0.id()));
        assert!(caller().is_none(), "only within a poll");
    }

    #[test]
    fn a_blocked_thread_is_no_runtime() {
        let (keeper, _lifeline) = Runtime::start().unwrap();
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        assert!(block_on(keeper.enter(async { caller() })).is_none());
        assert!(pollster::block_on(keeper.enter(async { caller() })).is_some());
    }
}
