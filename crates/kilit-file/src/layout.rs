//! Where the files are, and whose they are.
//!
//! The engine's directory is made with mode 0700: its user's own. To share it between users, make it beforehand with
//! the group and the mode that it shall have (2770, say): everything inside takes its permissions, whatever the umask.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use kilit_core::LockName;

use crate::{line::Line, sys::files};

/// A file name has 255 bytes at most, and a lock file's ends in `.lock`.
const MAX_STEM: usize = 250;

/// The paths inside one directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) counter: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) lines: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { counter: dir.join("counter"), locks: dir.join("locks"), lines: dir.join("lines"), dir }
    }

    /// The file that is locked.
    pub(crate) fn lock(&self, name: &LockName) -> PathBuf {
        let mut file = name.encoded_within(MAX_STEM);
        file.push_str(".lock");
        self.locks.join(file)
    }

    /// Those who wait for it.
    pub(crate) fn line(&self, name: &LockName) -> Line {
        Line::new(self.lines.join(name.encoded_within(MAX_STEM)))
    }

    /// The name that a lock file's name says, unless it is a hash.
    pub(crate) fn name_of(file: &OsStr) -> Option<LockName> {
        LockName::decode(file.to_str()?.strip_suffix(".lock")?)
    }

    /// Does something in the directories, and makes them when they are missing. Safe to be done by many at once.
    pub(crate) fn with_dirs<T>(&self, something: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match something() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make()?;
                something()
            }
            done => done,
        }
    }

    fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        make_dir(&self.locks)?;
        make_dir(&self.lines)
    }
}

/// Makes a directory with the permissions of its parent, unless it is there.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    let mode = mode_of_parent(path)?;
    match DirBuilder::new().mode(mode).create(path) {
        // The umask may have taken some of it away.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a new file with the permissions of its directory.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mode = mode_of_parent(path)? & 0o666;
    let file = files::create(path, mode)?;
    if file.metadata()?.permissions().mode() & 0o777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(file)
}

fn mode_of_parent(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path.parent().unwrap_or(path))?.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_the_directory_or_is_too_long_for_a_file() {
        let layout = Layout::new("/d".into());
        let mut seen = std::collections::HashSet::new();
        for name in [
            "a/b",
            "a//b",
            "/a",
            "a/",
            ".",
            "..",
            "...",
            "a.b",
            "\0",
            "\r\nSET x 1",
            "é",
            "e\u{301}",
            "a%2Fb",
            "A",
            "a",
            "-n",
            "counter",
            &"x".repeat(512),
            &format!("{}y", "x".repeat(511)),
            &"x".repeat(255),
            &"x".repeat(256),
        ] {
            let name = LockName::new(name).unwrap();
            let path = layout.lock(&name);
            assert_eq!(path.parent(), Some(Path::new("/d/locks")), "{name}");
            let file = path.file_name().unwrap();
            assert!(file.len() <= 255, "{name}");
            assert!(seen.insert(path.clone()), "{name}");
            if file.len() < 200 && !file.to_str().unwrap().starts_with("%sha256-") {
                assert_eq!(Layout::name_of(file), Some(name));
            }
        }
    }

    #[test]
    fn files_take_the_permissions_of_the_directory() {
        let temp = tempfile::tempdir().unwrap();
        for (dir_mode, file_mode) in [(0o700, 0o600), (0o2770, 0o660), (0o1777, 0o666)] {
            let dir = temp.path().join(format!("{dir_mode:o}"));
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, Permissions::from_mode(dir_mode)).unwrap();
            let layout = Layout::new(dir);
            layout.make().unwrap();
            let file = create(&layout.locks.join("x.lock")).unwrap();
            let mode = |meta: fs::Metadata| meta.permissions().mode() & 0o7777;
            assert_eq!(mode(file.metadata().unwrap()), file_mode);
            assert_eq!(mode(fs::metadata(&layout.locks).unwrap()), dir_mode);
        }
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("target"), "").unwrap();
        std::os::unix::fs::symlink("target", temp.path().join("link")).unwrap();
        assert!(files::open(&temp.path().join("link")).is_err());
    }
}
