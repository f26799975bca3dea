//! What could not be parsed: help that was asked for, or a sentence that says what to type instead.

use std::env;

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    exit_code::ExitCode,
    failure::{Failure, Result},
    output::written,
};

/// Help and version are what was asked for; all else is wrong usage.
pub(crate) fn explain(mut error: Error) -> Result<ExitCode> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            written(error.print())?;
            Ok(ExitCode::Success)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // On stderr. When that is closed, nobody wants to know.
            let _ = error.print();
            Ok(ExitCode::Usage)
        }
        _ => {
            advise(&mut error);
            let text = error.to_string();
            Err(Failure::usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end()))
        }
    }
}

/// Replaces the parser's tip, which is to put `--` before what was not understood: here a command comes after that.
fn advise(error: &mut Error) {
    error.remove(ContextKind::Suggested);
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(found))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return;
    };
    if error.get(ContextKind::SuggestedArg).is_some() {
        return;
    }
    let command = env::args_os().nth(1).unwrap_or_default();
    let tip = match (command.to_str().unwrap_or_default(), found.strip_prefix('-')) {
        ("run", None) => format!("put `--` before the command: `kilit run NAME -- {found} ...`"),
        ("run", Some("-timeout")) => "how long to wait for the lock is `--wait`".to_owned(),
        ("run" | "status" | "break", Some(_)) => {
            "a NAME that begins with `-` is written `--name=-x`".to_owned()
        }
        _ => return,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}
