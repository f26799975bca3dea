//! Many who want one lock: how soon it is handed over, and how evenly.

use std::{
    error::Error,
    path::Path,
    time::{Duration, Instant},
};

use kilit::Client;

use crate::{
    crowd::{Crowd, Gate, Lock},
    report::{Contest, Report},
    stats::percentile,
    worker::Turn,
};

/// How many rounds of *each wants it once* make a row.
const ROUNDS: usize = 5;

pub(crate) async fn run(
    report: &mut Report,
    scratch: &Path,
    crowds: &[usize],
    time: Duration,
    smoke: bool,
) -> Result<(), Box<dyn Error>> {
    let rounds = if smoke { 1 } else { ROUNDS };
    let url = format!("file://{}", scratch.join("file").display());
    for &waiters in crowds {
        for lock in [Lock::Kilit(&url), Lock::Bare(scratch)] {
            for again in [Some(time), None] {
                let crowd = Crowd::of_processes(lock, waiters, again).await?;
                let client = lock.client().await?;
                report.add_contest(contest(lock, client.as_ref(), crowd, again, rounds).await?);
            }
        }
        for lock in [Lock::Kilit(&url), Lock::Kilit("memory:")] {
            for again in [Some(time), None] {
                let client = lock.client().await?.ok_or("tasks contend for kilit's locks")?;
                let crowd = Crowd::of_tasks(&client, waiters)?;
                report.add_contest(contest(lock, Some(&client), crowd, again, rounds).await?);
            }
        }
    }
    Ok(())
}

/// One row: again and again for a while, or some rounds of once each.
async fn contest(
    lock: Lock<'_>,
    client: Option<&Client>,
    mut crowd: Crowd,
    again: Option<Duration>,
    rounds: usize,
) -> Result<Contest, Box<dyn Error>> {
    let waiters = crowd.size();
    let mut turns = vec![vec![]; waiters];
    let (mut serve_all, mut busy) = (vec![], Duration::ZERO);
    for _ in 0..if again.is_some() { 1 } else { rounds } {
        let gate = if again.is_none() { Some(Gate::close(lock, client).await?) } else { None };
        let begun = Instant::now();
        crowd.start(again).await?;
        let opened = match gate {
            Some(gate) => Some((gate.open(waiters).await?, Instant::now())),
            None => None,
        };
        let round = crowd.turns().await?;
        busy += opened.map_or(begun, |(_, opened)| opened).elapsed();
        if let Some((released, _)) = opened {
            let last = round.iter().flatten().map(|turn| turn.granted).max().unwrap_or(released);
            serve_all.push(last.saturating_sub(released) as f64 / 1e6);
        }
        turns.iter_mut().zip(round).for_each(|(all, round)| all.extend(round));
    }
    let hand_offs = hand_offs(&turns);
    let shares = || turns.iter().map(Vec::len);
    Ok(Contest {
        what: match lock {
            Lock::Kilit(url) => url.split(':').next().unwrap_or(url).to_owned(),
            Lock::Bare(_) => "bare blocking flock".to_owned(),
        },
        waiters,
        kind: crowd.kind(),
        shape: if again.is_some() { "again and again" } else { "once each" },
        per_second: shares().sum::<usize>() as f64 / busy.as_secs_f64(),
        serve_all_ms: again.is_none().then(|| percentile(&serve_all, 50.0)),
        hand_off_p50_us: percentile(&hand_offs, 50.0),
        hand_off_p99_us: percentile(&hand_offs, 99.0),
        hand_offs: hand_offs.len(),
        max_share: shares().max().unwrap_or(0),
        min_share: shares().min().unwrap_or(0),
    })
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
