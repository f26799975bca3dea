//! What endangers locks in this directory.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use kilit_core::{Finding, Level, Result};
use rustix::fs::{Access, StatVfsMountFlags, access, statfs, statvfs};

use crate::{
    aside::aside,
    counter,
    engine::FileSession,
    failure::failed,
    kernel,
    layout::{self, Layout},
    line::Line,
};

/// Below this there is too little room to count on.
const LITTLE_ROOM: u64 = 1 << 20;

/// The name of the file system that `dir` lies on, or will, when its locks cannot be trusted between hosts.
pub(crate) fn distrusted(dir: &Path) -> Result<Option<&'static str>> {
    let there = existing(dir);
    let found = statfs(there).map_err(|error| failed("look at", there)(error.into()))?;
    Ok(kind_of(found.f_type as u32))
}

/// File systems of other hosts, and those of user space, which decide for themselves what a lock is.
fn kind_of(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x6573_5546 => "FUSE",
        0x0102_1997 => "9p",
        0x00c3_6400 => "Ceph",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x7461_636f => "OCFS2",
        0x0116_1970 => "GFS2",
        0x0bd0_0bd0 => "Lustre",
        0x786f_4256 => "VirtualBox",
        _ => return None,
    })
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
        let Ok(stat) = statvfs(there) else { return };
        if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
            let text = format!("{} is on a read-only file system", there.display());
            self.add(Level::Danger, "read-only", text, "use another directory, or mount it writable");
        }
        if stat.f_bavail.saturating_mul(stat.f_frsize) < LITTLE_ROOM {
            let text = format!("the file system of {} has less than 1 MiB left", there.display());
            self.add(Level::Danger, "no-space", text, "make room: without it no token can be drawn");
        }
        if stat.f_files > 0 && stat.f_favail < 100 {
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
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
        let Ok(limit) = limit.trim().parse::<usize>() else { return };
        let used = inotify_instances();
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
            if access(dir, Access::WRITE_OK | Access::EXEC_OK).is_err() {
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
                let sound = layout::open(path).and_then(|file| counter::is_sound(&file));
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
            closed += usize::from(access(entry?.path(), Access::READ_OK | Access::WRITE_OK).is_err());
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
        for pid in pids() {
            for link in open_files(pid) {
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

fn inotify_instances() -> usize {
    let own = rustix::process::geteuid().as_raw();
    let ours = |pid: &u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == own);
    pids().filter(ours).flat_map(open_files).filter(|link| link.contains("inotify")).count()
}

fn pids() -> impl Iterator<Item = u32> {
    let listing = fs::read_dir("/proc").into_iter().flatten();
    listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn open_files(pid: u32) -> impl Iterator<Item = String> {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    listing.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_hosts_are_known_by_their_magic() {
        for magic in [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997] {
            assert!(kind_of(magic).is_some(), "{magic:x}");
        }
        // ext4, xfs, btrfs, tmpfs, overlay
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(kind_of(magic), None, "{magic:x}");
        }
    }
}
