//! A list in Redis with one element: who pops it holds the lock, and gives it back by a push.
//!
//! The server wakes whoever waits longest, and nothing can be sooner. It is no lock: a holder that dies keeps it.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, RedisResult, Value, aio::MultiplexedConnection};

/// The list, on a connection of its own: a pop that waits holds up all that follow it.
#[derive(Clone)]
pub(crate) struct Token {
    redis: MultiplexedConnection,
    key: String,
}

impl Token {
    pub(crate) async fn connect(url: &str, key: &str) -> RedisResult<Self> {
        let settings = AsyncConnectionConfig::new().set_response_timeout(None);
        let redis = Client::open(url)?.get_multiplexed_async_connection_with_config(&settings).await?;
        Ok(Self { redis, key: format!("token:{key}") })
    }

    /// Waits for the element.
    pub(crate) async fn take(&self) -> RedisResult<()> {
        redis::cmd("BLPOP")
            .arg(&self.key)
            .arg(0)
            .query_async::<Value>(&mut self.redis.clone())
            .await
            .map(drop)
    }

    /// Puts it back.
    pub(crate) async fn give(&self) -> RedisResult<()> {
        redis::cmd("LPUSH").arg(&self.key).arg(1).exec_async(&mut self.redis.clone()).await
    }

    /// Takes it if it is there: all who ask from here on wait.
    pub(crate) async fn remove(&self) -> RedisResult<()> {
        redis::cmd("DEL").arg(&self.key).exec_async(&mut self.redis.clone()).await
    }

    /// Returns once this many wait.
    pub(crate) async fn awaited_by(&self, waiters: usize) -> RedisResult<()> {
        let blocked = format!("\nblocked_clients:{waiters}\r");
        loop {
            let mut redis = self.redis.clone();
            let clients: String = redis::cmd("INFO").arg("clients").query_async(&mut redis).await?;
            if clients.contains(&blocked) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
