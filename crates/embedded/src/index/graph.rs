//! Graphs over the vectors of this core's rows, one for each index.
//!
//! A graph is a cache in memory, made of the table's rows. A saved copy of it spares a start most
//! of the work (`graph_file`), and no more: nothing relies on it.
//!
//! ```text
//!  rows ──scan──▶ graph ◀── row read again ──┐
//!                   ▲                        │
//!  search ──────────┴─▶ queue of written places ◀── write, once it is applied
//! ```
//!
//! 1. A task in the group of indexes scans the rows of this core and puts their vectors into the
//!    graph, after a start and after `CREATE INDEX`. A row that the saved graph has with the same
//!    vector is skipped. Nodes that the scan did not meet are removed. Searches are exact until it
//!    ends.
//! 2. A write that changes a vector appends the row's place and the vector to a queue, before it is
//!    acknowledged. A search compares the queued vectors one by one. So a written row is found at
//!    once.
//! 3. The task takes places from the queue, reads their rows *now*, and gives the graph what it
//!    finds. So the graph agrees with the table in the end, in whatever order writes are applied,
//!    and whatever timestamps clients use.
//! 4. A search that finds a place whose row has another vector, or none, appends the place to the
//!    queue. This removes what TTLs and deletions of partitions leave behind.
//! 5. If the queue overflows, the rows are scanned anew. If memory has reached its limit, the graph
//!    is freed, and searches are exact until its rows are expected to fit (`graph_room`).
//!
//! All computation is on the heavy lane. The lock of the graph is held for one insertion or one
//! search, and never across a yield: it is waited for by blocking, a millisecond at most.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use functions::Similarity;
use lanes::sync::Notify;
use vectors::{Graph, Measure};

use crate::index::graph_counts::GraphCounts;
use crate::index::graph_limits::{Freed, SaveState};
use crate::index::vectors::{VectorColumn, WrittenVector, floats};

/// Entries of a queue, and their bytes, beyond which the graph is scanned for anew. A search
/// compares them all: 16,384 vectors of 128 dimensions take 3 ms.
const QUEUED_MAX: usize = 16_384;
const QUEUED_BYTES_MAX: usize = 16 << 20;

/// Entries that the task takes from the queue, or from a scan, at a time.
pub(super) const TAKEN_MAX: usize = 64;

/// The nodes, shared with the heavy lane.
#[derive(Clone)]
pub(crate) struct Nodes(Arc<RwLock<Option<Graph>>>);

impl Nodes {
    /// Locks the graph for a search. `None` inside: it was freed.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Option<Graph>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Option<Graph>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The saved graph was not loaded yet.
    New,
    /// Rows are being scanned.
    Building,
    /// Graph and queue together have all rows.
    Ready,
    /// There is no memory for it, see `freed`.
    Full,
    /// The index was dropped.
    Closed,
}

/// Graph of one index on this core.
pub(crate) struct VectorGraph {
    pub(crate) column: VectorColumn,
    pub(super) nodes: Nodes,
    pub(super) state: Cell<State>,
    pub(super) queue: RefCell<Queue>,
    pub(super) changed: Notify,
    /// Memory of the nodes, in bytes, and of those of all graphs of this core.
    pub(super) bytes: Cell<usize>,
    pub(super) all_bytes: Rc<Cell<usize>>,
    pub(super) freed: Cell<Freed>,
    pub(super) saves: SaveState,
    pub(super) counts: Rc<GraphCounts>,
}

/// Written vectors that the graph does not have yet, the oldest first.
#[derive(Default)]
pub(super) struct Queue {
    /// Shared with searches.
    pub(super) sealed: VecDeque<Arc<[WrittenVector]>>,
    open: Vec<WrittenVector>,
    pub(super) count: usize,
    bytes: usize,
    pub(super) has_overflown: bool,
}

impl Queue {
    fn push(&mut self, written: WrittenVector) {
        self.count += 1;
        self.bytes += written.bytes();
        if self.count > QUEUED_MAX || self.bytes > QUEUED_BYTES_MAX {
            *self = Queue { has_overflown: true, ..Queue::default() };
            return;
        }
        self.open.push(written);
        if self.open.len() >= TAKEN_MAX {
            self.seal();
        }
    }

    pub(super) fn seal(&mut self) {
        if !self.open.is_empty() {
            self.sealed.push_back(std::mem::take(&mut self.open).into());
        }
    }

