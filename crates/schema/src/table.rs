//! Definitions of keyspaces and tables. A definition is immutable; a change makes a new one.

mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::CqlType;

pub use validate::{DefinitionError, NAME_CHARS_MAX};

/// What a column is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ColumnKind {
    /// Component `0..` of the partition key.
    PartitionKey(usize),
    /// Component `0..` of the clustering key, and its order on disk.
    Clustering(usize, ClusteringOrder),
    /// One value a partition.
    Static,
    /// One value a row.
    Regular,
}

/// The order of a clustering column.
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
    /// Its number in the table: never used again after DROP, so that cells of a dropped column stay hidden.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: CqlType,
    /// What it is for.
    pub kind: ColumnKind,
}

/// A table's options. Times are in seconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableOptions {
    /// Free text.
    pub comment: String,
    /// TTL of rows written without one; 0 is none.
    pub default_time_to_live: u32,
    /// How long tombstones are kept.
    pub gc_grace_seconds: u32,
    /// Options that are accepted and shown, not acted upon (`compaction`, `caching`, …), as CQL text.
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

/// A table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableDef {
    /// Its identity: a table dropped and made again is another table.
    pub id: Uuid,
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Its columns, in the order CQL shows them: partition key, clustering, then the others by name.
    pub columns: Vec<ColumnDef>,
    /// The first column number never used.
    pub next_column_id: u32,
    /// Its options.
    pub options: TableOptions,
    /// The identity of its data, once that was replaced as a whole (TRUNCATE, a restore): see [`TableDef::data_id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Uuid>,
}

impl TableDef {
    /// The identity under which storage keeps its data. A new one empties the table in one step, and leaves the
    /// table what it is for clients, rights and rows of the schema.
    pub fn data_id(&self) -> Uuid {
        self.data.unwrap_or(self.id)
    }

    /// The columns of the partition key, in order. Costs the columns of the key, not those of the
    /// table: `columns` is in order.
    pub fn partition_key(&self) -> impl Iterator<Item = &ColumnDef> {
        self.columns.iter().take_while(|c| matches!(c.kind, ColumnKind::PartitionKey(_)))
    }

    /// The clustering columns, in order. Costs the columns of the primary key.
    pub fn clustering(&self) -> impl Iterator<Item = &ColumnDef> {
        let behind = self.columns.iter().skip_while(|c| matches!(c.kind, ColumnKind::PartitionKey(_)));
        behind.take_while(|c| matches!(c.kind, ColumnKind::Clustering(..)))
    }

    /// The column of that name, and its place in `columns`.
    pub fn column(&self, name: &str) -> Option<(usize, &ColumnDef)> {
        self.columns.iter().enumerate().find(|(_, c)| c.name == name)
    }

    /// Puts the columns into the order that `columns` documents.
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
    /// Its replication options, accepted and shown; one copy satisfies all.
    pub replication: BTreeMap<String, String>,
    /// `durable_writes`.
    pub durable_writes: bool,
}
