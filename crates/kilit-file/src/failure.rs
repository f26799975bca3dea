//! What the kernel's refusals mean, in words that name the next step. None of them means "busy".

use std::{io, path::Path};

use kilit_core::{Error, ErrorKind, Retry};
use rustix::io::Errno;

/// `failed("open", path)` makes the mapper of an I/O error.
pub(crate) fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |error| explain(doing, path, error)
}

fn explain(doing: &str, path: &Path, error: io::Error) -> Error {
    let (kind, retry, step) = match Errno::from_io_error(&error) {
        Some(Errno::NOLCK) => (
            ErrorKind::Unsupported,
            Retry::Later,
            "the file system has no locks left, or none; use a local directory",
        ),
        Some(Errno::NOSYS | Errno::OPNOTSUPP) => {
            (ErrorKind::Unsupported, Retry::Never, "the file system has no locks; use a local directory")
        }
        Some(Errno::ACCESS | Errno::PERM) => (
            ErrorKind::Refused,
            Retry::Never,
            "every user of a lock must be able to read and write its files; see owner and mode of the directory",
        ),
        Some(Errno::ROFS) => {
            (ErrorKind::Refused, Retry::Never, "the file system is read-only; use another directory")
        }
        Some(Errno::NOSPC | Errno::DQUOT) => {
            (ErrorKind::Refused, Retry::Later, "make room on the file system")
        }
        Some(Errno::MFILE | Errno::NFILE) => {
            (ErrorKind::Refused, Retry::Later, "out of file descriptors; raise `ulimit -n`")
        }
        Some(Errno::BADF) => {
            (ErrorKind::Refused, Retry::Never, "the file must be open for reading and writing")
        }
        Some(Errno::LOOP) => (ErrorKind::Refused, Retry::Never, "it is a symbolic link; remove it"),
        Some(Errno::NOTDIR | Errno::ISDIR) => (
            ErrorKind::Refused,
            Retry::Never,
            "something else lies where kilit keeps its files; use another directory",
        ),
        _ => (ErrorKind::Refused, Retry::Later, "run `kilit doctor` on this directory"),
    };
    Error::new(kind, format!("cannot {doing} {}: {step}", path.display().to_string().escape_debug()))
        .with_retry(retry)
        .with_source(error)
        .on_engine("file")
}

/// What is stored was not written by this version of kilit, or is damaged.
pub(crate) fn incompatible(message: String) -> Error {
    Error::new(ErrorKind::Incompatible, message).on_engine("file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_named_for_what_they_are() {
        for (errno, kind) in [
            (Errno::NOLCK, ErrorKind::Unsupported),
            (Errno::NOSYS, ErrorKind::Unsupported),
            (Errno::BADF, ErrorKind::Refused),
            (Errno::ACCESS, ErrorKind::Refused),
            (Errno::ROFS, ErrorKind::Refused),
            (Errno::NOSPC, ErrorKind::Refused),
            (Errno::MFILE, ErrorKind::Refused),
            (Errno::IO, ErrorKind::Refused),
        ] {
            let error = failed("lock", Path::new("/x"))(errno.into());
            assert_eq!(error.kind(), kind, "{errno:?}");
            assert!(!error.is_held_by_another());
            assert!(error.to_string().starts_with("file: cannot lock /x: "), "{error}");
        }
    }
}
