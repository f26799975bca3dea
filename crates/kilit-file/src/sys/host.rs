//! The host: its users, processes and file systems.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use rustix::{
    fs::{Access, StatVfs, StatVfsMountFlags, access, statfs, statvfs},
    process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal},
};

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether this user may read and write a file.
pub(crate) fn may_read_and_write(path: &Path) -> bool {
    access(path, Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// Whether this user may make files in a directory.
pub(crate) fn may_make_files_in(dir: &Path) -> bool {
    access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// The name of the file system of `path`, where its locks cannot be trusted between hosts.
pub(crate) fn distrusted(path: &Path) -> io::Result<Option<&'static str>> {
    Ok(kind_of(statfs(path)?.f_type as u32))
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

/// How a file system is mounted, and what is left there.
pub(crate) struct Room(StatVfs);

impl Room {
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self(statvfs(path)?))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.0.f_flag.contains(StatVfsMountFlags::RDONLY)
    }

    /// In bytes.
    pub(crate) fn space(&self) -> u64 {
        self.0.f_bavail.saturating_mul(self.0.f_frsize)
    }

    /// How many files can be made; `None` where they are not counted.
    pub(crate) fn files(&self) -> Option<u64> {
        (self.0.f_files > 0).then_some(self.0.f_favail)
    }
}

/// Kills a process, if `still` holds once its PID cannot be another's any more. Whether it was killed.
pub(crate) fn kill(pid: u32, still: impl FnOnce() -> bool) -> io::Result<bool> {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
    let Ok(handle) = pidfd_open(id, PidfdFlags::empty()) else { return Ok(false) };
    if !still() {
        return Ok(false);
    }
    pidfd_send_signal(&handle, Signal::KILL)?;
    Ok(true)
}

/// All processes that can be seen.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let listing = fs::read_dir("/proc").into_iter().flatten();
    listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// What a process has open, as far as this one may see it.
pub(crate) fn open_files(pid: u32) -> impl Iterator<Item = String> {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    listing.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
}

/// How many inotify instances this user has, and may have.
pub(crate) fn inotify_instances() -> Option<(usize, usize)> {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").ok()?.trim().parse().ok()?;
    let own = geteuid().as_raw();
    let ours = |pid: &u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == own);
    let used = pids().filter(ours).flat_map(open_files).filter(|link| link.contains("inotify")).count();
    Some((used, limit))
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
