//! Lock files that stay open between two holds of one name: to open and close one is most of what a hold costs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kilit_core::LockName;

use crate::{lock_file::LockFile, sys::files::max_open_files};

/// How many stay open, an engine, where the process may open eight times as many.
const MOST: usize = 256;

/// Open files that are not locked. Each is taken out to be locked, so one hold alone has it.
#[derive(Debug)]
pub(crate) struct Idle {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The last one, which is often the next: it needs no hash.
    last: Option<(LockName, Arc<LockFile>)>,
    /// Those before, with when they were kept, counted in files.
    files: HashMap<LockName, (u64, Arc<LockFile>)>,
    count: u64,
    process: u32,
}

impl Idle {
    /// None, and room for an eighth of what this process may open: the rest is the program's.
    pub(crate) fn new() -> Self {
        Self::within(MOST.min(max_open_files() / 8))
    }

    fn within(limit: usize) -> Self {
        Self { limit: limit.max(1), kept: Mutex::default() }
    }

    /// The file of this name, if one was kept by this `process`. What is locked through a file that was inherited by a
    /// fork is locked for parent and child alike, so a child starts with none.
    pub(crate) fn take(&self, name: &LockName, process: u32) -> Option<Arc<LockFile>> {
        let mut kept = self.kept();
        if kept.process != process {
            *kept = Kept { process, ..Kept::default() };
        }
        kept.take(name)
    }

    /// Keeps a file that was just unlocked by this `process`, instead of the one that was kept longest.
    pub(crate) fn keep(&self, name: &LockName, file: Arc<LockFile>, process: u32) {
        let mut kept = self.kept();
        let closed = if kept.process == process {
            let older = kept.take(name);
            kept.put(name, file);
            older.or_else(|| (kept.files.len() >= self.limit).then(|| kept.take_oldest()).flatten())
        } else {
            Some(file)
        };
        // Closing wakes whoever watches: not under the mutex.
        drop(kept);
        drop(closed);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn take(&mut self, name: &LockName) -> Option<Arc<LockFile>> {
        match self.last.take_if(|(last, _)| last == name) {
            Some((_, file)) => Some(file),
            None if self.files.is_empty() => None,
            None => self.files.remove(name).map(|(_, file)| file),
        }
    }

    fn put(&mut self, name: &LockName, file: Arc<LockFile>) {
        if let Some((name, file)) = self.last.replace((name.clone(), file)) {
            self.count += 1;
            self.files.insert(name, (self.count, file));
        }
    }

    fn take_oldest(&mut self) -> Option<Arc<LockFile>> {
        let (oldest, _) = self.files.iter().min_by_key(|(_, (count, _))| count)?;
        let oldest = oldest.clone();
        self.files.remove(&oldest).map(|(_, file)| file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays_open() {
        let temp = tempfile::tempdir().unwrap();
        let name = |n: u32| LockName::new(n.to_string()).unwrap();
        let file = |n: u32| Arc::new(LockFile::open(&temp.path().join(n.to_string())).unwrap());
        let idle = Idle::within(3);
        assert!(idle.take(&name(0), 1).is_none());
        (0..3).for_each(|n| idle.keep(&name(n), file(n), 1));
        let first = idle.take(&name(0), 1).unwrap();
        idle.keep(&name(0), first, 1);
        idle.keep(&name(3), file(3), 1);
        let kept: Vec<_> = (0..4).map(|n| idle.take(&name(n), 1).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
    }

    #[test]
    fn a_forked_child_starts_with_none() {
        let temp = tempfile::tempdir().unwrap();
        let name = LockName::new("x").unwrap();
        let file = Arc::new(LockFile::open(&temp.path().join("x")).unwrap());
        let idle = Idle::new();
        assert!(idle.take(&name, 1).is_none());
        idle.keep(&name, file.clone(), 1);
        assert!(idle.take(&name, 2).is_none());
        idle.keep(&name, file, 1);
        assert!(idle.take(&name, 2).is_none(), "nor has it one that its parent held");
    }
}
