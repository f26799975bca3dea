//! Lock files that stay open between two holds of one name: to open and close one is most of what a hold costs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kilit_core::LockName;

use crate::lock_file::LockFile;

/// How many stay open, an engine. A further one is closed.
const KEPT: usize = 16;

/// Open files that are not locked. Each is taken out to be locked, so one hold alone has it.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<LockName, Arc<LockFile>>,
    process: u32,
}

impl Idle {
    /// The file of this name, if one was kept by this `process`. What is locked through a file that was inherited by a
    /// fork is locked for parent and child alike, so a child starts with none.
    pub(crate) fn take(&self, name: &LockName, process: u32) -> Option<Arc<LockFile>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.process != process {
            *kept = Kept { files: HashMap::new(), process };
        }
        kept.files.remove(name)
    }

    /// Keeps a file that was just unlocked by this `process`.
    pub(crate) fn keep(&self, name: &LockName, file: Arc<LockFile>, process: u32) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = kept.files.len() < KEPT || kept.files.contains_key(name);
        let closed = if kept.process == process && has_room {
            kept.files.insert(name.clone(), file)
        } else {
            Some(file)
        };
        // Closing wakes whoever watches: not under the mutex.
        drop(kept);
        drop(closed);
    }
}
