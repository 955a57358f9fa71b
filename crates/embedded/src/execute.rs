//! Running plans: implements `engine`'s traits by calling reads, writes and definitions.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use engine::scan::{TableSnapshot, TableStatistics};
use engine::{
    Acks, BatchKind, Engine, Error, Execution, Measure, ParsedTree, Plan, Prepared, Registry, Request,
    Schema, SchemaListener, Value, Viewer,
};
use storage::TableId;

use crate::ddl::maintenance;
use crate::plan::{EmbeddedPlan, PlanKind};
use crate::{Embedded, storage_error};

/// Progress of one writer's writes to this core's shard.
struct OwnAcks(storage::Acks);

impl Acks for OwnAcks {
    fn poll_acked(&mut self, write: u64, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_acked(write, cx).map_err(storage_error)
    }
}

impl Engine for Embedded {
    fn prepare(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        Ok(Rc::new(self.plan(&statement, keyspace)?))
    }

    fn prepare_long(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Prepared {
        self.plan_long(statement, keyspace)
    }

    fn execute(&self, given: &Rc<dyn Plan>, request: &Request<'_>) -> Execution {
        let plan = own(given);
        if !plan.is_plain {
            return self.run_with_added(given, request);
        }
        if let Err(error) = self.check_values(plan, request.values) {
            return Execution::Ready(Err(error));
        }
        match &plan.kind {
            PlanKind::Select(select) if !select.is_large(request.values) => self.point_read(select, request),
            PlanKind::Select(select) => self.select(select, request),
            PlanKind::Write { plans, is_atomic } => self.write(given, plans, *is_atomic, request),
            _ => unreachable!("only SELECT and writes are plain"),
        }
    }

    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Execution {
        self.write_batch(kind, parts, request)
    }

    fn acks(&self) -> Box<dyn Acks> {
        Box::new(OwnAcks(self.shard.acks()))
    }

    fn schema(&self) -> Arc<Schema> {
        self.current.schema()
    }

    fn on_schema_change(&self, listener: SchemaListener) {
        self.current.listen(listener);
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn table_snapshot_for(
        &self,
        keyspace: &str,
        table: &str,
        viewer: Option<&Arc<dyn Viewer>>,
    ) -> Result<Box<dyn TableSnapshot>, Error> {
        self.snapshot_of(keyspace, table, viewer)
    }

    fn statistics(&self, keyspace: &str, table: &str) -> Option<TableStatistics> {
        self.size_of(keyspace, table)
    }

    fn refuses_writes(&self) -> bool {
        self.shard.refuses_writes()
    }

    fn metrics(&self) -> Vec<Measure> {
        let mut all = crate::system::metrics::of(&self.shard.stats());
        all.extend(self.indexes.sweeps.metrics());
        all.extend(crate::index::metrics::of(&self.indexes));
        all
    }
}

/// Returns the values of a client with the results of the calls that an execution makes once.
pub(crate) fn with_called<'v>(values: &[Value<'v>], called: &'v [Option<Vec<u8>>]) -> Vec<Value<'v>> {
    let value = |result: &'v Option<Vec<u8>>| result.as_deref().map_or(Value::Null, Value::Bytes);
    values.iter().copied().chain(called.iter().map(value)).collect()
}

/// Downcasts a plan to this engine's type.
pub(crate) fn own(plan: &Rc<dyn Plan>) -> &EmbeddedPlan {
    plan.as_any().downcast_ref().expect("a plan goes back to the engine that made it")
}

/// Checks the number of values that a client gave.
pub(crate) fn check_count(plan: &EmbeddedPlan, given: usize) -> Result<(), Error> {
    let wanted = plan.binds().len();
    if wanted == given {
        return Ok(());
    }
    Err(Error::Invalid(format!("There were {wanted} markers(?) in CQL but {given} bound variables")))
}

impl Embedded {
    /// Runs a plan, after the calls that it makes once for an execution.
    #[inline(never)]
    fn run_with_added(&self, given: &Rc<dyn Plan>, request: &Request<'_>) -> Execution {
        let added = &own(given).added;
        if added.calls.is_empty() {
            return self.run(given, request);
        }
        match added.call_once() {
            Ok(called) => {
                let values = with_called(request.values, &called);
                self.run(given, &Request { values: &values, ..*request })
            }
            Err(error) => Execution::Ready(Err(error)),
        }
    }

    /// Runs a plan with all values of an execution.
    fn run(&self, given: &Rc<dyn Plan>, request: &Request<'_>) -> Execution {
        let plan = own(given);
        // Values that are read from JSON are checked once they are there.
        if plan.added.from_json == 0
            && let Err(error) = self.check_values(plan, request.values)
        {
            return Execution::Ready(Err(error));
        }
        match &plan.kind {
            PlanKind::Select(select) => {
                let shown = match select.for_viewer(request.viewer) {
                    Ok(shown) => shown,
                    Err(error) => return Execution::Ready(Err(error)),
                };
                match &shown.json {
                    None => self.select(shown, request),
                    Some(columns) => self.select_json(shown, columns, request),
                }
            }
            PlanKind::Write { plans: writes, is_atomic } => self.write(given, writes, *is_atomic, request),
            PlanKind::Truncate(def) => Execution::Pending(Box::pin(Embedded::truncate(def.clone()))),
            PlanKind::Compact(def) => {
                Execution::Pending(Box::pin(maintenance::compact(TableId(def.data_id().as_u128()))))
            }
            PlanKind::Flush => Execution::Pending(Box::pin(maintenance::flush())),
            PlanKind::Scrub(def, columns) => {
                let table = TableId(def.data_id().as_u128());
                Execution::Pending(Box::pin(maintenance::scrub(table, columns.clone())))
            }
            PlanKind::Define(statement, keyspace) => {
                Execution::Pending(Box::pin(Embedded::define(statement.clone(), keyspace.clone())))
            }
        }
    }

    /// Checks that the values fit the plan, and the number of their elements, before using any of
    /// them. Values that the engine adds are among them.
    pub(crate) fn check_values(&self, plan: &EmbeddedPlan, values: &[Value<'_>]) -> Result<(), Error> {
        if !plan.is_current() {
            return Err(Error::Stale);
        }
        check_count(plan, values.len().wrapping_sub(plan.added.count()))?;
        for (marker, guardrail) in &plan.counted {
            if let Value::Bytes(bytes) = values[*marker] {
                // A malformed value may claim more elements than its bytes have room for.
                let room = bytes.len() as u64 / 4;
                let elements = schema::value::elements(bytes).count_left().min(room);
                self.registry.guardrails().check(*guardrail, elements)?;
            }
        }
        Ok(())
    }
}
