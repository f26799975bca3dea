use std::{
    io::ErrorKind,
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use kilit_testbed::ports::{ClosedPort, free_port};

#[test]
fn a_free_port_can_be_used() {
    TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).unwrap();
}

#[test]
fn a_closed_port_refuses_and_stays_taken() {
    let closed = ClosedPort::new();
    assert_eq!(TcpStream::connect(closed.addr()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(TcpListener::bind(closed.addr()).unwrap_err().kind(), ErrorKind::AddrInUse);
}
