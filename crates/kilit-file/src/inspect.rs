//! Who holds and who waits. The kernel says who holds; the records say what is known of them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use kilit_core::{FencingToken, Holder, LockName, LockStatus, Mode, Result, TokenValue, Waiter};

use crate::{
    engine::FileSession,
    failure::failed,
    layout::Layout,
    line::Line,
    lock_file::{LockFile, read_record},
    record::{Card, MAX_LEN, Parsed, Record, State, parse},
    sys::{
        files::Inode,
        kernel::{Flock, Table},
    },
};

/// As [`Session::inspect`](kilit_core::family::Session::inspect). Makes nothing.
pub(crate) fn inspect(session: &FileSession, name: Option<&LockName>) -> Result<Vec<LockStatus>> {
    let locks = &session.layout.locks;
    let table = match Table::read(locks) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(name.into_iter().map(|name| LockStatus::free(name.clone())).collect());
        }
        table => table.map_err(failed("look at", locks))?,
    };
    let mut look = Look { session, table };
    let Some(name) = name else { return look.all() };
    let (path, line) = (session.layout.lock(name), session.layout.line(name));
    // On a file system that folds case, the file may be another name's.
    let found = look.at(&path, &line)?.filter(|found| found.name.as_ref().is_none_or(|found| found == name));
    let found = found.unwrap_or_default();
    Ok(vec![found.status(name.clone(), path)])
}

struct Look<'s> {
    session: &'s FileSession,
    table: Table,
}

/// What was found of one lock.
#[derive(Default)]
struct Found {
    name: Option<LockName>,
    mode: Option<Mode>,
    holders: Vec<Holder>,
    queue: Vec<Waiter>,
}

impl Found {
    fn status(self, name: LockName, path: PathBuf) -> LockStatus {
        LockStatus {
            mode: self.mode,
            holders: self.holders,
            queue: Some(self.queue),
            path: Some(path),
            ..LockStatus::free(name)
        }
    }
}

