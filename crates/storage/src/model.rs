//! The data model, Cassandra's: a partition holds static cells and rows in clustering order; every cell carries
//! its own timestamp and expiry; what is deleted leaves a tombstone until compaction may forget it.
//!
//! Keys and values are opaque bytes here. Clustering keys come in an order-preserving encoding, so comparing
//! bytes compares rows; what a column number or a value means is known above this crate.

use std::ops::Bound;

use bytes::Bytes;

/// The identity of a table: its UUID as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableId(pub u128);

/// When a value ceases to exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// The time to live as written, in seconds; kept to answer `TTL()`.
    pub ttl_s: u32,
    /// The moment of expiry, in seconds since the Unix epoch; from this second on the value is gone.
    pub at_s: u32,
}

/// What a cell holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CellValue {
    /// A value, perhaps for a limited time.
    Live {
        /// The encoded value.
        value: Bytes,
        /// `None`: for ever.
        expiry: Option<Expiry>,
    },
    /// A cell tombstone.
    Dead {
        /// When the deletion was made, in seconds since the Unix epoch; decides when it may be forgotten.
        deleted_at_s: u32,
    },
}

/// One column of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The column's number within its table; never reused by that table.
    pub column: u32,
    /// Write time in microseconds; the higher one wins.
    pub timestamp: i64,
    /// The value or its absence.
    pub value: CellValue,
}

impl Cell {
    /// A value that does not expire.
    pub fn live(column: u32, timestamp: i64, value: impl Into<Bytes>) -> Cell {
        Cell { column, timestamp, value: CellValue::Live { value: value.into(), expiry: None } }
    }

    /// A value that expires.
    pub fn expiring(column: u32, timestamp: i64, value: impl Into<Bytes>, expiry: Expiry) -> Cell {
        Cell { column, timestamp, value: CellValue::Live { value: value.into(), expiry: Some(expiry) } }
    }

    /// A cell tombstone.
    pub fn dead(column: u32, timestamp: i64, deleted_at_s: u32) -> Cell {
        Cell { column, timestamp, value: CellValue::Dead { deleted_at_s } }
    }

    /// The value, also of an expired cell; `None` for a tombstone. Cells handed out by views are never expired.
    pub fn value(&self) -> Option<&Bytes> {
        match &self.value {
            CellValue::Live { value, .. } => Some(value),
            CellValue::Dead { .. } => None,
        }
    }

    /// The expiry of a live value.
    pub fn expiry(&self) -> Option<Expiry> {
        match &self.value {
            CellValue::Live { expiry, .. } => *expiry,
            CellValue::Dead { .. } => None,
        }
    }

    /// Whether the cell holds a value that has not expired at `now_s` (Unix seconds).
    #[inline]
    pub fn is_live(&self, now_s: u32) -> bool {
        match &self.value {
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

/// One change to one partition. Its byte strings are kept as they are, with the allocations they are slices of: whoever makes it
/// gives them allocations of their own, or memory is taken by what nobody needs and counted by nobody ([`Change::pack`]).
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Write to, or delete, one row.
    Row {
        /// The row's place: an order-preserving encoding, empty for the only row of a table without clustering.
        clustering: Bytes,
        /// The row marker, if the statement sets one.
        liveness: Option<Liveness>,
        /// A deletion of the whole row.
        deletion: Option<Deletion>,
        /// Cells in ascending order of column, at most one for each column.
        cells: Vec<Cell>,
    },
    /// Write static cells, in ascending order of column.
    Static {
        /// The cells.
        cells: Vec<Cell>,
    },
    /// Delete the partition.
    DeletePartition(Deletion),
    /// Delete the rows between two bounds.
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
    /// The change with its clustering key and values copied into one allocation of its own.
    #[must_use]
    pub fn pack(self) -> Change {
        match self {
            Change::Row { clustering, liveness, deletion, cells } => {
                let (clustering, cells) = pack(&clustering, cells);
                Change::Row { clustering, liveness, deletion, cells }
            }
            Change::Static { cells } => Change::Static { cells: pack(&[], cells).1 },
            Change::DeleteRange { start, end, deletion } => {
                let own = |bound: Bound<Bytes>| bound.map(|key| Bytes::copy_from_slice(&key));
                Change::DeleteRange { start: own(start), end: own(end), deletion }
            }
            Change::DeletePartition(_) => self,
        }
    }
}

fn pack(clustering: &[u8], mut cells: Vec<Cell>) -> (Bytes, Vec<Cell>) {
    let values: usize = cells.iter().filter_map(|cell| cell.value()).map(|value| value.len()).sum();
    if clustering.len() + values == 0 {
        for cell in &mut cells {
            if let CellValue::Live { value, .. } = &mut cell.value {
                *value = Bytes::new();
            }
        }
        return (Bytes::new(), cells);
    }
    let mut packed = Vec::with_capacity(clustering.len() + values);
    packed.extend_from_slice(clustering);
    for cell in &cells {
        packed.extend_from_slice(cell.value().map_or(&[], |value| value));
    }
    let packed = Bytes::from(packed);
    let mut at = clustering.len();
    for cell in &mut cells {
        if let CellValue::Live { value, .. } = &mut cell.value {
            let end = at + value.len();
            *value = packed.slice(at..end);
            at = end;
        }
    }
    cells.shrink_to_fit();
    (packed.slice(..clustering.len()), cells)
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

/// The stored form of a row: everything known about it, dead or alive.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Row {
    pub(crate) clustering: Bytes,
    pub(crate) liveness: Option<Liveness>,
    pub(crate) deletion: Option<Deletion>,
    /// Ascending by column. None of them is shadowed by `deletion`.
    pub(crate) cells: Vec<Cell>,
}
