//! Metrics of the graphs of vectors of this core.

use std::cell::Cell;

use engine::{Measure, Metric};

use crate::index::graph_counts::add;
use crate::index::state::Indexes;

const GRAPHS: Metric = Metric::gauge("fairlane_vector_graphs", "Graphs of vectors, one a core and index.");
const READY: Metric = Metric::gauge(
    "fairlane_vector_graphs_ready",
    "Graphs that answer searches. Others are being made, or are full.",
);
const FULL: Metric = Metric::gauge(
    "fairlane_vector_graphs_full",
    "Graphs that were freed at the limit of memory. Searches compare all rows until they fit.",
);
const FREED: Metric =
    Metric::counter("fairlane_vector_graphs_freed_total", "Graphs that were freed at the limit of memory.");
const INSERTED: Metric =
    Metric::counter("fairlane_vector_graph_insertions_total", "Vectors inserted into their graph.");
const REMOVED: Metric =
    Metric::counter("fairlane_vector_graph_removals_total", "Vectors removed from their graph.");
const LOADED: Metric =
    Metric::counter("fairlane_vector_graphs_loaded_total", "Saved graphs that a start has loaded.");
const IGNORED: Metric = Metric::counter(
    "fairlane_vector_graphs_ignored_total",
    "Saved graphs that a start has not loaded: damaged, of another folder, or too large.",
);
const SAVED: Metric = Metric::counter("fairlane_vector_graph_saves_total", "Graphs saved.");
const SAVED_BYTES: Metric =
    Metric::counter("fairlane_vector_graph_saved_bytes_total", "Bytes of saved graphs.");
const SAVES_FAILED: Metric =
    Metric::counter("fairlane_vector_graph_saves_failed_total", "Graphs that could not be saved.");
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
        add(&self.by_graph, 1);
    }

    pub(crate) fn count_exact(&self) {
        add(&self.exact, 1);
    }
}

/// Returns the metrics.
pub(crate) fn of(indexes: &Indexes) -> Vec<Measure> {
    let [graphs, ready, full, queued] = indexes.graph_numbers();
    let Searches { by_graph, exact } = &indexes.searches;
    let counts = &indexes.graph_counts;
    let values: [(&'static Metric, u64); 15] = [
        (&GRAPHS, graphs),
        (&READY, ready),
        (&FULL, full),
        (&FREED, counts.freed.get()),
        (&INSERTED, counts.inserted.get()),
        (&REMOVED, counts.removed.get()),
        (&LOADED, counts.loaded.get()),
        (&IGNORED, counts.ignored.get()),
        (&SAVED, counts.saved.get()),
        (&SAVED_BYTES, counts.saved_bytes.get()),
        (&SAVES_FAILED, counts.saves_failed.get()),
        (&BYTES, indexes.graph_bytes.get() as u64),
        (&QUEUED, queued),
        (&BY_GRAPH, by_graph.get()),
        (&EXACT, exact.get()),
    ];
    values.into_iter().map(|(metric, value)| Measure { metric, value: value as f64 }).collect()
}
