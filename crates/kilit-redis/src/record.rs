//! What kilit writes at a lock's key: `kilit1 OWNER TOKEN SINCE TTL NOTE`, SINCE in µs by the server's clock, TTL in ms.
//! `kilit1!` in front means that an operator asks for the lock back.

use std::time::{Duration, SystemTime};

use kilit_core::TokenValue;

/// A hold of kilit's, as it stands at the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owner: String,
    pub(crate) token: Option<TokenValue>,
    pub(crate) since: Option<SystemTime>,
    pub(crate) ttl: Duration,
    pub(crate) note: String,
    pub(crate) asked_back: bool,
}

const PLAIN: &str = "kilit1 ";
const ASKED_BACK: &str = "kilit1! ";

impl Record {
    /// Reads a value; `None` for another client's.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (rest, asked_back) = match text.strip_prefix(PLAIN) {
            Some(rest) => (rest, false),
            None => (text.strip_prefix(ASKED_BACK)?, true),
        };
        let mut words = rest.splitn(5, ' ');
        let mut word = || words.next();
        let (owner, token, since, ttl) = (word()?, word()?, word()?, word()?);
        owner.parse::<kilit_core::OwnerId>().ok()?;
        Some(Self {
            owner: owner.to_owned(),
            token: token.parse().ok(),
            since: micros(since),
            ttl: Duration::from_millis(ttl.parse().ok()?),
            note: word().unwrap_or_default().to_owned(),
            asked_back,
        })
    }

    /// The same value with the operator's mark.
    pub(crate) fn ask_back(value: &[u8]) -> Vec<u8> {
        [ASKED_BACK.as_bytes(), value.strip_prefix(PLAIN.as_bytes()).unwrap_or(value)].concat()
    }
}

/// A moment of the server's clock, for people.
pub(crate) fn micros(text: &str) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(text.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn what_is_written_is_read() {
        let value = format!("kilit1 {OWNER} 1764500000000000 1764500000000000 30000 host/7 two words");
        let record = Record::read(value.as_bytes()).unwrap();
        assert_eq!((record.owner.as_str(), record.note.as_str()), (OWNER, "host/7 two words"));
        assert_eq!(record.token.unwrap().get(), 1_764_500_000_000_000);
        assert_eq!((record.ttl, record.asked_back), (Duration::from_secs(30), false));
        let asked = Record::read(&Record::ask_back(value.as_bytes())).unwrap();
        assert_eq!(asked, Record { asked_back: true, ..record });
    }

    #[test]
    fn other_values_are_foreign() {
        for other in ["", "kilit1", "kilit2 x", "kilit1 x 1 1 1 n", "3108a26eec9411f1931402fc00000001"] {
            assert_eq!(Record::read(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Record::read(b"\xff\0"), None);
    }
}
