//! Wake-ups: one inotify instance an engine, and a watch a waiter. A wake-up is a hint; whoever has it looks again.

use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kilit_core::sys::Readable;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::{sync::Notify, task::AbortHandle};

/// What there is to hear of a lock file: it was closed or rung (see `LockFile::ring`), unlinked or moved. Of a place:
/// only its owner has it open to write, and unlinks it when leaving.
const LOCK: WatchFlags =
    WatchFlags::CLOSE.union(WatchFlags::ATTRIB).union(WatchFlags::MOVE_SELF).union(WatchFlags::ONESHOT);
const PLACE: WatchFlags =
    WatchFlags::CLOSE_WRITE.union(WatchFlags::ATTRIB).union(WatchFlags::MOVE_SELF).union(WatchFlags::ONESHOT);

/// The engine's inotify instance, made when the first waiter needs it.
#[derive(Debug)]
pub(crate) struct Watcher {
    running: Mutex<Option<Running>>,
    warned: AtomicBool,
    init: fn() -> io::Result<OwnedFd>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self::new(|| Ok(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?))
    }
}

#[derive(Debug)]
struct Running {
    instance: Arc<Instance>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Instance {
    inotify: Readable,
    waiters: Mutex<HashMap<i32, Vec<Arc<Notify>>>>,
}

/// One waiter's watch. It fires once.
#[derive(Debug)]
pub(crate) struct Watch {
    instance: Arc<Instance>,
    id: i32,
    notify: Arc<Notify>,
}

impl Watcher {
    /// With a way to make the instance, so that a test can refuse it.
    pub(crate) fn new(init: fn() -> io::Result<OwnedFd>) -> Self {
        Self { running: Mutex::default(), warned: AtomicBool::new(false), init }
    }

    /// Watches a lock file. `None` where that is not possible: then the caller's own look has to do.
    pub(crate) fn lock(&self, path: &Path) -> Option<Watch> {
        self.watch(path, LOCK)
    }

    /// Watches a waiter's place.
    pub(crate) fn place(&self, path: &Path) -> Option<Watch> {
        self.watch(path, PLACE)
    }

    fn watch(&self, path: &Path, what: WatchFlags) -> Option<Watch> {
        match self.instance().and_then(|instance| instance.watch(path, what)) {
            Ok(watch) => Some(watch),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        "no inotify watch: waiters look once a second instead; see fs.inotify.max_user_instances \
                         and max_user_watches"
                    );
                }
                None
            }
        }
    }

    fn instance(&self) -> io::Result<Arc<Instance>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(running.instance.clone());
        }
        let inotify = Readable::new((self.init)()?)?;
        let instance = Arc::new(Instance { inotify, waiters: Mutex::default() });
        let task = tokio::spawn(listen(instance.clone())).abort_handle();
        *running = Some(Running { instance: instance.clone(), task });
        Ok(instance)
    }
}

impl Instance {
    fn watch(self: Arc<Self>, path: &Path, what: WatchFlags) -> io::Result<Watch> {
        // Held across both steps, so that an event cannot come between them.
        let mut waiters = self.waiters();
        let id = inotify::add_watch(self.inotify.fd(), path, what)?;
        let notify = Arc::new(Notify::new());
        waiters.entry(id).or_default().push(notify.clone());
        drop(waiters);
        Ok(Watch { instance: self, id, notify })
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Notify>>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch has fired and is gone. When events were dropped, every watch may have.
    fn fired(&self, id: i32, dropped: bool) {
        let mut waiters = self.waiters();
        let woken = if dropped {
            waiters.values().flatten().cloned().collect()
        } else {
            waiters.remove(&id).unwrap_or_default()
        };
        woken.iter().for_each(|notify| notify.notify_one());
    }
}

impl Watch {
    /// Returns when it has fired. Cancel safe.
    pub(crate) async fn fired(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waiters = self.instance.waiters();
        let Some(others) = waiters.get_mut(&self.id) else { return };
        others.retain(|notify| !Arc::ptr_eq(notify, &self.notify));
        if others.is_empty() {
            waiters.remove(&self.id);
            // It may have fired already, and be gone.
            let _ = inotify::remove_watch(self.instance.inotify.fd(), self.id);
        }
    }
}

async fn listen(instance: Arc<Instance>) {
    loop {
        let read = instance.inotify.read_with(|fd| {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(fd, &mut buffer);
            loop {
                let event = reader.next()?;
                instance.fired(event.wd(), event.events().contains(ReadFlags::QUEUE_OVERFLOW));
            }
        });
        let read: io::Result<()> = read.await;
        if let Err(error) = read {
            // The runtime is shutting down; what is left of the waiters looks by itself.
            tracing::debug!(%error, "inotify ended");
            return;
        }
    }
}
