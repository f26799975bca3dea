//! The file engine of kilit: locks between the processes of one host, by the kernel's `flock`. No server.
//!
//! | file | what it is for |
//! |---|---|
//! | `counter` | the token source's id, and blocks of tokens, on disk before they are used |
//! | `locks/NAME.lock` | the file that is locked; a record of its holder and of the last token in it |
//! | `lines/NAME/7` | the place of one waiter, locked for as long as it waits |
//! | `lines/NAME/shared-OWNER` | the seat of one shared holder, locked for as long as it holds |
//!
//! `NAME` is the lock's name, [encoded](kilit_core::LockName::encoded_within). Lock files are never unlinked: the
//! inode is the lock.

#![forbid(unsafe_code)]

mod aside;
mod attempt;
mod config;
mod counter;
mod doctor;
mod engine;
mod evict;
mod failure;
mod idle;
mod inspect;
mod layout;
mod line;
mod lock_file;
mod record;
mod sys;
mod wait;

use kilit_core::Descriptor;

/// The engines of this crate.
pub static ENGINES: &[Descriptor] = &[Descriptor {
    scheme: "file",
    aliases: &[],
    urls: &["file:", "file:///dir"],
    about: "Locks between the processes of one host, by the kernel's flock; no server.",
    settings: config::SETTINGS,
    assurance: config::promise,
    open: engine::open,
}];
