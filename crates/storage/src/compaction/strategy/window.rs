//! Choice by time. Only runs whose newest cells are in the same window are compacted together, so
//! that a window whose data has expired is dropped as a whole.

use std::collections::BTreeMap;

use super::{RunSize, tiered};

/// Chooses the runs to compact.
///
/// 1. Assign runs to windows of length `window` by their newest timestamp.
/// 2. The latest window that has started still gets writes: choose among its runs by size. The same
///    applies to windows in the future, which only cells dated ahead create.
/// 3. Otherwise choose all runs of the oldest earlier window that has several.
pub(crate) fn compaction(runs: &[RunSize], window: i64, threshold: usize, now: i64) -> Option<Vec<usize>> {
    let mut windows: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        windows.entry(run.newest.div_euclid(window)).or_default().push(at);
    }
    let begun = windows.range(..=now.div_euclid(window)).next_back().map(|(window, _)| *window);
    let over = begun.map_or_else(BTreeMap::new, |latest| {
        let open = windows.split_off(&latest);
        std::mem::replace(&mut windows, open)
    });
    let by_size = windows.values().find_map(|open| {
        let bytes: Vec<u64> = open.iter().map(|at| runs[*at].bytes).collect();
        let chosen = tiered::similar(&bytes, threshold)?;
        Some(chosen.into_iter().map(|at| open[at]).collect())
    });
    by_size.or_else(|| over.into_values().find(|window| window.len() > 1))
}
