//! The leaf of a plan: a scan of a table, with one partition for each core. Partition i takes or
//! finds its snapshot by a call to core i's fast lane. It makes batches on core i's heavy lane,
//! one batch ahead of the consumer.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};
use engine::scan::{BatchSource, TableScan};
use engine::{Error, Relation};

use crate::run::dynamic_filters::DynamicFilters;
use crate::run::engines::Engines;
use crate::run::memory::Held;
use crate::run::producer::{Sender, Started, channel, elsewhere};
use crate::run::query::QueryRun;
use crate::run::snapshots::Snapshots;
use crate::run::tasks::{self, Handles};

/// Copies of a batch in making: a buffer has up to as much free space again.
const MAKING_COPIES: u64 = 2;

/// Plan node that scans a table.
#[derive(Clone, Debug)]
pub(crate) struct ScanExec {
    engines: Engines,
    /// Table or view whose columns the scan's indexes refer to.
    relation: Relation,
    scan: TableScan,
    /// Dynamic filters.
    dynamic: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    /// Creates a scan that returns batches of `schema`. Must be called on a lane.
    pub(crate) fn new(
        engines: Engines,
        relation: Relation,
        scan: TableScan,
        schema: SchemaRef,
        statistics: Statistics,
    ) -> ScanExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(lanes::cores()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        // The scan yields by itself.
        .with_scheduling_type(SchedulingType::Cooperative);
        ScanExec {
            engines,
            relation,
            scan,
            dynamic: Vec::new(),
            schema,
            statistics: Arc::new(statistics),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Returns a copy of the scan, not run yet, with these dynamic filters.
    fn with_dynamic(&self, dynamic: Vec<Arc<dyn PhysicalExpr>>) -> Arc<dyn ExecutionPlan> {
        Arc::new(ScanExec { dynamic, metrics: ExecutionPlanMetricsSet::new(), ..self.clone() })
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "ScanExec: {}.{}, columns=[{}]", self.scan.keyspace, self.scan.table, names.join(", "))?;
        if let Some(base) = &self.relation.base {
            write!(f, ", view of={}", base.name)?;
        }
        if !self.scan.filters.is_empty() {
            write!(f, ", filters={}", self.scan.filters.len())?;
        }
        if !self.dynamic.is_empty() {
            let conditions: Vec<String> = self.dynamic.iter().map(ToString::to_string).collect();
            write!(f, ", narrowed by={}", conditions.join(" AND "))?;
        }
        if let Some(limit) = self.scan.limit {
            write!(f, ", limit={limit}")?;
        }
        // Pages of nodes show what they have when they are read.
        let is_of_cluster = tasks::viewer().is_some_and(|viewer| viewer.reader().is_some());
        let has_snapshot = !is_of_cluster || engine::is_of_server(&self.scan.keyspace);
        f.write_str(if has_snapshot { "" } else { ", no snapshot" })
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        // A join computes bounds of its keys only if it finds its dynamic filter here.
        apply_expression_roots(&self.dynamic, f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a scan has no inputs") }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        // Dynamic filters of the previous run do not apply to the next.
        Ok(self.with_dynamic(Vec::new()))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let conditions = pushed.parent_filters.iter().map(|pushed| pushed.filter.clone());
        let dynamic: Vec<_> = conditions.filter(DynamicFilters::is_dynamic).collect();
        // Report every filter as unsupported: the scan may return rows that do not match.
        let answer = FilterPushdownPropagation::all_unsupported(pushed);
        Ok(match phase == FilterPushdownPhase::Post && !dynamic.is_empty() {
            true => answer.with_updated_node(self.with_dynamic(dynamic)),
            false => answer,
        })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let engines = self.engines.clone();
        let relation = self.relation.clone();
        let scan = self.scan.clone();
        let schema = self.schema.clone();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (run, snapshots) = (QueryRun::of(&context), Snapshots::of(&context));
        let Some(viewer) = tasks::viewer() else {
            return internal_err!("a scan is run outside of a statement");
        };
        if let (Some(run), Some(rows)) = (&run, self.statistics.num_rows.get_value()) {
            run.expect((rows / lanes::cores()) as u64);
        }
        let snapshot = move || {
            let engine = engines.here().ok_or_else(|| Error::Server("the server is stopping".to_owned()))?;
            let def = &relation.def;
            let altered = |now: Relation| now.def.id != def.id || now.def.columns != def.columns;
            if engine.schema().relation(&def.keyspace, &def.name).is_some_and(altered) {
                return Err(Error::Stale);
            }
            let source = match &snapshots {
                Some(snapshots) => snapshots.scan(&*engine, relation.stored().id, &scan, &viewer),
                None => engine
                    .table_snapshot_for(&scan.keyspace, &scan.table, Some(&viewer))
                    .and_then(|snapshot| snapshot.scan(&scan)),
            };
            // The last owner drops the snapshots here, on the heavy lane.
            Ok((source?, snapshots))
        };
        let filters = DynamicFilters::new(self.relation.clone(), &self.dynamic);
        let making = Making { schema, filters, metrics, run: run.clone() };
        let work = move |(source, snapshots), sender| async move {
            let _snapshots = snapshots;
            making.run(source, sender).await;
        };
        let of = run.clone();
        Ok(elsewhere(self.schema.clone(), run, move |handles| start(handles, partition, of, snapshot, work)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        // Keys are distributed evenly over cores.
        Ok(match partition {
            None => self.statistics.clone(),
            Some(_) => Arc::new(share(&self.statistics, lanes::cores())),
        })
    }
}

fn share(statistics: &Statistics, parts: usize) -> Statistics {
    let mut part = statistics.clone().to_inexact();
    part.num_rows = part.num_rows.map(|rows| rows / parts);
    part.total_byte_size = part.total_byte_size.map(|bytes| bytes / parts);
    part
}

/// Takes the snapshot on core `partition`'s fast lane, and starts making batches on its heavy
/// lane.
async fn start<S, W, Fut>(
    handles: &'static Handles,
    partition: usize,
    run: Option<Arc<QueryRun>>,
    snapshot: impl FnOnce() -> Result<S, Error> + Send + 'static,
    work: W,
) -> Result<Started>
where
    S: Send + 'static,
    W: FnOnce(S, Sender) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = channel(run.as_ref());
    let begin = move || async move {
        let source = snapshot()?;
        Ok(tasks::heavy(handles, lanes::current_group(), work(source, sender)))
    };
    let task = lanes::call(partition, begin).await.map_err(external)?;
    Ok((receiver, task))
}

/// State of the task that makes batches.
struct Making {
    schema: SchemaRef,
    filters: DynamicFilters,
    metrics: BaselineMetrics,
    run: Option<Arc<QueryRun>>,
}

impl Making {
    async fn run(mut self, mut source: Box<dyn BatchSource>, sender: Sender) {
        let mut held = Held::of(self.run.as_ref().map(|run| run.statement_memory()));
        loop {
            let next = self.next(&mut source, &mut held).await;
            // The sender charges the finished batch.
            held.shrink(u64::MAX);
            let batch = match next {
                Ok(Some(batch)) => batch,
                Ok(None) => return,
                Err(error) => {
                    sender.send(Err(error)).await;
                    return;
                }
            };
            self.metrics.record_output(batch.num_rows());
            if let Some(run) = &self.run {
                run.has_read(batch.num_rows(), batch.get_array_memory_size()).await;
            }
            if !sender.send(fitted(&batch, &self.schema)).await {
                return;
            }
            lanes::heavy_yield().await;
        }
    }

    /// Returns the next batch. Charges it while it is made, whenever it yields: many statements may
    /// be in the middle of one.
    async fn next(
        &mut self,
        source: &mut Box<dyn BatchSource>,
        held: &mut Held,
    ) -> Result<Option<RecordBatch>> {
        let timer = self.metrics.elapsed_compute().timer();
        if let Some(filters) = self.filters.changed() {
            source.push_down(&filters).map_err(external)?;
        }
        let in_making = source.in_making();
        let mut next = source.next();
        let next = poll_fn(|cx| {
            let polled = next.as_mut().poll(cx);
            let bytes = in_making.as_ref().map_or(0, |bytes| bytes.load(Relaxed));
            if polled.is_pending()
                && let Err(error) = held.resize(bytes.saturating_mul(MAKING_COPIES))
            {
                return Poll::Ready(Err(error));
            }
            polled.map_err(external)
        });
        let next = next.await;
        timer.done();
        next
    }
}

/// Converts a batch to the planned schema. The table may have been altered since.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // Timestamps may be in another zone.
    let column = |(column, field): (&ArrayRef, &Arc<Field>)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => Ok(cast(column, field.data_type())?),
    };
    let columns: Result<Vec<ArrayRef>> = batch.columns().iter().zip(schema.fields()).map(column).collect();
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns?, &options)?)
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
