//! A limit for rows with collections. A collection grows by writes of single elements, over many
//! flushes, and no writer sees its size. A reader and a compaction need all of the row at once.
//!
//! 1. A memtable knows the bytes of its rows. A flush or a compaction notes the large rows that it
//!    writes, in memory, beside the file.
//! 2. A write of an element to a row that has more than [`crate::StorageOptions::row_bytes_max`]
//!    bytes, over all versions known, is refused. A version that a deletion of the row or the
//!    partition shadows does not count.
//! 3. Versions in files of an earlier start are not known until a compaction reads them. So readers
//!    and compactions have limits of their own.
//!
//! Rows without collections are not limited: their columns are few, and a record limits each.

use std::sync::atomic::Ordering;

use crate::memtable::Memtable;
use crate::model::{Change, Deletion};
use crate::state::ShardTable;
use crate::table::large_rows::{hash, noted_from};

impl ShardTable {
    /// Returns true if some row may be near the limit, so that writes need a check.
    #[inline]
    pub(crate) fn has_large_rows(&self, row_bytes_max: usize) -> bool {
        let is_noted = |memtable: &Memtable| memtable.largest_row() >= noted_from(row_bytes_max);
        is_noted(&self.active) || self.files.large_rows() > 0 || self.frozen.iter().any(|(_, m)| is_noted(m))
    }

    /// Returns true if a change adds elements to a row beyond the limit. Notes which versions in
    /// files a deletion shadows.
    pub(crate) fn exceeds_limit(
        &self,
        token: i64,
        key: &[u8],
        change: &Change,
        row_bytes_max: usize,
    ) -> bool {
        let (row, clustering) = match change {
            Change::Row(row) => (row, Some(row.clustering())),
            Change::Static(row) => (row, None),
            Change::DeletePartition(deletion) => {
                self.note_deleted(token, key, None, *deletion);
                return false;
            }
            Change::DeleteRange { .. } => return false,
        };
        if let Some(deletion) = row.deletion() {
            self.note_deleted(token, key, Some(clustering), deletion);
        }
        if !row.has_elements() || change.is_deletion() {
            return false;
        }
        let memtables = self.memtables().filter_map(|memtable| memtable.get(token, key));
        let in_memory: usize = memtables.map(|partition| partition.row_bytes(change)).sum();
        let id = hash(key, Some(clustering));
        let noted = self.files.holding(token).flat_map(|file| file.large_rows.of(token));
        let live = noted.filter(|row| row.row == id && !row.is_deleted.load(Ordering::Relaxed));
        in_memory + live.map(|row| row.bytes).sum::<usize>() > row_bytes_max
    }

    fn note_deleted(&self, token: i64, key: &[u8], row: Option<Option<&[u8]>>, deletion: Deletion) {
        let id = hash(key, row);
        for file in self.files.holding(token) {
            let shadowed = file.large_rows.of(token).filter(|large| {
                deletion.timestamp >= large.timestamp
                    && id == if row.is_some() { large.row } else { large.key }
            });
            shadowed.for_each(|large| large.is_deleted.store(true, Ordering::Relaxed));
        }
    }
}
