//! Medians and percentiles of few samples.

use std::fmt;

use serde::Serialize;

/// The middle of some samples, and where 80 % of them lie.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) p10: f64,
    pub(crate) median: f64,
    pub(crate) p90: f64,
}

impl Spread {
    pub(crate) fn of(samples: &[f64]) -> Self {
        Self {
            p10: percentile(samples, 10.0),
            median: percentile(samples, 50.0),
            p90: percentile(samples, 90.0),
        }
    }
}

/// `median (p10–p90)`, with the precision that was asked for.
impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = out.precision().unwrap_or(2);
        write!(out, "{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.p10, self.p90)
    }
}

/// The nearest-rank percentile; NaN of nothing.
pub(crate) fn percentile(samples: &[f64], per_cent: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (per_cent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let samples: Vec<f64> = (1..=11).rev().map(f64::from).collect();
        let spread = Spread::of(&samples);
        assert_eq!((spread.p10, spread.median, spread.p90), (2.0, 6.0, 10.0));
        assert!(percentile(&[], 50.0).is_nan());
    }
}