    /// Removes the oldest entries, unless an overflow has removed them.
    pub(super) fn pop(&mut self, taken: &Arc<[WrittenVector]>) {
        if self.sealed.front().is_some_and(|front| Arc::ptr_eq(front, taken)) {
            self.sealed.pop_front();
            self.count -= taken.len();
            self.bytes -= taken.iter().map(WrittenVector::bytes).sum::<usize>();
        }
    }
}

/// Graph and queue at the time of a search.
pub(crate) struct Searched {
    pub(crate) nodes: Nodes,
    pub(crate) queued: Vec<Arc<[WrittenVector]>>,
}

/// A change of the graph: a place, and its vector if it has one.
pub(super) type NodeChange = (Bytes, Option<Bytes>);

impl VectorGraph {
    pub(super) fn new(
        column: VectorColumn,
        all_bytes: Rc<Cell<usize>>,
        counts: Rc<GraphCounts>,
    ) -> VectorGraph {
        VectorGraph {
            column,
            nodes: Nodes(Arc::default()),
            state: Cell::new(State::New),
            queue: RefCell::default(),
            changed: Notify::new(),
            bytes: Cell::new(0),
            all_bytes,
            freed: Cell::default(),
            saves: SaveState::default(),
            counts,
        }
    }

    /// Appends the vector of a row that was written, or that a search found outdated.
    pub(crate) fn push(&self, written: WrittenVector) {
        match self.state.get() {
            State::Closed => return,
            State::Full => return self.note_write(),
            State::New | State::Building | State::Ready => {}
        }
        let mut queue = self.queue.borrow_mut();
        queue.push(written);
        if queue.has_overflown && self.is_ready() {
            self.state.set(State::Building);
        }
        drop(queue);
        self.changed.notify();
    }

    /// Notes that rows were written or deleted, of which it may have vectors.
    pub(super) fn note_write(&self) {
        self.freed.set(self.freed.get().after_write());
    }

    /// Returns what a search needs. `None`: it has to be exact.
    pub(crate) fn searched(&self) -> Option<Searched> {
        if !self.is_ready() {
            return None;
        }
        let mut queue = self.queue.borrow_mut();
        queue.seal();
        lanes::count(queue.sealed.len() as u32 / 16);
        Some(Searched { nodes: self.nodes.clone(), queued: queue.sealed.iter().cloned().collect() })
    }

    /// Returns true if it answers searches.
    pub(crate) fn is_ready(&self) -> bool {
        self.state.get() == State::Ready
    }

    /// Returns true if it has no memory.
    pub(crate) fn is_full(&self) -> bool {
        self.state.get() == State::Full
    }

    /// Returns the number of written vectors that it does not have yet.
    pub(crate) fn queued(&self) -> usize {
        self.queue.borrow().count
    }

    /// Stops the background work: the index was dropped.
    pub(crate) fn close(&self) {
        self.state.set(State::Closed);
        self.changed.notify();
    }

    pub(super) fn count(&self, bytes: usize) {
        self.all_bytes.set(self.all_bytes.get() - self.bytes.replace(bytes) + bytes);
    }
}

/// Effect of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    Nothing,
    Inserted,
    Removed,
}

impl Nodes {
    /// Applies a change. Returns `None` without memory.
    pub(super) fn change(&self, column: &VectorColumn, (place, vector): NodeChange) -> Option<Changed> {
        let mut nodes = self.write();
        let graph = match &mut *nodes {
            Some(graph) => graph,
            none => none.insert(Graph::new(column.dimension, measure(column.similarity)).ok()?),
        };
        let (changed, effect) = match vector {
            // A vector of another length is that of a column of this name that was dropped.
            Some(vector) if vector.len() == column.dimension * 4 => {
                (graph.put(&place, &floats(&vector).collect::<Vec<f32>>()), Changed::Inserted)
            }
            _ => (graph.remove(&place), Changed::Removed),
        };
        changed.ok().map(|has_changed| if has_changed { effect } else { Changed::Nothing })
    }
}

pub(super) fn measure(similarity: Similarity) -> Measure {
    match similarity {
        Similarity::Cosine => Measure::Cosine,
        Similarity::DotProduct => Measure::DotProduct,
        Similarity::Euclidean => Measure::Euclidean,
    }
}
