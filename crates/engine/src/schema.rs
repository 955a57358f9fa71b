//! The schema as one immutable value. A change creates a new value with a new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::schema::{KeyspaceDef, TableDef, UdtType, ViewDef};
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

impl Keyspace {
    /// Returns the materialized view of this name, with its base table. Visits all tables, unless
    /// one of them has the name: views and tables never share one.
    pub fn view(&self, name: &str) -> Option<(&Arc<TableDef>, &ViewDef)> {
        match self.tables.contains_key(name) {
            true => None,
            false => self.views().find(|(_, view)| view.name == name),
        }
    }

    /// Returns all materialized views with their base tables, in the order of the tables.
    pub fn views(&self) -> impl Iterator<Item = (&Arc<TableDef>, &ViewDef)> {
        self.tables.values().flat_map(|def| def.views.iter().map(move |view| (def, view)))
    }
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

    /// Returns the materialized view of this name, with its base table.
    pub fn view(&self, keyspace: &str, view: &str) -> Option<(&Arc<TableDef>, &ViewDef)> {
        self.keyspaces.get(keyspace)?.view(view)
    }
}
