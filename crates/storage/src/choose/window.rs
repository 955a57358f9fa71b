//! Choosing by time: runs whose newest cells are of one window are merged with each other only, so that a window whose data has expired
//! goes as a whole.

use std::collections::BTreeMap;

use super::{Run, tiered};

/// 1. Runs fall into windows by their newest timestamp. 2. The latest window is still being written: its runs are merged by
///    size. 3. Of those before it, the oldest that has more than one run is merged into one.
pub(crate) fn compaction(runs: &[Run], window_s: u32, threshold: usize) -> Option<Vec<usize>> {
    let window_us = i64::from(window_s.max(1)) * 1_000_000;
    let mut windows: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        windows.entry(run.newest_us.div_euclid(window_us)).or_default().push(at);
    }
    let (_, latest) = windows.pop_last()?;
    let bytes: Vec<u64> = latest.iter().map(|at| runs[*at].bytes).collect();
    let by_size = tiered::similar(&bytes, threshold);
    by_size
        .map(|chosen| chosen.into_iter().map(|at| latest[at]).collect())
        .or_else(|| windows.into_values().find(|window| window.len() > 1))
}
