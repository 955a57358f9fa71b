//! The catalog of DataFusion: a schema for each keyspace, `pg_catalog` (from its own crate) and
//! `information_schema`.
//!
//! All sessions share one catalog, because the object ids of `pg_catalog` must stay valid for a
//! client's next query. The list of tables is one immutable value. Each statement replaces it by
//! the schema of its core before planning. A statement finds only the keyspaces that its role may
//! see ([`shows`]). Hidden keyspaces are reported as missing.

pub(crate) mod client_queries;
pub(crate) mod information_schema;
pub(crate) mod pg_catalog;
pub(crate) mod privileges;
pub(crate) mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use ::schema::TableDef;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use engine::{About, Relation};

use crate::catalog::information_schema::InformationSchema;
use crate::failure::{Failure, state};
use crate::run::engines::Engines;
use crate::run::table::CqlTable;
use crate::run::tasks;

/// Name of the catalog and of the database.
pub(crate) const CATALOG: &str = "fairlane";

/// All table definitions at one time.
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
    /// True if both values have the same version of the schema and the same virtual tables.
    pub(crate) fn are(&self, other: &Tables) -> bool {
        self.schema.version == other.schema.version && self.virtuals.len() == other.virtuals.len()
    }

    /// True if the schema has the table or view with the same definition. False for virtual tables.
    pub(crate) fn store(&self, relation: &Relation) -> bool {
        let TableDef { keyspace, name, .. } = &*relation.def;
        self.schema.relation(keyspace, name).is_some_and(|found| found == *relation)
    }

    /// True if a keyspace of virtual or stored tables has this name.
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

    /// Returns the names of the tables and materialized views of a keyspace.
    fn tables(&self, keyspace: &str) -> Vec<String> {
        let virtuals = self.virtuals.iter().filter(|table| table.keyspace == keyspace);
        let found = self.schema.keyspaces.get(keyspace);
        let real = found.into_iter().flat_map(|found| found.tables.keys());
        let views = found.into_iter().flat_map(|found| found.views().map(|(_, view)| &view.name));
        real.chain(virtuals.map(|table| &table.name)).chain(views).cloned().collect()
    }

    /// Returns all tables and materialized views, ordered by keyspace.
    pub(crate) fn all(&self) -> impl Iterator<Item = Relation> {
        let of = move |keyspace: String| {
            let virtuals = self.virtuals.iter().filter(|table| table.keyspace == keyspace);
            let found = self.schema.keyspaces.get(&keyspace);
            let real = found.into_iter().flat_map(|found| found.tables.values());
            let views = found.into_iter().flat_map(|found| found.views());
            let tables = real.chain(virtuals).cloned().map(Relation::from);
            tables.chain(views.map(|(base, view)| Relation::of_view(base, view))).collect::<Vec<_>>()
        };
        self.keyspaces().into_iter().flat_map(of)
    }

    /// Returns a table or materialized view, by its exact name.
    pub(crate) fn table(&self, keyspace: &str, name: &str) -> Option<Relation> {
        let is_it = |table: &&Arc<TableDef>| table.keyspace == keyspace && table.name == name;
        let virtuals = || self.virtuals.iter().find(is_it).cloned().map(Relation::from);
        self.schema.relation(keyspace, name).or_else(virtuals)
    }
}

/// True if a schema is one of Postgres' own, which every role sees.
pub(crate) fn is_of_postgres(schema: &str) -> bool {
    [information_schema::NAME, pg_catalog::NAME].contains(&schema)
}

/// True if the statement of the current task may see a schema. Outside of statements all keyspaces
/// are hidden.
pub(crate) fn shows(schema: &str) -> bool {
    is_of_postgres(schema) || tasks::viewer().is_some_and(|viewer| viewer.sees(About::Keyspace(schema)))
}

