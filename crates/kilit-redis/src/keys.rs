//! The keys of one lock: its own, that other clients share, and those that kilit keeps beside it in the same slot.

use std::{
    io::{self, Write},
    sync::OnceLock,
};

use kilit_core::{Error, LockName, OwnerId, Result};
use redis::{Cmd, RedisWrite};

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// What kilit keeps beside a lock begins so; the number is the version of these formats.
const SIDE: &[u8] = b"kilit1:";

/// One key of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    /// The one that everybody shares.
    Lock,
    /// The last token drawn: one counter for all locks, or in a cluster for those of a slot.
    Counter,
    /// Who waits, in order.
    Line,
    /// Until when each waiter's place lasts, and where it is woken.
    Places,
    /// Stands while late claims of this owner get nothing.
    Bar(OwnerId),
}

/// The keys of one lock.
#[derive(Debug)]
pub(crate) struct Keys {
    lock: Vec<u8>,
    /// What ends every key beside it, and puts it into the lock's slot.
    tail: Vec<u8>,
    /// What ends the counter's.
    counter: String,
}

impl Keys {
    /// `prefix` and the bytes of the name are the lock's own key.
    pub(crate) fn new(prefix: &[u8], name: &LockName, cluster: bool) -> Result<Self> {
        let lock = [prefix, name.as_bytes()].concat();
        if is_reserved(&lock) {
            let text = "names that make a key of `kilit`, digits and `:` are kept for kilit's own; use another \
                        name or prefix";
            return Err(Error::invalid(text).on_lock(name));
        }
        let tail = match lock.iter().any(|byte| matches!(byte, b'{' | b'}')) {
            false => [b"{", &lock[..], b"}"].concat(),
            // Another tag of the same slot: the braces of a name can be anywhere.
            true => [b"{", tag_of(slot(&lock)).to_string().as_bytes(), b"}", &lock[..]].concat(),
        };
        let counter = if cluster { format!(":{{{}}}", tag_of(slot(&lock))) } else { String::new() };
        Ok(Self { lock, tail, counter })
    }

    /// The key that everybody shares.
    pub(crate) fn lock(&self) -> &[u8] {
        &self.lock
    }

    /// Adds keys to a command.
    pub(crate) fn write(&self, keys: &[Key], command: &mut Cmd) {
        for key in keys {
            let mut argument = command.writer_for_next_arg();
            // Writing into memory does not fail.
            let _ = self.parts(*key, |part| argument.write_all(part));
        }
    }

    /// What a key is made of.
    fn parts(&self, key: Key, mut part: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let (what, owner) = match key {
            Key::Lock => return part(&self.lock),
            Key::Counter => {
                return [SIDE, b"token", self.counter.as_bytes()].into_iter().try_for_each(part);
            }
            Key::Line => ("line:", None),
            Key::Places => ("places:", None),
            Key::Bar(owner) => ("bar:", Some(owner)),
        };
        part(SIDE)?;
        part(what.as_bytes())?;
        part(&self.tail)?;
        match owner {
            None => Ok(()),
            Some(owner) => part(b":").and_then(|()| part(&owner.to_hex())),
        }
    }

    /// In which slot of a cluster all of them are.
    pub(crate) fn slot(&self) -> u16 {
        slot(&self.lock)
    }
}

/// The lock whose line this key is.
pub(crate) fn name_of_line(line: &[u8], prefix: &[u8]) -> Option<LockName> {
    let tail = line.strip_prefix(SIDE)?.strip_prefix(b"line:{")?;
    let close = tail.iter().position(|byte| *byte == b'}')?;
    let (tag, rest) = (&tail[..close], &tail[close + 1..]);
    let lock = if rest.is_empty() { tag } else { rest };
    LockName::new(lock.strip_prefix(prefix)?).ok()
}

/// The slot of a key: of what stands in its first braces, unless that is nothing.
///
/// Source: the Redis cluster specification, "Hash tags".
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        let length = inside.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &inside[..length])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

/// The least number that, written in braces, is of this slot.
fn tag_of(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut missing = tags.len();
        for number in 0.. {
            let place = &mut tags[usize::from(self::slot(number.to_string().as_bytes()))];
            if place.is_none() {
                *place = Some(number);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        tags.into_iter().flatten().collect()
    });
    tags[usize::from(slot)]
}

/// `kilit`, a version and a colon: also of versions to come.
fn is_reserved(key: &[u8]) -> bool {
    let Some(rest) = key.strip_prefix(b"kilit") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest.get(digits) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn keys(name: &[u8], cluster: bool) -> Vec<Vec<u8>> {
        let keys = Keys::new(b"lock:", &LockName::new(name).unwrap(), cluster).unwrap();
        let owner = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let all = [Key::Counter, Key::Lock, Key::Line, Key::Places, Key::Bar(owner)];
        let whole = |key| {
            let mut whole = Vec::new();
            keys.parts(key, |part| whole.write_all(part)).unwrap();
            whole
        };
        all.map(whole).to_vec()
    }

    #[test]
    fn the_lock_has_the_key_that_others_use() {
        let [counter, lock, line, ..] = &keys(b"product:42", false)[..] else { panic!("there are five") };
        assert_eq!(lock, b"lock:product:42");
        assert_eq!(line, b"kilit1:line:{lock:product:42}");
        assert_eq!(counter, b"kilit1:token");
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16::State::<crc16::XMODEM>::calculate(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }

    #[test]
    fn kilits_own_keys_cannot_be_reached_by_a_name() {
        for name in ["kilit1:token:{x}", "kilit22:x"] {
            assert!(Keys::new(b"", &name.parse().unwrap(), false).is_err());
            assert!(Keys::new(b"lock:", &name.parse().unwrap(), false).is_ok());
        }
        assert!(Keys::new(b"", &"kilit".parse().unwrap(), false).is_ok());
        assert!(Keys::new(b"kilit", &"1:x".parse().unwrap(), false).is_err());
    }

    proptest! {
        #[test]
        fn side_keys_share_the_slot_and_no_two_locks_share_a_key(
            names in proptest::collection::hash_set("[{}a-c1:]{1,6}", 1..40)
        ) {
            let mut seen = HashSet::new();
            for name in names {
                let keys = keys(name.as_bytes(), true);
                prop_assert_eq!(name_of_line(&keys[2], b"lock:"), Some(name.parse().unwrap()));
                for (place, key) in keys.into_iter().enumerate() {
                    prop_assert_eq!(slot(&key), slot(format!("lock:{name}").as_bytes()));
                    prop_assert!(seen.insert(key) || place == 0, "two locks of a slot share its counter alone");
                }
            }
        }
    }
}
