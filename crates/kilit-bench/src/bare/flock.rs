//! A file, opened and locked.

use std::{
    fs::{File, OpenOptions},
    io,
    path::PathBuf,
};

/// The file. Nobody knows who waits for it, and nobody is woken in turn.
#[derive(Clone)]
pub(crate) struct Flock(pub(crate) PathBuf);

impl Flock {
    pub(crate) fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.0)
    }

    /// Takes it, where nobody else wants it, and gives it back.
    pub(crate) fn turn(&self) -> io::Result<()> {
        let file = self.open()?;
        file.try_lock()?;
        file.unlock()
    }
}
