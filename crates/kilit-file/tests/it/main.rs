//! The file engine on a real kernel, between real processes.

mod doctor;
mod evict;
mod exclusion;
mod helper;
mod inspect;
mod line;
mod lock_delay;
mod support;
mod tokens;
