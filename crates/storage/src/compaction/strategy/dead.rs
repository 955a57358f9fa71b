//! Choosing by dead data: a run that has more of it than the table's threshold is compacted alone.

use crate::options::TableOptions;

/// The least age of a run that is compacted alone for its dead data, s. A compaction that cannot
/// reclaim the data would otherwise repeat endlessly.
pub(crate) const INTERVAL_MIN_S: u32 = 60;

/// The dead data of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dead {
    /// Cells, markers and tombstones in all.
    pub(crate) all: u64,
    /// Lower bound of those that expired or were deleted longer ago than the grace period.
    pub(crate) dead: u64,
    /// Write time of the run, Unix seconds; 0 if unknown.
    pub(crate) written_s: u32,
    /// The fraction of partitions of which other runs may have older data, in millionths. Their
    /// tombstones must stay.
    pub(crate) elsewhere_ppm: u32,
}

/// Returns true if a run is due to be compacted alone.
///
/// 1. Not if it was written within `tombstone_compaction_interval`.
/// 2. Otherwise if enough of it is dead. Unless `unchecked_tombstone_compaction` is set, only dead
///    data that can be dropped counts.
pub(crate) fn is_due(options: &TableOptions, dead: &Dead, now_s: u32) -> bool {
    let interval_s = options.tombstone_interval_s.max(INTERVAL_MIN_S);
    if dead.written_s > 0 && now_s < dead.written_s.saturating_add(interval_s) {
        return false;
    }
    let share_ppm = u128::from(dead.dead) * 1_000_000 / u128::from(dead.all.max(dead.dead).max(1));
    let reclaimed_ppm = match options.unchecked_tombstones {
        true => share_ppm,
        false => share_ppm * u128::from(1_000_000 - dead.elsewhere_ppm.min(1_000_000)) / 1_000_000,
    };
    dead.dead > 0 && reclaimed_ppm > u128::from(options.tombstone_threshold_ppm)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u32 = 1_000_000;

    fn check(dead: Dead, change: impl FnOnce(&mut TableOptions), expected: bool) {
        let mut options = TableOptions::default();
        change(&mut options);
        assert_eq!(is_due(&options, &dead, NOW_S), expected, "{dead:?} {options:?}");
    }

    #[test]
    fn run_is_due_above_the_threshold_of_reclaimable_data() {
        let old = Dead { all: 100, dead: 30, written_s: 1, elsewhere_ppm: 0 };
        check(old, |_| {}, true);
        check(Dead { dead: 20, ..old }, |_| {}, false);
        check(Dead { dead: 0, all: 0, ..old }, |_| {}, false);
        check(old, |options| options.tombstone_threshold_ppm = 500_000, false);
        check(Dead { elsewhere_ppm: 500_000, ..old }, |_| {}, false);
        check(Dead { elsewhere_ppm: 500_000, ..old }, |options| options.unchecked_tombstones = true, true);
        check(Dead { elsewhere_ppm: u32::MAX, ..old }, |_| {}, false);
    }

    #[test]
    fn new_run_is_not_due() {
        let new = Dead { all: 10, dead: 10, written_s: NOW_S - 100, elsewhere_ppm: 0 };
        check(new, |_| {}, false);
        check(new, |options| options.tombstone_interval_s = 0, true);
        check(Dead { written_s: NOW_S - 59, ..new }, |options| options.tombstone_interval_s = 0, false);
    }
}
