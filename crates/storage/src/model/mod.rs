//! The data model, Cassandra's: a partition holds static cells and rows in clustering order; every cell carries
//! its own timestamp and expiry; what is deleted leaves a tombstone until compaction may forget it.
//!
//! Keys and values are opaque bytes here. Clustering keys come in an order-preserving encoding, so comparing
//! bytes compares rows; what a column number or a value means is known above this crate.

pub(crate) mod codec;
pub(crate) mod encoded;
pub(crate) mod layers;
pub(crate) mod partition;
pub(crate) mod ranges;
pub(crate) mod reconcile;
pub(crate) mod row;
pub(crate) mod view;

use std::ops::Bound;

use bytes::Bytes;

use crate::model::row::Row;

/// The identity of a table: its UUID as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableId(pub u128);

impl TableId {
    /// Whether this is a table of the server's own: those are not split by token, but whole on shard 0. Identities below 2^16 are
    /// theirs; those of users' tables are random, and greater.
    pub(crate) fn is_systems(self) -> bool {
        self.0 < 1 << 16
    }
}

/// When a value ceases to exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// The time to live as written, in seconds; kept to answer `TTL()`.
    pub ttl_s: u32,
    /// The moment of expiry, in seconds since the Unix epoch; from this second on the value is gone.
    pub at_s: u32,
}

/// What a cell holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellValue<'a> {
    /// A value, perhaps for a limited time.
    Live {
        /// The encoded value.
        value: &'a [u8],
        /// `None`: for ever.
        expiry: Option<Expiry>,
    },
    /// A tombstone: of the cell, or of the elements of a column where it has elements and this has no path.
    Dead {
        /// When the deletion was made, in seconds since the Unix epoch; decides when it may be forgotten.
        deleted_at_s: u32,
    },
}

/// One column of one row, or one element of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellRef<'a> {
    /// The column's number within its table; never reused by that table.
    pub column: u32,
    /// Which element of a collection, or field of a user type; elements are in the order of these bytes.
    pub path: Option<&'a [u8]>,
    /// Write time in microseconds; the higher one wins.
    pub timestamp: i64,
    /// The value or its absence.
    pub value: CellValue<'a>,
}

impl<'a> CellRef<'a> {
    /// A value that does not expire.
    pub fn live(column: u32, timestamp: i64, value: &'a [u8]) -> CellRef<'a> {
        CellRef { column, path: None, timestamp, value: CellValue::Live { value, expiry: None } }
    }

    /// A value that expires.
    pub fn expiring(column: u32, timestamp: i64, value: &'a [u8], expiry: Expiry) -> CellRef<'a> {
        CellRef { column, path: None, timestamp, value: CellValue::Live { value, expiry: Some(expiry) } }
    }

    /// A tombstone.
    pub fn dead(column: u32, timestamp: i64, deleted_at_s: u32) -> CellRef<'a> {
        CellRef { column, path: None, timestamp, value: CellValue::Dead { deleted_at_s } }
    }

    /// The same for one element of the column.
    #[must_use]
    pub fn at(self, path: &'a [u8]) -> CellRef<'a> {
        CellRef { path: Some(path), ..self }
    }

    /// What orders the cells of a row.
    #[inline]
    pub(crate) fn place(&self) -> (u32, Option<&'a [u8]>) {
        (self.column, self.path)
    }

    /// The value, also of an expired cell; `None` for a tombstone. Cells handed out by views are never expired.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        match self.value {
            CellValue::Live { value, .. } => Some(value),
            CellValue::Dead { .. } => None,
        }
    }

    /// The expiry of a live value.
    pub fn expiry(&self) -> Option<Expiry> {
        match self.value {
            CellValue::Live { expiry, .. } => expiry,
            CellValue::Dead { .. } => None,
        }
    }

    /// Whether the cell holds a value that has not expired at `now_s` (Unix seconds).
    #[inline]
    pub fn is_live(&self, now_s: u32) -> bool {
        match self.value {
            CellValue::Live { expiry: None, .. } => true,
            CellValue::Live { expiry: Some(expiry), .. } => expiry.at_s > now_s,
            CellValue::Dead { .. } => false,
        }
    }
}

/// The row marker: an `INSERT` makes a row exist even when all its columns are null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// Write time in microseconds.
    pub timestamp: i64,
    /// `None`: for ever.
    pub expiry: Option<Expiry>,
}

impl Liveness {
    /// Whether the marker has not expired at `now_s` (Unix seconds).
    #[inline]
    pub fn is_live(&self, now_s: u32) -> bool {
        self.expiry.is_none_or(|expiry| expiry.at_s > now_s)
    }
}

/// A deletion of a row, a range of rows or a partition: it shadows whatever was written at or before its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deletion {
    /// Write time in microseconds.
    pub timestamp: i64,
    /// When it was made, in seconds since the Unix epoch; decides when it may be forgotten.
    pub deleted_at_s: u32,
}

/// One change to one partition.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Write to, or delete, one row.
    Row(Row),
    /// Write static cells: a row without clustering, marker and deletion.
    Static(Row),
    /// Delete the partition.
    DeletePartition(Deletion),
    /// Delete the rows between two bounds. The bounds are kept with the allocations they are slices of, so whoever makes them gives
    /// them allocations of their own.
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
    /// Whether it deletes and writes nothing.
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

/// Changes to one partition, applied together.
#[derive(Clone, PartialEq, Debug)]
pub struct Mutation {
    /// The table.
    pub table: TableId,
    /// The token of the key; partitions are ordered by (token, key).
    pub token: i64,
    /// The encoded partition key.
    pub key: Bytes,
    /// What changes.
    pub changes: Vec<Change>,
}
