//! CPU time, which a machine that others use as well changes far less than it changes the time that passes.

use std::{fs, time::Duration};

use rustix::param::clock_ticks_per_second;

/// What process `pid` has used so far, in steps of 10 ms; nothing when there is none.
pub(crate) fn used_by(pid: u32) -> Duration {
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may have blanks and parentheses.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let [user, system]: [u64; 2] = [fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?];
        Some(user + system)
    };
    Duration::from_secs_f64(ticks().unwrap_or(0) as f64 / clock_ticks_per_second() as f64)
}
