//! Fencing tokens and where they come from.

use std::{cmp::Ordering, fmt, num::NonZeroU64, str::FromStr, sync::Arc};

use crate::{Error, ErrorKind, Result};

/// Where a token was drawn: `engine:cluster-id`, 1 to 128 visible ASCII characters. Tokens have an order only within
/// one source.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TokenSource(Arc<str>);

impl TokenSource {
    /// The longest source, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Takes the text of a source.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) unless it is 1 to 128 visible ASCII characters.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::invalid("a token source must be 1 to 128 visible ASCII characters"));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenSource({self})")
    }
}

/// The number of a fencing token: 1 to 2^63−1, decimal as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenValue(NonZeroU64);

impl TokenValue {
    /// The greatest value, 2^63−1.
    pub const MAX: u64 = i64::MAX as u64;

    /// Takes a number.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) outside 1 to 2^63−1: an engine whose next token would leave the range
    /// refuses the claim.
    pub fn new(value: u64) -> Result<Self> {
        match NonZeroU64::new(value) {
            Some(inner) if value <= Self::MAX => Ok(Self(inner)),
            _ => Err(Error::new(
                ErrorKind::Exhausted,
                format!(
                    "a fencing token would be {value}, outside 1 to 2^63-1; the token source must be renewed"
                ),
            )),
        }
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for TokenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TokenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TokenValue {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(value) if plain => Self::new(value).map_err(|_| not_a_token()),
            _ => Err(not_a_token()),
        }
    }
}

fn not_a_token() -> Error {
    Error::invalid("a fencing token is a decimal number from 1 to 9223372036854775807")
}

/// A fencing token: a number that rises with every acquisition of one lock, and the source it was drawn from.
///
/// A store keeps both and compares the number, [`value`](Self::value), within one [`source`](Self::source). As text
/// (`{}`) it is for people: `7 of file:3f…`. It is not `Ord`: tokens of different sources have no order. See
/// [`compare`](Self::compare).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    source: TokenSource,
    value: TokenValue,
}

impl FencingToken {
    /// A token as an engine drew it, or as it was read back from text.
    pub fn new(source: TokenSource, value: TokenValue) -> Self {
        Self { source, value }
    }

    /// The number.
    pub fn value(&self) -> TokenValue {
        self.value
    }

    /// Where it was drawn.
    pub fn source(&self) -> &TokenSource {
        &self.source
    }

    /// Orders two tokens of one source; `None` when the sources differ.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        (self.source == other.source).then(|| self.value.cmp(&other.value))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.value, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(source: &str, value: u64) -> FencingToken {
        FencingToken::new(TokenSource::new(source).unwrap(), TokenValue::new(value).unwrap())
    }

    #[test]
    fn order_exists_within_a_source_only() {
        assert_eq!(token("file:a", 1).compare(&token("file:a", 2)), Some(Ordering::Less));
        assert_eq!(token("file:a", 1).compare(&token("file:b", 2)), None);
    }

    #[test]
    fn the_range_is_kept_without_a_wrap() {
        assert!(TokenValue::new(0).is_err());
        assert_eq!(TokenValue::new(TokenValue::MAX).unwrap().get(), 9_223_372_036_854_775_807);
        assert_eq!(TokenValue::new(TokenValue::MAX + 1).unwrap_err().kind(), ErrorKind::Exhausted);
        assert_eq!("9007199254740993".parse::<TokenValue>().unwrap().get(), (1 << 53) + 1);
        for bad in ["", "0", "-1", "+1", "1.0", "9223372036854775808", " 1"] {
            assert!(bad.parse::<TokenValue>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sources_are_visible_ascii() {
        assert!(TokenSource::new("etcd:14841639068965178418").is_ok());
        for bad in ["", "a b", "a\n", "é", &"x".repeat(129)] {
            assert!(TokenSource::new(bad).is_err(), "{bad}");
        }
    }
}
