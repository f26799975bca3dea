//! The `kilit` command as scripts see it: exit codes, signals, the guardian, output.

#![forbid(unsafe_code)]

mod chaos;
mod crowd;
mod environment;
mod exit_codes;
mod guardian;
mod lease;
mod limits;
mod names;
mod output;
mod place;
mod redis;
mod secrets;
mod signals;
mod terminal;
mod waits;
