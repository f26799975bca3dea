//! The signals that `kilit run` passes on.

use std::{fs, future::poll_fn, io, task::Poll};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::Signal;
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

/// Lets this process use the terminal from the background: write to it, and take the foreground back.
pub(crate) fn block_terminal_stops() {
    let mut stops = SigSet::empty();
    stops.add(NixSignal::SIGTTOU);
    // Cannot fail for a signal that exists.
    let _ = stops.thread_block();
}

/// Blocks all signals but the news of children, for a process that must not be ended by any. What it spawns starts
/// with none blocked.
pub(crate) fn block_all_but_child() {
    let mut all = SigSet::all();
    all.remove(NixSignal::SIGCHLD);
    // Cannot fail for signals that exist.
    let _ = all.thread_block();
}

/// The signals that this process was told to ignore, as a mask.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
