//! Chooses which runs to compact from their sizes and times, without clock and I/O.
//!
//! A run is a chain of files without overlaps, so the cost of a read depends on the number of runs.
//! Every strategy chooses at least two runs to compact into one, or none. Each compaction therefore
//! reduces their number, and without writes compactions end. A single run is compacted only for its
//! dead data (`dead.rs`).

pub(crate) mod dead;
pub(crate) mod need;
mod tiered;
mod window;

#[cfg(test)]
mod tests;

use crate::options::{Strategy, TableOptions};

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunSize {
    pub(crate) bytes: u64,
    /// The greatest timestamp that was not in the future when it was written, in the table's units.
    pub(crate) newest: i64,
}

/// Runs to compact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    /// Indexes of the runs to compact now: the smallest ones, at most `max_threshold`.
    pub(crate) runs: Vec<usize>,
    /// The number of runs that wait to be compacted into one.
    pub(crate) waiting: usize,
}

/// Chooses the runs to compact, or `None`. `now` is the current time in units of the table's
/// timestamps.
pub(crate) fn compaction(options: &TableOptions, runs: &[RunSize], now: i64) -> Option<Chosen> {
    let threshold = options.min_threshold.max(2) as usize;
    let bytes: Vec<u64> = runs.iter().map(|run| run.bytes).collect();
    let mut chosen = match options.strategy {
        Strategy::SizeTiered => tiered::similar(&bytes, threshold),
        Strategy::Incremental => tiered::similar(&bytes, threshold)
            .or_else(|| options.space_amplification_goal.and_then(|goal| tiered::amplified(&bytes, goal))),
        Strategy::Leveled => tiered::leveled(&bytes, threshold),
        Strategy::TimeWindow { window_s } => {
            let second = i64::try_from(options.timestamps_per_s.max(1)).unwrap_or(i64::MAX);
            window::compaction(runs, i64::from(window_s.max(1)).saturating_mul(second), threshold, now)
        }
    }?;
    let waiting = chosen.len();
    let most = options.max_threshold.max(options.min_threshold).max(2) as usize;
    if chosen.len() > most {
        chosen.sort_by_key(|at| runs[*at].bytes);
        chosen.truncate(most);
    }
    Some(Chosen { runs: chosen, waiting })
}

/// Estimates the bytes to write until no compaction is needed: the output of the chosen compaction,
/// rewritten once for each factor of the threshold between its size and the total.
pub(crate) fn backlog_bytes(options: &TableOptions, runs: &[RunSize], chosen: &Chosen) -> u64 {
    let total: u64 = runs.iter().map(|run| run.bytes).sum();
    let merged: u64 = chosen.runs.iter().map(|at| runs[*at].bytes).sum();
    let levels = (total / merged.max(1)).max(1).ilog(u64::from(options.min_threshold.max(2)));
    merged.saturating_mul(1 + u64::from(levels))
}
