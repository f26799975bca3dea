//! The figures as Markdown tables.

use std::fmt::{Result, Write};

use super::Report;
use crate::stats::Spread;

impl Report {
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = self.write_markdown(&mut text);
        text
    }

    fn write_markdown(&self, out: &mut String) -> Result {
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
fn table(out: &mut String, head: &str, mut rows: impl ExactSizeIterator<Item = String>) -> Result {
    if rows.len() == 0 {
        return Ok(());
    }
    writeln!(out, "\n| {head} |\n{}|", "|---".repeat(head.split(" | ").count()))?;
    rows.try_for_each(|row| writeln!(out, "| {row} |"))
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
