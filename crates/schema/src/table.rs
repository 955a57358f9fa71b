//! Definitions of keyspaces and tables. A definition is immutable. A change creates a new one.

mod validate;
mod view;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{CqlType, IndexDef};

pub use validate::{DefinitionError, NAME_CHARS_MAX, TTL_SECONDS_MAX};
pub use view::{KeyCondition, KeyTest, ViewDef};

/// Role of a column in its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ColumnKind {
    /// Component of the partition key, from 0.
    PartitionKey(usize),
    /// Component of the clustering key, from 0, and its order on disk.
    Clustering(usize, ClusteringOrder),
    /// One value per partition.
    Static,
    /// One value per row.
    Regular,
}

/// Order of a clustering column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClusteringOrder {
    /// Ascending.
    Asc,
    /// Descending.
    Desc,
}

/// A column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Number of the column in its table. It is not reused after DROP, so that cells of a dropped
    /// column stay hidden, unless the column is added again: see [`DroppedColumn`].
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: CqlType,
    /// Role in the table.
    pub kind: ColumnKind,
}

/// A column that was dropped. It may have been added again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DroppedColumn {
    /// Its definition.
    pub column: ColumnDef,
    /// Time of the drop, in microseconds. Cells with this timestamp or an earlier one are dropped.
    pub dropped_us: i64,
    /// True if the statement had a `USING TIMESTAMP`. Cells with later timestamps are then kept,
    /// and the column has them if it is added again. It gets its number back for that.
    pub keeps_later: bool,
}

/// Function that replaces the values of a column for roles that may not see them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ColumnMask {
    /// Name of the function in keyspace `system`.
    pub function: String,
    /// Arguments after the value of the column.
    pub arguments: Vec<MaskArgument>,
}

/// Argument of a [`ColumnMask`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MaskArgument {
    /// Its type.
    pub ty: CqlType,
    /// The serialized value. `None`: null.
    pub value: Option<Vec<u8>>,
}

/// Option of a table that is stored and shown as CQL text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredOption {
    /// Name in CQL.
    pub name: &'static str,
    /// True if the server acts on the option, or accepts only the value that switches it off.
    pub has_effect: bool,
    /// Value of tables that do not specify it, as Cassandra shows it. Empty: it is not shown.
    pub default: &'static str,
}

/// All options that are stored as CQL text.
pub static STORED_OPTIONS: [StoredOption; 17] = [
    without_effect("additional_write_policy", "99p"),
    with_effect("allow_auto_snapshot", "true"),
    without_effect("bloom_filter_fp_chance", "0.01"),
    without_effect("caching", "{'keys': 'ALL', 'rows_per_partition': 'NONE'}"),
    with_effect("cdc", "false"),
    with_effect("compaction", "{'class': 'SizeTieredCompactionStrategy'}"),
    with_effect("compression", "{'class': 'LZ4Compressor'}"),
    without_effect("crc_check_chance", "1.0"),
    without_effect("extensions", "{}"),
    with_effect("incremental_backups", "true"),
    without_effect("max_index_interval", "2048"),
    without_effect("memtable", "default"),
    without_effect("memtable_flush_period_in_ms", "0"),
    without_effect("min_index_interval", "128"),
    without_effect("read_repair", "BLOCKING"),
    without_effect("speculative_retry", "99p"),
    with_effect("tombstone_gc", ""),
];

const fn with_effect(name: &'static str, default: &'static str) -> StoredOption {
    StoredOption { name, has_effect: true, default }
}

const fn without_effect(name: &'static str, default: &'static str) -> StoredOption {
    StoredOption { name, has_effect: false, default }
}

/// Returns the stored option of this name.
#[must_use]
pub fn stored_option(name: &str) -> Option<&'static StoredOption> {
    STORED_OPTIONS.iter().find(|option| option.name == name)
}

/// Options of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableOptions {
    /// Free text.
    pub comment: String,
    /// TTL in seconds of rows that are written without one. 0: none.
    pub default_time_to_live: u32,
    /// Time in seconds for which tombstones are kept.
    pub gc_grace_seconds: u32,
    /// Values of [`STORED_OPTIONS`] that the definition specifies, as CQL text.
    pub other: BTreeMap<String, String>,
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            comment: String::new(),
            default_time_to_live: 0,
            gc_grace_seconds: 864_000,
            other: BTreeMap::new(),
        }
    }
}

