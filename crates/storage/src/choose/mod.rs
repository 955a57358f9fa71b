//! What to merge: decisions over sizes and times of runs, with no clock and no I/O.
//!
//! A run is a chain of files that do not overlap, so what a read costs goes by the number of runs. Every strategy answers with at least two
//! runs to make one of, or none: so each merge leaves fewer, and with nothing written there is an end to them.

mod tiered;
mod window;

#[cfg(test)]
mod tests;

use crate::options::{Strategy, TableOptions};

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    /// The greatest timestamp in it, µs since 1970.
    pub(crate) newest_us: i64,
}

/// Which runs to merge, as positions in `runs`.
pub(crate) fn compaction(options: &TableOptions, runs: &[Run]) -> Option<Vec<usize>> {
    let threshold = options.min_threshold.max(2) as usize;
    let bytes: Vec<u64> = runs.iter().map(|run| run.bytes).collect();
    match options.strategy {
        Strategy::SizeTiered => tiered::similar(&bytes, threshold),
        Strategy::Incremental => tiered::similar(&bytes, threshold)
            .or_else(|| options.space_amplification_goal.and_then(|goal| tiered::amplified(&bytes, goal))),
        Strategy::Leveled => tiered::leveled(&bytes, threshold),
        Strategy::TimeWindow { window_s } => window::compaction(runs, window_s, threshold),
    }
}

/// Bytes to be written until there is nothing to choose: what the chosen merge writes, and what is merged with it later, once for each
/// power of the threshold that it is smaller than all together.
pub(crate) fn backlog_bytes(options: &TableOptions, runs: &[Run]) -> u64 {
    let Some(chosen) = compaction(options, runs) else { return 0 };
    let total: u64 = runs.iter().map(|run| run.bytes).sum();
    let merged: u64 = chosen.iter().map(|at| runs[*at].bytes).sum();
    let levels = (total / merged.max(1)).max(1).ilog(u64::from(options.min_threshold.max(2)));
    merged.saturating_mul(1 + u64::from(levels))
}
