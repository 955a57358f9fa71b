//! The engine of a core in front of a cluster, for SQL: tables of the cluster, and those that show
//! this server ([`OWN_TABLES`]).
//!
//! The cluster has system tables of the same names as other tables of the local engine, such as
//! `system_schema.tables`. Neither are shown: the local ones describe this server, and each node
//! has other rows in its own.

use std::rc::Rc;
use std::sync::Arc;

use engine::scan::{TableSnapshot, TableStatistics};
use engine::{
    Acks, BatchKind, Engine, Error, Execution, Measure, ParsedTree, Plan, Prepared, Registry, Request,
    Schema, SchemaListener, Value, Viewer,
};
use schema::TableDef;
use wire::Consistency;

use crate::Refusal;
use crate::catalog::Catalog;
use crate::front::Front;
use crate::reader::Reader;
use crate::role::Role;
use crate::scan::{ClusterSnapshot, missing};

/// Tables of the keyspace `system` that show this server, over CQL and SQL. All others are those of
/// the cluster.
pub const OWN_TABLES: [&str; 9] = [
    "local",
    "peers",
    "peers_v2",
    "connections",
    "guardrails",
    "level_usage",
    "memory",
    "nodes",
    "running_statements",
];

/// The engine of a core. The head of this file describes it.
pub struct ClusterEngine {
    local: Rc<dyn Engine>,
    front: Rc<Front>,
}

impl ClusterEngine {
    /// Creates the engine of this core. Everything but the schema, scans and statistics of the
    /// cluster's tables is `local`'s. Listeners hear of changes of the local schema only.
    #[expect(clippy::new_ret_no_self, reason = "listeners know engines by their interface only")]
    pub fn new(local: Rc<dyn Engine>, front: Rc<Front>) -> Rc<dyn Engine> {
        Rc::new(ClusterEngine { local, front })
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.front.nodes().topology.catalog().clone()
    }

    /// Returns the open role of a viewer, and the consistency of its reads.
    ///
    /// # Errors
    /// It has no session at the cluster, or a node refuses its password.
    fn role_of(viewer: Option<&Arc<dyn Viewer>>) -> Result<(Rc<Role>, Consistency), Error> {
        let reader = viewer.and_then(|viewer| viewer.reader()?.downcast_ref::<Reader>());
        let Reader { roles, consistency } = reader.ok_or_else(|| {
            Error::Invalid("a table of the cluster is read by a session that has logged in there".to_owned())
        })?;
        let role = roles.here().ok_or_else(|| Error::Server("the server is stopping".to_owned()))?;
        match role.is_ended() {
            true => Err(Error::Unauthorized(Refusal::Ended.to_string())),
            false => Ok((role, *consistency)),
        }
    }
}

/// Returns true for a table that shows this server.
fn is_own(keyspace: &str, table: &str) -> bool {
    keyspace == "system" && OWN_TABLES.contains(&table)
}

impl Engine for ClusterEngine {
    fn prepare(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        self.local.prepare(statement, keyspace)
    }

    fn prepare_long(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Prepared {
        self.local.prepare_long(statement, keyspace)
    }

    fn execute(&self, plan: &Rc<dyn Plan>, request: &Request<'_>) -> Execution {
        self.local.execute(plan, request)
    }

    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Execution {
        self.local.execute_batch(kind, parts, request)
    }

    fn acks(&self) -> Box<dyn Acks> {
        self.local.acks()
    }

    fn schema(&self) -> Arc<Schema> {
        self.catalog().schema().clone()
    }

    fn on_schema_change(&self, listener: SchemaListener) {
        self.local.on_schema_change(listener);
    }

    fn registry(&self) -> &Registry {
        self.local.registry()
    }

    fn scanned_virtual_tables(&self) -> Vec<Arc<TableDef>> {
        let all = self.registry().all().into_iter().map(|table| table.def);
        all.filter(|def| is_own(&def.keyspace, &def.name)).collect()
    }

    fn table_snapshot_for(
        &self,
        keyspace: &str,
        table: &str,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<Box<dyn TableSnapshot>, Error> {
        if is_own(keyspace, table) {
            return self.local.table_snapshot_for(keyspace, table, viewer);
        }
        let catalog = self.catalog();
        if catalog.table(keyspace, table).is_none() {
            return Err(missing(keyspace, table));
        }
        let (role, consistency) = Self::role_of(viewer)?;
        Ok(Box::new(ClusterSnapshot::new(self.front.clone(), role, consistency, catalog)))
    }

    fn statistics(&self, keyspace: &str, table: &str) -> Option<TableStatistics> {
        if is_own(keyspace, table) {
            return self.local.statistics(keyspace, table);
        }
        let topology = &self.front.nodes().topology;
        // A view has at most the rows of its table.
        let id = topology.catalog().schema().relation(keyspace, table)?.stored().id;
        let TableStatistics { rows, bytes } = topology.sizes().of(id)?;
        let part = |count: u64| count.div_ceil(lanes::cores() as u64);
        Some(TableStatistics { rows: part(rows), bytes: part(bytes) })
    }

    fn refuses_writes(&self) -> bool {
        self.local.refuses_writes()
    }

    fn metrics(&self) -> Vec<Measure> {
        self.local.metrics()
    }
}
