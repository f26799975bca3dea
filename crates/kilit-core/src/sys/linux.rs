//! Linux: the boot-time clock, timerfd, readiness of a file descriptor, and which process this is.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::OwnedFd,
    ptr,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::{
    io::read,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous},
    time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
        timerfd_create, timerfd_settime,
    },
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
    let alarm = Alarm::new()?;
    alarm.set(moment)?;
    alarm.0.wait().await
}

/// A timerfd on `CLOCK_BOOTTIME`.
#[derive(Debug)]
pub(crate) struct Alarm(Readable);

impl Alarm {
    /// One that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(Readable::new(timerfd_create(TimerfdClockId::Boottime, flags)?)?))
    }

    /// Rings at `moment`, or never at [`Moment::FAR`], instead of when it was set to before.
    pub(crate) fn set(&self, moment: Moment) -> io::Result<()> {
        // All zero turns it off, so a moment at boot is a little later.
        let nanos = if moment == Moment::FAR { 0 } else { moment.as_nanos().max(1) };
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(self.0.fd(), TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }

    /// Returns when it rings.
    pub(crate) async fn ring(&self) -> io::Result<()> {
        self.0.read_with(|fd| Ok(read(fd, &mut [0_u8; 8]).map(drop)?)).await
    }
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

/// The id of this process, for a memory access instead of a system call. A forked child has its own.
pub fn process_id() -> u32 {
    static KNOWN: LazyLock<Option<&AtomicU32>> = LazyLock::new(|| zeroed_by_fork().ok());
    let known = KNOWN.map_or(0, |known| known.load(Ordering::Relaxed));
    if known != 0 {
        return known;
    }
    let id = std::process::id();
    if let Some(known) = *KNOWN {
        known.store(id, Ordering::Relaxed);
    }
    id
}

/// A number that the kernel sets to zero in every child that is forked.
fn zeroed_by_fork() -> io::Result<&'static AtomicU32> {
    let (len, access) = (size_of::<AtomicU32>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE)? };
    // SAFETY: the mapping is ours alone, and nothing refers to it yet.
    unsafe { madvise(page, len, Advice::LinuxWipeOnFork)? };
    // SAFETY: it is page-aligned, zeroed, which is a valid number, and never unmapped. What the kernel does at a fork it
    // does in the child's copy, before the child runs.
    Ok(unsafe { &*page.cast::<AtomicU32>() })
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

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    #[test]
    fn a_forked_child_has_an_id_of_its_own() {
        assert_eq!(process_id(), std::process::id());
        let in_child = || match process_id() == std::process::id() {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        };
        let mut command = Command::new("true");
        // SAFETY: between fork and exec it reads and writes one number, and asks for the process id.
        let status = unsafe { command.pre_exec(in_child) }.status();
        assert!(status.expect("the child knows its id").success());
    }
}
