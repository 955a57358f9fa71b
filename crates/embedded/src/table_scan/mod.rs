//! Columnar scans: a [`TableScan`] converted to storage's terms, and storage's batches converted to
//! columns of CQL's types.
//!
//! 1. On the fast lane storage takes its snapshot. Filters become token ranges, clustering bounds
//!    and value ranges (`bounds`); columns become storage columns (`columns`).
//! 2. On any thread that polls the scan, storage builds batches and yields by itself. Columns of
//!    fixed width and texts have Arrow's layout already, or after flipping a bit. The others (parts
//!    of keys, collections, numbers of any size) are built value by value.
//!
//! A materialized view is scanned as its table (`view_rows`).

pub(crate) mod bounds;
pub(crate) mod columns;
mod view_rows;
mod virtual_rows;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use engine::scan::{BatchSource, Filter, NextBatch, TableScan, TableSnapshot, TableStatistics};
use engine::{About, Engine, Error, Relation, Viewer};
use schema::{ColumnKind, Sharding, TableDef};
use storage::{BatchRequest, BatchScan, BatchSnapshot, TableId};
use uuid::Uuid;

use crate::table_scan::bounds::Reach;
use crate::table_scan::columns::Shown;
use crate::table_scan::view_rows::ViewRows;
use crate::table_scan::virtual_rows::VirtualSnapshot;
use crate::{Embedded, storage_error};

/// Rows of a batch, at most, even if more are requested. More rows would not be faster, and their
/// memory is not accounted for.
const BATCH_ROWS_MAX: usize = 1 << 16;

/// Scan of this core's shard.
struct ShardBatches {
    scan: BatchScan,
    /// Scale of decimals in its batches.
    scale: i8,
    shown: Vec<Shown>,
    /// The table.
    def: Arc<TableDef>,
    /// View of the table that is scanned.
    view: Option<ViewRows>,
    schema: SchemaRef,
    ownership: Ownership,
    tokens: RangeInclusive<i64>,
    filters: Vec<Filter>,
    /// Rows that may still be returned.
    left: u64,
}

/// Snapshot of a table on this core's shard.
struct ShardSnapshot {
    snapshot: BatchSnapshot,
    def: Arc<TableDef>,
    ownership: Ownership,
    /// Role that may not see the values of masked columns, if it is known that there is one.
    unseeing: Option<String>,
}

/// Test for tokens that this core owns.
#[derive(Clone, Copy, Debug)]
struct Ownership {
    sharding: Sharding,
    shard: u32,
}

impl Ownership {
    /// Returns the ranges to scan on this core. Partitions that are looked up one by one are kept
    /// if this core owns them, unless scanning everything between them is faster.
    fn own(self, mut tokens: Vec<RangeInclusive<i64>>, snapshot: &BatchSnapshot) -> Vec<RangeInclusive<i64>> {
        let is_own = |token: i64| self.sharding.shard_of(token) == self.shard;
        tokens.retain(|range| range.start() != range.end() || is_own(*range.start()));
        match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) if !snapshot.is_worth_looking_up(tokens.len()) => {
                vec![*first.start()..=*last.end()]
            }
            _ => tokens,
        }
    }
}

impl Embedded {
    /// Takes a snapshot; see [`Engine::table_snapshot_for`].
    pub(crate) fn snapshot_of(
        &self,
        keyspace: &str,
        table: &str,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<Box<dyn TableSnapshot>, Error> {
        if let Some(table) = self.registry().get(keyspace, table) {
            return Ok(Box::new(VirtualSnapshot::of(&table, viewer)));
        }
        let Some(relation) = self.schema().relation(keyspace, table) else {
            return Err(missing(keyspace, table));
        };
        let def = relation.stored();
        let about = About::Unmasked(keyspace, &def.name, def.id.as_u128());
        let unseeing = viewer.filter(|viewer| !def.masks.is_empty() && !viewer.sees(about));
        let unseeing = unseeing.map(|viewer| viewer.role().to_owned());
        let now_s = u32::try_from(lanes::time::unix_micros() / 1_000_000).unwrap_or(u32::MAX);
        let snapshot = self.shard.batch_snapshot(TableId(def.data_id().as_u128()), now_s);
        let ownership = Ownership { sharding: self.sharding, shard: lanes::current_core() as u32 };
        Ok(Box::new(ShardSnapshot { snapshot, def: def.clone(), ownership, unseeing }))
    }

    /// Returns the size of a table, or of the part of a table that a view shows; see
    /// [`Engine::statistics`].
    pub(crate) fn size_of(&self, keyspace: &str, table: &str) -> Option<TableStatistics> {
        let schema = self.schema();
        let size = |data: Uuid| {
            let size = self.shard.table_size(TableId(data.as_u128()));
            TableStatistics { rows: size.rows, bytes: size.bytes }
        };
        if let Some(def) = schema.table(keyspace, table) {
            return Some(size(def.data_id()));
        }
        let (base, view) = schema.view(keyspace, table)?;
        let whole = size(base.data_id());
        if !view.is_built {
            return Some(whole);
        }
        // Rows have entries, and some entries are stale.
        let rows = size(view.data).rows.min(whole.rows);
        let bytes = u128::from(whole.bytes) * u128::from(rows) / u128::from(whole.rows.max(1));
        Some(TableStatistics { rows, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) })
    }
}

