//! A server that says what a test wants it to say.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
};

/// The least that a server says of itself.
pub(crate) const HELLO: &str = "%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n";

/// Answers each command, given by its name in upper case, with these bytes. It lives as long as the test's process.
pub(crate) fn fake(answer: impl Fn(&str) -> &'static str + Send + Sync + Copy + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, answer));
        }
    });
    url
}

fn serve(mut stream: TcpStream, answer: impl Fn(&str) -> &'static str) -> Option<()> {
    let mut requests = BufReader::new(stream.try_clone().ok()?);
    loop {
        let words = number(&mut requests, '*')?;
        let mut name = String::new();
        for place in 0..words {
            let mut word = vec![0; number(&mut requests, '$')? + 2];
            requests.read_exact(&mut word).ok()?;
            if place == 0 {
                name = String::from_utf8_lossy(&word).trim().to_uppercase();
            }
        }
        stream.write_all(answer(&name).as_bytes()).ok()?;
    }
}

fn number(requests: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    requests.read_line(&mut line).ok()?;
    line.trim().strip_prefix(mark)?.parse().ok()
}
