//! Redis: one server, a primary with replicas, sentinels, a cluster. Debian's redis-server, on loopback.
//!
//! Every server has one user more than it was told of, `testbed`, who may do anything, and a unix socket in its directory:
//! there tests ask it, whatever is the matter with its port. What they ask is counted by the server as well.

mod client;
mod clock;
mod cluster;
mod conf;
mod monitor;
mod replicas;
mod sentinel;
mod standalone;

pub use self::{
    client::Redislike,
    cluster::RedisCluster,
    monitor::Monitor,
    replicas::RedisWithReplicas,
    sentinel::{MASTER, RedisSentinel, Sentinel},
    standalone::{Persistence, Redis},
};
