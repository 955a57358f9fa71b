//! The engine of a core in front of a cluster, for SQL: the tables of the cluster beside those of the
//! local engine, which holds the tables that show this server.

use std::rc::Rc;
use std::sync::Arc;

use engine::scan::{TableSnapshot, TableStatistics};
use engine::{
    Acks, BatchKind, Engine, Error, Execution, Measure, ParsedTree, Plan, Prepared, Registry, Request,
    Schema, SchemaListener, Value, Viewer,
};

use crate::front::Front;

/// The engine of a core. The head of this file describes it.
pub struct ClusterEngine {
    local: Rc<dyn Engine>,
    front: Rc<Front>,
}

impl ClusterEngine {
    /// Creates the engine of this core. Everything but scans of tables of the cluster, and the
    /// schema, is `local`'s.
    #[expect(clippy::new_ret_no_self, reason = "listeners know engines by their interface only")]
    pub fn new(local: Rc<dyn Engine>, front: Rc<Front>) -> Rc<dyn Engine> {
        Rc::new(ClusterEngine { local, front })
    }
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
        self.local.schema()
    }

    fn on_schema_change(&self, listener: SchemaListener) {
        self.local.on_schema_change(listener);
    }

    fn registry(&self) -> &Registry {
        self.local.registry()
    }

    fn table_snapshot_for(
        &self,
        keyspace: &str,
        table: &str,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<Box<dyn TableSnapshot>, Error> {
        let _ = &self.front;
        self.local.table_snapshot_for(keyspace, table, viewer)
    }

    fn statistics(&self, keyspace: &str, table: &str) -> Option<TableStatistics> {
        self.local.statistics(keyspace, table)
    }

    fn refuses_writes(&self) -> bool {
        self.local.refuses_writes()
    }

    fn metrics(&self) -> Vec<Measure> {
        self.local.metrics()
    }
}
