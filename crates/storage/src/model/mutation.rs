//! Changes of a partition, and those that are applied together.

use std::ops::Bound;

use bytes::Bytes;

use crate::model::row::EncodedRow;
use crate::model::{Deletion, TableId};

/// A change of a partition.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Write or delete a row.
    Row(EncodedRow),
    /// Write static cells: a row without clustering, marker and deletion.
    Static(EncodedRow),
    /// Delete the partition.
    DeletePartition(Deletion),
    /// Delete the rows between two bounds. The memtable keeps the allocations of the bounds, so the
    /// caller gives each bound its own.
    DeleteRange {
        /// Lower bound over clustering encodings.
        start: Bound<Bytes>,
        /// Upper bound over clustering encodings.
        end: Bound<Bytes>,
        /// The deletion.
        deletion: Deletion,
    },
}

impl Change {
    /// Returns its greatest timestamp; `i64::MIN` if it changes nothing.
    #[inline]
    pub(crate) fn newest(&self) -> i64 {
        match self {
            Change::Row(row) | Change::Static(row) => row.newest(),
            Change::DeletePartition(deletion) | Change::DeleteRange { deletion, .. } => deletion.timestamp,
        }
    }

    /// Returns true if it only deletes.
    pub(crate) fn is_deletion(&self) -> bool {
        match self {
            Change::Row(row) => {
                let deletes = row.deletion().is_some() || row.cells().next().is_some();
                deletes && row.marker().is_none() && row.cells().all(|cell| cell.value().is_none())
            }
            Change::Static(row) => row.cells().all(|cell| cell.value().is_none()),
            Change::DeletePartition(_) | Change::DeleteRange { .. } => true,
        }
    }
}

/// Changes of a partition, applied together.
#[derive(Clone, PartialEq, Debug)]
pub struct Mutation {
    /// The table.
    pub table: TableId,
    /// Token of the key. Partitions are ordered by (token, key).
    pub token: i64,
    /// The encoded partition key.
    pub key: Bytes,
    /// The changes.
    pub changes: Vec<Change>,
}
