//! Processes, signals, the terminal and what is passed between processes: a port is this folder.

pub(crate) mod children;
pub(crate) mod group;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod spawn;
pub(crate) mod terminal;

pub(crate) use rustix::process::{Pid, Signal, getpid as own_pid};
