//! The signals that `kilit run` passes on.

use std::{fs, future::poll_fn, io, sync::Arc, task::Poll};

use rustix::process::Signal;
use signal_hook::consts::FORBIDDEN;
use tokio::signal::unix::{self, SignalKind, signal};

/// What reaches the command's group.
const FORWARDED: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// Listens for signals to pass on, so that none of them ends or stops this process.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Begins to listen. A signal that was ignored when `kilit` started stays ignored, here and in the command: that
    /// is what `nohup` asks for. Within a tokio runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let listened = FORWARDED.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        let listener = |sig: Signal| Ok((sig, signal(SignalKind::from_raw(sig.as_raw()))?));
        listened.map(listener).collect::<io::Result<_>>().map(Self)
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, listener) in &mut self.0 {
                if listener.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a process which waits. Cancel safe.
    pub(crate) async fn next_fatal(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if is_fatal(signal) {
                return signal;
            }
        }
    }
}

/// Whether `signal` asks a process to end.
pub(crate) fn is_fatal(signal: Signal) -> bool {
    !matches!(signal, Signal::WINCH | Signal::TSTP | Signal::CONT)
}

/// Whether a process that is stopped must be continued to see `signal`, as shells do.
pub(crate) fn needs_continuing(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

/// Catches every signal that can be caught and was not ignored from the start, and does nothing about it. What this
/// process spawns starts with none caught.
pub(crate) fn shrug_off_all() {
    let ignored = ignored_signals();
    let caught = |signal: &i32| !FORBIDDEN.contains(signal) && ignored >> (signal - 1) & 1 == 0;
    for signal in (1..=64).filter(caught) {
        // A few numbers are the C library's own, and it refuses those.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}

/// The signals that this process was told to ignore, as a mask.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
