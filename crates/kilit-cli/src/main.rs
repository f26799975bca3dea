//! The `kilit` command: parse, run, exit code.

#![deny(unsafe_code)]

mod args;
mod command;
mod engine;
mod exit_code;
mod failure;
mod group;
mod guardian;
mod output;
mod signals;
mod sys;
mod terminal;

use std::process;

use clap::{Parser, error::ErrorKind};
use tracing_subscriber::EnvFilter;

use self::{args::Args, exit_code::ExitCode, output::say};

fn main() -> process::ExitCode {
    log_what_is_asked_for();
    let number = match Args::try_parse() {
        Ok(args) => run(args),
        Err(error) => explain(&error).number(),
    };
    process::ExitCode::from(number)
}

fn run(args: Args) -> u8 {
    let (result, own_exit) = command::execute(args);
    let code = result.unwrap_or_else(|failure| {
        say(&failure);
        failure.code
    });
    code.number_with(own_exit)
}

/// Help and version are what was asked for; all else is wrong usage.
fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody is left to be told when stdout is closed.
            let _ = error.print();
            ExitCode::Success
        }
        _ => {
            let text = error.to_string();
            say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            ExitCode::Usage
        }
    }
}

/// Nothing is logged unless `KILIT_LOG` says so, as in `KILIT_LOG=debug`.
fn log_what_is_asked_for() {
    if let Ok(filter) = EnvFilter::try_from_env("KILIT_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
