//! One file that is locked: a lock, a waiter's place or a shared holder's seat.

use std::{
    ffi::{CString, OsStr},
    fs::{File, TryLockError},
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

use crate::{
    layout,
    record::{self, Card, Origin, Position, State},
    sys::files::{self, Inode, touch},
};
use kilit_core::{LockName, Mode, Moment};

/// An open lock file. Closing it lets go of what is locked through it, unless a duplicate is open elsewhere.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    /// As the kernel wants it, which is asked about it with every hold.
    path: CString,
    inode: Inode,
}

impl LockFile {
    /// Opens the file, and makes it when it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        loop {
            let file = match files::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => match layout::create(path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    created => created?,
                },
                opened => opened?,
            };
            return Self::from_file(file, path);
        }
    }

    /// Opens the file; `None` when it is missing.
    pub(crate) fn open_only(path: &Path) -> io::Result<Option<Self>> {
        match files::open(path) {
            Ok(file) => Self::from_file(file, path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn from_file(file: File, path: &Path) -> io::Result<Self> {
        let (inode, path) = (Inode::of(&file)?, CString::new(path.as_os_str().as_bytes())?);
        Ok(Self { file, path, inode })
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.as_bytes()))
    }

    pub(crate) fn inode(&self) -> Inode {
        self.inode
    }

    /// The file that its records are good for.
    pub(crate) fn origin(&self, boot: u128) -> Origin {
        Origin { boot, inode: self.inode.number, born: self.inode.born }
    }

    /// Locks it, or changes the mode; `false` when another has it. Never waits.
    pub(crate) fn try_lock(&self, mode: Mode) -> io::Result<bool> {
        try_lock(&self.file, mode)
    }

    /// Lets go, also when a duplicate is open elsewhere.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }

    /// Wakes who watches the file: letting go without closing is no event by itself.
    pub(crate) fn ring(&self) {
        // Not ours to touch, perhaps; then the watcher's own look finds it.
        let _ = touch(&self.file);
    }

    /// Whether the path still leads to this file. After locking it must: else others lock another one.
    pub(crate) fn is_current(&self) -> io::Result<bool> {
        Ok(Inode::at(&*self.path)? == Some(self.inode))
    }

    /// Looks at it without its path. Cheaper than [`is_current`](Self::is_current), and blind to a file that was moved
    /// aside.
    pub(crate) fn look(&self) -> io::Result<Look> {
        let (links, len) = files::links_and_len(&self.file)?;
        Ok(Look { linked: links > 0, flagged: len >= record::FLAGGED_LEN as u64 })
    }

    /// Reads all of it that matters.
    pub(crate) fn read<'b>(
        &self,
        buffer: &'b mut [MaybeUninit<u8>; record::FLAGGED_LEN],
    ) -> io::Result<&'b [u8]> {
        files::read_at(&self.file, buffer, 0)
    }

    /// Writes the record, in one write.
    pub(crate) fn write(
        &self,
        boot: u128,
        position: Position,
        card: &Card<'_>,
        state: State,
        name: &LockName,
    ) -> io::Result<()> {
        let mut buffer = [0; record::MAX_LEN];
        let record = record::encode(&mut buffer, state, self.origin(boot), position, card, name);
        files::write_all_at(&self.file, record, record::RECORD_AT)
    }

    /// Notes how the hold ended.
    pub(crate) fn mark(&self, state: State) -> io::Result<()> {
        files::write_all_at(&self.file, &[state as u8], record::STATE_AT)
    }

    /// Keeps the lock closed until `moment`, whoever comes.
    pub(crate) fn close_until(&self, moment: Moment) -> io::Result<()> {
        files::write_all_at(&self.file, &moment.as_nanos().to_le_bytes(), record::CLOSED_AT)
    }

    /// Says that the line is worth a look, unless that is said already.
    pub(crate) fn raise_flag(&self) -> io::Result<()> {
        if self.look()?.flagged { Ok(()) } else { self.file.set_len(record::FLAGGED_LEN as u64) }
    }

    /// Takes that back.
    pub(crate) fn lower_flag(&self) -> io::Result<()> {
        self.file.set_len(record::MAX_LEN as u64)
    }

    /// Asks the hold of `owner` to stop.
    pub(crate) fn ask_to_stop(&self, owner: &record::OwnerText) -> io::Result<()> {
        files::write_all_at(&self.file, owner, record::BREAK_AT)
    }

    /// A second descriptor of the same lock.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }
}

/// What an open lock file shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Whether any path leads to it: after a removal or a replacement, none does.
    pub(crate) linked: bool,
    /// Whether its line is worth a look.
    pub(crate) flagged: bool,
}

/// What a record may have of a file, which may be of any length.
pub(crate) fn read_record<'b>(path: &Path, buffer: &'b mut [u8; record::MAX_LEN]) -> io::Result<&'b [u8]> {
    let len = io::Read::read(&mut files::open_to_look(path)?, buffer)?;
    Ok(&buffer[..len])
}

/// Locks `file`; `false` when another has it, and only then.
pub(crate) fn try_lock(file: &File, mode: Mode) -> io::Result<bool> {
    loop {
        let tried = if mode == Mode::Exclusive { file.try_lock() } else { file.try_lock_shared() };
        return match tried {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(TryLockError::Error(error)) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_shows_to_who_reads_and_to_who_looks_until_it_is_lowered() {
        let temp = tempfile::tempdir().unwrap();
        let file = LockFile::open(&temp.path().join("x.lock")).unwrap();
        let is_flagged = || {
            let looked = file.look().unwrap().flagged;
            let mut buffer = [MaybeUninit::uninit(); record::FLAGGED_LEN];
            assert_eq!(record::is_flagged(file.read(&mut buffer).unwrap()), looked);
            looked
        };
        assert!(!is_flagged());
        file.raise_flag().unwrap();
        assert!(is_flagged());
        let (name, note) = (LockName::new([b'x'; LockName::MAX_LEN]).unwrap(), "n".repeat(256));
        let card = Card { note: &note, ..Card::nobody() };
        file.write(0, Position::default(), &card, State::Held, &name).unwrap();
        assert!(is_flagged());
        file.lower_flag().unwrap();
        assert!(!is_flagged());
        file.write(0, Position::default(), &card, State::Held, &name).unwrap();
        assert!(!is_flagged(), "no record is as long");
    }
}
