//! What to merge: decisions over sizes and times of runs, with no clock and no I/O.
//!
//! A run is a chain of files that do not overlap, so what a read costs goes by the number of runs. Every strategy answers with at least two
//! runs to make one of, or none: so each merge leaves fewer, and with nothing written there is an end to them. A run is
//! compacted alone for its dead data only (`dead.rs`).

pub(crate) mod dead;
pub(crate) mod need;
mod tiered;
mod window;

#[cfg(test)]
mod tests;

use crate::options::{Strategy, TableOptions};

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    /// The greatest timestamp in it that was not in the future when it was written, as the table has timestamps.
    pub(crate) newest: i64,
}

/// Runs to merge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    /// Positions of those to merge now: `max_threshold` at most, the smallest ones.
    pub(crate) runs: Vec<usize>,
    /// Runs that wait to become one with them.
    pub(crate) waiting: usize,
}

/// Which runs to merge. `now` is the clock as timestamps of the table have it.
pub(crate) fn compaction(options: &TableOptions, runs: &[Run], now: i64) -> Option<Chosen> {
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

/// Bytes to be written until there is nothing to choose: what the chosen merge writes, and what is merged with it later, once for each
/// power of the threshold that it is smaller than all together.
pub(crate) fn backlog_bytes(options: &TableOptions, runs: &[Run], chosen: &Chosen) -> u64 {
    let total: u64 = runs.iter().map(|run| run.bytes).sum();
    let merged: u64 = chosen.runs.iter().map(|at| runs[*at].bytes).sum();
    let levels = (total / merged.max(1)).max(1).ilog(u64::from(options.min_threshold.max(2)));
    merged.saturating_mul(1 + u64::from(levels))
}
