//! What is written inside a lock file, a place or a seat: who has it, for people and for `inspect`, and where the
//! tokens of the name stand. The kernel's lock alone decides; everything here is read after it was asked.
//!
//! ```text
//!  16  break       owner whose hold an operator ends           written by `evict`
//!  64  magic       "kilitrc1"                                  from here on one write of the holder's
//!  72  state       0 none, 1 held, 2 released, 3 vanished
//!  80  closed      nothing may be granted before (ns of boot-time clock)
//!  88  crc         of all that follows
//!  92  body        see `Body`
//! ```
//! Integers are little-endian. Up to 1024 bytes: one read, one write.
//!
//! A lock file that is longer is *flagged*: its line is worth a look. That is said by the length, so that who lets go
//! learns it and whether the file still stands by one call.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kilit_core::{Claim, LockName, Mode, Moment, sys::process_id};

use crate::sys::kernel::Here;

/// Longer than any record.
pub(crate) const MAX_LEN: usize = 1024;

/// The length of a flagged file.
pub(crate) const FLAGGED_LEN: usize = MAX_LEN + 1;

pub(crate) const BREAK_AT: u64 = 16;
pub(crate) const RECORD_AT: u64 = 64;
pub(crate) const STATE_AT: u64 = 72;
pub(crate) const CLOSED_AT: u64 = 80;

const MAGIC: &[u8; 7] = b"kilitrc";
const VERSION: u8 = b'1';
const CRC: usize = 88;
const BODY: usize = 92;

/// An owner id as it is written: 32 hexadecimal digits, or zeros for none.
pub(crate) type OwnerText = [u8; 32];

/// How the last hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// There was none.
    None = 0,
    /// Held, or its holder vanished.
    Held = 1,
    /// Released in order.
    Released = 2,
    /// Its holder vanished, and somebody has seen it.
    Vanished = 3,
}

/// Where the tokens of one name stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The id of the source they were drawn from.
    pub(crate) source: u128,
    /// The last that was given out; zero for none.
    pub(crate) token: u64,
    /// The first after the block.
    pub(crate) end: u64,
}

impl Position {
    /// One further, unless the block is used up.
    pub(crate) fn next(self) -> Option<Self> {
        let token = self.token.checked_add(1)?;
        (self.token > 0 && token < self.end).then_some(Self { token, ..self })
    }
}

/// What a position is good for: this very file, since the machine was booted. A record is not flushed, so one that
/// outlived a crash may be an old one, and one in another file may be a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The kernel's boot id.
    pub(crate) boot: u128,
    /// The inode.
    pub(crate) inode: u64,
    /// When the inode was made, in nanoseconds; zero where the file system does not know. Inode numbers come back.
    pub(crate) born: u64,
}

/// Who has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card<'a> {
    pub(crate) owner: OwnerText,
    pub(crate) note: &'a str,
    pub(crate) mode: Mode,
    /// Milliseconds since 1970, for people.
    pub(crate) since: u64,
    pub(crate) lock_delay: Duration,
    /// How soon the holder sees a request to stop.
    pub(crate) check: Duration,
    /// Information only: a number of one PID namespace.
    pub(crate) pid: u32,
    pub(crate) pid_namespace: u64,
}

impl<'a> Card<'a> {
    pub(crate) fn new(claim: &'a Claim, check: Duration, here: Here) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            owner: claim.owner.to_hex(),
            note: claim.note.as_str(),
            mode: claim.share.mode(),
            since: since.as_millis() as u64,
            lock_delay: claim.lock_delay,
            check,
            // Asked anew: a forked child has inherited all that its parent knew of itself.
            pid: process_id(),
            pid_namespace: here.pid_namespace,
        }
    }

    /// Nobody: only the name is of interest.
    pub(crate) fn nobody() -> Self {
        Card {
            owner: [0; 32],
            note: "",
            mode: Mode::Shared,
            since: 0,
            lock_delay: Duration::ZERO,
            check: Duration::ZERO,
            pid: 0,
            pid_namespace: 0,
        }
    }

    pub(crate) fn owner_str(&self) -> &str {
        std::str::from_utf8(&self.owner).unwrap_or_default()
    }

    pub(crate) fn since(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.since)
    }
}

/// A record as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) state: State,
    pub(crate) closed_until: Moment,
    pub(crate) origin: Origin,
    pub(crate) position: Position,
    pub(crate) card: Card<'a>,
    pub(crate) name: &'a [u8],
    pub(crate) crc: u32,
}

/// What a read of the file gave.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives for one look, on the stack of a fast path")]
pub(crate) enum Parsed<'a> {
    /// Never written, damaged, or another program's text.
    Nothing,
    /// Written by a later version of kilit.
    Newer,
    Record(Record<'a>),
}

/// Whether these bytes are of a flagged file.
pub(crate) fn is_flagged(bytes: &[u8]) -> bool {
    bytes.len() >= FLAGGED_LEN
}

/// The owner that an operator wants to stop.
pub(crate) fn broken_owner(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(BREAK_AT as usize..BREAK_AT as usize + 32)
}

/// Reads all of a file's bytes.
pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
    match bytes.get(RECORD_AT as usize..STATE_AT as usize) {
        Some([magic @ .., version]) if magic == MAGIC => match *version {
            VERSION => parse_body(bytes).map_or(Parsed::Nothing, Parsed::Record),
            b'2'..=b'9' => Parsed::Newer,
            _ => Parsed::Nothing,
        },
        _ => Parsed::Nothing,
    }
}

