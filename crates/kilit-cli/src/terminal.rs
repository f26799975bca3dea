//! The terminal's foreground: the command's group has it while it runs.

use rustix::{
    process::getpgrp,
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
            let _ = tcsetpgrp(stdin(), getpgrp());
        }
    }
}
