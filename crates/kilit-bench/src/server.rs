//! What a Redis server says of itself.
//!
//! The testbed asks as well, but blocks: there the signal of a child that ends would be an error.

use std::collections::BTreeMap;

use kilit_testbed::server::{Redis, Server};
use redis::{Client, FromRedisValue, RedisResult};

/// The answer to a command, on a connection of its own.
pub(crate) async fn ask<T: FromRedisValue>(server: &Server<Redis>, words: &[&str]) -> RedisResult<T> {
    let mut redis = Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query_async(&mut redis).await
}

/// How often each command was called, by scripts as well, by its name in lower case.
pub(crate) async fn calls(server: &Server<Redis>) -> RedisResult<BTreeMap<String, u64>> {
    let stats: String = ask(server, &["INFO", "commandstats"]).await?;
    let calls = |line: &str| {
        let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), stats.split(',').next()?.parse().ok()?))
    };
    Ok(stats.lines().filter_map(calls).collect())
}

/// A percentile such as `p99` of how long scripts took, in microseconds; NaN where none ran.
pub(crate) async fn script_time(server: &Server<Redis>, percentile: &str) -> RedisResult<f64> {
    let stats: String = ask(server, &["INFO", "latencystats"]).await?;
    let prefix = "latency_percentiles_usec_evalsha:";
    let scripts = stats.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or_default();
    let value = scripts.split(',').find_map(|field| field.strip_prefix(percentile)?.strip_prefix('='));
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN))
}
