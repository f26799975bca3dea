//! The least that a lock can cost: what stands beside kilit's figures.

mod flock;
mod scripts;
mod token;

pub(crate) use flock::Flock;
pub(crate) use scripts::{CANCEL, ScriptLock, Scripts, TAKE, TAKE_WITHOUT_TOKEN};
pub(crate) use token::Token;
