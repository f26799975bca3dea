//! The line of those who wait for one lock, and the seats of those who share it.
//!
//! A place is a file that its owner keeps locked; the kernel unlocks it when the owner dies. Places are numbered, each
//! waiter watches the live one before its own, and only the first watches the lock file, so a release wakes one
//! process. Dead places are removed by whoever comes past.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use kilit_core::{LockName, Mode, sys::process_id};

use crate::{
    layout,
    lock_file::{LockFile, read_record, try_lock},
    record::{Card, MAX_LEN, Parsed, Position, Record, State, parse},
    sys::files::{self, Inode},
};

const SEAT: &str = "shared-";

/// A place is tried for so often: others who join at the same moment may be quicker, but not for ever.
const TRIES: usize = 1000;

/// The directory of one lock's line. It stays once it was made, as the lock file does: to make and remove one takes
/// longer than all else in a hand-over.
#[derive(Clone, Debug)]
pub(crate) struct Line(PathBuf);

/// A file that says: its owner is here. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Place {
    file: LockFile,
    number: u64,
    pid: u32,
}

/// All that lies in a line's directory.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// The numbers of the waiting, in order.
    pub(crate) waiting: Vec<u64>,
    /// The seats of shared holders.
    pub(crate) seats: Vec<PathBuf>,
}

impl Line {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn place_path(&self, number: u64) -> PathBuf {
        self.0.join(number.to_string())
    }

    pub(crate) fn seat_path(&self, owner: &str) -> PathBuf {
        self.0.join(format!("{SEAT}{owner}"))
    }

    /// Joins at the end.
    pub(crate) fn join(&self, name: &LockName, card: &Card<'_>) -> io::Result<Place> {
        let mut number = 0;
        for _ in 0..TRIES {
            number = self.entries()?.waiting.last().map_or(1, |last| last.saturating_add(1)).max(number);
            match self.settle(self.place_path(number), number, name, card)? {
                Some(place) => return Ok(place),
                None => number = number.saturating_add(1),
            }
        }
        Err(io::Error::other("what lies there leaves no place; remove what kilit has not made"))
    }

    /// Takes the seat of a shared holder.
    pub(crate) fn sit(&self, name: &LockName, card: &Card<'_>) -> io::Result<Place> {
        for _ in 0..TRIES {
            if let Some(seat) = self.settle(self.seat_path(card.owner_str()), 0, name, card)? {
                return Ok(seat);
            }
        }
        Err(io::Error::other("its seat is taken away again and again"))
    }

    /// Makes the file, locks it, and writes who it is. `None` when another has it, or took it for dead between the two
    /// first steps.
    fn settle(
        &self,
        path: PathBuf,
        number: u64,
        name: &LockName,
        card: &Card<'_>,
    ) -> io::Result<Option<Place>> {
        let file = match layout::create(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                layout::make_dir(&self.0)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let file = LockFile::from_file(file, &path)?;
        // Whoever holds it took it for dead, and removes it.
        if !file.try_lock(Mode::Exclusive)? || !file.is_current()? {
            return Ok(None);
        }
        let place = Place { file, number, pid: process_id() };
        place.file.write(0, Position::default(), card, State::Held, name)?;
        Ok(Some(place))
    }

    pub(crate) fn entries(&self) -> io::Result<Entries> {
        let mut entries = Entries::default();
        let listing = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(entries),
            listing => listing?,
        };
        for entry in listing {
            let entry = entry?;
            match entry.file_name().to_str() {
                Some(seat) if seat.starts_with(SEAT) => entries.seats.push(entry.path()),
                // A number that no line has ever come to is nobody's, and would leave none for the next.
                Some(number) => {
                    entries.waiting.extend(number.parse::<u64>().ok().filter(|n| *n < u64::MAX >> 1));
                }
                None => {}
            }
        }
        entries.waiting.sort_unstable();
        Ok(entries)
    }

