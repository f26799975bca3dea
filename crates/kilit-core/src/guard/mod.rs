//! Notice: the holder's side of a lock.

pub(crate) mod keeper;
mod loss;
mod signal;

use std::{fmt, io, ops::Deref, os::fd::OwnedFd, pin::pin, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::signal::Signal;
pub use self::{
    loss::{Loss, LossReason, Standing},
    signal::LossNotice,
};
use crate::{Claim, Client, FencingToken, Grant, LockName, Moment, OwnerId, Result};

/// A hold, of whatever kind: what [`Guard`] and [`SharedGuard`] have in common.
///
/// It is renewed in the background until it is released, dropped or lost. Dropping it sends the release without
/// waiting, so a `try_acquire` right after a drop may still find the lock busy: [`release`](Self::release) when that
/// matters, which waits for the answer. A guard that is forgotten (`mem::forget`) is renewed as long as its client
/// lives; [`Terms::max_hold`](crate::Terms::max_hold) bounds that.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Hold {
    client: Client,
    claim: Arc<Claim>,
    /// When it was granted.
    since: Moment,
    released: bool,
}

impl Hold {
    /// Takes charge of what `grant` gave.
    pub(crate) fn new(
        client: Client,
        claim: Arc<Claim>,
        grant: Grant,
        max_hold: Option<Duration>,
    ) -> (Self, Option<FencingToken>) {
        let since = client.clock().now();
        let keep_until = max_hold.map_or(Moment::FAR, |longest| since + longest);
        claim.notice.signal().grant(grant.deadline, keep_until);
        client.keeper().add(claim.clone(), since);
        (Self { client, claim, since, released: false }, grant.token)
    }

    fn signal(&self) -> &Signal {
        self.claim.notice.signal()
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.claim.name
    }

    /// The random id of this hold, as `status` shows it.
    pub fn owner(&self) -> OwnerId {
        self.claim.owner
    }

    /// The TTL asked for; unused by engines that have no leases.
    pub fn ttl(&self) -> Duration {
        self.claim.ttl
    }

    /// How long it has been held, from its grant (boot-time clock).
    pub fn held_for(&self) -> Duration {
        self.client.clock().now().since(self.since)
    }

    /// Reads the clock and says whether the lock is still held, as far as this process can know.
    ///
    /// This is no fence: the process can be stopped between this call and the write that follows it. Only a resource
    /// that compares [tokens](Guard::token) refuses such a write.
    ///
    /// # Errors
    /// The [`Loss`]. A hold that is lost stays lost.
    pub fn check(&self) -> Result<(), Loss> {
        self.signal().check(self.client.clock().now())
    }

    /// The local deadline (boot-time clock): the hold is lost here unless it is renewed before. `None` where it lasts
    /// as long as the process.
    pub fn deadline(&self) -> Option<Moment> {
        Some(self.signal().deadline()).filter(|deadline| *deadline != Moment::FAR)
    }

