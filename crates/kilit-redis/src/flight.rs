//! Work that many wait for and that is done once, whoever of them is polled.

use std::sync::{Arc, Mutex, PoisonError};

use kilit_core::{Error, ErrorKind, Result};
use tokio::{runtime::Handle, sync::watch};

type Outcome<T> = Option<Result<T, Arc<Error>>>;

/// The work that is under way, if some is.
#[derive(Debug)]
pub(crate) struct Flight<T>(Mutex<Option<watch::Receiver<Outcome<T>>>>);

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    /// Waits for what is under way, or begins `work` on the runtime that is entered: the keeper's, which never stands
    /// still. It goes on though nobody waits for it any more.
    pub(crate) async fn join<F>(&self, work: impl FnOnce() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut outcome = self.outcome(work);
        let gone = || Error::new(ErrorKind::Closed, "the client has ended");
        let outcome = outcome.wait_for(Option::is_some).await.map_err(|_| gone())?;
        match outcome.as_ref().ok_or_else(gone)? {
            Ok(output) => Ok(output.clone()),
            // Each gets one of its own.
            Err(error) => Err(Error::new(error.kind(), error.to_string())
                .with_effect(error.effect())
                .with_retry(error.retry())),
        }
    }

    fn outcome<F>(&self, work: impl FnOnce() -> F) -> watch::Receiver<Outcome<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = &*under_way
            && outcome.borrow().is_none()
            && outcome.has_changed().is_ok()
        {
            return outcome.clone();
        }
        let (land, outcome) = watch::channel(None);
        let work = work();
        Handle::current().spawn(async move {
            let _ = land.send(Some(work.await.map_err(Arc::new)));
        });
        *under_way = Some(outcome.clone());
        outcome
    }
}
