//! The figures, as a table and as JSON.

use std::{fmt::Write, time::Duration};

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

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = self.write_markdown(&mut text);
        text
    }

    fn write_markdown(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{}. Ratios: {} interleaved pairs of {} s. Median (p10–p90).",
            self.machine, self.pairs, self.seconds
        )?;
        table(
            out,
            "acquire + release, uncontended | tasks | per second | peer | peer per second | ratio | goal",
            self.ratios.iter().map(|row| {
                format!(
                    "{} | {} | {:.0} | {} | {:.0} | {:.2} | {}",
                    row.what,
                    row.tasks,
                    row.per_second,
                    row.peer,
                    row.peer_per_second,
                    row.ratio,
                    verdict(row.goal, "≥", &row.ratio)
                )
            }),
        )?;
        table(
            out,
            "CPU time of one acquire + release | tasks | client | server",
            self.costs.iter().map(|row| {
                let server = row.server_us.map_or(String::new(), |us| format!("{us:.1} us"));
                let client = row.client_us.map_or(String::new(), |us| format!("{us:.1} us"));
                format!("{} | {} | {client} | {server}", row.what, row.tasks)
            }),
        )?;
        table(
            out,
            "one lock, once each | waiters | all served | hand-off | of the bare | goal",
            self.served.iter().map(|row| {
                let hand_off = &row.hand_off_us;
                let hand_off =
                    if hand_off.median.is_nan() { String::new() } else { format!("{hand_off:.0} us") };
                let times = row.times_the_bare.map_or(String::new(), |times| format!("{times:.1}"));
                format!(
                    "{} | {} {} | {:.1} ms | {hand_off} | {times} | {}",
                    row.what,
                    row.waiters,
                    row.kind,
                    row.all_ms,
                    row.times_the_bare.map_or(String::new(), |times| verdict(row.goal, "≤", &times))
                )
            }),
        )?;
        table(
            out,
            "one lock, again and again | waiters | held for | acquisitions/s | hand-off p50 / p99 | hand-offs \
             | max : min | commands each",
            self.contests.iter().map(|row| {
                format!(
                    "{} | {} {} | {} ms | {:.0} | {:.0} / {:.0} us | {} | {} : {} | {}",
                    row.what,
                    row.waiters,
                    row.kind,
                    row.hold_ms,
                    row.per_second,
                    row.hand_off_p50_us,
                    row.hand_off_p99_us,
                    row.hand_offs,
                    row.max_share,
                    row.min_share,
                    row.commands.map_or(String::new(), |commands| format!("{commands:.2}"))
                )
            }),
        )?;
        table(
            out,
            "leases held by one client | TTL | acquired in | client CPU | each | renewals (scripts) | age at \
             renewal p50 / max | lost | server CPU | scripts p50 / p99 / longest",
            self.leases.iter().map(|row| {
                format!(
                    "{} {} | {} s | {:.1} s | {:.1} % (< {}) | {:.0} B (< {}) | {} ({}) | {:.2} / {:.2} s | {} \
                     | {:.1} % | {:.0} / {:.0} / {:.0} us (< {})",
                    row.count,
                    row.what,
                    row.ttl,
                    row.acquired_in,
                    row.cpu,
                    row.cpu_goal,
                    row.bytes_each,
                    row.bytes_goal,
                    row.renewals,
                    row.commands,
                    row.age_p50,
                    row.age_max,
                    row.lost,
                    row.server_cpu,
                    row.call_p50_us,
                    row.call_p99_us,
                    row.call_max_us,
                    row.call_goal_us
                )
            }),
        )
    }
}

/// A table, where there are any rows.
fn table(out: &mut String, head: &str, rows: impl ExactSizeIterator<Item = String>) -> std::fmt::Result {
    if rows.len() == 0 {
        return Ok(());
    }
    writeln!(out, "\n| {head} |\n{}|", "|---".repeat(head.split(" | ").count()))?;
    rows.map(|row| writeln!(out, "| {row} |")).collect()
}

/// Whether a goal was reached, which is not shown while only part of the rounds reach it.
fn verdict(goal: Option<f64>, at: &str, spread: &Spread) -> String {
    let Some(goal) = goal else { return String::new() };
    let reaches = |value: f64| if at == "≥" { value >= goal } else { value <= goal };
    let verdict = match (reaches(spread.median), reaches(spread.p10) || reaches(spread.p90)) {
        (true, _) => "reached",
        (false, true) => "not shown",
        (false, false) => "missed",
    };
    format!("{at} {goal}: {verdict}")
}
