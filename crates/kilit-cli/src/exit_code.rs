//! Every exit code of `kilit`, in one place.

use std::num::NonZeroU8;

use kilit::{Error, ErrorKind};

/// How `kilit` ends. Scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCode {
    /// 0.
    Success,
    /// 1: `status` found the lock free, `break` found no such hold, `doctor` found a danger.
    No,
    /// 64: wrong usage, refused before anything was sent.
    Usage,
    /// 69: the engine could not be reached, or refused us.
    Unavailable,
    /// 75: not acquired within `--wait`; the command never ran.
    NotAcquired,
    /// 79: the lock was lost before the command had ended.
    Lost,
    /// 126: the command is not executable.
    NotExecutable,
    /// 127: the command is not found.
    NotFound,
    /// The command's own.
    Command(u8),
    /// 128 + N: signal N ended the command, or `kilit` while it waited for the lock.
    Signal(i32),
}

impl ExitCode {
    /// The number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::No => 1,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::NotAcquired => 75,
            Self::Lost => 79,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Command(code) => code,
            Self::Signal(signal) => u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX),
        }
    }

    /// The number, with `--own-exit` in the place of kilit's own outcomes.
    pub(crate) fn number_with(self, own_exit: Option<NonZeroU8>) -> u8 {
        match (self, own_exit) {
            (Self::Unavailable | Self::NotAcquired | Self::Lost, Some(code)) => code.get(),
            _ => self.number(),
        }
    }
}

impl From<&Error> for ExitCode {
    fn from(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::Usage,
            ErrorKind::Busy | ErrorKind::TimedOut => Self::NotAcquired,
            ErrorKind::Lost => Self::Lost,
            _ => Self::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_fixed() {
        let fixed = [
            (ExitCode::Success, 0),
            (ExitCode::No, 1),
            (ExitCode::Usage, 64),
            (ExitCode::Unavailable, 69),
            (ExitCode::NotAcquired, 75),
            (ExitCode::Lost, 79),
            (ExitCode::NotExecutable, 126),
            (ExitCode::NotFound, 127),
            (ExitCode::Command(7), 7),
            (ExitCode::Signal(9), 137),
            (ExitCode::Signal(64), 192),
        ];
        for (code, number) in fixed {
            assert_eq!(code.number(), number, "{code:?}");
        }
    }

    #[test]
    fn own_exit_moves_kilits_own_outcomes_only() {
        let own = NonZeroU8::new(200);
        for code in [ExitCode::Unavailable, ExitCode::NotAcquired, ExitCode::Lost] {
            assert_eq!(code.number_with(own), 200);
            assert_eq!(code.number_with(None), code.number());
        }
        for code in [
            ExitCode::Success,
            ExitCode::Usage,
            ExitCode::NotExecutable,
            ExitCode::NotFound,
            ExitCode::Command(75),
            ExitCode::Signal(2),
        ] {
            assert_eq!(code.number_with(own), code.number(), "{code:?}");
        }
    }

    #[test]
    fn every_kind_of_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::Invalid, ExitCode::Usage),
            (ErrorKind::Busy, ExitCode::NotAcquired),
            (ErrorKind::TimedOut, ExitCode::NotAcquired),
            (ErrorKind::Lost, ExitCode::Lost),
            (ErrorKind::Unreachable, ExitCode::Unavailable),
            (ErrorKind::Refused, ExitCode::Unavailable),
            (ErrorKind::Unsupported, ExitCode::Unavailable),
            (ErrorKind::Incompatible, ExitCode::Unavailable),
            (ErrorKind::Exhausted, ExitCode::Unavailable),
            (ErrorKind::Unknown, ExitCode::Unavailable),
        ] {
            assert_eq!(ExitCode::from(&Error::new(kind, "")), code, "{kind:?}");
        }
    }
}