impl Look<'_> {
    /// All locks that anyone holds or waits for.
    fn all(&mut self) -> Result<Vec<LockStatus>> {
        let locks = &self.session.layout.locks;
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(locks).map_err(failed("list", locks))? {
            let entry = entry.map_err(failed("list", locks))?;
            let (file, path) = (entry.file_name(), entry.path());
            let Some(stem) = file.to_str().and_then(|file| file.strip_suffix(".lock")) else { continue };
            let line = Line::new(self.session.layout.lines.join(stem));
            let Some(mut found) = self.at(&path, &line)? else { continue };
            if let Some(name) = found.name.take().or_else(|| Layout::name_of(&file)) {
                all.insert(name.clone(), found.status(name, path));
            }
        }
        Ok(all.into_values().collect())
    }

    /// One lock; `None` when nobody holds it or waits for it.
    ///
    /// The table is read before the record, and the lock may change hands in between. So an answer that needs another
    /// program to be true is looked at again.
    fn at(&mut self, path: &Path, line: &Line) -> Result<Option<Found>> {
        let mut found = self.once(path, line)?;
        for _ in 0..10 {
            let doubtful =
                found.as_ref().is_some_and(|found| found.holders.iter().any(|holder| holder.foreign));
            if !doubtful {
                break;
            }
            self.table.read_again();
            found = self.once(path, line)?;
        }
        Ok(found)
    }

    fn once(&self, path: &Path, line: &Line) -> Result<Option<Found>> {
        let Some(inode) = Inode::at(path).map_err(failed("look at", path))? else { return Ok(None) };
        let flocks = self.flocks(path, inode)?;
        let queue = self.queue(line).map_err(failed("look at", line.dir()))?;
        if flocks.is_empty() && queue.is_empty() {
            return Ok(None);
        }
        let mut buffer = [0; MAX_LEN];
        let record = match parse(read_record(path, &mut buffer).map_err(failed("read", path))?) {
            Parsed::Record(record) => Some(record),
            _ => None,
        };
        let mode = flocks.first().map(|flock| flock.mode);
        let holders = match mode {
            None => vec![],
            Some(Mode::Exclusive) => vec![self.exclusive(flocks[0], record)?],
            Some(_) => self.shared(&flocks, line).map_err(failed("look at", line.dir()))?,
        };
        let name = record.and_then(|record| LockName::new(record.name).ok());
        Ok(Some(Found { name, mode, holders, queue }))
    }

    /// Who has it locked; PID 0 where that cannot be seen.
    fn flocks(&self, path: &Path, inode: Inode) -> Result<Vec<Flock>> {
        let seen = self.table.on(inode);
        if self.table.complete || !seen.is_empty() {
            return Ok(seen.to_vec());
        }
        // From within a container: try it, for a moment. A claim that does not wait asks whether we did.
        let probe = |mode| -> io::Result<bool> {
            let file = LockFile::open_only(path)?;
            Ok(!file.is_none_or(|file| file.try_lock(mode).unwrap_or(true)))
        };
        let busy = |mode| probe(mode).map_err(failed("look at", path));
        Ok(match (busy(Mode::Exclusive)?, busy(Mode::Shared)?) {
            (false, _) => vec![],
            (true, false) => vec![Flock { pid: 0, mode: Mode::Shared }],
            (true, true) => vec![Flock { pid: 0, mode: Mode::Exclusive }],
        })
    }

    fn exclusive(&self, flock: Flock, record: Option<Record<'_>>) -> Result<Holder> {
        let record = record.filter(|record| {
            record.state == State::Held
                && record.card.mode == Mode::Exclusive
                && record.origin.boot == self.session.here.boot
                && self.is_by(&record.card, flock.pid)
        });
        let Some(record) = record else { return Ok(foreign(flock.pid)) };
        let token = TokenValue::new(record.position.token).ok();
        let source = self.session.source(record.position.source)?;
        Ok(Holder { token: token.map(|value| FencingToken::new(source, value)), ..holder(&record.card) })
    }

    /// Each seat is a holder of ours. A process without a seat is another program.
    fn shared(&self, flocks: &[Flock], line: &Line) -> io::Result<Vec<Holder>> {
        let mut others = flocks.to_vec();
        let mut holders = vec![];
        for seat in line.entries()?.seats {
            if !line.look_at(&seat, true)? {
                continue;
            }
            holders.extend(line.read(&seat, |record| {
                others.retain(|flock| !self.is_by(&record.card, flock.pid));
                holder(&record.card)
            })?);
        }
        holders.extend(others.iter().map(|flock| foreign(flock.pid)));
        Ok(holders)
    }

    fn queue(&self, line: &Line) -> io::Result<Vec<Waiter>> {
        let mut queue = vec![];
        for number in line.entries()?.waiting {
            let path = line.place_path(number);
            if line.look_at(&path, true)? {
                let waiter = line.read(&path, |record| Waiter {
                    owner: Some(record.card.owner_str().to_owned()),
                    note: Some(record.card.note.to_owned()),
                    since: Some(record.card.since()),
                })?;
                queue.push(waiter.unwrap_or_default());
            }
        }
        Ok(queue)
    }

    /// Whether the lock that `pid` has may be of this card. PIDs of two namespaces cannot be compared.
    fn is_by(&self, card: &Card<'_>, pid: u32) -> bool {
        pid == 0 || card.pid_namespace != self.session.here.pid_namespace || card.pid == pid
    }
}

fn holder(card: &Card<'_>) -> Holder {
    Holder {
        owner: Some(card.owner_str().to_owned()),
        note: Some(card.note.to_owned()),
        since: Some(card.since()),
        ..Holder::default()
    }
}

fn foreign(pid: u32) -> Holder {
    let note = (pid != 0).then(|| format!("pid {pid}"));
    Holder { note, foreign: true, ..Holder::default() }
}
