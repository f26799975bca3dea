//! The figures, as tables and as JSON.

mod markdown;

use std::time::Duration;

use serde::Serialize;

use crate::stats::Spread;

#[derive(Serialize)]
pub(crate) struct Report {
    machine: String,
    pairs: usize,
    seconds: f64,
    ratios: Vec<Ratio>,
    costs: Vec<Cost>,
    served: Vec<Served>,
    contests: Vec<Contest>,
    leases: Vec<Leases>,
}

/// Two arms, run in turn, and how the first compares with the second.
#[derive(Serialize)]
pub(crate) struct Ratio {
    pub(crate) what: String,
    pub(crate) peer: String,
    pub(crate) tasks: usize,
    pub(crate) per_second: Spread,
    pub(crate) peer_per_second: Spread,
    pub(crate) ratio: Spread,
    /// What the ratio is to reach, where something was promised.
    pub(crate) goal: Option<f64>,
}

/// The CPU time of one acquire + release.
#[derive(Serialize)]
pub(crate) struct Cost {
    pub(crate) what: String,
    pub(crate) tasks: usize,
    pub(crate) client_us: Option<Spread>,
    pub(crate) server_us: Option<Spread>,
}

/// Some contenders that each wanted one lock once.
#[derive(Serialize)]
pub(crate) struct Served {
    pub(crate) what: String,
    pub(crate) waiters: usize,
    pub(crate) kind: &'static str,
    /// From the release until the last of them had it.
    pub(crate) all_ms: Spread,
    pub(crate) hand_off_us: Spread,
    pub(crate) times_the_bare: Option<Spread>,
    pub(crate) goal: Option<f64>,
}

/// Some contenders that wanted one lock again and again.
#[derive(Serialize)]
pub(crate) struct Contest {
    pub(crate) what: String,
    pub(crate) waiters: usize,
    pub(crate) kind: &'static str,
    pub(crate) hold_ms: u64,
    pub(crate) per_second: f64,
    pub(crate) hand_off_p50_us: f64,
    pub(crate) hand_off_p99_us: f64,
    pub(crate) hand_offs: usize,
    pub(crate) max_share: usize,
    pub(crate) min_share: usize,
    /// How many commands were sent for each acquisition, where there is a server.
    pub(crate) commands: Option<f64>,
}

/// Many leases of one client.
#[derive(Serialize)]
pub(crate) struct Leases {
    pub(crate) what: String,
    pub(crate) count: usize,
    /// Times are in seconds, CPU times in per cent of a core.
    pub(crate) ttl: f64,
    pub(crate) seconds: f64,
    pub(crate) acquired_in: f64,
    pub(crate) cpu: f64,
    pub(crate) cpu_goal: f64,
    pub(crate) server_cpu: f64,
    pub(crate) bytes_each: f64,
    pub(crate) bytes_goal: f64,
    pub(crate) renewals: usize,
    pub(crate) commands: u64,
    /// How old a lease was when its renewal left.
    pub(crate) age_p50: f64,
    pub(crate) age_max: f64,
    pub(crate) lost: usize,
    pub(crate) call_p50_us: f64,
    pub(crate) call_p99_us: f64,
    pub(crate) call_max_us: f64,
    pub(crate) call_goal_us: f64,
}

impl Report {
    pub(crate) fn new(pairs: usize, time: Duration) -> Self {
        let system = rustix::system::uname();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = system.release().to_string_lossy();
        Self {
            machine: format!("{cores} cores, Linux {kernel}"),
            pairs,
            seconds: time.as_secs_f64(),
            ratios: vec![],
            costs: vec![],
            served: vec![],
            contests: vec![],
            leases: vec![],
        }
    }

    pub(crate) fn add_ratio(&mut self, ratio: Ratio) {
        eprintln!("{}, {} tasks: {:.2} of {}", ratio.what, ratio.tasks, ratio.ratio.median, ratio.peer);
        self.ratios.push(ratio);
    }

    pub(crate) fn add_cost(&mut self, cost: Cost) {
        self.costs.push(cost);
    }

    pub(crate) fn add_served(&mut self, served: Served) {
        eprintln!(
            "{}, {} {}: all served in {:.1} ms",
            served.what, served.waiters, served.kind, served.all_ms.median
        );
        self.served.push(served);
    }

    pub(crate) fn add_contest(&mut self, contest: Contest) {
        eprintln!(
            "{}, {} {}, again and again, held for {} ms: hand-off p50 {:.0} us",
            contest.what, contest.waiters, contest.kind, contest.hold_ms, contest.hand_off_p50_us
        );
        self.contests.push(contest);
    }

    pub(crate) fn add_leases(&mut self, leases: Leases) {
        eprintln!("{}, {} leases: {:.1} % of a core", leases.what, leases.count, leases.cpu);
        self.leases.push(leases);
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
