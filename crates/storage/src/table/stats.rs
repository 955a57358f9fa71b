//! Sizes and counts of one table, and its largest partitions, from what is known of its files. Nothing is read from the disk.

use std::cell::Cell;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::model::TableId;
use crate::shard::Shard;
use crate::table::file::TableFile;

/// Numbers of searched runs that reads are told apart by; more count as the last.
pub const SEARCHED_MAX: usize = 17;

/// Partitions of a file that are compared with those of other files.
const CANDIDATES: usize = 16;

/// Entries of an index that cost a work unit to go through.
const ENTRIES_A_UNIT: usize = 16;

/// A table on one core. Rows, cells and tombstones are those of files, counted as often as they are in one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableStats {
    /// Table files.
    pub files: u64,
    /// Table files that compactions leave out because of damage.
    pub files_damaged: u64,
    /// Runs, which a read searches.
    pub runs: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes of files that are dead by now, as far as expiry and tombstones say.
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
    /// Runs that wait to become one.
    pub backlog_runs: u64,
    /// Bytes to be merged until the table is as its strategy wants it.
    pub backlog_bytes: u64,
    /// Reads of a partition by the number of runs whose filter had it, from 0, since the table got its data.
    pub searched: [u64; SEARCHED_MAX],
}

/// Counts reads by the number of runs that they searched.
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

/// A partition that takes more than one block of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LargePartition {
    /// Its key.
    pub key: Bytes,
    /// Bytes of its blocks in all files, as they are on the disk: less than a block for each file too many or too few.
    pub bytes: u64,
    /// Rows of those blocks.
    pub rows: u64,
    /// Files that have a large part of it.
    pub files: u64,
}

impl Shard {
    /// What is known of a table now. Costs a step for each file.
    pub fn table_stats(&self, id: TableId) -> TableStats {
        let size_of_memory = self.memory_size(id);
        let state = self.state.borrow();
        let Some(table) = state.tables.get(&id) else { return TableStats::default() };
        let now_s = self.world.now_s();
        let choice = self.choice(&state, id, table);
        let mut stats = TableStats {
            files: table.files.len() as u64,
            files_damaged: table.files.aside() as u64,
            runs: table.files.runs().len() as u64,
            memtable_bytes: size_of_memory.bytes,
            memtable_rows: size_of_memory.rows,
            backlog_runs: choice.waiting as u64,
            backlog_bytes: choice.backlog,
            searched: std::array::from_fn(|runs| table.searched.0[runs].get()),
            ..TableStats::default()
        };
        for run in table.files.runs() {
            stats.file_bytes += run.bytes;
            stats.index_bytes += run.resident_bytes as u64;
            let (all, dead) = (run.known.cells + run.known.rows, run.known.deaths.before(now_s));
            let dead = u128::from(run.bytes) * u128::from(dead.min(all)) / u128::from(all.max(1));
            stats.dead_bytes += dead as u64;
        }
        for statistics in table.files.iter().filter_map(|file| file.statistics.as_ref()) {
            stats.rows += statistics.rows;
            stats.cells += statistics.cells;
            stats.tombstones += statistics.tombstones;
        }
        stats
    }

    /// The largest partitions of a table, at most `count`, largest first: of those that take more than one block of some file,
    /// as the indexes of files show them. What memory has does not count.
    pub async fn largest_partitions(&self, id: TableId, count: usize) -> Vec<LargePartition> {
        let files = self.state.borrow().tables.get(&id).map(|table| table.files.clone());
        let mut all: FxHashMap<(i64, Bytes), LargePartition> = FxHashMap::default();
        for file in files.iter().flat_map(|files| files.iter()) {
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
            if let Some(due) = self.world.spend((file.index.len() / ENTRIES_A_UNIT) as u32 + 1) {
                due.await;
            }
        }
        let mut all: Vec<LargePartition> = all.into_values().collect();
        keep_largest(&mut all, count);
        all
    }
}

fn keep_largest(partitions: &mut Vec<LargePartition>, count: usize) {
    partitions.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
    partitions.truncate(count);
}

/// Partitions of a file that go on from one block to the next, with their tokens. A block that begins inside of a
/// partition counts as all its own, and the block that the partition begins in counts if it begins there.
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
