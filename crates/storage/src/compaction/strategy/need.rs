//! Chooses among tables: the most needed compaction starts first, and small ones run beside a large
//! one.

/// The most compactions of a shard in flight, not counting requested ones. Each holds a fragment
/// and a block of every input in memory.
pub(crate) const COMPACTIONS_MAX: usize = 3;

/// A compaction starts beside others if its size is at most 1/4 of what the smallest of them has
/// left. It then ends long before, so that few runs pile up behind a large compaction, which is
/// hardly slower.
const SMALLER: u64 = 4;

/// A compaction that could start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) bytes: u64,
    /// Runs that wait for it, each of which costs every read of the table a search.
    pub(crate) waiting: usize,
    /// Time since when it has been needed, ms.
    pub(crate) waited_ms: u64,
}

/// Returns the greatest size of the next compaction, beside compactions with these bytes left.
/// `None`: no compaction may start.
pub(crate) fn size_limit(left: impl IntoIterator<Item = u64>) -> Option<u64> {
    let (mut count, mut least) = (0, u64::MAX);
    for left in left {
        count += 1;
        least = least.min(left / SMALLER);
    }
    (count < COMPACTIONS_MAX).then_some(least)
}

/// Returns the most needed candidate of at most `limit` bytes.
///
/// Need is runs × time: every waiting run costs each read a search. A table with constant writes
/// has many runs, but its time restarts with each compaction. So no other table waits forever.
pub(crate) fn most_needed<T>(candidates: impl IntoIterator<Item = (T, Candidate)>, limit: u64) -> Option<T> {
    let need = |c: &Candidate| (c.waiting as u128) * (1 + u128::from(c.waited_ms));
    let fitting = candidates.into_iter().filter(|(_, candidate)| candidate.bytes <= limit);
    fitting.max_by_key(|(_, c)| (need(c), u64::MAX - c.bytes)).map(|(table, _)| table)
}

/// Waiting runs from which on writers are slowed, and at which they are slowed most. A table
/// without lag has three runs of each size tier, and a compaction takes 32 at once.
const RUNS_SOFT: u64 = 48;
const RUNS_HARD: u64 = 128;

/// The most that writers are slowed for runs, in millionths: to 1/9 of the rate of compaction.
const SLOWED_MAX_PPM: u64 = 900_000;

/// Returns how far waiting runs have piled up, in millionths. A table's own threshold may raise the
/// limit.
pub(crate) fn pressure_ppm(waiting: usize, min_threshold: u32) -> u32 {
    let soft = RUNS_SOFT.max(2 * u64::from(min_threshold));
    let hard = soft + RUNS_HARD - RUNS_SOFT;
    let over = (waiting as u64).saturating_sub(soft);
    (over * SLOWED_MAX_PPM / (hard - soft)).min(SLOWED_MAX_PPM) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn small_compaction_starts_beside_a_large_one() {
        assert_eq!(size_limit([]), Some(u64::MAX));
        assert_eq!(size_limit([1000 * MIB]), Some(250 * MIB));
        assert_eq!(size_limit([1000 * MIB, 40 * MIB]), Some(10 * MIB));
        assert_eq!(size_limit([1000 * MIB, 40 * MIB, 8 * MIB]), None);
        let of = |bytes| Candidate { bytes, waiting: 4, waited_ms: 1000 };
        assert_eq!(most_needed([("large", of(500 * MIB)), ("small", of(5 * MIB))], 250 * MIB), Some("small"));
        assert_eq!(most_needed([("large", of(500 * MIB))], 250 * MIB), None);
    }

    /// Five tables, of which one always has the most runs: each is compacted repeatedly.
    #[test]
    fn busy_table_starves_no_other() {
        let mut waited = [0_u64; 5];
        let mut merged = [0; 5];
        for _ in 0..1000 {
            let candidate = |table: usize| Candidate {
                bytes: MIB,
                waiting: if table == 0 { 40 } else { 4 },
                waited_ms: waited[table],
            };
            let table = most_needed((0..5).map(|table| (table, candidate(table))), u64::MAX).expect("some");
            merged[table] += 1;
            waited.iter_mut().for_each(|ms| *ms += 100);
            waited[table] = 0;
        }
        assert!(merged.iter().all(|count| *count >= 100), "{merged:?}");
        assert!(
            merged[0] > 2 * merged[1],
            "the one with ten times the runs is compacted more often: {merged:?}"
        );
    }

    #[test]
    fn writers_are_slowed_from_48_runs_to_128() {
        let at = [0, 48, 49, 88, 128, 1000].map(|waiting| pressure_ppm(waiting, 4));
        assert_eq!(at, [0, 0, 11_250, 450_000, 900_000, 900_000]);
        assert_eq!(pressure_ppm(100, 50), 0, "the table wants 50 of a size");
    }
}