fn missing(keyspace: &str, table: &str) -> Error {
    Error::Invalid(format!("table {keyspace}.{table} does not exist"))
}

impl ShardSnapshot {
    /// Checks that the viewer may see all values of a relation. A scan evaluates conditions and
    /// joins on clear values.
    fn check_masks(&self, shown: &TableDef) -> Result<(), Error> {
        let (Some(role), false) = (&self.unseeing, shown.masks.is_empty()) else { return Ok(()) };
        let TableDef { keyspace, name, .. } = &*self.def;
        Err(Error::Unauthorized(format!(
            "User {role} has no UNMASK permission on <table {keyspace}.{name}>, which has masked columns: use CQL"
        )))
    }
}

impl TableSnapshot for ShardSnapshot {
    fn scan(&self, scan: &TableScan) -> Result<Box<dyn BatchSource>, Error> {
        let def = self.def.clone();
        let (mut view, relation) = match scan.table == def.name {
            true => (None, Relation::from(def.clone())),
            false => {
                let found = ViewRows::of(&def, &scan.table);
                let (view, relation) = found.ok_or_else(|| missing(&scan.keyspace, &scan.table))?;
                (Some(view), relation)
            }
        };
        self.check_masks(&relation.def)?;
        let schema = scan.schema(&relation)?;
        let left = scan.limit.unwrap_or(u64::MAX);
        let of_base = view.as_ref().map(|view| view.on_base(scan));
        let scan = of_base.as_ref().unwrap_or(scan);
        let (mut columns, shown) = columns::of_storage(&def, &scan.columns);
        if let Some(view) = &mut view {
            view.add_columns(&mut columns);
        }
        let Reach { tokens, clustering, conditions } =
            bounds::reach(&def, scan.tokens.clone(), &scan.filters)?;
        let request = BatchRequest {
            tokens: self.ownership.own(tokens, &self.snapshot),
            conditions,
            clustering,
            known: existing_columns(&def),
            bypass_cache: scan.bypass_cache,
            ..BatchRequest::all(columns, batch_rows(scan))
        };
        let (ownership, tokens, filters) = (self.ownership, scan.tokens.clone(), scan.filters.clone());
        let scale = scan.scale;
        let scan = self.snapshot.scan(request);
        Ok(Box::new(ShardBatches { scan, scale, shown, def, view, schema, ownership, tokens, filters, left }))
    }
}

fn batch_rows(scan: &TableScan) -> usize {
    let limit = scan.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    scan.batch_rows.min(limit).clamp(1, BATCH_ROWS_MAX)
}

/// Returns the columns that still exist, if the table has dropped some. A row with only cells of
/// dropped columns does not exist.
pub(crate) fn existing_columns(def: &TableDef) -> Option<Arc<[u32]>> {
    let cells = def.columns.iter().filter(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let mut known: Vec<u32> = cells.map(|column| column.id).collect();
    known.sort_unstable();
    (def.next_column_id as usize != def.columns.len()).then(|| known.into())
}

impl ShardBatches {
    /// Returns the next batch of storage that has rows of the scan.
    async fn stored(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            let next = self.scan.next().await.map_err(storage_error)?;
            let Some(batch) = next else { return Ok(None) };
            let Some(view) = &self.view else { return Ok(Some(batch)) };
            let kept = view.kept(batch).await?;
            if kept.num_rows() > 0 {
                return Ok(Some(kept));
            }
        }
    }

    async fn batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(batch) = self.stored().await? else { return Ok(None) };
        let rows = usize::try_from(self.left).map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
        self.left -= rows as u64;
        let batch = batch.slice(0, rows);
        let arrays = columns::build_columns(&self.def, self.scale, &self.shown, &batch).await?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let made = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        made.map(Some).map_err(|error| Error::Server(format!("a stored row is damaged: {error}")))
    }
}

impl BatchSource for ShardBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(self.batch())
    }

    fn push_down(&mut self, filters: &[Filter]) -> Result<(), Error> {
        let all: Vec<Filter> = match &self.view {
            Some(view) => self.filters.iter().cloned().chain(view.filters_on_base(filters)).collect(),
            None => [&self.filters[..], filters].concat(),
        };
        let Reach { tokens, clustering, conditions } = bounds::reach(&self.def, self.tokens.clone(), &all)?;
        self.scan.restrict(self.ownership.own(tokens, self.scan.snapshot()));
        self.scan.narrow(conditions, clustering);
        Ok(())
    }

    fn in_making(&self) -> Option<Arc<AtomicU64>> {
        Some(self.scan.in_making())
    }

    fn progress(&self) -> f64 {
        if self.left == 0 { 1.0 } else { self.scan.progress() }
    }
}
