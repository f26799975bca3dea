//! `kilit completions`: for the user's shell.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{args::Args, exit_code::ExitCode, failure::Result, output::print};

pub(crate) fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(shell, &mut Args::command(), "kilit", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::Success)
}
