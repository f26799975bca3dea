//! Loopback ports.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketType, bind, getsockname, socket},
};

/// A loopback port that nothing uses at this moment. Another program can take it before the caller does; servers are
/// started again on another one when that happens.
///
/// # Panics
/// When the kernel has no port left.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// A loopback port that refuses connections for as long as this lives.
#[derive(Debug)]
pub struct ClosedPort {
    /// Bound and not listening, so that nothing else can take the port.
    _socket: OwnedFd,
    addr: SocketAddr,
}

impl ClosedPort {
    /// Takes one.
    ///
    /// # Panics
    /// When the kernel has no port left.
    pub fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free loopback port");
        let addr = getsockname(&socket).expect("a bound socket has an address");
        let addr = addr.try_into().expect("an address of the internet family");
        Self { _socket: socket, addr }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Default for ClosedPort {
    fn default() -> Self {
        Self::new()
    }
}
