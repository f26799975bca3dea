//! The guardian: a second process, which outlives `kilit` by just as long as it takes to end the command.
//!
//! `kilit run` starts it as a re-exec of itself. It spawns the command, shares the lock's file where there is one, and
//! knows the deadline. When `kilit` is killed, or was stopped past the deadline, it kills the command's group, waits
//! until that is empty, and lets go of the file last, so that nobody else is granted the lock before.

/// Its name, for `ps`, and for the guardian of a run that this run is nested in; else it would be `exe`.
pub(crate) const GUARDIAN: &std::ffi::CStr = c"kilit-guardian";

mod handle;
mod process;
mod protocol;

pub(crate) use self::{
    handle::{Guardian, News, NotStarted, Start, Waiting},
    process::guard,
    protocol::End,
};
