//! kilit's own runtime: one thread a client, where the keeper lives.
//!
//! Renewal must not starve behind the user's blocking work, must outlive the user's runtime, and must work for programs
//! that have none. So each client has a thread with a runtime of its own, and every future of an engine is polled *by
//! the caller* but with that runtime entered: an uncontended claim costs no hop between threads, and sockets and timers
//! are served by the keeper's thread.

use std::{
    cell::Cell,
    future::poll_fn,
    io, mem,
    pin::pin,
    sync::{Arc, mpsc},
    thread,
};

use tokio::{
    runtime::{self, Handle},
    sync::oneshot,
};

use crate::{Error, ErrorKind, Result, timer::Timer};

thread_local! {
    /// What is around the poll of an engine's future.
    static CONTEXT: Cell<Context> = const { Cell::new(Context { caller: None, timer: None }) };
    /// Whether this thread stands still until a call is over.
    static BLOCKING: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Context {
    /// The runtime of who polls.
    caller: Option<Handle>,
    /// What wakes sleepers.
    timer: Option<Arc<Timer>>,
}

/// Puts a context around a poll, and takes it back when that has ended, by a panic as well.
struct Swapped<'a>(&'a mut Context);

impl<'a> Swapped<'a> {
    fn new(context: &'a mut Context) -> Self {
        let swapped = Self(context);
        swap(swapped.0);
        swapped
    }
}

impl Drop for Swapped<'_> {
    fn drop(&mut self) {
        swap(self.0);
    }
}

fn swap(context: &mut Context) {
    *context = CONTEXT.replace(mem::take(context));
}

/// Something of the context that is around this poll.
fn context<T: Clone>(part: impl Fn(&Context) -> &Option<T>) -> Option<T> {
    let context = CONTEXT.take();
    let found = part(&context).clone();
    CONTEXT.set(context);
    found
}

/// The timer of kilit's runtime, within one.
pub(crate) fn timer() -> Option<Arc<Timer>> {
    context(|context| &context.timer)
}

/// For engines: the runtime of who called, while one of their futures is polled. A socket that lives there answers
/// without a hop between threads. `None` where there is none, where its thread is blocked, and for the keeper.
///
/// It may stop, or stand still, at any time: nothing that others wait for may depend on it.
pub fn caller() -> Option<Handle> {
    context(|context| &context.caller)
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

fn build() -> io::Result<(runtime::Runtime, Arc<Timer>)> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let timer = {
        let _entered = runtime.enter();
        Timer::new()?
    };
    Ok((runtime, Arc::new(timer)))
}

/// A handle on the runtime's thread, which ends when the [`Lifeline`] is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    timer: Arc<Timer>,
}

/// Keeps the thread alive; nothing is ever sent.
#[derive(Debug)]
pub(crate) struct Lifeline(#[allow(dead_code)] oneshot::Sender<()>);

impl Runtime {
    /// Starts the thread.
    pub(crate) fn start() -> Result<(Self, Lifeline)> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Refused, "the system gives no thread or epoll for the keeper")
                .with_source(error)
        };
        let (lifeline, end) = oneshot::channel();
        let (report, started) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("kilit-keeper".into())
            .spawn(move || match build() {
                Ok((runtime, timer)) => {
                    CONTEXT.set(Context { caller: None, timer: Some(timer.clone()) });
                    let _ = report.send(Ok(Self { handle: runtime.handle().clone(), timer: timer.clone() }));
                    runtime.spawn(async move { timer.run().await });
                    let _ = runtime.block_on(end);
                    // Blocking work of an engine may still run; a process that ends does not wait for it.
                    runtime.shutdown_background();
                }
                Err(error) => drop(report.send(Err(error))),
            })
            .map_err(failed)?;
        let runtime =
            started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended"))).map_err(failed)?;
        Ok((runtime, Lifeline(lifeline)))
    }

    /// Polls `future` where the caller polls, with this runtime entered. The one around it is [`caller`] meanwhile.
    pub(crate) async fn enter<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let caller = if BLOCKING.get() { None } else { Handle::try_current().ok() };
        let mut context = Context { caller, timer: Some(self.timer.clone()) };
        poll_fn(|task| {
            let _entered = self.handle.enter();
            let _swapped = Swapped::new(&mut context);
            future.as_mut().poll(task)
        })
        .await
    }

    /// Runs a task on the runtime's thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_sees_the_runtime_of_its_caller() {
        let (keeper, _lifeline) = Runtime::start().unwrap();
        let seen = keeper.enter(async { (caller().map(|it| it.id()), Handle::current().id()) }).await;
        assert_eq!(seen, (Some(Handle::current().id()), keeper.handle.id()));
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
