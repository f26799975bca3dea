//! The one thing that needs code between `fork` and `exec`.

#![allow(unsafe_code)]

use std::{os::unix::process::CommandExt, process::Command};

use rustix::process::getpid;

use crate::terminal::set_foreground;

/// Makes `command`, which leads a process group of its own, take the foreground of the terminal on its stdin before it
/// begins. Were it given from outside, the command could read too early and be stopped.
pub(crate) fn take_foreground(command: &mut Command) {
    // SAFETY: the closure makes plain system calls (sigprocmask, getpid, ioctl), which are async-signal-safe; it
    // allocates nothing, takes no lock, and an error made of an errno has no heap part.
    unsafe { command.pre_exec(|| Ok(set_foreground(getpid())?)) };
}
