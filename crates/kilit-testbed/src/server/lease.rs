//! The test lease server.

use std::{net::SocketAddr, path::Path, process::Command};

use super::{Server, Spec};
use crate::{Process, bins};

/// `kilit-testbed lease-server`: one node, nothing on disk. A restart forgets every lease, and draws tokens of another
/// source.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseServer;

impl LeaseServer {
    /// Starts one.
    #[track_caller]
    pub fn start() -> Server<Self> {
        Server::start(Self)
    }
}

impl Server<LeaseServer> {
    /// The engine URL of this server, or of what stands in front of it.
    pub fn url(addr: SocketAddr) -> String {
        format!("testlease://{addr}")
    }
}

impl Spec for LeaseServer {
    fn command(&self, port: u16, _dir: &Path) -> Command {
        let mut command = Command::new(bins::testbed());
        command.args(["lease-server", "--until-eof", "--port", &port.to_string()]);
        command
    }

    fn is_ready(&self, _addr: SocketAddr, process: &Process) -> bool {
        // The line is printed when the port listens.
        process.stdout().ends_with('\n')
    }
}
