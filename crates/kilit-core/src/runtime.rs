//! kilit's own runtime: one thread a client, where the keeper lives.
//!
//! Renewal must not starve behind the user's blocking work, must outlive the user's runtime, and must work for programs
//! that have none. So each client has a thread with a runtime of its own, and every future of an engine is polled *by
//! the caller* but with that runtime entered: an uncontended claim costs no hop between threads, and sockets and timers
//! are served by the keeper's thread.

use std::{future::poll_fn, pin::pin, sync::mpsc, thread};

use tokio::{runtime, sync::oneshot};

use crate::{Error, ErrorKind, Result};

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

    /// Polls `future` where the caller polls, with this runtime entered.
    pub(crate) async fn enter<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _entered = self.0.enter();
            future.as_mut().poll(context)
        })
        .await
    }

    /// Runs a task on the runtime's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}
