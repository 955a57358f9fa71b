//! Comparison of results with goals and published results. Each ratio is computed within one run. A
//! value that was not measured is missing. A value that other programs disturbed is shown without a
//! verdict.

mod batching;
mod judge;
mod levels;
mod olap;
mod overload;
mod shares;
mod storage;

use crate::results::{Outcome, Row};

pub(crate) use batching::{deviation, one_key};
pub(crate) use levels::{Effect, batch_loss};
pub(crate) use olap::{OverAlone, beside, over_alone, throughputs};
pub(crate) use overload::{best, mean_of, parts};
pub(crate) use shares::over_first;
pub(crate) use storage::cost;

/// Source of the published results: a test of service levels with shares by the maker of a database
/// that speaks CQL.
pub(crate) const PUBLISHED_BY: &str = "ScyllaDB, “Running OLAP and OLTP Workloads on the Same Cluster with \
                                       Workload Prioritization”, scylladb.com, 23 May 2019";

/// Returns all rows whose values were measured.
pub(crate) fn compare(outcome: &Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    levels::rows(outcome, &mut rows);
    shares::rows(outcome, &mut rows);
    levels::cap_row(outcome, &mut rows);
    storage::rows(outcome, &mut rows);
    olap::rows(outcome, &mut rows);
    batching::rows(outcome, &mut rows);
    overload::rows(outcome, &mut rows);
    rows
}

#[cfg(test)]
mod tests;
