//! The scripts: each is one atomic step on the server.

use std::sync::LazyLock;

use redis::Cmd;

/// One script, sent by its hash and, to a server that does not have it, whole.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: String,
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $($file:literal)*;)*) => {$(
        $(#[$doc])*
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(concat!($(include_str!($file)),*)));
    )*};
}

scripts! {
    /// Takes a lock or a place in line.
    TAKE = "scripts/line.lua" "scripts/take.lua";
    /// Sets leases to their full TTL.
    EXTEND = "scripts/extend.lua";
    /// Ends a hold or leaves the line.
    CANCEL = "scripts/line.lua" "scripts/cancel.lua";
    /// Shows a lock.
    INSPECT = "scripts/line.lua" "scripts/inspect.lua";
    /// Asks for a hold back.
    ASK = "scripts/ask.lua";
    /// Removes a hold.
    EVICT = "scripts/line.lua" "scripts/evict.lua";
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    /// The beginning of the command that runs it, before its keys; `whole` for a server that does not know its hash.
    pub(crate) fn command(&self, whole: bool, keys: usize) -> Cmd {
        let (verb, script) = if whole { ("EVAL", self.source) } else { ("EVALSHA", &*self.hash) };
        let mut command = Cmd::with_capacity(16, script.len() + 512);
        command.arg(verb).arg(script).arg(keys);
        command
    }
}
