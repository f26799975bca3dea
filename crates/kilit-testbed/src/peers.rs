//! Other people's lockers, that lock what kilit locks.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// A locker of Redis. All but `PythonRedisLock` are free to use any key, and exclude each other there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `Lock` of redis-py.
    RedisPy,
    /// python-redis-lock, whose keys begin with `lock:`. It excludes the others and is excluded, but while one of them has
    /// the key it looks again only when its own TTL of five seconds has passed.
    PythonRedisLock,
    /// redlock for Node.js, with one server.
    NodeRedlock,
    /// rslock, with one server.
    Rslock,
}

impl Peer {
    /// The command that runs `work`, a program with its arguments, `rounds` times under the lock at `key`. It fails when
    /// that fails, or when the lock was lost. Locks have a TTL of five seconds, and nobody renews them.
    ///
    /// # Panics
    /// When the peer is not installed.
    pub fn contest(self, url: &str, key: &str, rounds: usize, work: &Command) -> Command {
        let mut command = match self {
            Self::RedisPy | Self::PythonRedisLock => python("contest.py"),
            Self::NodeRedlock => node("contest.mjs"),
            Self::Rslock => rust("contest"),
        };
        match self {
            Self::RedisPy => command.arg("redis-py"),
            Self::PythonRedisLock => command.arg("python-redis-lock"),
            Self::NodeRedlock | Self::Rslock => &mut command,
        };
        command.args([url, key, &rounds.to_string()]).arg(work.get_program()).args(work.get_args());
        command
    }
}

/// The command that runs a program of `peers/python`.
///
/// # Panics
/// When its packages are not installed.
pub fn python(program: &str) -> Command {
    let mut python = Command::new(installed("KILIT_PEERS_PYTHON"));
    python.arg(source("python").join(program));
    python
}

/// The command that runs a program of `peers/node`.
///
/// # Panics
/// When its packages are not installed.
pub fn node(program: &str) -> Command {
    // The program asks for this variable itself.
    installed("KILIT_PEERS_NODE");
    let mut node = Command::new("node");
    node.arg(source("node").join(program));
    node
}

/// The command that runs a program of `peers/rust`.
///
/// # Panics
/// When it is not built.
pub fn rust(program: &str) -> Command {
    Command::new(Path::new(&installed("KILIT_PEERS_RUST")).with_file_name(program))
}

fn installed(variable: &str) -> OsString {
    env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} is unset: `./test install` installs the peers, and CONTRIBUTING.md says where")
    })
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers").join(path)
}
