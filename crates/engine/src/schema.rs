//! The schema as one immutable value. A change creates a new value with a new version.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::schema::{KeyspaceDef, TableDef, UdtType, ViewDef};
use uuid::Uuid;

/// A table, or a materialized view, as queries read it.
#[derive(Clone, PartialEq, Debug)]
pub struct Relation {
    /// Its definition. That of a view is the one of a table with its columns.
    pub def: Arc<TableDef>,
    /// Table that has the rows of a view. `None`: it is a table itself.
    pub base: Option<Arc<TableDef>>,
}

impl Relation {
    /// Returns a view of `base`.
    #[must_use]
    pub fn of_view(base: &Arc<TableDef>, view: &ViewDef) -> Relation {
        Relation { def: Arc::new(view.table(base)), base: Some(base.clone()) }
    }

    /// Returns the table that has the rows, and whose permissions decide.
    #[must_use]
    pub fn stored(&self) -> &Arc<TableDef> {
        self.base.as_ref().unwrap_or(&self.def)
    }
}

impl From<Arc<TableDef>> for Relation {
    fn from(def: Arc<TableDef>) -> Relation {
        Relation { def, base: None }
    }
}

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

    /// Returns the table or materialized view of this name.
    pub fn relation(&self, keyspace: &str, name: &str) -> Option<Relation> {
        match self.table(keyspace, name) {
            Some(def) => Some(def.clone().into()),
            None => self.view(keyspace, name).map(|(base, view)| Relation::of_view(base, view)),
        }
    }
}
