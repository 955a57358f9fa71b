//! Approximate sizes of tables, for planners, which need only the order of magnitude but at once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::memtable::{Memtable, ScanFrom};
use crate::model::partition::Partition;
use crate::table::file::TableFile;
use crate::table::runs::Files;

/// Partitions sampled from a memtable. Tokens are uniform hashes, so the first ones are
/// representative.
const SAMPLE: usize = 16;

/// Rows and bytes of a table on one core. A row in several files counts several times, and deleted
/// data counts as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSize {
    /// Rows. A partition with static cells alone counts as one.
    pub rows: u64,
    /// Partitions.
    pub partitions: u64,
    /// Bytes: compressed in files, uncompressed in memtables.
    pub bytes: u64,
}

impl TableSize {
    /// Returns the approximate size of memtables, from a sample of each.
    pub(crate) fn of_memtables<'a>(memtables: impl Iterator<Item = &'a Memtable>) -> TableSize {
        memtables.map(of_sample).fold(TableSize::default(), TableSize::plus)
    }

    /// Returns the size of files, from their footers.
    pub(crate) fn of_files(files: &Files) -> TableSize {
        let of_file = |file: &Arc<TableFile>| TableSize {
            rows: file.statistics.map_or(0, |statistics| statistics.rows),
            partitions: file.partitions,
            bytes: file.bytes,
        };
        files.iter().map(of_file).fold(TableSize::default(), TableSize::plus)
    }

    /// Returns the sum of two sizes.
    #[must_use]
    pub fn plus(self, other: TableSize) -> TableSize {
        TableSize {
            rows: self.rows + other.rows,
            partitions: self.partitions + other.partitions,
            bytes: self.bytes + other.bytes,
        }
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
    TableSize { rows: scaled(rows), partitions: memory.len() as u64, bytes: scaled(bytes) }
}
