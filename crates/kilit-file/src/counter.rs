//! Where tokens come from: one file a directory that hands out blocks, each on disk before a token of it is used.
//!
//! ```text
//!    0  "kilit file engine, format 1\nid <32 hexadecimal digits>\n"
//!  512  slot: generation u64, next token u64, crc u32 (little-endian)
//! 1024  slot: the same; the later generation counts
//! ```
//! The id and the counter are one file, so that they can only be lost together: a new file is a new token source, and
//! tokens of two sources have no order. A slot that is torn or damaged may have been the later one, so a block is
//! skipped; both damaged is an error, never a new start.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use kilit_core::{Error, ErrorKind, Mode, OwnerId, Result, Retry, TokenValue};

use crate::{
    failure::{failed, incompatible},
    layout,
    lock_file::try_lock,
    record::Position,
    sys::files,
};

/// How many tokens a block has: one flush for so many exclusive holds of one name. On a busy disk a flush takes as long
/// as a thousand of them.
pub(crate) const BLOCK: u64 = 32_768;

const HEADER: &str = "kilit file engine, format ";
const FORMAT: u32 = 1;
const SLOTS: [u64; 2] = [512, 1024];
const SLOT_LEN: usize = 20;

/// Another process keeps the counter locked for a flush, which takes milliseconds. Longer than this it is stopped.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    generation: u64,
    next: u64,
}

/// Draws a block for a name whose last position was `last`. Blocks for a flush: not for an async thread.
pub(crate) fn draw(path: &Path, last: Position) -> Result<Position> {
    let file = open(path)?;
    lock(&file, path)?;
    let source = read_id(&file, path)?;
    let read = SLOTS.map(|at| read_slot(&file, at).map_err(failed("read", path)));
    let [a, b] = read;
    let (latest, whole) = match (a?, b?) {
        (Some(a), Some(b)) => (if a.generation > b.generation { a } else { b }, true),
        (Some(one), None) | (None, Some(one)) => (one, false),
        (None, None) => return Err(damaged(path, "both of its slots are damaged")),
    };
    let start = if whole { latest.next } else { latest.next.saturating_add(BLOCK) };
    if last.source == source && last.end > start {
        return Err(damaged(path, "it has gone back: a lock file holds a later token"));
    }
    TokenValue::new(start)?;
    let end = start.saturating_add(BLOCK).min(TokenValue::MAX + 1);
    let slot = Slot { generation: latest.generation.wrapping_add(1), next: end };
    write_slot(&file, slot).and_then(|()| file.sync_data()).map_err(failed("write", path))?;
    Ok(Position { source, token: start, end })
}

/// The id of the source in this directory; `None` when there is none yet.
///
/// # Errors
/// `Incompatible` when the directory is of a later version of kilit.
pub(crate) fn source(path: &Path) -> Result<Option<u128>> {
    match files::open(path) {
        Ok(file) => read_id(&file, path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("open", path)(error)),
    }
}

/// Whether both slots are sound.
pub(crate) fn is_sound(file: &File) -> io::Result<bool> {
    Ok(read_slot(file, SLOTS[0])?.is_some() && read_slot(file, SLOTS[1])?.is_some())
}

fn open(path: &Path) -> Result<File> {
    loop {
        match files::open(path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(failed("make", path))?
            }
            Err(error) => return Err(failed("open", path)(error)),
        }
    }
}

/// Makes the file as a whole and gives it its name, unless another was quicker. On disk before anyone sees it.
fn make(path: &Path) -> io::Result<()> {
    let id = OwnerId::random();
    let temp = path.with_file_name(format!("counter.{id}.new"));
    let made = layout::create(&temp).and_then(|file| {
        file.write_all_at(format!("{HEADER}{FORMAT}\nid {id}\n").as_bytes(), 0)?;
        for generation in [0, 1] {
            write_slot(&file, Slot { generation, next: 1 })?;
        }
        file.sync_all()?;
        match fs::hard_link(&temp, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    });
    let removed = fs::remove_file(&temp);
    made?;
    removed?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

fn lock(file: &File, path: &Path) -> Result<()> {
    let start = Instant::now();
    while !try_lock(file, Mode::Exclusive).map_err(failed("lock", path))? {
        if start.elapsed() > PATIENCE {
            let message = format!(
                "another process keeps {} locked; it may be stopped: see `kilit doctor`",
                path.display().to_string().escape_debug()
            );
            return Err(Error::new(ErrorKind::Unreachable, message)
                .with_retry(Retry::Later)
                .on_engine("file"));
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(200..1000)));
    }
    Ok(())
}

fn read_id(file: &File, path: &Path) -> Result<u128> {
    let mut bytes = [0; 128];
    let len = file.read_at(&mut bytes, 0).map_err(failed("read", path))?;
    let text = str::from_utf8(&bytes[..len]).ok().and_then(|text| text.strip_prefix(HEADER));
    let mut lines = text.ok_or_else(|| damaged(path, "its first line is not kilit's"))?.lines();
    let format = lines.next().and_then(|line| line.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(incompatible(format!(
                "the directory has format {other}, and this kilit knows {FORMAT}: use a kilit that knows it"
            )));
        }
        None => return Err(damaged(path, "its format is no number")),
    }
    let id = lines.next().and_then(|line| u128::from_str_radix(line.strip_prefix("id ")?, 16).ok());
    id.filter(|id| *id != 0).ok_or_else(|| damaged(path, "its id is damaged"))
}

