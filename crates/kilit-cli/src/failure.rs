//! Why a command ends without doing what was asked: an exit code and a sentence.

use std::{fmt, io};

use kilit::Error;

use crate::exit_code::ExitCode;

/// `Result` of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An exit code and the sentence that `kilit` says on stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: ExitCode,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: ExitCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Wrong usage.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, text)
    }

    /// The system under `kilit` says no: no process, no memory, no descriptor.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        Self::new(ExitCode::Unavailable, format!("cannot {what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(ExitCode::from(&error), error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
