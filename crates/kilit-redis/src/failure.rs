//! Why a command failed, and what that means for a lock: never "busy".

use kilit_core::{Effect, Error, ErrorKind, Retry};
use redis::{RedisError, ServerError};

/// A command that was not answered with a value.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server said no.
    Refused(Refusal),
    /// The connection ended, or was silent for too long: whether it was done is not known.
    Silence(String),
}

/// A server's error: its code, and the rest of the line.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    text: String,
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        let (code, text) = (error.code().to_owned(), error.details().unwrap_or_default().to_owned());
        // Redis 6 puts the code of what a script met behind its own.
        let inner = ["WRONGTYPE", "OOM", "READONLY", "MISCONF", "NOREPLICAS"];
        let code =
            inner.into_iter().find(|inner| code == "ERR" && text.contains(inner)).map_or(code, str::to_owned);
        Self::Refused(Refusal { code, text })
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        match (error.is_unrecoverable_error() || error.is_io_error(), error.code()) {
            (false, Some(code)) => Self::Refused(Refusal {
                code: code.to_owned(),
                text: error.detail().unwrap_or_default().to_owned(),
            }),
            _ => Self::Silence(error.to_string()),
        }
    }
}

/// What to do after a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The server does not have the script: send it whole.
    SendWhole,
    /// The slot is another server's now.
    Moved,
    /// This key alone is at another server, for now.
    Ask(String),
    /// This server is no master any more.
    Demoted,
    /// This server is cut off from the rest of the cluster, where another may have the slot by now.
    CutOff,
}

impl Refusal {
    /// What helps, if something does.
    pub(crate) fn redirect(&self) -> Option<Redirect> {
        match self.code.as_str() {
            "NOSCRIPT" => Some(Redirect::SendWhole),
            "MOVED" => Some(Redirect::Moved),
            "ASK" => self.text.split(' ').nth(1).map(|address| Redirect::Ask(address.to_owned())),
            "READONLY" => Some(Redirect::Demoted),
            "CLUSTERDOWN" => Some(Redirect::CutOff),
            _ => None,
        }
    }

    /// As kilit's error: nothing was done.
    pub(crate) fn error(&self, server: &str) -> Error {
        let denied = ["can't access", "can't run this command", "no permissions"];
        let denied = denied.iter().any(|words| self.text.contains(words));
        let (kind, what) = match self.code.as_str() {
            "LOADING" => (ErrorKind::Unreachable, "is still loading its data"),
            "BUSY" => (ErrorKind::Unreachable, "is busy with somebody's script"),
            "MASTERDOWN" | "CLUSTERDOWN" => {
                (ErrorKind::Unreachable, "has lost its master or a part of the cluster")
            }
            "TRYAGAIN" => (ErrorKind::Unreachable, "is moving this slot to another"),
            // Said to a WAIT for replicas.
            "UNBLOCKED" => (ErrorKind::Unreachable, "was made a replica meanwhile"),
            "READONLY" => {
                (ErrorKind::Refused, "is a read-only replica; name the master, or use redis+sentinel:")
            }
            "OOM" => (ErrorKind::Refused, "is out of memory; raise its maxmemory or free some"),
            "MISCONF" => {
                (ErrorKind::Refused, "takes no writes since it cannot save them to disk; see its log")
            }
            "NOREPLICAS" => (ErrorKind::Refused, "takes no writes since too few of its replicas are up"),
            "NOAUTH" => {
                (ErrorKind::Refused, "wants a password: in the URL, by password_file= or KILIT_PASSWORD")
            }
            "WRONGPASS" => (ErrorKind::Refused, "knows no such user and password"),
            "NOPERM" => (
                ErrorKind::Refused,
                "gives this user no right to it; docs/engines/redis.md lists those that are needed",
            ),
            "ERR" if denied => (
                ErrorKind::Refused,
                "gives this user no right to it; docs/engines/redis.md lists those that are needed",
            ),
            "WRONGTYPE" => (
                ErrorKind::Refused,
                "has something else than a plain string at this lock's key, such as the lock of another library; \
                 use another name or prefix",
            ),
            "MOVED" | "ASK" | "CROSSSLOT" => {
                (ErrorKind::Refused, "is part of a cluster; open it as redis+cluster:")
            }
            "ERR" if self.text.contains("max number of clients") => {
                (ErrorKind::Unreachable, "has no room for another connection; raise its maxclients")
            }
            "ERR" if self.text.contains("overflow") => {
                let text = "the next fencing token would leave the range 1 to 2^63-1; the token counter must be \
                            set to a smaller number by hand";
                return Error::new(ErrorKind::Exhausted, text);
            }
            "ERR" if self.text.contains("not an integer") => {
                let text =
                    "the token counter of this lock is no number; something else has written to its key";
                return Error::new(ErrorKind::Incompatible, text);
            }
            _ => (ErrorKind::Refused, "refused"),
        };
        // What the server says may hold names of keys, never a secret.
        let said = format!("{} {}", self.code, self.text).trim().replace(char::is_control, " ");
        Error::new(kind, format!("the Redis server {server} {what} ({said})"))
    }
}

/// Nobody knows whether it was done.
pub(crate) fn unknown(server: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unknown, format!("no answer from the Redis server {server}: {why}"))
}

/// It was certainly not done.
pub(crate) fn unreachable(server: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the Redis server {server} cannot be reached: {why}"))
        .with_effect(Effect::None)
        .with_retry(Retry::Later)
}

/// It said what no version of it says.
pub(crate) fn nonsense(server: &str, value: &redis::Value) -> Error {
    // It may be as long as a value.
    let value: String = format!("{value:?}").chars().take(200).collect();
    let text = format!("the Redis server {server} gave an answer that kilit does not understand: {value}");
    Error::new(ErrorKind::Incompatible, text).with_effect(Effect::Unknown)
}
