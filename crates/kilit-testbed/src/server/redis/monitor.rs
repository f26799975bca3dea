//! What a server was told, in its own words.

use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::wait_until;

/// Records every command that a server executes, until it is dropped or the server ends.
#[derive(Debug)]
pub struct Monitor {
    stream: UnixStream,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Monitor {
    #[track_caller]
    pub(super) fn start(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).expect("the server's socket");
        stream.write_all(b"AUTH testbed any\r\nMONITOR\r\n").expect("the server listens");
        let mut answers = BufReader::new(stream.try_clone().expect("a second descriptor"));
        for _ in 0..2 {
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("the server answers");
            assert_eq!(answer, "+OK\r\n");
        }
        let lines = Arc::default();
        let reader = thread::spawn({
            let lines = Arc::clone(&lines);
            move || record(answers, &lines)
        });
        Self { stream, lines, reader: Some(reader) }
    }

    /// What was recorded so far: `TIME [DATABASE CLIENT] "COMMAND" "ARGUMENT"…`, with bytes that are not printed
    /// escaped. What scripts call has `lua` for its client.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("the reader does not panic").clone()
    }

    /// Waits until `enough` says so of the lines so far.
    ///
    /// # Panics
    /// Naming `what`, when that takes longer than ten seconds.
    #[track_caller]
    pub fn wait(&self, what: &str, mut enough: impl FnMut(&[String]) -> bool) {
        let look = || enough(&self.lines.lock().expect("the reader does not panic"));
        wait_until(what, Duration::from_secs(10), look);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn record(answers: impl BufRead, lines: &Mutex<Vec<String>>) {
    for line in answers.lines().map_while(Result::ok) {
        let line = line.strip_prefix('+').unwrap_or(&line).to_owned();
        lines.lock().expect("nobody panics with it").push(line);
    }
}
