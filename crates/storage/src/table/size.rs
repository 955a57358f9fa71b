//! Approximate sizes of tables, for planners, which need only the order of magnitude but at once.

use std::collections::VecDeque;

use crate::memtable::{Memtable, ScanFrom};
use crate::model::TableId;
use crate::model::partition::Partition;
use crate::shard::Shard;

/// Partitions sampled from a memtable. Tokens are uniform hashes, so the first ones are
/// representative.
const SAMPLE: usize = 16;

/// Rows and bytes of a table on one core. A row in several files counts several times, and deleted
/// data counts as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSize {
    /// Rows. A partition with static cells alone counts as one.
    pub rows: u64,
    /// Bytes: compressed in files, uncompressed in memtables.
    pub bytes: u64,
}

impl Shard {
    /// Returns the approximate size of a table, from the footers of its files and a sample of each
    /// memtable.
    pub fn table_size(&self, table: TableId) -> TableSize {
        let state = self.state.borrow();
        let mut size = TableSize::default();
        let Some(table) = state.tables.get(&table) else { return size };
        for file in table.files.iter() {
            size.rows += file.statistics.map_or(0, |statistics| statistics.rows);
            size.bytes += file.bytes;
        }
        for memory in table.memtables() {
            let sampled = of_sample(memory);
            size.rows += sampled.rows;
            size.bytes += sampled.bytes;
        }
        size
    }
}

impl Shard {
    /// Returns the approximate size of a table's memtables.
    pub(crate) fn memory_size(&self, table: TableId) -> TableSize {
        let state = self.state.borrow();
        let sampled = state.tables.get(&table).into_iter().flat_map(|table| table.memtables()).map(of_sample);
        sampled.fold(TableSize::default(), |sum, one| TableSize {
            rows: sum.rows + one.rows,
            bytes: sum.bytes + one.bytes,
        })
    }
}

fn of_sample(memory: &Memtable) -> TableSize {
    let mut sample = VecDeque::with_capacity(SAMPLE);
    memory.collect(&ScanFrom::Token(i64::MIN), i64::MAX, SAMPLE, &mut sample);
    let (mut rows, mut bytes) = (0, 0);
    for (_, key, partition) in &sample {
        bytes += key.len();
        match partition {
            Partition::Single(row) => {
                rows += 1;
                bytes += row.bytes();
            }
            Partition::Full(full) => {
                rows += full.rows.len().max(1);
                // Rows of a partition are similar.
                let of_rows: usize = full.rows.iter().take(SAMPLE).map(|row| row.bytes()).sum();
                bytes += of_rows * full.rows.len() / full.rows.len().clamp(1, SAMPLE);
                bytes += full.statics.as_ref().map_or(0, |row| row.bytes());
            }
        }
    }
    let scaled = |sampled: usize| (sampled as u64 * memory.len() as u64).div_ceil(sample.len().max(1) as u64);
    TableSize { rows: scaled(rows), bytes: scaled(bytes) }
}
