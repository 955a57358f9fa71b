//! Graph of vectors, in memory: finds the nearest ones approximately. A hierarchical navigable
//! small world (Malkov and Yashunin, 2016), by the library `usearch`.
//!
//! The graph maps *places* to vectors. A place is the caller's name of a row: bytes that the graph
//! does not interpret. It knows no tables, no disk and no threads. The caller has it computed on a
//! heavy lane, and puts it behind a lock: changes need `&mut`.
//!
//! ```text
//! place ──nodes──▶ number of the node ──usearch──▶ vector, neighbours
//!   ▲                      │
//!   └───────places─────────┘
//! ```
//!
//! A graph can be saved as the bytes of a file, and loaded (`saved.rs`). The caller then scans its
//! rows: [`Graph::put`] skips a place that has the same vector, and [`Graph::unmet`] names the
//! places that the scan did not meet. So the saved graph may be of any age.
//!
//! **Bounds.** Memory is counted ([`Graph::bytes`]), and the caller stops at its limit. A change or
//! a search visits a number of nodes that grows with the logarithm of the graph's size.
//!
//! **Not here**: equal input gives equal graphs, but an answer may miss near vectors. The caller
//! checks each row that it finds, and searches exactly where the graph cannot.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

mod saved;

pub use saved::{OWNER_BYTES, Owner, is_saved};

/// Neighbours of a node, as in Cassandra's indexes (`maximum_node_connections`).
const CONNECTIVITY: usize = 16;

/// Candidates of an insertion, as in Cassandra's indexes (`construction_beam_width`) and above.
const CANDIDATES_INSERTING: usize = 128;

/// Candidates of a search. More are taken if more results are requested.
const CANDIDATES_SEARCHING: usize = 128;

/// Threads that use one graph at a time, at most: those of a heavy lane, of which several may be in
/// a search that overruns its slice.
const THREADS: usize = 8;

/// Nodes for which memory is reserved at first. It doubles when they are used up.
const NODES_FIRST: usize = 64;

/// Bytes of a node besides its vector, its links and its place: entries of two maps.
const NODE_BYTES: usize = 160;

/// Bytes of a slot of the library: pointers to node and vector, a lock, the entry of a map.
const SLOT_BYTES: usize = 40;

/// Measure of the nearness of two vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Cosine of the angle.
    Cosine,
    /// Dot product.
    DotProduct,
    /// Distance.
    Euclidean,
}

impl Measure {
    /// Candidates of an insertion or a search, of `usual` ones. The nearest by dot product are no
    /// neighbours in space, unless all vectors are of one length: a graph finds fewer of them.
    fn candidates(self, usual: usize) -> usize {
        match self {
            Measure::DotProduct => usual * 4,
            Measure::Cosine | Measure::Euclidean => usual,
        }
    }

    fn kind(self) -> MetricKind {
        match self {
            Measure::Cosine => MetricKind::Cos,
            Measure::DotProduct => MetricKind::IP,
            Measure::Euclidean => MetricKind::L2sq,
        }
    }

    /// Returns the similarity of vectors at a distance of the library: of the cosine and the dot
    /// product (1 + it) / 2, of the distance d 1 / (1 + d²).
    fn similarity(self, distance: f32) -> f32 {
        match self {
            // The library returns 1 - cosine, and 1 - product.
            Measure::Cosine | Measure::DotProduct => 1.0 - distance / 2.0,
            Measure::Euclidean => 1.0 / (1.0 + distance),
        }
    }
}

/// Failure of the library: it has no memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphError(String);

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the graph of vectors failed: {}", self.0)
    }
}

impl std::error::Error for GraphError {}

fn failed(error: impl fmt::Display) -> GraphError {
    GraphError(error.to_string())
}

/// A place, with the similarity of its vector to that of a query.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The place.
    pub place: Bytes,
    /// The similarity, in the arithmetic of the library.
    pub similarity: f32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    number: u64,
    /// Last scan that met the place.
    scan: u32,
}

/// Vectors by place, with a graph over them.
pub struct Graph {
    index: Index,
    measure: Measure,
    dimension: usize,
    nodes: HashMap<Bytes, Node>,
    places: HashMap<u64, Bytes>,
    /// Number of the next node. Numbers are not used again.
    next: u64,
    /// Number of the last scan.
    scan: u32,
    /// Slots of the library that were used so far, and those of them that are free again.
    slots: usize,
    free: usize,
    place_bytes: usize,
}

