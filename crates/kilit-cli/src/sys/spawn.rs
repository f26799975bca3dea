//! Starting a process: what needs code between `fork` and `exec`, and what its failure means.

#![allow(unsafe_code)]

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::terminal::set_foreground;

/// A path that leads to the program that runs, also when its file was replaced.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// Whether a process could not be had, whatever it was to execute.
pub(crate) fn is_shortage(errno: i32) -> bool {
    [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&errno)
}

/// Makes `command`, which leads a process group of its own, end with the thread that spawns it: the guardian may be
/// killed together with `kilit`. With `foreground` it takes that of the terminal on its stdin before it begins. Were it
/// given from outside, the command could read too early and be stopped.
pub(crate) fn prepare(command: &mut Command, foreground: bool) {
    let guardian = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(guardian) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if foreground {
            set_foreground(getpid())?;
        }
        Ok(())
    };
    // SAFETY: the closure makes plain system calls (prctl, getppid, sigprocmask, getpid, ioctl), which are
    // async-signal-safe; it allocates nothing, takes no lock, and an error made of an errno or a kind has no heap part.
    unsafe { command.pre_exec(prepare) };
}
