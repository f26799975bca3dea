//! What endangers locks in this directory.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use kilit_core::{Finding, Level, Result};

use crate::{
    aside::aside,
    counter,
    engine::FileSession,
    failure::failed,
    layout::Layout,
    line::Line,
    sys::{files, host, kernel},
};

/// Below this there is too little room to count on.
const LITTLE_ROOM: u64 = 1 << 20;

/// The name of the file system that `dir` lies on, or will, when its locks cannot be trusted between hosts.
pub(crate) fn distrusted(dir: &Path) -> Result<Option<&'static str>> {
    let there = existing(dir);
    host::distrusted(there).map_err(failed("look at", there))
}

fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"))
}

/// As [`Session::diagnose`](kilit_core::family::Session::diagnose). Changes nothing.
pub(crate) async fn diagnose(session: &FileSession) -> Result<Vec<Finding>> {
    let layout = session.layout.clone();
    aside("look through the directory", move || {
        let mut findings = Findings(vec![]);
        findings.file_system(&layout.dir);
        findings.inotify();
        if layout.dir.exists() {
            findings.directory(&layout);
            findings.counter(&layout.counter);
            findings.lock_files(&layout).map_err(failed("list", &layout.locks))?;
            findings.lines(&layout).map_err(failed("list", &layout.lines))?;
            findings.unlinked(&layout);
        } else {
            findings
                .info("directory-missing", format!("{} is made by the first claim", layout.dir.display()));
        }
        Ok(findings.0)
    })
    .await?
}

struct Findings(Vec<Finding>);

impl Findings {
    fn info(&mut self, id: &'static str, text: String) {
        self.add(Level::Info, id, text, "");
    }

    fn add(&mut self, level: Level, id: &'static str, text: String, fix: &str) {
        self.0.push(Finding { id, level, text, fix: fix.to_owned() });
    }

