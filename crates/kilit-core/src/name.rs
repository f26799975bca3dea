//! Lock names.

use std::{fmt, str::FromStr, sync::Arc};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// What the encoding leaves as it is, beside letters and digits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b':').remove(b'-');

/// The name of a lock: 1 to 512 bytes, any bytes. Two names are the same lock when their bytes are equal; nothing
/// is normalised or folded.
///
/// `Display` is the [encoded](LockName::encoded) form, so a name can neither break a log line nor a terminal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<[u8]>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Takes the bytes of a name.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) unless the name has 1 to 512 bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() {
            return Err(Error::invalid("a lock name is empty; it must have 1 to 512 bytes"));
        }
        if bytes.len() > Self::MAX_LEN {
            return Err(Error::invalid(format!(
                "a lock name has {} bytes; it must have 1 to 512: shorten it, or use a hash of it",
                bytes.len()
            )));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as text, where it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The injective encoding that engines write into paths and keys: `A–Z a–z 0–9 . _ : -` stand for themselves,
    /// every other byte is `%` and two upper-case hexadecimal digits. The whole names `.` and `..` are `%2E` and
    /// `%2E%2E`.
    pub fn encoded(&self) -> String {
        match &*self.0 {
            b"." => "%2E".into(),
            b".." => "%2E%2E".into(),
            bytes => percent_encode(bytes, ESCAPED).to_string(),
        }
    }

    /// As [`encoded`](Self::encoded) where that has at most `max` bytes (70 or more), else `%sha256-` and the hash of
    /// the name in hexadecimal. No encoded name begins so: after its `%` stand two hexadecimal digits.
    pub fn encoded_within(&self, max: usize) -> String {
        debug_assert!(max >= 72, "the hashed form has 72 bytes");
        let encoded = self.encoded();
        if encoded.len() <= max {
            return encoded;
        }
        let hash: String = Sha256::digest(&self.0).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("%sha256-{hash}")
    }

    /// Reads an [encoded](Self::encoded) name back. `None` unless `text` is what `encoded` gives for some name.
    pub fn decode(text: &str) -> Option<Self> {
        let name = Self::new(percent_decode_str(text).collect::<Vec<u8>>()).ok()?;
        (name.encoded() == text).then_some(name)
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.encoded())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_set_stands_for_itself() {
        let plain = "AZaz09._:-";
        assert_eq!(LockName::new(plain).unwrap().encoded(), plain);
        assert_eq!(LockName::new("product:42").unwrap().encoded(), "product:42");
        assert_eq!(LockName::new("...").unwrap().encoded(), "...");
    }

    #[test]
    fn whole_dots_are_encoded() {
        assert_eq!(LockName::new(".").unwrap().encoded(), "%2E");
        assert_eq!(LockName::new("..").unwrap().encoded(), "%2E%2E");
    }

    #[test]
    fn every_pair_of_short_names_stays_different() {
        let alphabet = [b'a', b'A', b'/', b'%', b'2', b'F', b'.', 0, 0xff];
        let mut seen = std::collections::HashMap::new();
        let mut names: Vec<Vec<u8>> = vec![vec![]];
        for _ in 0..4 {
            let longer =
                names.iter().flat_map(|n| alphabet.map(|b| [&n[..], &[b]].concat())).collect::<Vec<_>>();
            for bytes in &longer {
                let name = LockName::new(bytes).unwrap();
                assert_eq!(LockName::decode(&name.encoded()).as_ref(), Some(&name));
                assert_eq!(seen.insert(name.encoded(), bytes.clone()), None);
            }
            names = longer;
        }
    }

    #[test]
    fn a_hash_is_no_encoded_name() {
        let long = LockName::new("é".repeat(200)).unwrap();
        let hashed = long.encoded_within(200);
        assert_eq!(hashed.len(), 72);
        let twin = LockName::new(&hashed).unwrap();
        assert_ne!(twin.encoded_within(200), hashed);
        assert_eq!(LockName::decode(&hashed), None);
    }

    #[test]
    fn lengths_are_checked() {
        assert!(LockName::new("").is_err());
        assert!(LockName::new([b'x'; 512]).is_ok());
        assert!(LockName::new([b'x'; 513]).unwrap_err().to_string().contains("513 bytes"));
    }
}
