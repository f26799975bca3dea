//! What a holder is told about its hold.

use std::fmt;

use crate::{Error, ErrorKind, Moment};

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The engine has confirmed it lately.
    Held,
    /// The engine has not answered lately; the hold counts as lost at `until` unless it does.
    AtRisk {
        /// The local deadline.
        until: Moment,
    },
    /// It is over. A hold that is lost stays lost.
    Lost(Loss),
}

/// The end of a hold that its holder did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// When it was noticed.
    pub at: Moment,
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The engine did not answer before the local deadline. Noticed before the engine can grant it to another.
    Silence,
    /// The engine ended it: a foreign delete, an eviction, a failover, an expired lease, a killed backend.
    Ended,
    /// An operator broke it.
    Broken,
    /// The lock file was unlinked or replaced, so that others lock another file.
    Replaced,
    /// It was held for the longest time that its holder allowed.
    MaxHold,
    /// The client was shut down.
    Shutdown,
}

impl LossReason {
    /// Whether the holder gave up by its own clock, before the engine ended the hold.
    pub fn by_silence(self) -> bool {
        matches!(self, Self::Silence | Self::MaxHold)
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silence => "the engine did not answer before the deadline",
            Self::Ended => "the engine ended the hold",
            Self::Broken => "an operator broke the lock",
            Self::Replaced => "the lock file was unlinked or replaced",
            Self::MaxHold => "it was held for the longest time allowed",
            Self::Shutdown => "the client was shut down",
        })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        Error::new(ErrorKind::Lost, format!("the lock was lost: {loss}"))
    }
}
