//! Counts for gates: what a process has used, never how long it took.

use std::{fs, path::Path, time::Duration};

/// How often the threads of process `pid` went to sleep of their own will: an idle waiter hardly ever does.
///
/// # Panics
/// When there is no such process.
pub fn voluntary_switches(pid: u32) -> u64 {
    of_tasks(pid, |task| status_field(&task.join("status"), "voluntary_ctxt_switches"))
}

/// The CPU time of the threads of process `pid` that still run.
///
/// # Panics
/// When there is no such process.
pub fn cpu_time(pid: u32) -> Duration {
    Duration::from_nanos(of_tasks(pid, |task| {
        let schedstat = fs::read_to_string(task.join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse().ok()
    }))
}

/// The open file descriptors of process `pid`.
///
/// # Panics
/// When there is no such process, or it is another user's.
pub fn open_fds(pid: u32) -> usize {
    let fds = fs::read_dir(format!("/proc/{pid}/fd"));
    fds.unwrap_or_else(|error| panic!("the descriptors of process {pid}: {error}")).count()
}

/// The threads of process `pid`.
///
/// # Panics
/// When there is no such process.
pub fn threads(pid: u32) -> usize {
    tasks(pid).count()
}

fn of_tasks(pid: u32, count: impl Fn(&Path) -> Option<u64>) -> u64 {
    // A thread that ends between the two looks counts nothing.
    tasks(pid).filter_map(|task| count(&task.path())).sum()
}

fn tasks(pid: u32) -> impl Iterator<Item = fs::DirEntry> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    tasks.unwrap_or_else(|error| panic!("the threads of process {pid}: {error}")).flatten()
}

fn status_field(status: &Path, field: &str) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}
