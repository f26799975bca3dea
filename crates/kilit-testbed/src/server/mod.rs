//! Server processes: started on a free port in a temporary directory, awaited until ready, killed at the end.

mod lease;
pub mod redis;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

pub use lease::LeaseServer;
pub use redis::Redis;
use tempfile::TempDir;

use crate::{Process, ports::free_port, process::poll_until};

/// How one kind of server is started.
pub trait Spec {
    /// The command that serves on this loopback port and keeps its files in `dir`. Its stdin is a pipe which the test
    /// process keeps open: a server that can should end when that does.
    fn command(&self, port: u16, dir: &Path) -> Command;

    /// Whether it answers. Called again and again until it does.
    fn is_ready(&self, addr: SocketAddr, process: &Process) -> bool;
}

/// A running server.
#[derive(Debug)]
pub struct Server<S> {
    spec: S,
    process: Process,
    addr: SocketAddr,
    dir: TempDir,
}

impl<S: Spec> Server<S> {
    /// Starts a server and waits until it is ready.
    ///
    /// # Panics
    /// With its output, when it is not ready within 30 s.
    #[track_caller]
    pub fn start(spec: S) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Another program may take the free port first: some servers then end at once.
        for _ in 0..5 {
            let port = free_port();
            if let Ok(process) = launch(&spec, port, dir.path()) {
                return Self { spec, process, addr: (Ipv4Addr::LOCALHOST, port).into(), dir };
            }
        }
        let process = launch(&spec, free_port(), dir.path());
        panic!("the server ended five times and more: {}", process.err().unwrap_or_default());
    }

    /// Where it serves.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its process, to be looked at.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGSTOP, and waits until it stands still.
    ///
    /// # Panics
    /// When it does not stop within ten seconds.
    #[track_caller]
    pub fn stop(&self) {
        self.process.stop();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, on the same port and directory, after it was killed.
    ///
    /// # Panics
    /// With its output, when it is not ready within 30 s.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process.kill();
        match launch(&self.spec, self.addr.port(), self.dir.path()) {
            Ok(process) => self.process = process,
            Err(output) => panic!("the server did not start again: {output}"),
        }
    }
}

/// Starts one and waits until it is ready; its output when it ended before.
#[track_caller]
fn launch<S: Spec>(spec: &S, port: u16, dir: &Path) -> Result<Process, String> {
    const WITHIN: Duration = Duration::from_secs(30);
    let mut process = Process::spawn_with_stdin(&mut spec.command(port, dir), Stdio::piped());
    let addr = (Ipv4Addr::LOCALHOST, port).into();
    let ready = poll_until(WITHIN, || match process.try_wait() {
        Some(exit) => Some(Err(format!("{exit:?}"))),
        None => spec.is_ready(addr, &process).then_some(Ok(())),
    });
    match ready {
        Some(ready) => ready.map(|()| process),
        None => {
            panic!("not ready within {WITHIN:?}: {process:?}\n{}\n{}", process.stdout(), process.stderr())
        }
    }
}
