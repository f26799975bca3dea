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
    contests: Vec<Contest>,
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

/// Some contenders for one lock.
#[derive(Serialize)]
pub(crate) struct Contest {
    pub(crate) what: String,
    pub(crate) waiters: usize,
    pub(crate) kind: &'static str,
    pub(crate) shape: &'static str,
    pub(crate) per_second: f64,
    pub(crate) serve_all_ms: Option<f64>,
    pub(crate) hand_off_p50_us: f64,
    pub(crate) hand_off_p99_us: f64,
    pub(crate) hand_offs: usize,
    pub(crate) max_share: usize,
    pub(crate) min_share: usize,
}

impl Ratio {
    fn verdict(&self) -> &'static str {
        match self.goal {
            None => "",
            Some(goal) if self.ratio.median >= goal => "reached",
            Some(goal) if self.ratio.p90 >= goal => "not shown",
            Some(_) => "missed",
        }
    }
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
            contests: vec![],
        }
    }

    pub(crate) fn add_ratio(&mut self, ratio: Ratio) {
        eprintln!("{}, {} tasks: {:.2} of {}", ratio.what, ratio.tasks, ratio.ratio.median, ratio.peer);
        self.ratios.push(ratio);
    }

    pub(crate) fn add_contest(&mut self, contest: Contest) {
        eprintln!(
            "{}, {} {}, {}: hand-off p50 {:.0} us",
            contest.what, contest.waiters, contest.kind, contest.shape, contest.hand_off_p50_us
        );
        self.contests.push(contest);
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
            "{}. Ratios: {} interleaved pairs of {} s; median (p10–p90).\n",
            self.machine, self.pairs, self.seconds
        )?;
        writeln!(
            out,
            "| acquire + release, uncontended | tasks | per second | peer | peer per second | ratio | goal |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        for row in &self.ratios {
            let goal = row.goal.map_or(String::new(), |goal| format!("≥ {goal}: {}", row.verdict()));
            writeln!(
                out,
                "| {} | {} | {:.0} ({:.0}–{:.0}) | {} | {:.0} ({:.0}–{:.0}) | {:.2} ({:.2}–{:.2}) | {goal} |",
                row.what,
                row.tasks,
                row.per_second.median,
                row.per_second.p10,
                row.per_second.p90,
                row.peer,
                row.peer_per_second.median,
                row.peer_per_second.p10,
                row.peer_per_second.p90,
                row.ratio.median,
                row.ratio.p10,
                row.ratio.p90,
            )?;
        }
        writeln!(
            out,
            "\n| one lock | waiters | shape | acquisitions/s | all served | hand-off p50 / p99 | hand-offs | max : min |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|")?;
        for row in &self.contests {
            writeln!(
                out,
                "| {} | {} {} | {} | {:.0} | {} | {:.0} / {:.0} us | {} | {} : {} |",
                row.what,
                row.waiters,
                row.kind,
                row.shape,
                row.per_second,
                row.serve_all_ms.map_or(String::new(), |ms| format!("{ms:.1} ms")),
                row.hand_off_p50_us,
                row.hand_off_p99_us,
                row.hand_offs,
                row.max_share,
                row.min_share,
            )?;
        }
        Ok(())
    }
}