    fn file_system(&mut self, dir: &Path) {
        let there = existing(dir);
        match distrusted(dir) {
            Ok(None) => {}
            Ok(Some(name)) => self.add(
                Level::Danger,
                "network-file-system",
                format!("{} lies on a {name} file system: other hosts may not be excluded", dir.display()),
                "use a directory of a local file system",
            ),
            Err(error) => self.add(Level::Danger, "unreadable", error.to_string(), "see its owner and mode"),
        }
        let Ok(room) = host::Room::at(there) else { return };
        if room.is_read_only() {
            let text = format!("{} is on a read-only file system", there.display());
            self.add(Level::Danger, "read-only", text, "use another directory, or mount it writable");
        }
        if room.space() < LITTLE_ROOM {
            let text = format!("the file system of {} has less than 1 MiB left", there.display());
            self.add(Level::Danger, "no-space", text, "make room: without it no token can be drawn");
        }
        if room.files().is_some_and(|files| files < 100) {
            let text = format!("the file system of {} has less than 100 inodes left", there.display());
            self.add(Level::Danger, "no-inodes", text, "make room: each new lock name takes a file");
        }
        if ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|temporary| dir.starts_with(temporary)) {
            let text =
                format!("{} is in a directory for temporary files, which cleaners empty", dir.display());
            self.add(
                Level::Warn,
                "temporary-directory",
                text,
                "use another directory: a holder whose file is removed loses its lock",
            );
        }
    }

    fn inotify(&mut self) {
        let Some((used, limit)) = host::inotify_instances() else { return };
        if used + used / 8 >= limit {
            self.add(
                Level::Warn,
                "inotify-instances",
                format!("{used} of {limit} inotify instances of this user are in use; each engine needs one"),
                "raise fs.inotify.max_user_instances: without one, waiters look once a second instead",
            );
        }
    }

    fn directory(&mut self, layout: &Layout) {
        for dir in [&layout.dir, &layout.locks, &layout.lines] {
            let Ok(meta) = fs::metadata(dir) else { continue };
            let mode = meta.permissions().mode();
            if mode & 0o002 != 0 && mode & 0o1000 == 0 {
                let text = format!("everybody may remove files in {}", dir.display());
                self.add(
                    Level::Danger,
                    "directory-open",
                    text,
                    "take the right to write from others, or set the sticky bit",
                );
            }
            if !host::may_make_files_in(dir) {
                let text = format!("this user may not make files in {}", dir.display());
                self.add(Level::Danger, "not-writable", text, "see its owner and mode");
            }
        }
        if layout.dir.join("LOCKS").exists() {
            let text = format!("the file system of {} folds case", layout.dir.display());
            self.add(
                Level::Danger,
                "case-folding",
                text,
                "use another directory: names that differ in case only are refused here",
            );
        }
        if kernel::pid_namespace().is_none() {
            let text = "/proc is not mounted: holders of other programs cannot be named".to_owned();
            self.add(Level::Warn, "no-proc", text, "mount /proc");
        }
    }

    fn counter(&mut self, path: &Path) {
        match counter::source(path) {
            Err(error) => {
                self.add(
                    Level::Danger,
                    "counter",
                    error.to_string(),
                    "see the file; nothing is granted until then",
                );
            }
            Ok(None) => {}
            Ok(Some(_)) => {
                let sound = files::open(path).and_then(|file| counter::is_sound(&file));
                if !sound.unwrap_or(false) {
                    let text = "one or both slots of the token counter are damaged".to_owned();
                    self.add(
                        Level::Warn,
                        "counter-slot",
                        text,
                        "see the disk; one damaged slot costs a block of tokens",
                    );
                }
            }
        }
    }

    fn lock_files(&mut self, layout: &Layout) -> io::Result<()> {
        let (mut count, mut closed) = (0, 0);
        for entry in listing(&layout.locks)? {
            count += 1;
            closed += usize::from(!host::may_read_and_write(&entry?.path()));
        }
        if count > 0 {
            self.info("lock-files", format!("{count} lock names were ever used; a file of each stays"));
        }
        if closed > 0 {
            let text = format!("{closed} lock files cannot be opened for reading and writing by this user");
            self.add(Level::Danger, "file-permissions", text, "give all users of a lock the right to both");
        }
        Ok(())
    }

    fn lines(&mut self, layout: &Layout) -> io::Result<()> {
        let mut dead = 0;
        for entry in listing(&layout.lines)? {
            let line = Line::new(entry?.path());
            let entries = line.entries()?;
            let places = entries.waiting.iter().map(|number| line.place_path(*number)).chain(entries.seats);
            for place in places {
                dead += usize::from(!line.look_at(&place, true)?);
            }
        }
        if dead > 0 {
            self.info(
                "dead-places",
                format!("{dead} waiters or shared holders died; the next who comes tidies up"),
            );
        }
        let drafts = listing(&layout.dir)?
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "new"));
        let drafts = drafts.count();
        if drafts > 0 {
            self.info("drafts", format!("{drafts} counter.*.new files stayed behind; they may be removed"));
        }
        Ok(())
    }

    /// Lock files that somebody has locked, and nobody can find any more.
    fn unlinked(&mut self, layout: &Layout) {
        let prefix = layout.locks.display().to_string();
        for pid in host::pids() {
            for link in host::open_files(pid) {
                let Some(path) = link.strip_suffix(" (deleted)") else { continue };
                if path.starts_with(&prefix) && path.ends_with(".lock") {
                    let text = format!("process {pid} has {} open, which was removed", path.escape_debug());
                    self.add(
                        Level::Danger,
                        "unlinked-lock-file",
                        text,
                        "find what removes lock files: a holder of one excludes nobody any more",
                    );
                }
            }
        }
    }
}

fn listing(dir: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<fs::DirEntry>>>> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(std::iter::empty())),
        listing => Ok(Box::new(listing?)),
    }
}