fn parse_body(bytes: &[u8]) -> Option<Record<'_>> {
    let state = match bytes.get(STATE_AT as usize)? {
        1 => State::Held,
        2 => State::Released,
        3 => State::Vanished,
        _ => State::None,
    };
    let closed_until = Moment::from_nanos(Bytes(bytes.get(CLOSED_AT as usize..)?).u64()?);
    let crc = Bytes(bytes.get(CRC..)?).u32()?;
    let mut body = Bytes(bytes.get(BODY..)?);
    let origin = Origin { boot: body.u128()?, inode: body.u64()?, born: body.u64()? };
    let position = Position { source: body.u128()?, token: body.u64()?, end: body.u64()? };
    let mode = if body.u32()? == 0 { Mode::Exclusive } else { Mode::Shared };
    let mut card = Card {
        mode,
        since: body.u64()?,
        lock_delay: Duration::from_millis(body.u32()?.into()),
        check: Duration::from_millis(body.u32()?.into()),
        pid: body.u32()?,
        pid_namespace: body.u64()?,
        owner: body.take(32)?.try_into().ok()?,
        note: "",
    };
    let (name, note) = (usize::from(body.u16()?), usize::from(body.u16()?));
    let name = body.take(name)?;
    card.note = std::str::from_utf8(body.take(note)?).ok()?;
    let end = bytes.len() - body.0.len();
    (crc32fast::hash(&bytes[BODY..end]) == crc).then_some(Record {
        state,
        closed_until,
        origin,
        position,
        card,
        name,
        crc,
    })
}

/// The bytes from [`RECORD_AT`] on.
pub(crate) fn encode<'b>(
    buffer: &'b mut [u8; MAX_LEN],
    state: State,
    origin: Origin,
    position: Position,
    card: &Card<'_>,
    name: &LockName,
) -> &'b [u8] {
    let mut at = BODY;
    let mut put = |bytes: &[u8]| {
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let millis = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).to_le_bytes();
    let (name, note) = (name.as_bytes(), card.note.as_bytes());
    put(&origin.boot.to_le_bytes());
    put(&origin.inode.to_le_bytes());
    put(&origin.born.to_le_bytes());
    put(&position.source.to_le_bytes());
    put(&position.token.to_le_bytes());
    put(&position.end.to_le_bytes());
    put(&u32::from(card.mode != Mode::Exclusive).to_le_bytes());
    put(&card.since.to_le_bytes());
    put(&millis(card.lock_delay));
    put(&millis(card.check));
    put(&card.pid.to_le_bytes());
    put(&card.pid_namespace.to_le_bytes());
    put(&card.owner);
    // A name has 512 bytes at most, a note 256.
    put(&(name.len() as u16).to_le_bytes());
    put(&(note.len() as u16).to_le_bytes());
    put(name);
    put(note);
    let crc = crc32fast::hash(&buffer[BODY..at]);
    let head = RECORD_AT as usize;
    buffer[head..head + 7].copy_from_slice(MAGIC);
    buffer[head + 7] = VERSION;
    buffer[STATE_AT as usize..CRC].fill(0);
    buffer[STATE_AT as usize] = state as u8;
    buffer[CRC..BODY].copy_from_slice(&crc.to_le_bytes());
    &buffer[head..at]
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &LockName, note: &str) -> Vec<u8> {
        let origin = Origin { boot: 7 << 100, inode: 12, born: 3 };
        let position = Position { source: 1 << 127, token: 41, end: 1024 };
        let card = Card { owner: [b'a'; 32], note, mode: Mode::Exclusive, pid: 77, ..Card::nobody() };
        let mut buffer = [0; MAX_LEN];
        let record = encode(&mut buffer, State::Held, origin, position, &card, name);
        [&[0; RECORD_AT as usize], record].concat()
    }

    #[test]
    fn the_longest_record_reads_back() {
        let name = LockName::new([0xff; LockName::MAX_LEN]).unwrap();
        let bytes = written(&name, &"n".repeat(kilit_core::Note::MAX_LEN));
        assert!(bytes.len() <= MAX_LEN);
        let Parsed::Record(record) = parse(&bytes) else { panic!("no record") };
        assert_eq!((record.name, record.card.note.len()), (name.as_bytes(), 256));
        assert_eq!((record.position.token, record.position.end), (41, 1024));
        assert_eq!((record.origin.inode, record.card.pid, record.state), (12, 77, State::Held));
    }

    #[test]
    fn damage_is_seen_whatever_byte_it_hits() {
        let bytes = written(&LockName::new("x").unwrap(), "host/1");
        for at in RECORD_AT as usize..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let volatile = (STATE_AT as usize..CRC).contains(&at);
            assert_eq!(matches!(parse(&damaged), Parsed::Record(_)), volatile, "byte {at}");
            assert!(matches!(parse(&bytes[..at]), Parsed::Nothing), "cut at {at}");
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = written(&LockName::new("x").unwrap(), "");
        bytes[71] = b'2';
        assert!(matches!(parse(&bytes), Parsed::Newer));
        assert!(matches!(parse(b"4711\n"), Parsed::Nothing));
        assert!(matches!(parse(b""), Parsed::Nothing));
    }

    #[test]
    fn positions_end_with_their_block() {
        let position = Position { source: 1, token: 1022, end: 1024 };
        let last = position.next().unwrap();
        assert_eq!(last.token, 1023);
        assert_eq!(last.next(), None);
        assert_eq!(Position::default().next(), None);
        assert_eq!(Position { source: 1, token: u64::MAX, end: u64::MAX }.next(), None);
    }
}