    /// The time until the [deadline](Self::deadline), on the boot-time clock; zero when it has passed, `None` where
    /// there is none.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.since(self.client.clock().now()))
    }

    /// Whether `work`, begun now, and one round trip to the engine after it, end before the deadline even if no
    /// renewal succeeds (boot-time clock). The round trip is estimated from those the client has made. Always true
    /// where there is no deadline and the lock is held.
    pub fn covers(&self, work: Duration) -> bool {
        let end = self.client.clock().now() + work + self.client.keeper().latency();
        self.check().is_ok() && end < self.signal().deadline()
    }

    /// How it stands, as a watch: *held*, *at risk until*, *lost*.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.signal().watch()
    }

    /// Cancelled when the hold is lost; never by a release.
    pub fn lost(&self) -> &CancellationToken {
        self.signal().lost()
    }

    /// A second descriptor of what the kernel ties the hold to, where there is such a thing (the file engine): the
    /// lock outlives this process for as long as the duplicate is open, or until it is released.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        self.client.engine().duplicate(self.claim.owner)
    }

    /// Releases the lock and waits for the engine's answer. Tries again until the deadline (or for one TTL where there
    /// is none) when the engine does not answer.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the hold had ended before;
    /// [`Unknown`](crate::ErrorKind::Unknown), [`Unreachable`](crate::ErrorKind::Unreachable) or
    /// [`Refused`](crate::ErrorKind::Refused) when it could not be confirmed: the lock then ends with its TTL, or, on
    /// engines without leases, with this process at the latest.
    ///
    /// # Cancel safety
    /// When the future is dropped, the release goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        let released = match self.client.keeper().release_at_once(&self.claim) {
            Some(released) => released,
            // Boxed: the smaller a future, the quicker one that does not get here.
            None => self.client.runtime().enter(Box::pin(self.client.keeper().release(&self.claim))).await,
        };
        self.released = true;
        released.map_err(|error| error.on_engine(self.client.assurance().engine).on_lock(&self.claim.name))
    }

    /// Runs `work` under the lock: drops it as soon as the lock is lost, and releases the lock at the end.
    ///
    /// Work is dropped at its next await. Work that blocks goes on: [`check`](Self::check) between its steps.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lock was lost before `work` had ended, or was found lost right after.
    /// A release that could not be confirmed is no error here, since `work` was done while the lock was held; it is
    /// logged.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and releases the lock in the background.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        let output = {
            let mut work = pin!(work);
            tokio::select! {
                biased;
                () = self.signal().lost().cancelled() => None,
                output = &mut work => Some(output),
            }
        };
        let held = self.check();
        let released = self.release().await;
        match (output, held) {
            (Some(output), Ok(())) => {
                if let Err(error) = released {
                    tracing::warn!(%error, "the work is done and its lock's release was not confirmed");
                }
                Ok(output)
            }
            (_, Err(loss)) => Err(loss.into()),
            (None, Ok(())) => unreachable!("a hold that is lost stays lost"),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.released {
            self.client.keeper().release_later(&self.claim, Some(self.signal()));
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.claim.name)
            .field("owner", &self.claim.owner)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// An exclusive hold, with its fencing token.
///
/// It is renewed in the background, and derefs to [`Hold`], which says how it stands. Dropping it releases the lock in
/// the background, at any point of a task that is cancelled; [`release`](Self::release) waits for the answer.
///
/// ```no_run
/// # async fn sell(locks: kilit_core::Client) -> kilit_core::Result<()> {
/// let guard = locks.mutex("product:42".parse()?).acquire().await?;
/// if let Some(token) = guard.token() {
///     let (number, source) = (token.value().get(), token.source().as_str()); // show both to the store
/// #   let _ = (number, source);
/// }
/// guard.release().await
/// # }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    hold: Hold,
    token: Option<FencingToken>,
}

impl Guard {
    pub(crate) fn new((hold, token): (Hold, Option<FencingToken>)) -> Self {
        Self { hold, token }
    }

    /// The fencing token of this hold: show its [value](FencingToken::value) and its [source](FencingToken::source) to
    /// the resource with every write. `None` on engines that have none.
    pub fn token(&self) -> Option<&FencingToken> {
        self.token.as_ref()
    }

    /// Releases the lock and waits for the answer: see [`Hold::release`].
    ///
    /// # Errors
    /// Those of [`Hold::release`].
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    /// Runs `work` under the lock: see [`Hold::run`].
    ///
    /// # Errors
    /// Those of [`Hold::run`].
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        self.hold.run(work).await
    }

    /// Takes the hold and its token apart.
    pub fn into_parts(self) -> (Hold, Option<FencingToken>) {
        (self.hold, self.token)
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

/// A shared hold. Renewal and drop are those of [`Guard`].
///
/// It has no token: a fence that compares the highest one seen would refuse the older of two rightful holders.
#[must_use = "the lock is released as soon as its guard is dropped"]
#[derive(Debug)]
pub struct SharedGuard(Hold);

impl SharedGuard {
    pub(crate) fn new((hold, _): (Hold, Option<FencingToken>)) -> Self {
        Self(hold)
    }

    /// See [`Hold::release`].
    ///
    /// # Errors
    /// Those of [`Hold::release`].
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    /// See [`Hold::run`].
    ///
    /// # Errors
    /// Those of [`Hold::run`].
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        self.0.run(work).await
    }

    /// The hold itself.
    pub fn into_hold(self) -> Hold {
        self.0
    }
}

impl Deref for SharedGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0
    }
}
