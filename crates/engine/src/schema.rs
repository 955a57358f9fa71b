//! The schema as one immutable value: a change makes a new one with a new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::schema::{KeyspaceDef, TableDef, UdtType};
use uuid::Uuid;

/// A keyspace with what is in it.
#[derive(Clone, Debug)]
pub struct Keyspace {
    /// Its definition.
    pub def: KeyspaceDef,
    /// Its tables by name.
    pub tables: BTreeMap<String, Arc<TableDef>>,
    /// Its user types by name.
    pub types: BTreeMap<String, Arc<UdtType>>,
}

/// Every keyspace.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Changes with every change of the schema.
    pub version: Uuid,
    /// The keyspaces by name, virtual ones not included.
    pub keyspaces: BTreeMap<String, Arc<Keyspace>>,
}

impl Schema {
    /// The table of that name.
    pub fn table(&self, keyspace: &str, table: &str) -> Option<&Arc<TableDef>> {
        self.keyspaces.get(keyspace)?.tables.get(table)
    }
}
