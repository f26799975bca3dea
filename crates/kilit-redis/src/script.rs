//! The scripts: each is one atomic step on the server.

use std::sync::LazyLock;

use redis::Cmd;

/// One script, sent by its hash and, to a server that does not have it, whole.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: String,
    /// How many keys one step of it has; the rest of what it is given are arguments.
    keys: usize,
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident($keys:literal) = $($file:literal)*;)*) => {$(
        $(#[$doc])*
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($keys, concat!($(include_str!(concat!("scripts/", $file, ".lua"))),*)));
    )*};
}

scripts! {
    /// Takes a lock or a place in line, for each.
    TAKE(5) = "line" "each" "take";
    /// Sets leases to their full TTL.
    EXTEND(1) = "extend";
    /// Ends a hold or leaves the line, for each.
    CANCEL(4) = "line" "each" "cancel";
    /// Shows a lock.
    INSPECT(3) = "line" "inspect";
    /// Asks for a hold back.
    ASK(1) = "ask";
    /// Removes a hold.
    EVICT(4) = "line" "evict";
}

impl Script {
    fn new(keys: usize, source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned(), keys }
    }

    /// The command that runs it. Each step is its keys, and its arguments after them. `whole` for a server that does
    /// not know its hash.
    pub(crate) fn command(&self, whole: bool, steps: &[Cmd]) -> Cmd {
        let (verb, script) = if whole { ("EVAL", self.source) } else { ("EVALSHA", &*self.hash) };
        let mut command = Cmd::with_capacity(3 + 10 * steps.len(), script.len() + 400 * steps.len());
        command.arg(verb).arg(script).arg(self.keys * steps.len());
        let keys = steps.iter().flat_map(|step| words(step).take(self.keys));
        let arguments = steps.iter().flat_map(|step| words(step).skip(self.keys));
        for word in keys.chain(arguments) {
            command.arg(word);
        }
        command
    }
}

fn words(step: &Cmd) -> impl Iterator<Item = &[u8]> {
    step.args_iter().map(|word| match word {
        redis::Arg::Simple(word) => word,
        _ => &[],
    })
}
