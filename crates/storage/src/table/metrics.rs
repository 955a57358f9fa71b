//! Sizes and counts of one table, and its largest partitions, from footers and indexes in memory.
//! Reads nothing from the disk.

use std::cell::Cell;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::env::Env;
use crate::table::file::TableFile;
use crate::table::runs::Files;
use crate::table::size::TableSize;

/// Reads are counted by the number of runs they searched, up to this number minus one. More runs
/// count as the last.
pub const SEARCHED_MAX: usize = 17;

/// Partitions of one file that are compared with those of other files.
const CANDIDATES: usize = 16;

/// Index entries visited for one work unit.
const ENTRIES_A_UNIT: usize = 16;

/// Metrics of a table on one core. Rows, cells and tombstones are those of files; a row in several
/// files counts several times.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableStats {
    /// Table files.
    pub files: u64,
    /// Table files in which a start, a compaction, a scrub or a read has found damage.
    pub files_damaged: u64,
    /// Runs, each of which a read searches.
    pub runs: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes of dead data in files, as far as expiry and tombstones tell.
    pub dead_bytes: u64,
    /// Memory of filters and indexes.
    pub index_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Cells.
    pub cells: u64,
    /// Tombstones of cells, rows, ranges and partitions.
    pub tombstones: u64,
    /// Bytes of memtables, estimated from a few partitions.
    pub memtable_bytes: u64,
    /// Rows of memtables, likewise.
    pub memtable_rows: u64,
    /// Runs that wait for a compaction.
    pub backlog_runs: u64,
    /// Bytes to compact until the table meets its strategy.
    pub backlog_bytes: u64,
    /// Reads of a partition by the number of runs that they searched, from 0, since the start or
    /// the last TRUNCATE.
    pub searched: [u64; SEARCHED_MAX],
}

/// Counts reads by the number of runs they searched.
#[derive(Debug)]
pub(crate) struct Searched([Cell<u64>; SEARCHED_MAX]);

impl Default for Searched {
    fn default() -> Searched {
        Searched([const { Cell::new(0) }; SEARCHED_MAX])
    }
}

impl Searched {
    #[inline]
    pub(crate) fn count(&self, runs: usize) {
        let reads = &self.0[runs.min(SEARCHED_MAX - 1)];
        reads.set(reads.get() + 1);
    }
}

/// A partition that spans several blocks of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargePartition {
    /// The partition key.
    pub key: Bytes,
    /// Stored bytes of its blocks in all files. The error is less than one block for each file.
    pub bytes: u64,
    /// Rows of those blocks.
    pub rows: u64,
    /// Files with a large part of it.
    pub files: u64,
}

impl TableStats {
    /// Returns the metrics of a table without its backlog. Costs a step for each file.
    pub(crate) fn of(files: &Files, memory: TableSize, searched: &Searched, now_s: u32) -> TableStats {
        let mut stats = TableStats {
            files: files.len() as u64,
            files_damaged: files.damaged() as u64,
            runs: files.runs().len() as u64,
            memtable_bytes: memory.bytes,
            memtable_rows: memory.rows,
            searched: std::array::from_fn(|runs| searched.0[runs].get()),
            ..TableStats::default()
        };
        for run in files.runs() {
            stats.file_bytes += run.bytes;
            stats.index_bytes += run.resident_bytes as u64;
            let all = run.known.cells + run.known.rows;
            let dead = run.known.deaths.before(now_s);
            let dead = u128::from(run.bytes) * u128::from(dead.min(all)) / u128::from(all.max(1));
            stats.dead_bytes += dead as u64;
        }
        for statistics in files.iter().filter_map(|file| file.statistics.as_ref()) {
            stats.rows += statistics.rows;
            stats.cells += statistics.cells;
            stats.tombstones += statistics.tombstones;
        }
        stats
    }
}

/// Returns the largest partitions of these files, at most `count`, largest first.
pub(crate) async fn largest_partitions(files: &Files, count: usize, env: &dyn Env) -> Vec<LargePartition> {
    let mut all: FxHashMap<(i64, Bytes), LargePartition> = FxHashMap::default();
    for file in files.iter() {
        for (token, partition) in large_in(file) {
            let key = partition.key.clone();
            let sum = all.entry((token, key.clone())).or_insert(LargePartition {
                key,
                bytes: 0,
                rows: 0,
                files: 0,
            });
            sum.bytes += partition.bytes;
            sum.rows += partition.rows;
            sum.files += 1;
        }
        if let Some(due) = env.spend((file.index.len() / ENTRIES_A_UNIT) as u32 + 1) {
            due.await;
        }
    }
    let mut all: Vec<LargePartition> = all.into_values().collect();
    keep_largest(&mut all, count);
    all
}

fn keep_largest(partitions: &mut Vec<LargePartition>, count: usize) {
    partitions.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
    partitions.truncate(count);
}

/// Returns the partitions of a file that span blocks, with their tokens. A block that starts inside
/// a partition counts fully for it. The block in which the partition starts counts only if
/// the partition is its first.
fn large_in(file: &TableFile) -> impl Iterator<Item = (i64, LargePartition)> {
    let mut found: Vec<(i64, LargePartition)> = Vec::new();
    let mut open: Option<(i64, LargePartition)> = None;
    for (at, block) in file.index.iter().enumerate() {
        let (token, key) = (block.start.token, &block.start.key);
        if block.start.clustering.is_some() {
            let is_open = open.as_ref().is_some_and(|(_, last)| last.key == *key);
            if !is_open {
                let first = at.checked_sub(1).map(|before| &file.index[before]);
                let first = first.filter(|first| first.start.key == *key);
                let (bytes, rows) = first.map_or((0, 0), |first| (first.stored.into(), first.rows.into()));
                found.extend(open.take());
                open = Some((token, LargePartition { key: key.clone(), bytes, rows, files: 1 }));
            }
            if let Some((_, last)) = &mut open {
                last.bytes += u64::from(block.stored);
                last.rows += u64::from(block.rows);
            }
        } else {
            found.extend(open.take());
        }
        if found.len() >= 8 * CANDIDATES {
            largest_of(&mut found);
        }
    }
    found.extend(open);
    found.retain(|(token, _)| file.entry.owns(*token));
    largest_of(&mut found);
    found.into_iter()
}

fn largest_of(found: &mut Vec<(i64, LargePartition)>) {
    found.sort_unstable_by_key(|(_, partition)| std::cmp::Reverse(partition.bytes));
    found.truncate(CANDIDATES);
}
