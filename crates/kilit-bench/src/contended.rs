//! Many who want one lock: how soon it is handed over, how evenly, and at how many commands.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use kilit_testbed::server::{Redis, Server};

use crate::{
    crowd::{Crowd, Lock},
    peer::{Peer, Program},
    report::{Contest, Report, Served},
    server,
    stats::{Spread, percentile},
    worker::{Round, Turn},
};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Locks that the same crowd fights for, one after the other, the first of them beside the others.
pub(crate) struct Bout<'a> {
    pub(crate) locks: &'a [Lock],
    pub(crate) kind: Kind,
    /// How many times as long as the second the first may take to serve 64 waiters.
    pub(crate) goal: Option<f64>,
    /// Whose commands are counted.
    pub(crate) server: Option<&'a Server<Redis>>,
}

/// What a contender is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tasks,
    Processes,
}

impl Kind {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Processes => "processes",
        }
    }

    async fn crowd(self, lock: &Lock, size: usize) -> Result<Crowd> {
        match self {
            Self::Tasks => Crowd::of_tasks(lock, size).await,
            Self::Processes => Crowd::of_processes(lock, size).await,
        }
    }
}

impl Bout<'_> {
    /// Each wants it once: how long until all are served, in rounds that turn from lock to lock.
    pub(crate) async fn once_each(&self, report: &mut Report, waiters: usize, rounds: usize) -> Result<()> {
        let mut crowds = vec![];
        for lock in self.locks {
            crowds.push(self.kind.crowd(lock, waiters).await?);
        }
        let mut all_ms = vec![vec![]; self.locks.len()];
        let mut hand_off_us = all_ms.clone();
        // The first round warms up.
        for round in 0..=rounds {
            for (i, (lock, crowd)) in self.locks.iter().zip(&mut crowds).enumerate() {
                let gate = lock.close().await?;
                crowd.start(Round::default()).await?;
                gate.awaited_by(waiters).await?;
                let released = gate.open().await?;
                let turns = crowd.turns().await?;
                let last = turns.iter().flatten().map(|turn| turn.granted).max().unwrap_or(released);
                if round > 0 {
                    all_ms[i].push(last.saturating_sub(released) as f64 / 1e6);
                    hand_off_us[i].extend(hand_offs(&turns));
                }
            }
        }
        for (i, lock) in self.locks.iter().enumerate() {
            report.add_served(Served {
                what: lock.label().into(),
                waiters,
                kind: self.kind.label(),
                all_ms: Spread::of(&all_ms[i]),
                hand_off_us: Spread::of(&hand_off_us[i]),
                times_the_bare: (i == 0 && all_ms.len() > 1).then(|| ratio(&all_ms[0], &all_ms[1])),
                goal: self.goal.filter(|_| i == 0 && waiters == 64),
            });
        }
        Ok(())
    }

    /// All want it again and again.
    pub(crate) async fn again(
        &self,
        report: &mut Report,
        waiters: usize,
        time: Duration,
        hold: Duration,
    ) -> Result<()> {
        for lock in self.locks {
            let mut crowd = self.kind.crowd(lock, waiters).await?;
            // However it was left, it is free now.
            lock.close().await?.open().await?;
            let before = self.commands_sent().await?;
            let begun = Instant::now();
            crowd.start(Round { again: Some(time), hold }).await?;
            let turns = crowd.turns().await?;
            let busy = begun.elapsed();
            let sent = self.commands_sent().await?.zip(before).map(|(after, before)| after - before);
            let (hand_offs, shares) = (hand_offs(&turns), turns.iter().map(Vec::len));
            let count = shares.clone().sum::<usize>() as f64;
            report.add_contest(Contest {
                what: lock.label().into(),
                waiters,
                kind: self.kind.label(),
                hold_ms: hold.as_millis() as u64,
                per_second: count / busy.as_secs_f64(),
                hand_off_p50_us: percentile(&hand_offs, 50.0),
                hand_off_p99_us: percentile(&hand_offs, 99.0),
                hand_offs: hand_offs.len(),
                max_share: shares.clone().max().unwrap_or(0),
                min_share: shares.min().unwrap_or(0),
                commands: sent.map(|sent| sent as f64 / count),
            });
        }
        Ok(())
    }

    /// How many commands clients have sent of those that a lock consists of; what a script calls is no part of it.
    async fn commands_sent(&self) -> Result<Option<u64>> {
        // With CLIENT CACHING goes the GET that it is for, which scripts call too.
        const SENT: [(&str, u64); 5] =
            [("evalsha", 1), ("eval", 1), ("client|caching", 2), ("blpop", 1), ("lpush", 1)];
        let Some(server) = self.server else { return Ok(None) };
        let calls = server::calls(server).await?;
        Ok(Some(
            SENT.iter().map(|(command, weight)| weight * calls.get(*command).copied().unwrap_or(0)).sum(),
        ))
    }
}

/// Other people's lockers: each waiter is a task of their language, and wants the lock once.
pub(crate) async fn peers(
    report: &mut Report,
    server: &Server<Redis>,
    waiters: usize,
    rounds: usize,
) -> Result<()> {
    for peer in Peer::ALL {
        let mut program: Program = peer.start(&server.url()).await?;
        let mut all_ms = vec![];
        for _ in 0..rounds {
            all_ms.push(program.drain(waiters).await?);
        }
        report.add_served(Served {
            what: peer.name().into(),
            waiters,
            kind: "tasks",
            all_ms: Spread::of(&all_ms),
            hand_off_us: Spread::of(&[]),
            times_the_bare: None,
            goal: None,
        });
    }
    Ok(())
}

fn ratio(ours: &[f64], bare: &[f64]) -> Spread {
    Spread::of(&ours.iter().zip(bare).map(|(our, bare)| our / bare).collect::<Vec<_>>())
}

/// Microseconds from each release to the next grant, where that went to another contender who was waiting already.
fn hand_offs(turns: &[Vec<Turn>]) -> Vec<f64> {
    let mut all: Vec<(usize, Turn)> =
        turns.iter().enumerate().flat_map(|(i, t)| t.iter().map(move |t| (i, *t))).collect();
    all.sort_by_key(|(_, turn)| turn.granted);
    let handed_over = |pair: &[(usize, Turn)]| {
        let [(from, old), (to, new)] = pair else { return None };
        (from != to && new.asked < old.released)
            .then(|| new.granted.saturating_sub(old.released) as f64 / 1e3)
    };
    all.windows(2).filter_map(handed_over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_waiter_that_was_there_counts() {
        let turn = |asked, granted, released| Turn { asked, granted, released };
        let turns = vec![
            vec![turn(0, 10_000, 20_000), turn(21_000, 22_000, 23_000)],
            vec![turn(5_000, 25_000, 30_000), turn(40_000, 41_000, 42_000)],
        ];
        assert_eq!(hand_offs(&turns), vec![2.0]);
    }
}
