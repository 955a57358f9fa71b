//! Charges of operators for which DataFusion reserves no memory. The last optimizer rule puts them
//! into a plan. Every operator and expression that allocates by data:
//!
//! | allocates | charged |
//! |---|---|
//! | sorts, TopK, groups, build sides of joins, work tables | DataFusion's reservations |
//! | repartitions, merges | DataFusion's reservations |
//! | states of aggregates | DataFusion; `aggregate_memory`: growth and results, beforehand |
//! | windows: rows, states, results; all texts of views | `window_memory` |
//! | filters: rows they put together | `coalesce`; a batch ends at 16 MiB |
//! | joins, UNNEST: rows they repeat | `wide_batches`, for the batch that a row may grow to |
//! | subqueries with one value | `wide_batches`, until the run ends; the batch it may grow to |
//! | constants in each row | no charge: `batch_width` makes batches shorter |
//! | functions: results for a batch | `function_bounds`, until the next batch or task poll |
//! | scans: the batch being made | `scan`, whenever it yields |
//! | scans, exchanges: batches in channels | `producer`, until their consumer asks for more |
//! | answers: batch, texts, the row in encoding | `postgres::query`, while a portal waits too |
//! | spilled data that is not on the disk | `spill` |
//! | nodes that pass batches on (unions, limits) | with the batch: one for each partition |
//!
//! Not charged: batches between two nodes of one partition, of 16 MiB or less, and trees
//! of a plan, which `plan` charges.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;

use crate::engine::operators::pass_through::with_inputs;
use crate::engine::operators::{coalesce, nested_loops, wide_batches, window_memory};

/// Puts the nodes above and below an operator that charge its memory.
///
/// # Errors
/// Errors of DataFusion.
pub(crate) fn charged(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return coalesce::filtered(filter);
    }
    if node.is::<NestedLoopJoinExec>() {
        return nested_loops::in_memory(node);
    }
    if let Some(subqueries) = node.downcast_ref::<ScalarSubqueryExec>() {
        let values = subqueries.subqueries().iter().map(|link| wide_batches::value(link.plan.clone()));
        let inputs = [subqueries.input().clone()].into_iter().chain(values).collect();
        return with_inputs(node, inputs);
    }
    window_memory::charged(node)
}
