//! The terminal's foreground: the command's group has it while it runs.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::{
    process::{Pid, getpgrp},
    stdio::stdin,
    termios::{isatty, tcgetpgrp, tcsetpgrp},
};

use crate::group::Group;

/// The terminal on stdin, when `kilit` was started in its foreground. A background job has none, and never asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreground(());

impl Foreground {
    /// Whether there is one to hand on.
    pub(crate) fn ours() -> Option<Self> {
        (isatty(stdin()) && tcgetpgrp(stdin()) == Ok(getpgrp())).then_some(Self(()))
    }

    /// Takes it back from the command's group, or from a group that is gone. Another that has it by now keeps it.
    pub(crate) fn take_back(self, from: Option<Group>) {
        let Ok(current) = tcgetpgrp(stdin()).map(Group) else { return };
        if Some(current) == from || current.members().is_empty() {
            let _ = set_foreground(getpgrp());
        }
    }
}

/// Lets this thread write to the terminal from the background, as the command has the foreground.
pub(crate) fn write_from_background() {
    // Cannot fail for a signal that exists.
    let _ = ttou().thread_block();
}

/// Gives the foreground of the terminal on stdin to `group`, from the background too. Async-signal-safe.
pub(crate) fn set_foreground(group: Pid) -> nix::Result<()> {
    let before = ttou().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    // A terminal that cannot be had is no reason to stop.
    let _ = tcsetpgrp(stdin(), group);
    before.thread_set_mask()
}

/// The signal that stops a background process which uses the terminal.
fn ttou() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    set
}
