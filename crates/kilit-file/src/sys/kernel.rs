//! What the kernel says of the locks it keeps: `/proc/locks`, and `/proc/PID/fdinfo` for who shares one.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    os::fd::AsRawFd,
    path::Path,
    time::Duration,
};

use kilit_core::{Mode, OwnerId, sys};

use crate::{lock_file::try_lock, sys::files::Inode};

/// The first PID namespace has this inode in every kernel.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Where this process runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// The kernel's boot id.
    pub(crate) boot: u128,
    /// Zero when unknown.
    pub(crate) pid_namespace: u64,
}

impl Here {
    pub(crate) fn find() -> Self {
        let boot = sys::boot_id().and_then(|id| u128::from_str_radix(&id.replace('-', ""), 16).ok());
        // Without one, an id of our own: then nobody trusts another's position, and each grant draws a block.
        let random = || u128::from_str_radix(&OwnerId::random().to_string(), 16).unwrap_or_default();
        Self { boot: boot.unwrap_or_else(random), pid_namespace: pid_namespace().unwrap_or_default() }
    }
}

/// One flock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flock {
    pub(crate) pid: u32,
    pub(crate) mode: Mode,
}

/// All flocks of one file system that this process can see.
#[derive(Debug)]
pub(crate) struct Table {
    flocks: HashMap<u64, Vec<Flock>>,
    /// The device as the kernel writes it, which `stat` does not tell on every file system.
    device: Option<String>,
    /// Whether it shows all there are: from within a container, it does not.
    pub(crate) complete: bool,
    /// Keeps `locks` locked while the table is in use: who finds a lock busy can tell a probe from a holder.
    _guard: fs::File,
}

impl Table {
    /// Reads the kernel's table. A lock of our own, on the directory of lock files, shows whether it can be trusted and
    /// how the kernel calls the device. Where it cannot, the table is empty and not complete.
    pub(crate) fn read(locks: &Path) -> io::Result<Self> {
        let guard = fs::File::open(locks)?;
        // A claim may be keeping probes off, for as long as it tries.
        let mut tries = 0..1000;
        while !try_lock(&guard, Mode::Shared)? && tries.next().is_some() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let own = fs::read_to_string(format!("/proc/self/fdinfo/{}", guard.as_raw_fd())).unwrap_or_default();
        let ours = locks_in(&own).find(|(.., flock)| flock.pid == std::process::id());
        let device = ours.map(|(device, ..)| device.to_owned());
        let complete = device.is_some() && pid_namespace() == Some(FIRST_PID_NAMESPACE);
        let mut table = Self { flocks: HashMap::new(), device, complete, _guard: guard };
        table.read_again();
        Ok(table)
    }

    /// Looks again.
    pub(crate) fn read_again(&mut self) {
        self.flocks.clear();
        let Some(device) = self.device.as_deref() else { return };
        let text = all_locks();
        for (_, inode, flock) in text.lines().filter_map(parse).filter(|(on, ..)| *on == device) {
            let flocks = self.flocks.entry(inode).or_default();
            if !flocks.contains(&flock) {
                flocks.push(flock);
            }
        }
    }

    /// The flocks on one file, those of one process in one mode counted once.
    pub(crate) fn on(&self, inode: Inode) -> &[Flock] {
        self.flocks.get(&inode.number).map_or(&[], Vec::as_slice)
    }

    /// The processes that keep a lock on `inode`, the taker and whoever has a duplicate of its descriptor.
    pub(crate) fn keepers(&self, inode: Inode) -> Vec<u32> {
        let Ok(listing) = fs::read_dir("/proc") else { return vec![] };
        let pids = listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| self.keeps(*pid, inode)).collect()
    }

    /// Whether a process keeps a lock on `inode`.
    pub(crate) fn keeps(&self, pid: u32, inode: Inode) -> bool {
        let Ok(listing) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
        listing.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok()).any(|text| {
            locks_in(&text)
                .any(|(device, number, _)| Some(device) == self.device.as_deref() && number == inode.number)
        })
    }
}

/// `/proc/locks`. The kernel gives it a page at a time, and it may change in between, so that a line is missing or comes
/// twice. When it is longer than a page, what any of a few readings shows counts.
fn all_locks() -> String {
    const ENDED: usize = 3900;
    let (mut text, mut page) = (String::new(), vec![0; 1 << 16]);
    for _ in 0..3 {
        let Ok(mut file) = fs::File::open("/proc/locks") else { break };
        let mut pages = 0;
        loop {
            let len = file.read(&mut page).unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(&page[..len]));
            pages += 1;
            // Reading on at the end could give the last lines again.
            if len < ENDED {
                break;
            }
        }
        if pages == 1 {
            break;
        }
    }
    text
}

/// The locks of an open file, as its `fdinfo` shows them.
fn locks_in(fdinfo: &str) -> impl Iterator<Item = (&str, u64, Flock)> {
    fdinfo.lines().filter_map(|line| parse(line.strip_prefix("lock:\t")?))
}

/// Keeps `inspect` from having any lock for a moment, until what it returns is dropped. `None`: it may have one now.
pub(crate) fn without_probes(locks: &Path) -> io::Result<Option<fs::File>> {
    let guard = fs::File::open(locks)?;
    Ok(try_lock(&guard, Mode::Exclusive)?.then_some(guard))
}

/// The inode of this process's PID namespace.
pub(crate) fn pid_namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; one that is still waited for has an arrow behind its number.
fn parse(line: &str) -> Option<(&str, u64, Flock)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let mode = match words.nth(1)? {
        "WRITE" => Mode::Exclusive,
        _ => Mode::Shared,
    };
    let pid = words.next()?.parse().ok()?;
    let (device, inode) = words.next()?.rsplit_once(':')?;
    Some((device, inode.parse().ok()?, Flock { pid, mode }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_file::LockFile;

    #[test]
    fn lines_of_the_kernel() {
        let flock = parse("1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF");
        assert_eq!(flock, Some(("fe:00", 1234, Flock { pid: 4711, mode: Mode::Exclusive })));
        assert_eq!(parse("7: FLOCK  ADVISORY  READ 1 00:1c:9 0 EOF").unwrap().2.mode, Mode::Shared);
        assert_eq!(parse("1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), None);
        assert_eq!(parse("2: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn our_own_lock_is_in_the_table() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.lock");
        let file = LockFile::open(&path).unwrap();
        assert!(file.try_lock(Mode::Exclusive).unwrap());
        let table = Table::read(temp.path()).unwrap();
        let own = std::process::id();
        assert_eq!(table.on(file.inode()), [Flock { pid: own, mode: Mode::Exclusive }]);
        assert_eq!(table.keepers(file.inode()), [own]);
        assert!(without_probes(temp.path()).unwrap().is_none());
        drop(table);
        assert!(without_probes(temp.path()).unwrap().is_some());
    }
}
