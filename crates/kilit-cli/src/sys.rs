//! The one thing that needs code between `fork` and `exec`.

#![allow(unsafe_code)]

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::terminal::set_foreground;

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