fn read_slot(file: &File, at: u64) -> io::Result<Option<Slot>> {
    let mut bytes = [0; SLOT_LEN];
    match file.read_exact_at(&mut bytes, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let (body, crc) = bytes.split_at(16);
    if crc32fast::hash(body).to_le_bytes() != crc {
        return Ok(None);
    }
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    Ok(Some(Slot { generation: number(&body[..8]), next: number(&body[8..]) }))
}

/// Writes the slot whose turn it is, never the later one of the two.
fn write_slot(file: &File, slot: Slot) -> io::Result<()> {
    let mut bytes = [0; SLOT_LEN];
    bytes[..8].copy_from_slice(&slot.generation.to_le_bytes());
    bytes[8..16].copy_from_slice(&slot.next.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&bytes, SLOTS[(slot.generation % 2) as usize])
}

fn damaged(path: &Path, why: &str) -> Error {
    incompatible(format!(
        "the token counter {} cannot be trusted: {why}. Tokens must not start again, so nothing is granted: restore \
         the file, or remove it, and tokens come from a new source that every fence has to be told of",
        path.display().to_string().escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, path::PathBuf};

    use super::*;

    fn counter() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("counter");
        (temp, path)
    }

    fn fresh(path: &Path) -> Result<Position> {
        draw(path, Position::default())
    }

    fn set_next(path: &Path, next: u64) {
        let file = open(path).unwrap();
        for generation in [10, 11] {
            write_slot(&file, Slot { generation, next }).unwrap();
        }
    }

    fn spoil(path: &Path, at: u64) {
        files::open(path).unwrap().write_all_at(&[0xaa], at + 9).unwrap();
    }

    #[test]
    fn blocks_are_disjoint_and_rise_whoever_draws() {
        let (_temp, path) = counter();
        let draw = || (0..20).map(|_| fresh(&path).unwrap()).collect::<Vec<_>>();
        let drawn: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(drawn.iter().all(|blocks| blocks.is_sorted_by(|a, b| a.end <= b.token)));
        let starts: HashSet<_> = drawn.iter().flatten().map(|block| block.token).collect();
        assert_eq!(starts, (0..160).map(|n| n * BLOCK + 1).collect());
        let sources: HashSet<_> = drawn.iter().flatten().map(|block| block.source).collect();
        assert_eq!(sources.len(), 1, "one id, however many made the file at once");
    }

    #[test]
    fn one_damaged_slot_skips_a_block_and_never_goes_back() {
        for at in SLOTS {
            let (_temp, path) = counter();
            fresh(&path).unwrap();
            let last = fresh(&path).unwrap();
            spoil(&path, at);
            assert!(fresh(&path).unwrap().token >= last.end);
            assert!(fresh(&path).unwrap().token >= last.end + BLOCK);
        }
    }

    #[test]
    fn damage_is_an_error_and_no_new_start() {
        let (_temp, path) = counter();
        fresh(&path).unwrap();
        SLOTS.into_iter().for_each(|at| spoil(&path, at));
        assert_eq!(fresh(&path).unwrap_err().kind(), ErrorKind::Incompatible);
        fs::write(&path, "").unwrap();
        assert_eq!(fresh(&path).unwrap_err().kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn a_counter_that_went_back_is_seen() {
        let (_temp, path) = counter();
        let first = fresh(&path).unwrap();
        let copy = fs::read(&path).unwrap();
        let later = (0..3).map(|_| fresh(&path).unwrap()).next_back().unwrap();
        fs::write(&path, copy).unwrap();
        assert_eq!(draw(&path, later).unwrap_err().kind(), ErrorKind::Incompatible);
        assert_eq!(draw(&path, first).unwrap().token, first.end);
    }

    #[test]
    fn a_later_format_is_refused() {
        let (_temp, path) = counter();
        fs::write(&path, "kilit file engine, format 2\nid 1\n").unwrap();
        assert!(fresh(&path).unwrap_err().to_string().contains("format 2"));
        assert_eq!(source(&path).unwrap_err().kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn the_range_ends_without_a_wrap() {
        let (_temp, path) = counter();
        set_next(&path, (1 << 53) - 1);
        assert_eq!(fresh(&path).unwrap().token, (1 << 53) - 1);
        set_next(&path, TokenValue::MAX - 1);
        let last = fresh(&path).unwrap();
        assert_eq!((last.token, last.next().unwrap().token), (TokenValue::MAX - 1, TokenValue::MAX));
        assert_eq!(last.next().unwrap().next(), None);
        for _ in 0..2 {
            assert_eq!(fresh(&path).unwrap_err().kind(), ErrorKind::Exhausted);
        }
    }

    #[test]
    fn one_file_lost_is_a_new_source() {
        let (_temp, path) = counter();
        let old = fresh(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_ne!(fresh(&path).unwrap().source, old.source);
    }
}
