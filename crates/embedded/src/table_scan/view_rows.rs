//! Scans of materialized views: those rows of the table that the view has, in the columns of the
//! view. Entries are not read. They would give the rows one by one, in an order that a scan does
//! not need, and a view that is still being built has not all of them.
//!
//! 1. The scan becomes one of the table. Conditions of the view that one column decides are filters
//!    of it, so that storage skips blocks and partitions.
//! 2. Storage's batches have the key and the value too, by which [`ViewKeys::has_row`] decides, as
//!    it does for entries.

use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use engine::scan::{Filter, TableScan};
use engine::{Error, Relation};
use schema::{KeyCondition, KeyTest, TableDef, ViewDef};
use storage::{ColumnType, ScanColumn};

use super::columns::VALUES_PER_YIELD;
use crate::index::entry::Place;
use crate::index::view::ViewKeys;

/// A view that is scanned.
pub(super) struct ViewRows {
    base: Arc<TableDef>,
    keys: ViewKeys,
    /// Indexes in the table's columns, by those of the view.
    columns: Vec<usize>,
    /// Conditions of the view, which storage may use.
    filters: Vec<Filter>,
    /// Indexes in storage's columns: of the partition key, the clustering key and the value.
    key: usize,
    clustering: usize,
    value: Option<usize>,
}

impl ViewRows {
    /// Returns the view of this name, and its relation. `None`: the table has no such view.
    pub(super) fn of(base: &Arc<TableDef>, name: &str) -> Option<(ViewRows, Relation)> {
        let view = base.views.iter().find(|view| view.name == name)?;
        let relation = Relation::of_view(base, view);
        let columns = relation.def.columns.iter().filter_map(|column| place(base, column.id)).collect();
        let keys = ViewKeys::of(base, view);
        let filters = filters_of(base, view, &keys);
        let rows =
            ViewRows { base: base.clone(), keys, columns, filters, key: 0, clustering: 0, value: None };
        Some((rows, relation))
    }

    /// Returns the scan of the table for one of the view, whose columns exist.
    pub(super) fn on_base(&self, scan: &TableScan) -> TableScan {
        TableScan {
            table: self.base.name.clone(),
            columns: scan.columns.iter().map(|at| self.columns[*at]).collect(),
            filters: self.filters_on_base(&scan.filters).chain(self.filters.iter().cloned()).collect(),
            // Batches of storage are not smaller for it: the view may have few of their rows.
            limit: None,
            ..scan.clone()
        }
    }

    /// Returns filters of the table for those of the view.
    pub(super) fn filters_on_base<'f>(&'f self, filters: &'f [Filter]) -> impl Iterator<Item = Filter> + 'f {
        filters.iter().map(|filter| Filter { column: self.columns[filter.column], ..filter.clone() })
    }

    /// Adds the columns that decide to those of storage.
    pub(super) fn add_columns(&mut self, columns: &mut Vec<ScanColumn>) {
        let mut add = |column: ScanColumn| {
            columns.iter().position(|own| *own == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            })
        };
        self.key = add(ScanColumn::Key(ColumnType::Binary));
        self.clustering = add(ScanColumn::Clustering(ColumnType::Binary));
        self.value = self.keys.value.map(|id| add(ScanColumn::Cell(id, ColumnType::Binary)));
    }

    /// Returns the rows of a batch that the view has. Yields between chunks of the work.
    ///
    /// # Errors
    /// Arrow cannot filter the batch.
    pub(super) async fn kept(&self, batch: RecordBatch) -> Result<RecordBatch, Error> {
        let mut kept: Vec<bool> = Vec::with_capacity(batch.num_rows());
        while kept.len() < batch.num_rows() {
            let end = (kept.len() + VALUES_PER_YIELD).min(batch.num_rows());
            self.decide(&batch, end, &mut kept);
            lanes::heavy_yield().await;
        }
        if kept.iter().all(|kept| *kept) {
            return Ok(batch);
        }
        filter_record_batch(&batch, &BooleanArray::from(kept))
            .map_err(|error| Error::Server(format!("rows of a view cannot be selected: {error}")))
    }

    /// Decides about the rows of a batch before `end`.
    fn decide(&self, batch: &RecordBatch, end: usize, kept: &mut Vec<bool>) {
        let keys = batch.column(self.key).as_binary::<i32>();
        let rows = batch.column(self.clustering).as_binary::<i32>();
        let values = self.value.map(|at| batch.column(at).as_binary::<i32>());
        for at in kept.len()..end {
            // A partition that has static cells only is a row of the table.
            let row = rows.is_valid(at).then(|| rows.value(at));
            let value = values.filter(|values| values.is_valid(at)).map(|values| values.value(at));
            // No entry is composed from a token.
            let place = Place { token: 0, key: keys.value(at), row };
            kept.push(self.keys.has_row(&self.base, place, value));
        }
    }
}

/// Returns the index of a column of the table.
fn place(base: &TableDef, id: u32) -> Option<usize> {
    base.columns.iter().position(|column| column.id == id)
}

/// Returns the conditions of a view that one column decides: its value is not null, and those of
/// its WHERE.
fn filters_of(base: &TableDef, view: &ViewDef, keys: &ViewKeys) -> Vec<Filter> {
    let value = keys.value.and_then(|id| place(base, id));
    let is_set = value.map(|at| Filter::between(at, Bound::Unbounded, Bound::Unbounded));
    is_set
        .into_iter()
        .chain(view.conditions.iter().filter_map(|condition| filter_of(base, condition)))
        .collect()
}

/// Returns a condition as a filter. `None`: it has several columns or an empty value, or compares
/// otherwise.
fn filter_of(base: &TableDef, condition: &KeyCondition) -> Option<Filter> {
    let [id] = condition.columns[..] else { return None };
    let at = place(base, id)?;
    let values = condition.values.iter().map(|values| match &values[..] {
        [value] if !value.is_empty() => Some(Bytes::copy_from_slice(value)),
        _ => None,
    });
    let mut values: Vec<Bytes> = values.collect::<Option<_>>()?;
    let first = values.first()?.clone();
    Some(match condition.test {
        KeyTest::In if values.len() == 1 => Filter::equal(at, values.remove(0)),
        KeyTest::In => {
            Filter { values: Some(values), ..Filter::between(at, Bound::Unbounded, Bound::Unbounded) }
        }
        KeyTest::Less => Filter::between(at, Bound::Unbounded, Bound::Excluded(first)),
        KeyTest::LessEq => Filter::between(at, Bound::Unbounded, Bound::Included(first)),
        KeyTest::Greater => Filter::between(at, Bound::Excluded(first), Bound::Unbounded),
        KeyTest::GreaterEq => Filter::between(at, Bound::Included(first), Bound::Unbounded),
        KeyTest::Contains | KeyTest::ContainsKey => return None,
    })
}
