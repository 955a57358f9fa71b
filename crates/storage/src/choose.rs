//! What to compact and how long to hold a writer: decisions over numbers, with no clock and no I/O.

use std::time::Duration;

/// The longest hold of a single write that is not stopped altogether.
const HOLD_MAX: Duration = Duration::from_millis(10);

/// Which files of a table to merge, as positions in `bytes`, the sizes of its files: size-tiered. The tier of the smallest
/// files that is full goes first, because it is the cheapest way to have fewer files to read.
///
/// 1. Sort by size. 2. A tier is a run of files none of which is larger than twice the run's smallest. 3. The first
///    run of at least `threshold` is merged, all of it.
pub(crate) fn compaction(bytes: &[u64], threshold: usize) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    order.sort_by_key(|at| bytes[*at]);
    let mut start = 0;
    while start < order.len() {
        // Files below 64 KiB cost the same to read: they are one tier.
        let limit = bytes[order[start]].max(64 << 10).saturating_mul(2);
        let len = order[start..].iter().take_while(|at| bytes[**at] <= limit).count();
        if len >= threshold.max(2) {
            return Some(order[start..start + len].to_vec());
        }
        start += 1;
    }
    None
}

/// What a writer is told after its write is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Go,
    For(Duration),
    /// Until a memtable has been flushed.
    UntilFlushed,
}

/// How a writer is held back when memtables fill faster than they are flushed: from the moment that two are frozen,
/// more with the square of how full the active one is, so that throughput bends before it stops.
pub(crate) fn hold(frozen: usize, frozen_max: usize, active_bytes: usize, bytes_max: usize) -> Hold {
    if frozen < frozen_max {
        return Hold::Go;
    }
    if active_bytes >= bytes_max {
        return Hold::UntilFlushed;
    }
    let per_mille = (active_bytes as u128 * 1000 / bytes_max.max(1) as u128) as u32;
    match per_mille {
        0..=499 => Hold::Go,
        full => Hold::For(HOLD_MAX * (full - 500).pow(2) / 250_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(megabytes: &[u64], expected: Option<&[usize]>) {
        let bytes: Vec<u64> = megabytes.iter().map(|mb| mb << 20).collect();
        let mut chosen = compaction(&bytes, 4);
        chosen.iter_mut().for_each(|files| files.sort_unstable());
        assert_eq!(chosen.as_deref(), expected, "{megabytes:?}");
    }

    #[test]
    fn tiers_of_four_similar_files_are_merged() {
        check(&[], None);
        check(&[5, 5, 5], None);
        check(&[5, 5, 5, 5], Some(&[0, 1, 2, 3]));
        check(&[100, 5, 9, 6, 10], Some(&[1, 2, 3, 4]));
        check(&[1, 3, 9, 27, 81], None);
        check(&[1, 300, 300, 310, 320], Some(&[1, 2, 3, 4]));
        check(&[0, 0, 0, 0, 500], Some(&[0, 1, 2, 3]));
    }

    #[test]
    fn writers_are_held_smoothly() {
        assert_eq!(hold(1, 2, 1000, 1000), Hold::Go);
        assert_eq!(hold(2, 2, 499, 1000), Hold::Go);
        assert_eq!(hold(2, 2, 750, 1000), Hold::For(HOLD_MAX / 4));
        assert_eq!(hold(2, 2, 1000, 1000), Hold::UntilFlushed);
    }
}
