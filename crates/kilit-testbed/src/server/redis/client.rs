//! Questions to a server, past its port.

use std::{collections::BTreeMap, time::Duration};

use redis::{
    Client, Cmd, Connection, ConnectionAddr, FromRedisValue, IntoConnectionInfo, ToRedisArgs, Value,
};

use super::{Monitor, conf::socket};
use crate::server::{Server, Spec};

/// A kind of server that speaks as Redis does.
pub trait Redislike: Spec {}

impl<S: Redislike> Server<S> {
    /// Sends a command, such as `["SET", "key", "value"]`, on a connection of its own.
    ///
    /// # Panics
    /// When the answer is an error, or takes longer than ten seconds.
    #[track_caller]
    pub fn command(&self, args: impl IntoIterator<Item: ToRedisArgs>) -> Value {
        self.query(args)
    }

    /// The same, with the answer as a `T`.
    ///
    /// # Panics
    /// When the answer is an error, takes longer than ten seconds, or is no `T`.
    #[track_caller]
    pub fn query<T: FromRedisValue>(&self, args: impl IntoIterator<Item: ToRedisArgs>) -> T {
        self.try_query(args).unwrap_or_else(|error| panic!("redis at {}: {error}", self.addr))
    }

    /// The same, with the error.
    ///
    /// # Errors
    /// When the answer is one, takes longer than ten seconds, or is no `T`.
    pub fn try_query<T: FromRedisValue>(
        &self,
        args: impl IntoIterator<Item: ToRedisArgs>,
    ) -> redis::RedisResult<T> {
        command(args).query(&mut self.try_connection()?)
    }

    /// A connection for several commands, as the user `testbed`.
    ///
    /// # Panics
    /// When it cannot be made.
    #[track_caller]
    pub fn connection(&self) -> Connection {
        self.try_connection().unwrap_or_else(|error| panic!("redis at {}: {error}", self.addr))
    }

    /// A section of INFO, a field a line.
    ///
    /// # Panics
    /// When the server does not answer.
    #[track_caller]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        fields(&self.query::<String>(["INFO", section]))
    }

    /// How often each command was called since the server started or was sent `CONFIG RESETSTAT`, by its name in lower
    /// case (`config|get`).
    ///
    /// # Panics
    /// When the server does not answer.
    #[track_caller]
    pub fn commandstats(&self) -> BTreeMap<String, u64> {
        let calls = |(name, stats): (String, String)| {
            let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="))?.parse().ok()?;
            Some((name.strip_prefix("cmdstat_")?.to_owned(), calls))
        };
        self.info("commandstats").into_iter().filter_map(calls).collect()
    }

    /// Records every command from now on.
    ///
    /// # Panics
    /// When the server does not answer.
    #[track_caller]
    pub fn monitor(&self) -> Monitor {
        Monitor::start(&socket(self.dir()))
    }

    fn try_connection(&self) -> redis::RedisResult<Connection> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let info = ConnectionAddr::Unix(socket(self.dir())).into_connection_info()?;
        let settings = info.redis_settings().clone().set_username("testbed").set_password("any");
        let info = info.set_redis_settings(settings.set_skip_set_lib_name());
        let connection = Client::open(info)?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }
}

/// The lines `name:value` of INFO and its like.
pub(super) fn fields(text: &str) -> BTreeMap<String, String> {
    let field = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(field).collect()
}

fn command(args: impl IntoIterator<Item: ToRedisArgs>) -> Cmd {
    let mut command = Cmd::new();
    for arg in args {
        command.arg(arg);
    }
    command
}
