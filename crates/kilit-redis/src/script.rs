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
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
    )*};
}

scripts! {
    /// Takes a lock or a place in line.
    TAKE = "scripts/take.lua";
    /// Sets leases to their full TTL.
    EXTEND = "scripts/extend.lua";
    /// Ends a hold or leaves the line.
    CANCEL = "scripts/cancel.lua";
    /// Shows a lock.
    INSPECT = "scripts/inspect.lua";
    /// Asks for a hold back.
    ASK = "scripts/ask.lua";
    /// Removes a hold.
    EVICT = "scripts/evict.lua";
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    /// The command that runs it; `whole` for a server that does not know its hash.
    pub(crate) fn command(&self, whole: bool, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
        let (verb, script) = if whole { ("EVAL", self.source) } else { ("EVALSHA", &*self.hash) };
        let size = keys.iter().chain(args).map(|part| part.len()).sum::<usize>() + script.len() + 16;
        let mut command = Cmd::with_capacity(3 + keys.len() + args.len(), size);
        command.arg(verb).arg(script).arg(keys.len());
        for part in keys.iter().chain(args) {
            command.arg(*part);
        }
        command
    }
}
