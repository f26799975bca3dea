//! What `kilit` and its guardian say to each other: JSON in packets, with descriptors beside it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::sys::socket;

/// From `kilit` to its guardian.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Spawn the command. Beside it: the command's stdin, then the lock's file where there is one.
    Start {
        /// Variables of the command's environment.
        env: Vec<(String, Vec<u8>)>,
        /// As in `Deadline`.
        kill_at: Option<u64>,
        /// The command takes the terminal's foreground.
        foreground: bool,
    },
    /// Kill the group at this moment, in nanoseconds of the boot-time clock; `None` for never.
    Deadline(Option<u64>),
    /// The command is being ended: keep the lock's file until the group is gone.
    Ending,
    /// All is done.
    Finish,
}

/// From the guardian to `kilit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// No signal but KILL ends the guardian from here on.
    Ready,
    /// The command runs, with this process id, in a group of its own.
    Started(i32),
    /// The command could not be started.
    NotStarted {
        /// The system's error number.
        errno: i32,
    },
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command has ended.
    Ended(End),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// By the guardian, at the deadline.
    Expired,
}

/// Larger than any packet: a name has 512 bytes at most, and a token's source 128.
const MAX_PACKET: usize = 16 * 1024;

/// Sends one message, without ever waiting: `WouldBlock` when the other side has not read for long.
pub(super) fn send(to: impl AsFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    socket::send(to, &serde_json::to_vec(message)?, fds)
}

/// Reads one message and its descriptors, without waiting; `None` when the other side is gone.
pub(super) fn receive<T: DeserializeOwned>(from: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = [0; MAX_PACKET];
    match socket::receive(from, &mut packet)? {
        (0, _) => Ok(None),
        (read, fds) => Ok(Some((serde_json::from_slice(&packet[..read])?, fds))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn packets_carry_descriptors() {
        let (ours, theirs) = socket::pair().unwrap();
        assert_eq!(receive::<Event>(&theirs).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let (mut reader, writer) = io::pipe().unwrap();
        let env = vec![("KILIT_NAME".to_owned(), vec![0xff; 512])];
        let start = Order::Start { env: env.clone(), kill_at: Some(u64::MAX), foreground: true };
        send(&ours, &start, &[writer.as_fd(), reader.as_fd()]).unwrap();
        send(&ours, &Order::Finish, &[]).unwrap();
        drop(writer);
        drop(ours);
        let (order, mut fds) = receive(&theirs).unwrap().unwrap();
        let Order::Start { env: read, kill_at: Some(u64::MAX), foreground: true } = order else { panic!() };
        assert_eq!((read, fds.len()), (env, 2));
        std::fs::File::from(fds.remove(0)).write_all(b"x").unwrap();
        reader.read_exact(&mut [0]).unwrap();
        assert!(matches!(receive(&theirs).unwrap(), Some((Order::Finish, _))));
        assert!(receive::<Order>(&theirs).unwrap().is_none());
    }
}
