//! Reads before writes: the row that decides a conditional write, and the timestamp that the write
//! must exceed.
//!
//! A condition that holds promises that the write wins. Its timestamp must therefore exceed those
//! of all cells and deletions it meets, dead or alive. A tombstone with a later timestamp would
//! hide the acknowledged write.

use crate::env::Env;
use crate::error::StorageError;
use crate::model::partition::Partition;
use crate::model::row::EncodedRow;
use crate::model::view::{PartitionView, RowView};
use crate::read::merge::MergeStream;

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
    pub(crate) fn of(partition: Option<&Partition>, clustering: &[u8], now_s: u32) -> RowBefore {
        let Some(partition) = partition else { return RowBefore { row: None, newest: i64::MIN } };
        let row = partition.row(clustering);
        let floor = partition.floor(clustering);
        let newest = row.map_or(i64::MIN, EncodedRow::newest).max(floor);
        RowBefore { row: row.and_then(|row| RowView::new(row.clone(), floor, now_s)), newest }
    }
}

impl StaticsBefore {
    pub(crate) fn of(partition: Option<Partition>, now_s: u32) -> StaticsBefore {
        let newest = match &partition {
            Some(Partition::Full(full)) => {
                let deletion = full.deletion.map_or(i64::MIN, |deletion| deletion.timestamp);
                full.statics().map_or(i64::MIN, EncodedRow::newest).max(deletion)
            }
            Some(Partition::Single(_)) | None => i64::MIN,
        };
        StaticsBefore { view: partition.map(|partition| PartitionView::new(partition, now_s)), newest }
    }
}

/// Returns the greatest timestamp in a stream, dead or alive; `i64::MIN` if it is empty.
pub(crate) async fn newest_in(mut stream: MergeStream, env: &dyn Env) -> Result<i64, StorageError> {
    let mut newest = i64::MIN;
    while let Some(piece) = stream.next_piece().await? {
        newest = match &piece.partition {
            Partition::Single(row) => newest.max(row.newest()),
            Partition::Full(full) => {
                let deletions = full.deletion.into_iter().chain(full.ranges.iter().map(|range| range.2));
                let deletions = deletions.map(|deletion| deletion.timestamp);
                let rows = full.statics().into_iter().chain(full.rows.iter()).map(EncodedRow::newest);
                deletions.chain(rows).fold(newest, i64::max)
            }
        };
        if let Some(pause) = env.spend(piece.partition.row_count() as u32 + 1) {
            pause.await;
        }
    }
    Ok(newest)
}
