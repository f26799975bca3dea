//! Who asks: the claim's random id and a note for people.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
    str::FromStr,
    sync::Arc,
};

use crate::{Error, Result, sys};

/// The identity of one claim: 128 random bits, made before anything is sent. Renewal and release go by it, never by
/// the lock's name, so a late one cannot touch a newer hold.
///
/// As text: 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(u128);

impl OwnerId {
    /// A fresh id.
    pub fn random() -> Self {
        POOL.with_borrow_mut(|pool| Self(u128::from_le_bytes(pool.draw())))
    }

    /// Its text: 32 lower-case hexadecimal digits.
    pub fn to_hex(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0.to_be_bytes()) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
        }
        text
    }
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [[0; 16]; 32], left: 0, process: 0 }) };
}

/// Random bytes for the next ids: one system call for many. Each is used once, and none in a forked child.
struct Pool {
    bytes: [[u8; 16]; 32],
    left: usize,
    process: u32,
}

impl Pool {
    fn draw(&mut self) -> [u8; 16] {
        let process = sys::process_id();
        if self.left == 0 || self.process != process {
            // Without randomness no identity is safe; the call cannot fail on the systems that are supported.
            getrandom::fill(self.bytes.as_flattened_mut()).expect("the kernel gives random bytes");
            (self.left, self.process) = (self.bytes.len(), process);
        }
        self.left -= 1;
        std::mem::take(&mut self.bytes[self.left])
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

impl FromStr for OwnerId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match u128::from_str_radix(text, 16) {
            Ok(id) if digits => Ok(Self(id)),
            _ => {
                Err(Error::invalid("an owner id is 32 lower-case hexadecimal digits, as `status` prints it"))
            }
        }
    }
}

/// A map by owner.
pub(crate) type OwnerMap<V> = HashMap<OwnerId, V, BuildHasherDefault<OwnerHasher>>;

/// An id is random, so a part of it is as good as any hash.
#[derive(Debug, Default)]
pub(crate) struct OwnerHasher(u64);

impl Hasher for OwnerHasher {
    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A few words about the holder that `status` shows: at most 256 bytes, `host/pid` unless set. Never a secret:
/// everyone who can read the engine can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note(Arc<str>);

impl Note {
    /// The longest note, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Takes the caller's words.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when longer than 256 bytes or with a control character in it.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.len() > Self::MAX_LEN {
            return Err(Error::invalid(format!("a note has {} bytes; it may have 256 at most", text.len())));
        }
        if text.chars().any(char::is_control) {
            return Err(Error::invalid("a note holds a control character; use printable text on one line"));
        }
        Ok(Self(text.into()))
    }

    /// `host/pid` of this process.
    pub fn of_this_process() -> Self {
        let mut host = sys::host_name();
        host.retain(|c| !c.is_control());
        Self(format!("{host}/{}", std::process::id()).into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_read_back() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| OwnerId::random()).collect();
        assert_eq!(ids.len(), 1000);
        let a = OwnerId::random();
        assert_eq!(a.to_string().parse::<OwnerId>().unwrap(), a);
        assert_eq!(a.to_string().as_bytes(), a.to_hex());
        for bad in ["", "0", "+0000000000000000000000000000000", &"A".repeat(32)] {
            assert!(bad.parse::<OwnerId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn notes_are_bounded() {
        assert!(Note::new("a".repeat(256)).is_ok());
        assert!(Note::new("a".repeat(257)).is_err());
        assert!(Note::new("two\nlines").is_err());
        assert!(Note::of_this_process().as_str().ends_with(&format!("/{}", std::process::id())));
    }
}
