//! The terminal's foreground: the command's group has it while it runs.

use std::cell::Cell;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::{
    process::{Pid, getpid},
    stdio::{stdin, stdout},
    termios::{isatty, tcgetpgrp, tcsetpgrp},
};

use super::group::Group;

/// The terminal on stdin.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Whether the command's group was given its foreground.
    given: Cell<bool>,
}

impl Terminal {
    /// The terminal, if there is one. From here on this thread can write to it from the background.
    pub(crate) fn of_this_process() -> Option<Self> {
        isatty(stdin()).then(|| {
            // Cannot fail for a signal that exists.
            let _ = ttou().thread_block();
            Self { given: Cell::new(false) }
        })
    }

    /// Whether the command is to take the foreground as it starts. In a pipeline it gets that when it asks: another
    /// member, a pager say, may need it. A background job has nothing to hand over.
    pub(crate) fn hand_over(&self) -> bool {
        self.given.set(is_foreground() && isatty(stdout()));
        self.given.get()
    }

    /// Gives the foreground to the command's group, which asks for it. Says whether that has it now: a background job
    /// has none to give.
    pub(crate) fn give(&self, group: Group) -> bool {
        if is_foreground() {
            self.given.set(set_foreground(group.leader).is_ok());
        }
        tcgetpgrp(stdin()) == Ok(group.leader)
    }

    /// Gives the foreground to the command's group again, which is to be continued, if that had it before.
    pub(crate) fn give_again(&self, group: Group) {
        if self.given.get() {
            self.give(group);
        }
    }

    /// Takes the foreground back from the command's group, or one that is gone. Another that has it by now keeps it.
    pub(crate) fn take_back(&self, from: Option<Group>) {
        let Ok(leader) = tcgetpgrp(stdin()) else { return };
        let is_gone = || Group { leader, guardian: getpid() }.members().is_empty();
        if self.given.get() && (from.is_some_and(|group| group.leader == leader) || is_gone()) {
            let _ = own_group().map(set_foreground);
        }
    }
}

/// Whether this process has the foreground.
pub(crate) fn is_foreground() -> bool {
    own_group().is_some_and(|own| tcgetpgrp(stdin()) == Ok(own))
}

/// This process's group; `None` where that is of another PID namespace.
fn own_group() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
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
    set.add(nix::sys::signal::SIGTTOU);
    set
}
