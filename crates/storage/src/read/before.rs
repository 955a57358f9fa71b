//! Reads before writes: the row that decides a conditional write, the timestamp that the write must
//! exceed, and the wait for the durability of what was read.
//!
//! A condition that holds promises that the write wins. Its timestamp must therefore exceed those
//! of all cells and deletions it meets, dead or alive. A tombstone with a later timestamp would
//! hide the acknowledged write.

use std::future::poll_fn;
use std::ops::Bound;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::ScanFrom;
use crate::model::TableId;
use crate::model::partition::Partition;
use crate::model::row::Row;
use crate::model::view::{PartitionView, RowView};
use crate::read::merge::MergeStream;
use crate::read::{Read, Target};
use crate::shard::Shard;
use crate::table::part::{PartRequest, Slice};

/// A row, and the newest timestamp stored for it.
#[derive(Clone, Debug)]
pub struct RowBefore {
    /// The row, if it is alive.
    pub row: Option<RowView>,
    /// The greatest timestamp of cells and deletions that cover the row, dead or alive; `i64::MIN`
    /// if there is none.
    pub newest: i64,
}

/// The static cells of a partition, and the newest timestamp stored for them.
#[derive(Clone, Debug)]
pub struct StaticsBefore {
    /// A view of the partition without rows; `None` if the partition was never written.
    pub view: Option<PartitionView>,
    /// As [`RowBefore::newest`].
    pub newest: i64,
}

impl RowBefore {
    fn of(partition: Option<&Partition>, clustering: &[u8], now_s: u32) -> RowBefore {
        let Some(partition) = partition else { return RowBefore { row: None, newest: i64::MIN } };
        let (row, floor) = (partition.row(clustering), partition.floor(clustering));
        let newest = row.map_or(i64::MIN, newest_of).max(floor);
        RowBefore { row: row.and_then(|row| RowView::new(row.clone(), floor, now_s)), newest }
    }
}

impl StaticsBefore {
    fn of(partition: Option<Partition>, now_s: u32) -> StaticsBefore {
        let newest = match &partition {
            Some(Partition::Full(full)) => {
                let deletion = full.deletion.map_or(i64::MIN, |deletion| deletion.timestamp);
                full.statics.as_ref().map_or(i64::MIN, newest_of).max(deletion)
            }
            Some(Partition::Single(_)) | None => i64::MIN,
        };
        StaticsBefore { view: partition.map(|partition| PartitionView::new(partition, now_s)), newest }
    }
}

/// Returns the greatest timestamp in a row.
fn newest_of(row: &Row) -> i64 {
    let cells = row.cells().map(|cell| cell.timestamp);
    let marker = row.marker().map(|marker| marker.timestamp);
    let deletion = row.deletion().map(|deletion| deletion.timestamp);
    cells.chain(marker).chain(deletion).fold(i64::MIN, i64::max)
}

impl Shard {
    /// Reads a row with all its columns, and the greatest timestamp that covers it.
    pub fn read_row_before(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        clustering: &[u8],
        now_s: u32,
    ) -> Read<RowBefore> {
        let target = Target { table, token, key: Bytes::copy_from_slice(key), now_s };
        let clustering = Bytes::copy_from_slice(clustering);
        let request = PartRequest::Row { clustering: clustering.clone(), columns: None, bypass_cache: false };
        self.gather_and(&target, request, move |gather| {
            RowBefore::of(gather.found.as_ref(), &clustering, now_s)
        })
    }

    /// Reads the static cells of a partition, and the greatest timestamp that covers them. Reads
    /// only the block with the partition's head of each file.
    pub fn read_statics_before(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        now_s: u32,
    ) -> Read<StaticsBefore> {
        let target = Target { table, token, key: Bytes::copy_from_slice(key), now_s };
        let (start, end) = (Bound::Included(Bytes::new()), Bound::Excluded(Bytes::new()));
        let no_rows = Slice { start, end, ..Slice::all(1) };
        self.gather_and(&target, PartRequest::Slice(no_rows.into()), move |gather| {
            StaticsBefore::of(gather.found, now_s)
        })
    }

    /// Returns the greatest timestamp in a table, dead or alive; `i64::MIN` if it is empty. Reads
    /// the whole table.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn newest_timestamp(self: &Rc<Self>, table: TableId) -> Result<i64, StorageError> {
        let mut stream = {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&table) else { return Ok(i64::MIN) };
            MergeStream::new(table.snapshot(), &table.files, ScanFrom::Token(i64::MIN), i64::MAX)
        };
        let mut newest = i64::MIN;
        while let Some(piece) = stream.next_piece().await? {
            newest = match &piece.partition {
                Partition::Single(row) => newest.max(newest_of(row)),
                Partition::Full(full) => {
                    let deletions = full.deletion.into_iter().chain(full.ranges.iter().map(|range| range.2));
                    let deletions = deletions.map(|deletion| deletion.timestamp);
                    let rows = full.statics.iter().chain(full.rows.iter()).map(newest_of);
                    deletions.chain(rows).fold(newest, i64::max)
                }
            };
            if let Some(pause) = self.env.spend(piece.partition.row_count() as u32 + 1) {
                pause.await;
            }
        }
        Ok(newest)
    }

    /// Waits until everything that readers can see now is durable, so that no crash reverts it.
    /// With a periodic log, waits until the log acknowledges it.
    ///
    /// # Errors
    /// The log failed before.
    pub async fn settled(self: &Rc<Self>) -> Result<(), StorageError> {
        let Some(log) = &self.log else { return Ok(()) };
        let last = log.last_record();
        let settled = poll_fn(|cx| {
            // A snapshot is being cut. It must not contain what a reader does after this answer.
            if self.acks_held.get() {
                self.acks_free.register(cx);
                return Poll::Pending;
            }
            log.poll_durable(last, false, cx)
        });
        settled.await.map(drop)
    }
}
