//! Who asks: the claim's random id and a note for people.

use std::{fmt, str::FromStr, sync::Arc};

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
        let mut bytes = [0; 16];
        // Without randomness no identity is safe; the system call cannot fail on the systems that are supported.
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        Self(u128::from_le_bytes(bytes))
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
        let (a, b) = (OwnerId::random(), OwnerId::random());
        assert_ne!(a, b);
        assert_eq!(a.to_string().parse::<OwnerId>().unwrap(), a);
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
