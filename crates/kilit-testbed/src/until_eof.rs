//! Programs that know nothing of tests, and end with the test all the same, also when that is killed.
//!
//! `kilit-testbed until-eof PROGRAM ARGUMENTS` becomes the program, under the same process id, and leaves a watcher behind
//! that kills it when stdin ends. The kernel's own signal at a parent's death would not do: it comes when the *thread*
//! ends that started the program.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio, id},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal},
};

use crate::bins;

/// The command that runs `program` until its stdin ends.
///
/// # Panics
/// When there is no kilit-testbed program.
pub fn until_eof(program: &str) -> Command {
    let mut command = Command::new(bins::testbed());
    command.args(["until-eof", program]);
    command
}

/// Becomes the program; returns only when that fails.
pub fn become_program(program: &OsString, arguments: &[OsString]) -> io::Error {
    let watcher = env::current_exe().and_then(|testbed| {
        Command::new(testbed).args(["watch-stdin", &id().to_string()]).stdout(Stdio::null()).spawn()
    });
    match watcher {
        Ok(_) => Command::new(program).args(arguments).stdin(Stdio::null()).exec(),
        Err(error) => error,
    }
}

/// Waits until stdin ends, and then kills the parent, which must be process `pid`; or until that has ended.
///
/// # Errors
/// When it cannot be watched.
pub fn watch_stdin(pid: i32) -> io::Result<()> {
    let parent = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(parent, PidfdFlags::empty())?;
    if getppid() != Some(parent) {
        // It had ended before, and the number may be somebody else's.
        return Ok(());
    }
    let stdin = io::stdin();
    let mut both = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
    loop {
        match poll(&mut both, None) {
            Ok(_) if !both[1].revents().is_empty() => return Ok(()),
            Ok(_) if !both[0].revents().is_empty() && at_end(stdin.as_fd())? => {
                return Ok(pidfd_send_signal(&pidfd, Signal::KILL)?);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn at_end(stdin: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::io::read(stdin, &mut [0; 64]) {
        Ok(read) => Ok(read == 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
