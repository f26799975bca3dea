//! kilit's Redis engine: a plain string at one key, as every other client's lock there, with a fencing token, a line of
//! waiters, and honest words about what a node, its replicas and its clock can promise.
//!
//! Works with Redis 6.2 and newer and with Valkey: one node, behind sentinels, or a cluster. The formats are in
//! [`docs/engines/redis.md`](https://docs.rs/kilit-redis).

#![forbid(unsafe_code)]

mod cluster;
mod combine;
mod config;
mod connection;
mod doctor;
mod engine;
mod evict;
mod failure;
mod flight;
mod inspect;
mod keys;
mod node;
mod pending;
mod probe;
mod record;
mod script;
mod sentinel;
mod tls;
mod topology;

pub use engine::ENGINES;
