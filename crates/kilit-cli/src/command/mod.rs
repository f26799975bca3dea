//! One file a subcommand.

mod break_;
mod completions;
mod doctor;
mod engines;
mod man;
mod run;
mod status;

use std::{fs::File, io};

use crate::{
    args::{Args, Command},
    exit_code::ExitCode,
    failure::{Failure, Result},
    guardian,
};

/// What a runtime and an engine need at least.
const SPARE_DESCRIPTORS: usize = 16;

/// Runs what was asked for, and says with which number `kilit` exits.
pub(crate) fn execute(args: Args) -> (Result<ExitCode>, Option<std::num::NonZeroU8>) {
    let own_exit = match &args.command {
        Command::Run(run) => run.own_exit,
        _ => None,
    };
    let result = match args.command {
        Command::Run(run) => run::run(*run),
        Command::Status(status) => block_on(status::status(status)),
        Command::Break(target) => block_on(break_::break_(target)),
        Command::Engines(format) => engines::engines(&format),
        Command::Doctor(doctor) => block_on(doctor::doctor(doctor)),
        Command::Completions { shell } => completions::completions(shell),
        Command::Man => man::man(),
        Command::Guardian { command } => guard(&command),
    };
    (result, own_exit)
}

fn guard(command: &[std::ffi::OsString]) -> Result<ExitCode> {
    guardian::guard(command).map_err(|error| Failure::system("guard", &error))?;
    Ok(ExitCode::Success)
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime().map_err(|error| Failure::system("start", &error))?;
    let done = runtime.block_on(future);
    // A name server that is silent would keep its caller for as long as the system's resolver likes.
    runtime.shutdown_background();
    done
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    // A runtime that gets no descriptor for its signals panics, so a few are asked for before.
    let spare: io::Result<Vec<_>> = (0..SPARE_DESCRIPTORS).map(|_| File::open("/dev/null")).collect();
    drop(spare?);
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
