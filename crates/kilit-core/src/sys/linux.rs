//! Linux: the boot-time clock, timerfd, and readiness of a file descriptor.

#![allow(unsafe_code)]

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::Moment;

/// Now, on `CLOCK_BOOTTIME`.
pub(crate) fn boot_time() -> Moment {
    let now = clock_gettime(ClockId::Boottime);
    Moment::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Sleeps until `moment` on `CLOCK_BOOTTIME`: a machine that was suspended past it wakes up at once.
pub(crate) async fn sleep_until(moment: Moment) {
    if moment <= boot_time() {
        return;
    }
    if let Err(error) = timer(moment).await {
        // Out of file descriptors, say. A deadline must still pass: look at the clock in small steps.
        tracing::warn!(%error, "no timerfd; looking at the clock every 50 ms instead");
        while boot_time() < moment {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn timer(moment: Moment) -> io::Result<()> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let (seconds, nanos) = (moment.as_nanos() / 1_000_000_000, moment.as_nanos() % 1_000_000_000);
    let once = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: seconds as i64, tv_nsec: nanos as _ },
    };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
    Readable::new(timer)?.wait().await
}

/// A file descriptor that can be waited on until it is readable. Lives within kilit's own runtime.
#[derive(Debug)]
pub struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Registers `fd` with the reactor of the current runtime.
    ///
    /// # Errors
    /// What the kernel says of a descriptor that cannot be polled.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` is open until it is dropped, always returns the same descriptor, and is owned by the
        // `AsyncFd` from here on; nothing hands it out by value.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Returns when the descriptor is readable. Cancel safe. For a descriptor that is read once; where it is read
    /// again and again, use [`read_with`](Self::read_with).
    ///
    /// # Errors
    /// When the runtime has been shut down.
    pub async fn wait(&self) -> io::Result<()> {
        self.0.readable().await.map(|mut ready| ready.retain_ready())
    }

    /// Calls `read` each time the descriptor is readable, until it gives something else than `WouldBlock`. Cancel
    /// safe.
    ///
    /// # Errors
    /// Those of `read`, and when the runtime has been shut down.
    pub async fn read_with<T>(&self, mut read: impl FnMut(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
        self.0.async_io(Interest::READABLE, |fd| read(fd)).await
    }
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An id that the kernel draws anew at every boot; `None` where `/proc` is not mounted.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