impl TableOptions {
    /// Returns the default of an option, which for one depends on the compaction.
    #[must_use]
    pub fn default_of(&self, option: &StoredOption) -> &'static str {
        let is_leveled =
            || self.other.get("compaction").is_some_and(|text| text.contains("LeveledCompaction"));
        match option.name {
            "bloom_filter_fp_chance" if is_leveled() => "0.1",
            _ => option.default,
        }
    }
}

/// A table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableDef {
    /// Identity. A table that is dropped and created again has a new one.
    pub id: Uuid,
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Columns in the order that CQL shows: partition key, clustering key, static, then regular
    /// columns. Static and regular columns are sorted by name.
    pub columns: Vec<ColumnDef>,
    /// Next column number: above all numbers that were ever used.
    pub next_column_id: u32,
    /// Its options.
    pub options: TableOptions,
    /// Identity of the data after it was replaced as a whole (TRUNCATE, restore). See
    /// [`TableDef::data_id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Uuid>,
    /// Columns that were dropped, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, DroppedColumn>,
    /// Masks of columns, by the number of the column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub masks: BTreeMap<u32, ColumnMask>,
    /// Its indexes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDef>,
    /// Its materialized views, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewDef>,
}

impl TableDef {
    /// Returns the identity under which storage keeps the data. A new one empties the table in one
    /// step. Clients, permissions and schema rows still refer to [`TableDef::id`].
    pub fn data_id(&self) -> Uuid {
        self.data.unwrap_or(self.id)
    }

    /// Returns the identities under which storage keeps the data of the table, and that of its
    /// indexes and views.
    pub fn all_data(&self) -> impl Iterator<Item = Uuid> {
        [self.data_id()].into_iter().chain(self.builds().map(|(data, _)| data))
    }

    /// Returns true if its writes have entries: of indexes or of views.
    pub fn has_entries(&self) -> bool {
        !self.indexes.is_empty() || !self.views.is_empty()
    }

    /// Returns the identity of the data of each index and view, and true if it is built.
    pub fn builds(&self) -> impl Iterator<Item = (Uuid, bool)> {
        let views = self.views.iter().map(|view| (view.data, view.is_built));
        self.indexes.iter().map(|index| (index.data, index.is_built)).chain(views)
    }

    /// Returns the identity of the data of each index and view, and true if it is built, to change
    /// them.
    pub fn builds_mut(&mut self) -> impl Iterator<Item = (&mut Uuid, &mut bool)> {
        let views = self.views.iter_mut().map(|view| (&mut view.data, &mut view.is_built));
        self.indexes.iter_mut().map(|index| (&mut index.data, &mut index.is_built)).chain(views)
    }

    /// Returns the table with other data, `data`. Indexes and views have to be built for it, in
    /// data that `built_data` names.
    #[must_use]
    pub fn with_data(&self, data: Uuid, mut built_data: impl FnMut() -> Uuid) -> TableDef {
        let mut new = TableDef { data: Some(data), ..self.clone() };
        for (data, is_built) in new.builds_mut() {
            (*data, *is_built) = (built_data(), false);
        }
        new
    }

    /// Returns the partition key columns in order. Visits only these, because `columns` is sorted.
    pub fn partition_key(&self) -> impl Iterator<Item = &ColumnDef> {
        self.columns.iter().take_while(|c| matches!(c.kind, ColumnKind::PartitionKey(_)))
    }

    /// Returns the clustering columns in order. Visits only the columns of the primary key.
    pub fn clustering(&self) -> impl Iterator<Item = &ColumnDef> {
        let after_partition_key =
            self.columns.iter().skip_while(|c| matches!(c.kind, ColumnKind::PartitionKey(_)));
        after_partition_key.take_while(|c| matches!(c.kind, ColumnKind::Clustering(..)))
    }

    /// Returns the index in `columns`, and the column of this name.
    pub fn column(&self, name: &str) -> Option<(usize, &ColumnDef)> {
        self.columns.iter().enumerate().find(|(_, c)| c.name == name)
    }

    /// Sorts the columns into the order of [`TableDef::columns`].
    pub fn sort_columns(&mut self) {
        self.columns.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name)));
    }
}

fn rank(column: &ColumnDef) -> (u8, usize) {
    match column.kind {
        ColumnKind::PartitionKey(i) => (0, i),
        ColumnKind::Clustering(i, _) => (1, i),
        ColumnKind::Static => (2, 0),
        ColumnKind::Regular => (3, 0),
    }
}

/// A keyspace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeyspaceDef {
    /// Its name.
    pub name: String,
    /// Replication options, stored and shown. They have no effect: there is one replica.
    pub replication: BTreeMap<String, String>,
    /// The option `durable_writes`, stored and shown.
    pub durable_writes: bool,
}
