//! The Redis engine on real servers.

mod leases;
mod lost_answers;
mod scripts;
mod support;
mod waiting;
