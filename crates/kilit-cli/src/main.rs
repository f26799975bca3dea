//! The `kilit` command: parse, run, exit code.

#![deny(unsafe_code)]

mod args;
mod command;
mod engine;
mod exit_code;
mod failure;
mod guardian;
mod output;
mod sys;
mod usage;

use std::process;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use self::{args::Args, output::say};

fn main() -> process::ExitCode {
    log_what_is_asked_for();
    let (result, own_exit) = match Args::try_parse() {
        Ok(args) => command::execute(args),
        Err(error) => (usage::explain(error), None),
    };
    let code = result.unwrap_or_else(|failure| {
        say(&failure);
        failure.code
    });
    process::ExitCode::from(code.number_with(own_exit))
}

/// Nothing is logged unless `KILIT_LOG` says so, as in `KILIT_LOG=debug`.
fn log_what_is_asked_for() {
    if let Ok(filter) = EnvFilter::try_from_env("KILIT_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
