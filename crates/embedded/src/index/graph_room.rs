//! Graphs that were freed at the limit of memory, and their return.
//!
//! 1. A graph that exceeds the limit is freed. This is logged and counted, and searches compare all
//!    rows.
//! 2. Its rows are counted by a scan, which is about a hundredth of the work of a graph. Times the
//!    memory of a row, as it was in the graph, they give an estimate of what the graph needs.
//! 3. Every [`CHECKED_EVERY`] the estimate is compared with the free memory: other graphs may be
//!    gone. The graph is made anew if it needs at most three quarters of it, so that it has space
//!    to grow before it is freed again.
//! 4. Rows are counted again after writes and deletions, but counting takes a hundredth of the time
//!    at most, and each hour, as rows may expire.

use std::rc::Rc;
use std::time::Duration;

use storage::{Event, StorageError};

use crate::Embedded;
use crate::index::graph::{State, VectorGraph};
use crate::index::graph_counts::add;
use crate::index::graph_limits::Freed;

/// Interval of comparing the estimate with the free memory.
pub(super) const CHECKED_EVERY: Duration = Duration::from_secs(1);

impl VectorGraph {
    /// Reports that a graph of `nodes` nodes has no memory, and stops using it.
    pub(super) fn set_full(&self, engine: &Embedded, nodes: usize, bytes_max: usize) {
        if self.state.get() == State::Closed {
            return;
        }
        self.state.set(State::Full);
        self.queue.take();
        self.freed.set(Freed::new(self.bytes.get(), nodes));
        self.saves.forget_changes();
        add(&self.counts.freed, 1);
        engine.event_sink.send(&Event::GraphFreed {
            index: engine.indexes.named(self.column.data),
            bytes: self.bytes.get() as u64,
            limit: bytes_max as u64,
        });
    }

    /// Frees the nodes of a full graph, and has it built if its rows are expected to fit.
    ///
    /// # Errors
    /// The rows could not be counted.
    pub(super) async fn await_room(
        self: &Rc<Self>,
        engine: &Rc<Embedded>,
        bytes_max: usize,
    ) -> Result<(), StorageError> {
        if self.bytes.get() > 0 {
            self.free().await;
            self.share_cache(engine);
        }
        let began_ns = lanes::time::monotonic_ns();
        if self.freed.get().has_to_be_counted(began_ns) {
            // The scan may be past the rows that are written from here on.
            self.freed.set(self.freed.get().while_counting());
            let rows = self.count_rows(engine).await?;
            self.freed.set(self.freed.get().counted(rows, began_ns, lanes::time::monotonic_ns()));
        }
        if self.is_full() && self.freed.get().fits(bytes_max.saturating_sub(self.all_bytes.get())) {
            self.state.set(State::Building);
        }
        Ok(())
    }
}
