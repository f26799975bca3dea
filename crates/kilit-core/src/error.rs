//! The one error type of every engine and recipe.

use std::{error::Error as StdError, fmt};

use crate::LockName;

/// `Result` with kilit's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What happened, in one word that a program can match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong. Nothing was sent.
    Invalid,
    /// One try was made and another holds the lock.
    Busy,
    /// Another held the lock for as long as the caller was willing to wait.
    TimedOut,
    /// The lock was held and no longer is.
    Lost,
    /// The engine could not be reached in time.
    Unreachable,
    /// The engine answered, and said no: no rights, read-only, wrong type, out of space.
    Refused,
    /// This engine cannot do what was asked.
    Unsupported,
    /// What is stored there was not written by this version of kilit, or is damaged.
    Incompatible,
    /// The next fencing token would leave the range 1 to 2^63−1.
    Exhausted,
    /// It may have been done, or not: the answer was lost and could not be found out.
    Unknown,
    /// The client was shut down.
    Closed,
}

/// Whether the failed operation changed anything at the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing was changed.
    None,
    /// It was done all the same.
    Done,
    /// Nobody knows.
    Unknown,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// The same call may succeed later.
    Later,
    /// Find out by the owner id what happened before trying again.
    AfterResolving,
    /// The same call will fail again until something else is changed.
    Never,
}

/// An error: its [kind](Error::kind), whether to [retry](Error::retry), and its [effect](Error::effect).
///
/// `{}` is one line that names the engine, the operation, the lock and the next step; it never holds a secret.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    effect: Effect,
    retry: Retry,
    engine: Option<&'static str>,
    name: Option<LockName>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`. Effect and retry advice follow from the kind until they are set.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (effect, retry) = match kind {
            ErrorKind::Unknown => (Effect::Unknown, Retry::AfterResolving),
            ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Unreachable => (Effect::None, Retry::Later),
            _ => (Effect::None, Retry::Never),
        };
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            effect,
            retry,
            engine: None,
            name: None,
            source: None,
        }))
    }

    /// Bad input, refused before anything was sent.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Sets whether anything was changed.
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Sets the retry advice.
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Names the engine, unless a layer below has named it already.
    pub fn on_engine(mut self, engine: &'static str) -> Self {
        self.0.engine.get_or_insert(engine);
        self
    }

    /// Names the lock, unless a layer below has named it already.
    pub fn on_lock(mut self, name: &LockName) -> Self {
        self.0.name.get_or_insert_with(|| name.clone());
        self
    }

    /// Keeps the cause.
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether anything was changed at the engine.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The lock's name, where the error is about one lock.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// True for [`ErrorKind::Busy`] and [`ErrorKind::TimedOut`]: somebody else has the lock.
    pub fn is_held_by_another(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Busy | ErrorKind::TimedOut)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(engine) = self.0.engine {
            write!(f, "{engine}: ")?;
        }
        if let Some(name) = &self.0.name {
            write!(f, "lock {name}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, effect, retry, .. } = *self.0;
        write!(f, "{kind:?} (effect {effect:?}, retry {retry:?}): {self}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}
