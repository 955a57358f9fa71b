//! Comparison of results with goals and published results. Each ratio is computed within one run. A
//! value that was not measured is missing. A value that other programs disturbed is shown without a
//! verdict.

mod batching;
mod cluster;
mod conditioning;
mod judge;
mod levels;
mod olap;
mod overload;
mod petabyte;
mod shares;
mod storage;

use crate::results::{ComparisonRow, DemoResults, Subject};

pub(crate) use batching::{deviation, one_key};
pub(crate) use conditioning::both_p99;
pub(crate) use levels::{Effect, batch_loss};
pub(crate) use olap::{OverAlone, beside, cpu_ratio, over_alone, throughputs};
pub(crate) use overload::{best, mean_of, parts};
pub(crate) use petabyte::{expected, isolation};
pub(crate) use shares::over_first;
pub(crate) use storage::cost;

/// Returns the source of the published results.
pub(crate) fn published_by(subject: Subject) -> &'static str {
    match subject {
        Subject::Flush => {
            "ScyllaDB, “Improved Latencies from 3.6ms to 0.8ms for the 99th Percentile”, scylladb.com, 18 September \
             2017"
        }
        Subject::Petabyte => {
            "ScyllaDB, “Operating at Monstrous Scales: Benchmarking Petabyte Workloads with ScyllaDB”"
        }
        Subject::Batching => "a conference talk about streams of events in strict order over ScyllaDB",
        Subject::Olap => {
            "Apache Doris, “Multi-tenant workload isolation: a better balance between isolation and utilization”, \
             doris.apache.org, 14 May 2024"
        }
        _ => {
            "ScyllaDB, “Running OLAP and OLTP Workloads on the Same Cluster with Workload Prioritization”, \
             scylladb.com, 23 May 2019"
        }
    }
}

/// Returns all rows whose values were measured.
pub(crate) fn compare(outcome: &DemoResults) -> Vec<ComparisonRow> {
    let mut rows = Vec::new();
    levels::rows(outcome, &mut rows);
    shares::rows(outcome, &mut rows);
    levels::cap_row(outcome, &mut rows);
    storage::rows(outcome, &mut rows);
    conditioning::rows(outcome, &mut rows);
    olap::rows(outcome, &mut rows);
    batching::rows(outcome, &mut rows);
    overload::rows(outcome, &mut rows);
    petabyte::rows(outcome, &mut rows);
    cluster::rows(outcome, &mut rows);
    rows
}

#[cfg(test)]
mod tests;