/// True if the role of the statement of the current task may read a table, or a view by the rights
/// on its table.
pub(crate) fn reads(relation: &Relation) -> bool {
    let table = relation.stored();
    let about = About::Rows(&table.keyspace, &table.name, table.id.as_u128());
    tasks::viewer().is_some_and(|viewer| viewer.sees(about))
}

/// Returns true if a keyspace has system tables, and the statement of the current task reads tables
/// of a cluster, whose nodes have tables of the same names.
fn is_of_nodes(keyspace: &str) -> bool {
    engine::is_of_server(keyspace) && tasks::viewer().is_some_and(|viewer| viewer.reader().is_some())
}

/// Returns the refusal of such a table, instead of the rows that this server has in its own.
fn of_nodes(keyspace: &str, table: &str) -> Failure {
    let text = format!("{keyspace}.{table} cannot be read over SQL in front of a cluster");
    let hint = "Read it through CQL, on this server's CQL port: a node answers. Tables and columns of the cluster \
                are in information_schema.";
    Failure::new(state::UNSUPPORTED, text).with_hint(hint)
}

/// Returns the error for a missing table, which is also used for hidden tables. The text is that
/// of DataFusion's planner.
pub(crate) fn no_table(keyspace: &str, table: &str) -> Failure {
    Failure::new(state::NO_TABLE, format!("table '{CATALOG}.{keyspace}.{table}' not found"))
}

/// Catalog of all sessions. Only heavy lanes take its locks, to copy a pointer.
#[derive(Debug)]
pub(crate) struct Catalog {
    engines: Engines,
    /// Scale of CQL `decimal` columns.
    decimal_scale: i8,
    /// Name of the owner of every table: CQL has none.
    owner: Arc<str>,
    tables: Arc<RwLock<Tables>>,
    /// Schemas that are not keyspaces.
    others: RwLock<BTreeMap<String, Arc<dyn SchemaProvider>>>,
    /// Every statement sees all keyspaces.
    shows_all: bool,
}

impl Catalog {
    /// Creates the catalog of `tables`, whose rows are read from `engines`.
    pub(crate) fn new(engines: Engines, decimal_scale: i8, owner: Arc<str>, tables: Tables) -> Catalog {
        let tables = Arc::new(RwLock::new(tables));
        Catalog { engines, decimal_scale, owner, tables, others: RwLock::default(), shows_all: false }
    }

    /// Returns a catalog of the same tables that hides no keyspace.
    pub(crate) fn of_all(&self) -> Catalog {
        let (engines, tables) = (self.engines.clone(), self.tables.clone());
        Catalog {
            engines,
            decimal_scale: self.decimal_scale,
            owner: self.owner.clone(),
            tables,
            others: RwLock::default(),
            shows_all: true,
        }
    }

    /// Replaces the list of tables, if it has changed.
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
            let (tables, owner) = (self.tables.clone(), self.owner.clone());
            return Some(Arc::new(InformationSchema::new(tables, self.decimal_scale, owner)));
        }
        let tables = self.tables();
        let is_of_nodes = is_of_nodes(name);
        if !tables.has_keyspace(name) && !is_of_nodes {
            return None;
        }
        let name = name.to_owned();
        if !self.shows_all && !is_of_nodes && !shows(&name) {
            return Some(Arc::new(Hidden { name, tables }));
        }
        let (engines, decimal_scale) = (self.engines.clone(), self.decimal_scale);
        Some(Arc::new(Keyspace { engines, decimal_scale, name, tables }))
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
    engines: Engines,
    decimal_scale: i8,
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
        if found.is_none() && is_of_nodes(&self.name) {
            return Err(of_nodes(&self.name, name).into());
        }
        let table = |relation| CqlTable::new(self.engines.clone(), relation, self.decimal_scale);
        Ok(found.map(|relation| Arc::new(table(relation)) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.table(&self.name, name).is_some()
    }
}

/// A keyspace hidden from the statement. Tables that the statement names in it are recorded for
/// the audit log.
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