impl Graph {
    /// Returns an empty graph for vectors of this dimension.
    ///
    /// # Errors
    /// Fails without memory.
    pub fn new(dimension: usize, measure: Measure) -> Result<Graph, GraphError> {
        let index = Graph::index(dimension, measure)?;
        index.reserve_capacity_and_threads(NODES_FIRST, THREADS).map_err(failed)?;
        Ok(Graph {
            index,
            measure,
            dimension,
            nodes: HashMap::new(),
            places: HashMap::new(),
            next: 0,
            scan: 0,
            slots: 0,
            free: 0,
            place_bytes: 0,
        })
    }

    fn index(dimension: usize, measure: Measure) -> Result<Index, GraphError> {
        let options = IndexOptions {
            dimensions: dimension,
            metric: measure.kind(),
            quantization: ScalarKind::F32,
            connectivity: CONNECTIVITY,
            expansion_add: measure.candidates(CANDIDATES_INSERTING),
            expansion_search: measure.candidates(CANDIDATES_SEARCHING),
            multi: false,
        };
        Index::new(&options).map_err(failed)
    }

    /// Returns the number of places.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true without places.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the memory that it holds, in bytes. The library reserves address space for vectors
    /// and links in chunks that double, 16 MiB at first: counts what is used of it.
    pub fn bytes(&self) -> usize {
        let stats = self.index.memory_stats();
        let reserved = stats.graph_reserved + stats.vectors_reserved;
        let used = (stats.graph_allocated + stats.vectors_allocated).saturating_sub(reserved);
        used + self.index.capacity() * SLOT_BYTES + self.place_bytes + self.nodes.len() * NODE_BYTES
    }

    /// Gives a place a vector, instead of the one that it had. Returns false if it was the same.
    ///
    /// # Errors
    /// Fails for a vector of another dimension, and without memory. The place has no vector then.
    pub fn put(&mut self, place: &Bytes, vector: &[f32]) -> Result<bool, GraphError> {
        if let Some(node) = self.nodes.get_mut(place) {
            let mut known = vec![0.0; self.dimension];
            if self.index.get(node.number, &mut known).map_err(failed)? == 1 && known == vector {
                node.scan = self.scan;
                return Ok(false);
            }
            self.remove(place)?;
        }
        if self.free == 0 && self.slots + 1 >= self.index.capacity() {
            let more = self.index.capacity().max(NODES_FIRST) * 2;
            self.index.reserve_capacity_and_threads(more, THREADS).map_err(failed)?;
        }
        let number = self.next;
        self.index.add(number, vector).map_err(failed)?;
        self.next += 1;
        match self.free {
            0 => self.slots += 1,
            _ => self.free -= 1,
        }
        // A copy: the place may be a slice of a larger buffer.
        let place = Bytes::copy_from_slice(place);
        self.place_bytes += place.len();
        self.places.insert(number, place.clone());
        self.nodes.insert(place, Node { number, scan: self.scan });
        Ok(true)
    }

    /// Removes a place. Returns false if it is not there.
    ///
    /// # Errors
    /// Fails without memory.
    pub fn remove(&mut self, place: &[u8]) -> Result<bool, GraphError> {
        let Some(node) = self.nodes.get(place) else { return Ok(false) };
        self.index.remove(node.number).map_err(failed)?;
        self.places.remove(&node.number);
        self.nodes.remove(place);
        self.place_bytes -= place.len();
        self.free += 1;
        Ok(true)
    }

    /// Begins a scan of all rows: no place has been met.
    pub fn begin_scan(&mut self) {
        self.scan = self.scan.wrapping_add(1);
    }

    /// Returns the places without a [`Graph::put`] since the scan began.
    pub fn unmet(&self) -> Vec<Bytes> {
        let unmet = self.nodes.iter().filter(|(_, node)| node.scan != self.scan);
        unmet.map(|(place, _)| place.clone()).collect()
    }

    /// Returns the places with the `count` vectors nearest to a vector, about, the nearest first.
    /// Fewer: these are all that the graph can find.
    ///
    /// # Errors
    /// Fails for a vector of another dimension, and without memory.
    pub fn nearest(&self, vector: &[f32], count: usize) -> Result<Vec<Found>, GraphError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let matches = self.index.search(vector, count.min(self.len())).map_err(failed)?;
        let found = matches.keys.iter().zip(&matches.distances).filter_map(|(key, distance)| {
            let place = self.places.get(key)?.clone();
            Some(Found { place, similarity: self.measure.similarity(*distance) })
        });
        Ok(found.collect())
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("places", &self.len()).field("measure", &self.measure).finish()
    }
}

#[cfg(test)]
mod tests;
