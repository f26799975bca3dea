//! Work that blocks, on a thread of its own: a flush must not hold up the caller's executor.

use std::thread;

use kilit_core::{Error, ErrorKind, Result, Retry};
use tokio::sync::oneshot;

/// Runs `work` on a new thread. It is done to its end, also when the future is dropped.
///
/// Not the runtime's own pool: that one panics where the system gives no thread.
pub(crate) async fn aside<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let failed = |why: &str| {
        Error::new(ErrorKind::Refused, format!("cannot {what}: {why}"))
            .with_retry(Retry::Later)
            .on_engine("file")
    };
    let (report, done) = oneshot::channel();
    thread::Builder::new().name("kilit-file".into()).spawn(move || drop(report.send(work()))).map_err(
        |error| failed("the system gives no thread; raise the limit of processes").with_source(error),
    )?;
    done.await.map_err(|_| failed("its thread has ended"))
}
