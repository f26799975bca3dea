//! Redis servers of every kind start, answer, and fail as they are told to.

mod cluster;
mod peers;
mod replicas;
mod secure;
mod sentinel;
mod standalone;
