//! Lock files that stay open between two holds of one name: to open and close one is most of what a hold costs.

use std::sync::{Arc, Mutex, PoisonError};

use kilit_core::LockName;

use crate::lock_file::LockFile;

/// How many stay open, an engine. A further one is closed.
const KEPT: usize = 16;

/// Open files that are not locked. Each is taken out to be locked, so one hold alone has it.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// One of each name. So few are searched sooner than a name is hashed.
    files: Vec<(LockName, Arc<LockFile>)>,
    process: u32,
}

impl Idle {
    /// The file of this name, if one was kept by this `process`. What is locked through a file that was inherited by a
    /// fork is locked for parent and child alike, so a child starts with none.
    pub(crate) fn take(&self, name: &LockName, process: u32) -> Option<Arc<LockFile>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.process != process {
            *kept = Kept { files: Vec::with_capacity(KEPT), process };
        }
        kept.take(name)
    }

    /// Keeps a file that was just unlocked by this `process`.
    pub(crate) fn keep(&self, name: &LockName, file: Arc<LockFile>, process: u32) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = if kept.process == process {
            let older = kept.take(name);
            if kept.files.len() < KEPT {
                kept.files.push((name.clone(), file));
                older
            } else {
                Some(file)
            }
        } else {
            Some(file)
        };
        // Closing wakes whoever watches: not under the mutex.
        drop(kept);
        drop(closed);
    }
}

impl Kept {
    fn take(&mut self, name: &LockName) -> Option<Arc<LockFile>> {
        let at = self.files.iter().position(|(kept, _)| kept == name)?;
        Some(self.files.swap_remove(at).1)
    }
}
