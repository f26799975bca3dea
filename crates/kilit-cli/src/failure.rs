//! Why a command ends without doing what was asked: an exit code and a sentence.

use std::{fmt, io};

use kilit::Error;

use crate::{exit_code::ExitCode, output::argument};

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
        let mut text = error.to_string();
        if let Some(name) = error.lock().filter(|_| error.is_held_by_another()) {
            text += &format!("; `kilit status {}` on the same engine says by whom", argument(name));
        }
        Self::new(ExitCode::from(&error), text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
