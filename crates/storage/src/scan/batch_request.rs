//! What a scan that yields record batches is asked for.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use bytes::Bytes;

use crate::model::codec::Malformed;
use crate::scan::batches::{ColumnType, elements_field};
use crate::table::columnar::bounds::{self, ValueRange};

/// A column of the batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanColumn {
    /// The token of the partition.
    Token,
    /// The partition's key.
    Key(ColumnType),
    /// The clustering encoding; null for a partition that has nothing but static cells.
    Clustering(ColumnType),
    /// The cells of a column of the rows. Elements are not among them.
    Cell(u32, ColumnType),
    /// A static cell, said again with each row.
    Static(u32, ColumnType),
    /// The live elements of a column of the rows, in the order of their paths: a list of (path, value), null where there are none.
    Elements(u32),
    /// Those of a static column, said again with each row.
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

/// What is to be scanned.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The columns of the batches.
    pub columns: Vec<ScanColumn>,
    /// The ranges of tokens, which do not overlap.
    pub tokens: Vec<RangeInclusive<i64>>,
    /// Conditions that the consumer applies: rows that cannot satisfy all of them may be left out.
    pub conditions: Vec<ValueRange>,
    /// Rows outside these bounds over the clustering encoding may be left out. With bounds, a partition that has static cells alone
    /// shows none.
    pub clustering: (Bound<Bytes>, Bound<Bytes>),
    /// The columns that count, ascending, where not all do: a row or a partition with nothing but cells of others is not there.
    pub known: Option<Arc<[u32]>>,
    /// About how many rows a batch has; a block's worth more at most.
    pub rows: usize,
    /// What earlier scans read is not looked for, and nothing is kept for later ones.
    pub bypass_cache: bool,
}

impl BatchRequest {
    /// Everything there is, in these columns.
    pub fn all(columns: Vec<ScanColumn>, rows: usize) -> BatchRequest {
        BatchRequest {
            columns,
            tokens: vec![i64::MIN..=i64::MAX],
            conditions: Vec::new(),
            clustering: (Bound::Unbounded, Bound::Unbounded),
            known: None,
            rows,
            bypass_cache: false,
        }
    }

    pub(crate) fn counts(&self, column: u32) -> bool {
        self.known.as_ref().is_none_or(|known| known.binary_search(&column).is_ok())
    }

    pub(crate) fn clustering(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.clustering.0.as_ref().map(|edge| &edge[..]), self.clustering.1.as_ref().map(|edge| &edge[..]))
    }

    /// Whether a row of a block with these bounds may satisfy the conditions.
    pub(crate) fn may_match(&self, bounds: &Bytes) -> Result<bool, Malformed> {
        let is_unknown = self.conditions.is_empty() && !self.is_bounded() || bounds.is_empty();
        Ok(is_unknown || bounds::may_match(bounds, self.clustering(), &self.conditions)?)
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.clustering != (Bound::Unbounded, Bound::Unbounded)
    }
}
