//! The request of a scan that yields record batches.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use bytes::Bytes;

use crate::model::codec::Malformed;
use crate::scan::batches::{ColumnType, elements_field};
use crate::table::columnar::bounds::{self, ValueRange};

/// A batch is closed when its columns have this many bytes together, unless the request has another
/// bound. A query of SQL has about ten batches of a core in flight, which no account counts.
pub(crate) const BATCH_BYTES_MAX: usize = 16 << 20;

/// A column of the batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanColumn {
    /// The token of the partition.
    Token,
    /// The partition's key.
    Key(ColumnType),
    /// The clustering encoding. Null for a partition that has only static cells.
    Clustering(ColumnType),
    /// The cells of a column of the rows, without elements.
    Cell(u32, ColumnType),
    /// A static cell, repeated in each row.
    Static(u32, ColumnType),
    /// The live elements of a column of the rows, in the order of their paths: a list of (path,
    /// value). Null if there are none.
    Elements(u32),
    /// The live elements of a static column, repeated in each row.
    StaticElements(u32),
}

impl ScanColumn {
    pub(crate) fn field(self) -> Field {
        match self {
            ScanColumn::Token => Field::new("token", DataType::Int64, false),
            ScanColumn::Key(kind) => Field::new("key", kind.data_type(), false),
            ScanColumn::Clustering(kind) => Field::new("clustering", kind.data_type(), true),
            ScanColumn::Cell(column, kind) | ScanColumn::Static(column, kind) => {
                Field::new(format!("column {column}"), kind.data_type(), true)
            }
            ScanColumn::Elements(column) | ScanColumn::StaticElements(column) => {
                Field::new(format!("column {column}"), DataType::List(elements_field()), true)
            }
        }
    }
}

/// The columns, rows and conditions of a scan.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The columns of the batches.
    pub columns: Vec<ScanColumn>,
    /// The ranges of tokens, which do not overlap.
    pub tokens: Vec<RangeInclusive<i64>>,
    /// Conditions that the consumer applies. The scan may leave out rows that cannot satisfy all of
    /// them.
    pub conditions: Vec<ValueRange>,
    /// Bounds over the clustering encoding that the consumer applies. The scan may leave out rows
    /// outside. With bounds, a partition that has only static cells yields no row.
    pub clustering: (Bound<Bytes>, Bound<Bytes>),
    /// The existing columns, ascending; `None`: all. A row or partition with cells of other columns
    /// only does not exist.
    pub known: Option<Arc<[u32]>>,
    /// The least number of rows of a batch, about. A batch may have one block's rows more.
    pub rows: usize,
    /// Bytes of columns at which a batch is closed, whatever its number of rows. A batch may have
    /// one block's rows more.
    pub bytes: usize,
    /// Partitions arrive in the order of their tokens and keys. Costs a copy for each stretch of
    /// partitions that only one source has.
    pub in_order: bool,
    /// Neither uses chunks that earlier scans cached, nor caches chunks for later ones.
    pub bypass_cache: bool,
}

impl BatchRequest {
    /// Requests everything in these columns.
    pub fn all(columns: Vec<ScanColumn>, rows: usize) -> BatchRequest {
        BatchRequest {
            columns,
            tokens: vec![i64::MIN..=i64::MAX],
            conditions: Vec::new(),
            clustering: (Bound::Unbounded, Bound::Unbounded),
            known: None,
            rows,
            bytes: BATCH_BYTES_MAX,
            in_order: false,
            bypass_cache: false,
        }
    }

    pub(crate) fn counts(&self, column: u32) -> bool {
        self.known.as_ref().is_none_or(|known| known.binary_search(&column).is_ok())
    }

    pub(crate) fn clustering(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.clustering.0.as_ref().map(|edge| &edge[..]), self.clustering.1.as_ref().map(|edge| &edge[..]))
    }

    /// Returns true if a row of a block with this zone map may satisfy the conditions.
    pub(crate) fn may_match(&self, zone_map: &Bytes) -> Result<bool, Malformed> {
        let is_unknown = self.conditions.is_empty() && !self.is_bounded() || zone_map.is_empty();
        Ok(is_unknown || bounds::may_match(zone_map, self.clustering(), &self.conditions)?)
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.clustering != (Bound::Unbounded, Bound::Unbounded)
    }
}
