//! Rows that were read from files, kept in memory in the form in which reads merge them.
//!
//! A cached row is a *source* of a read: the merged versions of one row in the files up to a
//! *sequence*, never those of memtables. So writes, flushes and compactions need not change it:
//!
//! ```text
//!  read of k      memtables │ cached row: files 1 to 7 │ file 8: its filter has no k
//!  k is flushed   memtables │ cached row: files 1 to 7 │ file 9: is asked, and a new row is cached
//!  compaction     memtables │ cached row: files 1 to 7 │ 9, and 10 = 3 + 5 with the sequence 5: covered
//! ```
//!
//! 1. A file that a flush adds gets the next number of its table as its sequence, an output of a
//!    compaction the greatest of its inputs. Files that were there at the start have 0.
//! 2. The read that made it may have ended before it asked all files, because it was settled
//!    (`settled.rs`). Their greatest timestamp is in `unasked`: a later read that is not settled
//!    above it asks them.
//! 3. Rows with tombstones are not cached, and rows with a TTL only until they expire. A tombstone
//!    may be purged from the files, and readers would see another row with the cache than without.
//! 4. What removes data at once (TRUNCATE, DROP, SCRUB, an import) makes all cached rows invalid.

use std::sync::Arc;

use bytes::Bytes;

use crate::model::partition::Partition;
use crate::model::{CellValue, TableId};

/// Bytes of the largest row that is cached.
const ROW_BYTES_MAX: usize = 4 << 10;

/// A row of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct RowPlace<'a> {
    pub(crate) table: TableId,
    pub(crate) token: i64,
    pub(crate) key: &'a [u8],
    pub(crate) clustering: &'a [u8],
}

/// A cached row.
#[derive(Debug)]
pub(crate) struct CachedRow {
    table: TableId,
    token: i64,
    key: Bytes,
    clustering: Bytes,
    /// See [`crate::table::cache::Cache::epoch`].
    pub(crate) epoch: u64,
    /// Files up to it are covered.
    pub(crate) sequence: u64,
    /// The greatest timestamp of covered files that were not asked, if there are some.
    pub(crate) unasked: Option<i64>,
    /// The columns that were decoded, ascending; `None`: all.
    pub(crate) columns: Option<Arc<[u32]>>,
    /// The second from which it is invalid, because a cell has expired.
    valid_until_s: u32,
    /// Nothing but the row.
    pub(crate) partition: Partition,
}

impl CachedRow {
    /// Returns the row, if it may be cached at `now_s`: see the module.
    pub(crate) fn new(
        place: RowPlace<'_>,
        partition: Partition,
        columns: Option<Arc<[u32]>>,
        epoch: u64,
        sequence: u64,
        unasked: Option<i64>,
        now_s: u32,
    ) -> Option<CachedRow> {
        // Layers of a large row are not merged here.
        let row = partition.opens_at_once().then(|| partition.row(place.clustering))??;
        if row.bytes() > ROW_BYTES_MAX || row.deletion().is_some() || partition.has_deletions() {
            return None;
        }
        let marker = row.marker().and_then(|marker| marker.expiry);
        let mut valid_until_s = marker.map_or(u32::MAX, |expiry| expiry.at_s);
        for cell in row.cells() {
            match cell.value {
                CellValue::Dead { .. } => return None,
                CellValue::Live { expiry, .. } => {
                    valid_until_s = valid_until_s.min(expiry.map_or(u32::MAX, |expiry| expiry.at_s));
                }
            }
        }
        if valid_until_s <= now_s {
            return None;
        }
        let RowPlace { table, token, key, clustering } = place;
        let key = Bytes::copy_from_slice(key);
        let clustering = Bytes::copy_from_slice(clustering);
        Some(CachedRow {
            table,
            token,
            key,
            clustering,
            epoch,
            sequence,
            unasked,
            columns,
            valid_until_s,
            partition,
        })
    }

    /// Returns true if it is this row, with these columns, and nothing of it has expired.
    pub(crate) fn is_for(&self, place: RowPlace<'_>, columns: Option<&[u32]>, now_s: u32) -> bool {
        let own =
            RowPlace { table: self.table, token: self.token, key: &self.key, clustering: &self.clustering };
        let has_columns = match (&self.columns, columns) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(wanted)) => {
                **own == *wanted || wanted.iter().all(|column| own.binary_search(column).is_ok())
            }
        };
        own == place && has_columns && now_s < self.valid_until_s
    }

    /// Returns true if files that were not asked may change what a reader sees who knows the row
    /// above the timestamp `settled`.
    #[inline]
    pub(crate) fn leaves_open(&self, settled: i64) -> bool {
        self.unasked.is_some_and(|unasked| unasked >= settled)
    }

    /// Returns its bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let row = self.partition.row(&self.clustering).map_or(0, |row| row.bytes());
        size_of::<CachedRow>() + self.key.len() + self.clustering.len() + row + self.partition.overhead()
    }
}
