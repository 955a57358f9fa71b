//! Data model of Cassandra. A partition contains static cells, and rows in clustering order. Each
//! cell has its own timestamp and expiry. A deletion leaves a tombstone until compaction may drop
//! it.
//!
//! Keys and values are opaque bytes here. Clustering keys have an order-preserving encoding, so
//! comparing bytes compares rows. Crates above this one know the meaning of column numbers and
//! values.

pub(crate) mod cells;
pub(crate) mod codec;
pub(crate) mod encoded;
pub(crate) mod layers;
pub(crate) mod mutation;
pub(crate) mod partition;
pub(crate) mod ranges;
pub(crate) mod reconcile;
pub(crate) mod row;
pub(crate) mod settled;
pub(crate) mod view;

pub use mutation::{Change, Mutation};

/// The identity of a table: its UUID as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableId(pub u128);

impl TableId {
    /// Returns true for a table of the server itself. Those are not split by token, but stored on
    /// shard 0 as a whole. Their ids are below 2^16; ids of users' tables are random and greater.
    pub(crate) fn is_system_table(self) -> bool {
        self.0 < 1 << 16
    }
}

/// Expiry of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Time to live as written, in seconds; kept for `TTL()`.
    pub ttl_s: u32,
    /// Time of expiry in seconds since the Unix epoch. The value is gone from this second on.
    pub at_s: u32,
}

/// Contents of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellValue<'a> {
    /// A value, which may expire.
    Live {
        /// The encoded value.
        value: &'a [u8],
        /// `None`: the value does not expire.
        expiry: Option<Expiry>,
    },
    /// A tombstone of the cell, or of all elements of its column if that has elements and the cell
    /// has no path.
    Dead {
        /// Time of the deletion in seconds since the Unix epoch. It decides when the tombstone may
        /// be dropped.
        deleted_at_s: u32,
    },
}

/// A column of a row, or one element of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellRef<'a> {
    /// Number of the column within its table; never reused by that table.
    pub column: u32,
    /// Element of a collection, or field of a user type. Elements are ordered by these bytes.
    pub path: Option<&'a [u8]>,
    /// Write time in microseconds; the higher one wins.
    pub timestamp: i64,
    /// The value or its absence.
    pub value: CellValue<'a>,
}

impl<'a> CellRef<'a> {
    /// Returns a value that does not expire.
    pub fn live(column: u32, timestamp: i64, value: &'a [u8]) -> CellRef<'a> {
        CellRef { column, path: None, timestamp, value: CellValue::Live { value, expiry: None } }
    }

    /// Returns a value that expires.
    pub fn expiring(column: u32, timestamp: i64, value: &'a [u8], expiry: Expiry) -> CellRef<'a> {
        CellRef { column, path: None, timestamp, value: CellValue::Live { value, expiry: Some(expiry) } }
    }

    /// Returns a tombstone.
    pub fn dead(column: u32, timestamp: i64, deleted_at_s: u32) -> CellRef<'a> {
        CellRef { column, path: None, timestamp, value: CellValue::Dead { deleted_at_s } }
    }

    /// Returns the cell as one element of its column.
    #[must_use]
    pub fn at(self, path: &'a [u8]) -> CellRef<'a> {
        CellRef { path: Some(path), ..self }
    }

    /// Returns the position of the cell in its row.
    #[inline]
    pub(crate) fn place(&self) -> (u32, Option<&'a [u8]>) {
        (self.column, self.path)
    }

    /// Returns the value, also of an expired cell; `None` for a tombstone. Views return no expired
    /// cells.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        match self.value {
            CellValue::Live { value, .. } => Some(value),
            CellValue::Dead { .. } => None,
        }
    }

    /// Returns the expiry of a live value.
    pub fn expiry(&self) -> Option<Expiry> {
        match self.value {
            CellValue::Live { expiry, .. } => expiry,
            CellValue::Dead { .. } => None,
        }
    }

    /// Returns true if the cell has a value that has not expired at `now_s` (Unix seconds).
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
    /// `None`: it does not expire.
    pub expiry: Option<Expiry>,
}

impl Liveness {
    /// Returns true if the marker has not expired at `now_s` (Unix seconds).
    #[inline]
    pub fn is_live(&self, now_s: u32) -> bool {
        self.expiry.is_none_or(|expiry| expiry.at_s > now_s)
    }
}

/// A deletion of a row, a range of rows or a partition. It shadows data with timestamps up to its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deletion {
    /// Write time in microseconds.
    pub timestamp: i64,
    /// Time of the deletion in seconds since the Unix epoch. It decides when the tombstone may be
    /// dropped.
    pub deleted_at_s: u32,
}

/// Partitions are counted by the number of their sources, up to this number. More sources count as
/// the last.
pub(crate) const SOURCES_MAX: usize = 16;

/// A value that may be too large to free at once.
pub(crate) trait FreeInChunks {
    /// Frees about `left` allocations that are not shared, and decrements `left` for each. Returns
    /// true if more may remain. After false, dropping the value is cheap.
    fn free_chunk(&mut self, left: &mut usize) -> bool;
}
