//! The settings of a shard's tables, with or without data: options, columns and names. None is
//! stored: the owner of a table sets them again after opening.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::Named;
use crate::model::TableId;
use crate::options::{StorageOptions, TableOptions};
use crate::state::batches::BatchesInFlight;
use crate::table::columnar::layout::ColumnLayout;

/// Cells of a dropped column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DroppedCells {
    /// The column.
    pub column: u32,
    /// The greatest timestamp of dropped cells, in microseconds. Later ones stay: they are seen
    /// again if the column is added again.
    pub up_to_us: i64,
}

impl DroppedCells {
    /// Returns all cells of a column.
    #[must_use]
    pub fn all(column: u32) -> DroppedCells {
        DroppedCells { column, up_to_us: i64::MAX }
    }
}

/// The settings of a shard's tables.
#[derive(Debug, Default)]
pub(crate) struct TableSettings {
    /// Options of tables that are not configured.
    default: TableOptions,
    /// Writes over several shards that are in flight.
    batches: Arc<BatchesInFlight>,
    configured: FxHashMap<TableId, TableOptions>,
    /// Layouts of columns by table, in ascending order of columns.
    layouts: FxHashMap<TableId, Arc<[ColumnLayout]>>,
    /// Cells of dropped columns by table, in ascending order of columns.
    dropped_columns: FxHashMap<TableId, Arc<[DroppedCells]>>,
    /// Names of tables for reports.
    names: FxHashMap<TableId, Arc<str>>,
}

impl TableSettings {
    pub(crate) fn new(options: &StorageOptions) -> TableSettings {
        TableSettings { default: options.table, batches: options.batches.clone(), ..TableSettings::default() }
    }

    /// Returns the options of a table: its own, or the shard's.
    pub(crate) fn options(&self, id: TableId) -> TableOptions {
        self.configured.get(&id).copied().unwrap_or(self.default)
    }

    pub(crate) fn configure(&mut self, id: TableId, options: TableOptions) {
        self.configured.insert(id, options);
    }

    /// Returns the time before which tombstones may be removed, Unix seconds: they are older than
    /// the grace period and than every batch in flight.
    pub(crate) fn forget_before_s(&self, options: &TableOptions, now_s: u32) -> u32 {
        now_s.saturating_sub(options.gc_grace_s).min(self.batches.kept_from_s())
    }

    /// Returns the layouts of a table's columns, in ascending order of columns.
    pub(crate) fn layouts(&self, id: TableId) -> Arc<[ColumnLayout]> {
        self.layouts.get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn describe(&mut self, id: TableId, mut columns: Vec<ColumnLayout>) {
        columns.sort_by_key(|layout| layout.column);
        self.layouts.insert(id, columns.into());
    }

    /// Returns the cells of a table's dropped columns, in ascending order of columns.
    pub(crate) fn dropped_columns(&self, id: TableId) -> Arc<[DroppedCells]> {
        self.dropped_columns.get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn forget_columns(&mut self, id: TableId, mut columns: Vec<DroppedCells>) {
        columns.sort_by_key(|dropped| dropped.column);
        self.dropped_columns.insert(id, columns.into());
    }

    /// Returns a table's name for a report.
    pub(crate) fn named(&self, id: TableId) -> Named {
        Named { id, name: self.names.get(&id).cloned() }
    }

    pub(crate) fn name(&mut self, id: TableId, name: Arc<str>) {
        self.names.insert(id, name);
    }

    /// Forgets a table that was dropped.
    pub(crate) fn remove(&mut self, id: TableId) {
        self.configured.remove(&id);
        self.names.remove(&id);
        self.layouts.remove(&id);
        self.dropped_columns.remove(&id);
    }
}