    /// Whether a waiter is there who lives.
    pub(crate) fn has_waiters(&self) -> io::Result<bool> {
        for number in self.entries()?.waiting {
            if self.look_at(&self.place_path(number), false)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the owner of a place lives. A dead one is removed, unless `keep`.
    pub(crate) fn look_at(&self, path: &Path, keep: bool) -> io::Result<bool> {
        let file = match files::open_to_look(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        // Shared, so that two who look at the same time do not take each other for the owner.
        if !try_lock(&file, Mode::Shared)? {
            return Ok(true);
        }
        if !keep && let Err(error) = remove_dead(&file, path) {
            // Another user's, in a directory where each removes their own. It is dead all the same.
            tracing::debug!(%error, path = %path.display(), "a dead place stays behind");
        }
        Ok(false)
    }

    /// Takes the flag of a line without waiters down. Whoever joins first makes a place and then raises the flag, so
    /// one of the two sees the other. A seat in it keeps the flag up: its owner may vanish.
    pub(crate) fn lower_flag(&self, lock: &LockFile) -> io::Result<()> {
        if !self.entries()?.seats.is_empty() {
            return Ok(());
        }
        lock.lower_flag()?;
        let entries = self.entries()?;
        if !entries.seats.is_empty() || !entries.waiting.is_empty() {
            lock.raise_flag()?;
        }
        Ok(())
    }

    /// The seats of shared holders that vanished.
    pub(crate) fn dead_seats(&self) -> io::Result<Vec<DeadSeat>> {
        let mut dead = vec![];
        for path in self.entries()?.seats {
            let lock_delay = self.read(&path, |record| record.card.lock_delay)?.unwrap_or_default();
            if !self.look_at(&path, true)? {
                dead.push(DeadSeat { line: self.clone(), path, lock_delay });
            }
        }
        Ok(dead)
    }

    /// Calls `read` with what the owner of a place or seat has written; `None` when there is nothing (yet).
    pub(crate) fn read<T>(&self, path: &Path, read: impl FnOnce(&Record<'_>) -> T) -> io::Result<Option<T>> {
        let mut buffer = [0; MAX_LEN];
        let bytes = match read_record(path, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        match parse(bytes) {
            Parsed::Record(record) => Ok(Some(read(&record))),
            _ => Ok(None),
        }
    }
}

/// The seat of a shared holder that vanished.
pub(crate) struct DeadSeat {
    line: Line,
    path: PathBuf,
    pub(crate) lock_delay: Duration,
}

impl DeadSeat {
    pub(crate) fn remove(self) -> io::Result<()> {
        self.line.look_at(&self.path, false).map(|_| ())
    }
}

impl Place {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn file(&self) -> &LockFile {
        &self.file
    }

    /// Whether others can see it.
    pub(crate) fn is_current(&self) -> io::Result<bool> {
        self.file.is_current()
    }

    /// Removes the file, which wakes who watches it.
    pub(crate) fn leave(&self) {
        // A copy in a forked child leaves its parent's place alone.
        if self.pid != process_id() || !self.is_current().unwrap_or(false) {
            return;
        }
        // Unlinked while it is still locked: an unlocked one could be removed by another, and the path be a younger
        // place by now.
        let path = self.file.path();
        if let Err(error) = fs::remove_file(path) {
            tracing::debug!(%error, path = %path.display(), "a place stays behind");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Removes a place that `file` has found dead. Only one can have it exclusively, so only one unlinks, and never a
/// younger place of the same number.
fn remove_dead(file: &File, path: &Path) -> io::Result<()> {
    if try_lock(file, Mode::Exclusive)? && Inode::at(path)? == Some(Inode::of(file)?) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> (tempfile::TempDir, Line) {
        let temp = tempfile::tempdir().unwrap();
        let line = Line::new(temp.path().to_owned());
        (temp, line)
    }

    #[test]
    fn no_more_than_a_record_is_read() {
        let (_temp, line) = line();
        File::create(line.place_path(1)).unwrap().set_len(1 << 40).unwrap();
        assert!(line.read(&line.place_path(1), |_| ()).unwrap().is_none());
    }

    #[test]
    fn a_pipe_is_looked_at_without_waiting_for_its_other_end() {
        let (_temp, line) = line();
        let path = line.place_path(1);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(!line.look_at(&path, true).unwrap());
        assert!(line.read(&path, |_| ()).unwrap().is_none());
    }
}
