//! Files: how they are opened, and what tells one from another.

use std::{
    fs::{File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, OFlags, Statx, StatxFlags, Timespec, Timestamps, UTIME_NOW, futimens, statx},
    io::{Errno, pread, pwrite, retry_on_intr},
    path::Arg,
    process::{Resource, getrlimit},
};

/// What tells one file from another that later had its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) device: (u32, u32),
    pub(crate) number: u64,
    /// When it was made, in nanoseconds; zero where the file system does not know. Numbers come back.
    pub(crate) born: u64,
}

/// No times but that of birth: a time that was asked for makes the next write dearer.
const IDENTITY: StatxFlags = StatxFlags::INO.union(StatxFlags::BTIME);

impl Inode {
    /// The inode of an open file.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(statx(file, c"", AtFlags::EMPTY_PATH, IDENTITY)?.into())
    }

    /// What the path leads to now; `None` when to nothing.
    pub(crate) fn at(path: impl Arg) -> io::Result<Option<Self>> {
        match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, IDENTITY) {
            Ok(found) => Ok(Some(found.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<Statx> for Inode {
    fn from(found: Statx) -> Self {
        let known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born =
            known.then(|| found.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(found.stx_btime.tv_nsec));
        Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            number: found.stx_ino,
            born: born.unwrap_or_default(),
        }
    }
}

/// How many paths lead to an open file, and how long it is.
pub(crate) fn links_and_len(file: &File) -> io::Result<(u32, u64)> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK.union(StatxFlags::SIZE))?;
    Ok((found.stx_nlink, found.stx_size))
}

/// How many files this process may have open.
pub(crate) fn max_open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
}

/// Changes a file's times and nothing else, which is an event to who watches it.
pub(crate) fn touch(file: &File) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Ok(futimens(file, &Timestamps { last_access: now, last_modification: now })?)
}

/// As [`FileExt::read_at`], without the C library's preparations for a thread that is cancelled meanwhile.
/// Nor does the buffer need a value before.
pub(crate) fn read_at<'b>(file: &File, buffer: &'b mut [MaybeUninit<u8>], at: u64) -> io::Result<&'b [u8]> {
    Ok(pread(file, buffer, at)?.0)
}

/// As [`FileExt::write_all_at`], likewise.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let written = retry_on_intr(|| pwrite(file, bytes, at))?;
    // The rest, where there is one: the disk is full, say.
    file.write_all_at(&bytes[written..], at + written as u64)
}

/// Opens a file to read and write, as flock wants it everywhere. Never through a symbolic link, and not inherited by
/// children.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without a note of the time of reading, which would be a write to disk for each; that is the owner's to ask for.
    match options(OFlags::NOATIME).open(path) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            options(OFlags::empty()).open(path)
        }
        opened => opened,
    }
}

/// Opens a file to read it, without waiting for the other end of a pipe.
pub(crate) fn open_to_look(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Makes a new file.
pub(crate) fn create(path: &Path, mode: u32) -> io::Result<File> {
    options(OFlags::empty()).create_new(true).mode(mode).open(path)
}

fn options(flags: OFlags) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags((OFlags::NOFOLLOW | flags).bits() as i32);
    options
}
