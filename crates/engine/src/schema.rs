//! The schema as one immutable value. A change creates a new value with a new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::schema::{KeyspaceDef, TableDef, UdtType};
use uuid::Uuid;

/// A keyspace and its contents.
#[derive(Clone, Debug)]
pub struct Keyspace {
    /// Its definition.
    pub def: KeyspaceDef,
    /// Tables by name.
    pub tables: BTreeMap<String, Arc<TableDef>>,
    /// User types by name.
    pub types: BTreeMap<String, Arc<UdtType>>,
}

/// All keyspaces.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Version. Each change of the schema sets a new one.
    pub version: Uuid,
    /// Keyspaces by name, without virtual ones.
    pub keyspaces: BTreeMap<String, Arc<Keyspace>>,
}

impl Schema {
    /// Returns the table of this name.
    pub fn table(&self, keyspace: &str, table: &str) -> Option<&Arc<TableDef>> {
        self.keyspaces.get(keyspace)?.tables.get(table)
    }
}
