//! The tables as SQL finds them: one catalog, a schema for each keyspace, beside it `pg_catalog` (from its own crate) and
//! `information_schema`.
//!
//! There is one catalog for all sessions, since `pg_catalog` hands out object ids that must mean the same in a client's next
//! query. Which tables there are is one immutable value, put in by each statement from its core's schema before it is planned.
//! A statement finds the keyspaces that its role is shown ([`shows`]). A hidden one is as one that does not exist.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use ::schema::TableDef;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use engine::About;

use crate::information_schema::{self, InformationSchema};
use crate::server::Sql;
use crate::table::CqlTable;
use crate::{pg_catalog, tasks};

/// The catalog's name, and so the database's.
pub(crate) const CATALOG: &str = "fairlane";

/// Every table, as it is defined at one time.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) schema: Arc<engine::Schema>,
    pub(crate) virtuals: Arc<[Arc<TableDef>]>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("version", &self.schema.version).finish_non_exhaustive()
    }
}

impl Tables {
    /// Whether these are the same, with nothing changed in between.
    pub(crate) fn are(&self, other: &Tables) -> bool {
        self.schema.version == other.schema.version && self.virtuals.len() == other.virtuals.len()
    }

    /// Whether a table is one of the schema's, and not virtual, just as it is defined here.
    pub(crate) fn store(&self, table: &TableDef) -> bool {
        self.schema.table(&table.keyspace, &table.name).is_some_and(|found| **found == *table)
    }

    /// Whether there is such a keyspace, of virtual tables or real ones.
    pub(crate) fn has_keyspace(&self, name: &str) -> bool {
        self.schema.keyspaces.contains_key(name) || self.virtuals.iter().any(|table| table.keyspace == name)
    }

    pub(crate) fn keyspaces(&self) -> Vec<String> {
        let virtuals = self.virtuals.iter().map(|table| &table.keyspace);
        let mut names: Vec<String> = self.schema.keyspaces.keys().chain(virtuals).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn tables(&self, keyspace: &str) -> Vec<String> {
        let virtuals = self.virtuals.iter().filter(|table| table.keyspace == keyspace);
        let real = self.schema.keyspaces.get(keyspace).into_iter().flat_map(|found| found.tables.keys());
        real.chain(virtuals.map(|table| &table.name)).cloned().collect()
    }

    /// Every table, by keyspace.
    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<TableDef>> {
        let of = move |keyspace: String| {
            let tables = self.tables(&keyspace).into_iter();
            tables.filter_map(move |name| self.table(&keyspace, &name)).collect::<Vec<_>>()
        };
        self.keyspaces().into_iter().flat_map(of)
    }

    fn table(&self, keyspace: &str, name: &str) -> Option<Arc<TableDef>> {
        let is_it = |table: &&Arc<TableDef>| table.keyspace == keyspace && table.name == name;
        self.schema.table(keyspace, name).or_else(|| self.virtuals.iter().find(is_it)).cloned()
    }
}

/// Whether the statement that is being polled is shown a schema. Outside of statements no keyspace is.
pub(crate) fn shows(schema: &str) -> bool {
    [information_schema::NAME, pg_catalog::NAME].contains(&schema)
        || tasks::viewer().is_some_and(|viewer| viewer.sees(About::Keyspace(schema)))
}

/// The one catalog. Its locks are taken on heavy lanes only, for as long as a pointer is copied.
#[derive(Debug)]
pub(crate) struct Catalog {
    sql: Sql,
    tables: Arc<RwLock<Tables>>,
    /// Schemas that are not keyspaces.
    others: RwLock<BTreeMap<String, Arc<dyn SchemaProvider>>>,
    /// Whether every statement is shown all keyspaces.
    shows_all: bool,
}

impl Catalog {
    pub(crate) fn new(sql: Sql, tables: Tables) -> Catalog {
        let tables = Arc::new(RwLock::new(tables));
        Catalog { sql, tables, others: RwLock::default(), shows_all: false }
    }

    /// The same tables, those of hidden keyspaces among them.
    pub(crate) fn of_all(&self) -> Catalog {
        let (sql, tables) = (self.sql.clone(), self.tables.clone());
        Catalog { sql, tables, others: RwLock::default(), shows_all: true }
    }

    /// From now on these are the tables.
    pub(crate) fn set(&self, tables: Tables) {
        let mut current = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if !current.are(&tables) {
            *current = tables;
        }
    }

    fn tables(&self) -> Tables {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.tables().keyspaces();
        names.push(information_schema::NAME.to_owned());
        names.extend(others.keys().cloned());
        names.retain(|name| self.shows_all || shows(name));
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = others.get(name) {
            return Some(other.clone());
        }
        if name == information_schema::NAME {
            let tables = self.tables.clone();
            return Some(Arc::new(InformationSchema::new(tables, self.sql.config().decimals)));
        }
        let tables = self.tables();
        if !tables.has_keyspace(name) {
            return None;
        }
        let name = name.to_owned();
        if !self.shows_all && !shows(&name) {
            return Some(Arc::new(Hidden { name, tables }));
        }
        Some(Arc::new(Keyspace { sql: self.sql.clone(), name, tables }))
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> Result<Option<Arc<dyn SchemaProvider>>> {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        Ok(others.insert(name.to_owned(), schema))
    }
}

#[derive(Debug)]
struct Keyspace {
    sql: Sql,
    name: String,
    tables: Tables,
}

#[async_trait]
impl SchemaProvider for Keyspace {
    fn table_names(&self) -> Vec<String> {
        self.tables.tables(&self.name)
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let found = self.tables.table(&self.name, name);
        Ok(found.map(|def| Arc::new(CqlTable::new(self.sql.clone(), def)) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.table(&self.name, name).is_some()
    }
}

/// A keyspace that the statement is not shown. What it names there is remembered for the audit log.
#[derive(Debug)]
struct Hidden {
    name: String,
    tables: Tables,
}

#[async_trait]
impl SchemaProvider for Hidden {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if self.tables.table(&self.name, name).is_some() {
            tasks::hide(&self.name, name);
        }
        Ok(None)
    }

    fn table_exist(&self, _name: &str) -> bool {
        false
    }
}
