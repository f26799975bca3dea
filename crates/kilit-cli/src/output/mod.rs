//! What `kilit` says: results on stdout, its own words on stderr.

pub(crate) mod json;
pub(crate) mod table;

use std::{
    fmt::Display,
    io::{self, Write},
    time::SystemTime,
};

/// Says something on stderr. When that is closed, nobody wants to know.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "kilit: {text}");
}

/// Writes a result to stdout. A reader that has seen enough, as `head`, is no error.
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        say(format_args!("cannot write the result: {error}"));
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
