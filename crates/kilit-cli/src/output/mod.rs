//! What `kilit` says: results on stdout, its own words on stderr.

pub(crate) mod json;
mod shell;
pub(crate) mod table;

use std::{
    fmt::Display,
    io::{self, Write},
    time::SystemTime,
};

pub(crate) use self::shell::{argument, word};
use crate::failure::{Failure, Result};

/// Says something on stderr. When that is closed, nobody wants to know.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "kilit: {text}");
}

/// Writes a result to stdout. One that is lost is no success.
pub(crate) fn print(text: &str) -> Result<()> {
    written(io::stdout().write_all(text.as_bytes()))
}

/// What became of a result on stdout. A reader that has seen enough, as `head`, is no error.
pub(crate) fn written(result: io::Result<()>) -> Result<()> {
    match result.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::system("write the result", &error))
        }
        _ => Ok(()),
    }
}

/// RFC 3339, in UTC.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    // Years that the format does not have give an error when they are written.
    use std::fmt::Write;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_millis(time)).ok()?;
    Some(text)
}
