//! Metrics of the graphs of vectors of this core.

use std::cell::Cell;

use engine::{Measure, Metric};

use crate::index::state::Indexes;

const GRAPHS: Metric = Metric::gauge("fairlane_vector_graphs", "Graphs of vectors, one a core and index.");
const READY: Metric = Metric::gauge(
    "fairlane_vector_graphs_ready",
    "Graphs that answer searches. Others are being made, or are full.",
);
const BYTES: Metric = Metric::gauge("fairlane_vector_graph_bytes", "Memory of the graphs of vectors.");
const QUEUED: Metric =
    Metric::gauge("fairlane_vector_queue_rows", "Written vectors that are not in their graph yet.");
const BY_GRAPH: Metric = Metric::counter(
    "fairlane_vector_searches_total",
    "Searches of nearest vectors by a graph, counted on each core.",
);
const EXACT: Metric = Metric::counter(
    "fairlane_vector_searches_exact_total",
    "Searches of nearest vectors that compared all rows, counted on each core.",
);

/// Counts of searches on this core.
#[derive(Default)]
pub(crate) struct Searches {
    by_graph: Cell<u64>,
    exact: Cell<u64>,
}

impl Searches {
    pub(crate) fn count_by_graph(&self) {
        self.by_graph.set(self.by_graph.get() + 1);
    }

    pub(crate) fn count_exact(&self) {
        self.exact.set(self.exact.get() + 1);
    }
}

/// Returns the metrics.
pub(crate) fn of(indexes: &Indexes) -> Vec<Measure> {
    let (graphs, ready, queued) = indexes.graph_counts();
    let Searches { by_graph, exact } = &indexes.searches;
    let values: [(&'static Metric, u64); 6] = [
        (&GRAPHS, graphs),
        (&READY, ready),
        (&BYTES, indexes.graph_bytes.get() as u64),
        (&QUEUED, queued),
        (&BY_GRAPH, by_graph.get()),
        (&EXACT, exact.get()),
    ];
    values.into_iter().map(|(metric, value)| Measure { metric, value: value as f64 }).collect()
}
