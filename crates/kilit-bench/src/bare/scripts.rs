//! A multiplexed connection to Redis, and kilit's own scripts with the same keys and arguments: no guard, no deadline,
//! no keeper.

use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, Script, Value, aio::MultiplexedConnection};

macro_rules! script {
    ($($file:literal)*) => { concat!($(include_str!(concat!("../../../kilit-redis/src/scripts/", $file))),*) };
}

pub(crate) const TAKE: &str = script!("line.lua" "each.lua" "take.lua");
pub(crate) const CANCEL: &str = script!("line.lua" "each.lua" "cancel.lua");
/// Takes the key and nothing else.
pub(crate) const TAKE_WITHOUT_TOKEN: &str = include_str!("take_without_token.lua");

/// Whom nobody else is.
const OWNER: &str = "0123456789abcdef0123456789abcdef";

/// The connection.
#[derive(Clone)]
pub(crate) struct Scripts {
    redis: MultiplexedConnection,
    take: String,
    cancel: String,
}

impl Scripts {
    /// Connects, and leaves both scripts with the server.
    pub(crate) async fn connect(url: &str, take: &str, cancel: &str) -> RedisResult<Self> {
        let settings = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url)?;
        let mut redis = client.get_multiplexed_async_connection_with_config(&settings).await?;
        let (take, cancel) = (Script::new(take), Script::new(cancel));
        take.prepare_invoke().load_async(&mut redis).await?;
        cancel.prepare_invoke().load_async(&mut redis).await?;
        Ok(Self { redis, take: take.get_hash().into(), cancel: cancel.get_hash().into() })
    }

    /// The lock of this name, under the keys that kilit would use.
    pub(crate) fn lock(&self, name: &str) -> ScriptLock {
        let lock = format!("lock:{name}");
        let [line, places] = ["line", "places"].map(|what| format!("kilit1:{what}:{{{lock}}}"));
        let counter = "kilit1:token".to_owned();
        let bar = format!("kilit1:bar:{{{lock}}}:{OWNER}");
        ScriptLock { scripts: self.clone(), lock, counter, line, places, bar }
    }
}

/// One lock.
#[derive(Clone)]
pub(crate) struct ScriptLock {
    scripts: Scripts,
    lock: String,
    counter: String,
    line: String,
    places: String,
    bar: String,
}

impl ScriptLock {
    /// Takes it, where nobody else wants it, and gives it back.
    pub(crate) async fn turn(&self) -> RedisResult<()> {
        let keys = [&*self.lock, &*self.counter, &*self.line, &*self.places, &*self.bar];
        let args = [OWNER, "30000", "3000", "kilit1:inbox:0123456789abcdef", "bench@1234"];
        let taken = self.send(evalsha(&self.scripts.take, &keys, &args)).await?;
        let is_token = |answer: &Value| matches!(answer, Value::BulkString(_));
        assert!(matches!(&taken, Value::Array(each) if each.iter().all(is_token)), "{taken:?}");
        let keys = [&*self.lock, &*self.line, &*self.places, &*self.bar];
        let released = self.send(evalsha(&self.scripts.cancel, &keys, &[OWNER, "30000", "0"])).await?;
        assert_eq!(released, Value::Array(vec![Value::Int(1)]));
        Ok(())
    }

    async fn send(&self, command: Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.scripts.redis.clone()).await
    }
}

fn evalsha(hash: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(keys.len()).arg(keys).arg(args);
    command
}
