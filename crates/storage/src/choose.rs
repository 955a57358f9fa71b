//! What to compact: decisions over numbers, with no clock and no I/O.

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

/// Bytes to be written until no tier is full: each file is merged about once for each power of `threshold` that it is smaller than
/// all of them together.
pub(crate) fn backlog_bytes(bytes: &[u64], threshold: usize) -> u64 {
    let total: u64 = bytes.iter().sum();
    let levels = |own: u64| (total / own.max(1)).max(1).ilog(threshold.max(2) as u64);
    match compaction(bytes, threshold) {
        None => 0,
        Some(_) => bytes.iter().map(|own| own * u64::from(levels(*own))).sum(),
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
}
