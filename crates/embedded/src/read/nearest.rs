//! Reading the rows nearest to a vector.
//!
//! 1. Every core that has rows of the query returns its nearest ones, as [`Candidate`]s: through
//!    the graph of the index, or by comparing all rows ([`Scan::exactly`]).
//! 2. The candidates of all cores are merged by similarity.
//! 3. The best are read, each on its core, and shown if they still are as near, until there are as
//!    many as the LIMIT.
//!
//! The graph is asked for more candidates until there are enough whose rows exist, have the vector
//! that the graph knows, and pass the filters. If it cannot find enough, the search is exact. So an
//! answer has fewer rows than its LIMIT only if there are no more.
//!
//! With another index, its entries find the rows if they are few: comparing these is exact, and
//! cheaper than asking the graph for neighbours that fail the filter.

use std::collections::HashSet;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, ResultRows};

use crate::Embedded;
use crate::bind::nearest::NearestSearch;
use crate::bind::slice::is_in;
use crate::heavy_lane::heavy;
use crate::index::entry::Entry;
use crate::index::graph::{Searched, VectorGraph};
use crate::index::vectors::{WrittenVector, floats};
use crate::read::chunk::{Chunk, Ends};
use crate::read::nearness::{Candidate, Nearness};
use crate::read::paging::Position;
use crate::read::partition::{PartitionRead, Slice};
use crate::read::scan::{Carried, PORTION_BYTES_MAX, Scan};

/// Rows that each core returns beyond the LIMIT: some may be deleted before they are shown.
const SPARE: usize = 4;

/// Neighbours requested of a graph at a time, at most. If they are too few, the search is exact.
const NEIGHBOURS_MAX: usize = 8192;

/// Portions of entries of another index that are read before the graph is used: 10,000 entries.
const PORTIONS_MAX: usize = 2;

/// Rows of a portion of a scan, at most.
const PORTION_ROWS_MAX: u32 = 5000;

/// Difference between the arithmetic of the graph and that of the functions, relative to the
/// similarity, and absolute.
const TOLERANCE: f32 = 1e-3;
const TOLERANCE_LEAST: f32 = 1e-6;

/// Work units of reading a row that a graph names.
const ROW_UNITS: u32 = 5;

/// Queued vectors compared between two yields of the heavy lane.
const VECTORS_PER_YIELD: usize = 32;

/// Outdated places that one search reports to the graph, at most. A later one reports the others.
const REPORTED_MAX: usize = 64;

/// Row that a graph or its queue names, with the similarity that it reports.
struct Neighbour {
    similarity: f32,
    place: Bytes,
}

/// Rows that a graph and its queue name, the nearest first.
struct Neighbours {
    nearest: Vec<Neighbour>,
    /// True if these are all.
    are_all: bool,
}

impl Scan {
    /// Adds the rows nearest to a vector to the chunk, the nearest first. `keys` are the partitions
    /// that the query names; `None`: all.
    pub(crate) async fn nearest(
        &self,
        keys: Option<Vec<(i64, Bytes)>>,
        search: &NearestSearch,
        chunk: &mut Chunk,
    ) -> Result<(), Error> {
        if keys.is_none() && self.tokens.is_empty() {
            return Ok(());
        }
        // A partition with static cells alone has no row.
        let scan = Scan { slice: Slice { whole: false, ..self.slice.clone() }, tokens: self.tokens.clone() };
        let mut reads = Vec::new();
        for core in 0..lanes::cores() {
            let mut own = keys.clone();
            let is_of_core = |(token, _): &(i64, Bytes)| Embedded::local().owner(*token) == core;
            own.iter_mut().for_each(|own| own.retain(is_of_core));
            if own.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            engine::note(|| format!("Searching nearest vectors on core {core}"));
            let (scan, search) = (scan.clone(), search.clone());
            let read = move || async move { scan.candidates(&Embedded::local(), own, &search).await };
            reads.push(lanes::spawn(lanes::current_group(), lanes::call(core, read)));
        }
        let mut all = Vec::new();
        for read in reads {
            all.extend(read.await?);
        }
        lanes::count(all.len() as u32);
        all.sort();
        for candidate in all {
            if chunk.left == 0 {
                break;
            }
            scan.slice.show(&candidate, search, chunk).await?;
        }
        Ok(())
    }

    /// Returns the rows of this core that are the nearest.
    async fn candidates(
        &self,
        engine: &Rc<Embedded>,
        keys: Option<Vec<(i64, Bytes)>>,
        search: &NearestSearch,
    ) -> Result<Vec<Candidate>, Error> {
        let graph = engine.indexes.graph(search.data).filter(|_| keys.is_none());
        if let Some(graph) = graph {
            let is_probed = self.slice.probe.is_some();
            if is_probed && let Some(found) = self.exactly(engine, None, search, PORTIONS_MAX).await? {
                engine.indexes.searches.count_exact();
                return Ok(found);
            }
            if let Some(found) = self.by_graph(engine, &graph, search).await? {
                engine.indexes.searches.count_by_graph();
                return Ok(found);
            }
        }
        engine.indexes.searches.count_exact();
        let found = self.exactly(engine, keys, search, usize::MAX).await?;
        Ok(found.unwrap_or_default())
    }

    /// Compares all rows of this core, or of these partitions. Returns `None` if `portions_max`
    /// portions are not enough.
    async fn exactly(
        &self,
        engine: &Rc<Embedded>,
        keys: Option<Vec<(i64, Bytes)>>,
        search: &NearestSearch,
        portions_max: usize,
    ) -> Result<Option<Vec<Candidate>>, Error> {
        let nearness = Nearness::collect(search, search.limit + SPARE);
        let slice = Slice { nearest: Some(nearness.clone()), ..self.slice.clone() };
        if let Some(keys) = keys {
            for (token, key) in keys {
                slice.one(&engine.shard, token, &key, None, &mut comparing()).await?;
            }
            return Ok(Some(nearness.finish().await));
        }
        let scan = Scan { slice, tokens: self.tokens.clone() };
        let mut start = Position::default();
        for _ in 0..portions_max {
            let portion =
                scan.portion(&engine.shard, start, PORTION_ROWS_MAX, PORTION_BYTES_MAX, Carried::default());
            match portion.await?.next {
                Some(next) => start = next,
                None => return Ok(Some(nearness.finish().await)),
            }
        }
        Ok(None)
    }

    /// Searches with the graph. Returns `None` if the search has to be exact.
    async fn by_graph(
        &self,
        engine: &Rc<Embedded>,
        graph: &Rc<VectorGraph>,
        search: &NearestSearch,
    ) -> Result<Option<Vec<Candidate>>, Error> {
        let wanted = search.limit + SPARE;
        let mut count = wanted + wanted / 4;
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let (mut passed_over, mut reported) = (HashSet::new(), 0);
        while count <= NEIGHBOURS_MAX {
            let Some(searched) = graph.searched() else { return Ok(None) };
            let Some(neighbours) = neighbours(searched, search, count).await else { return Ok(None) };
            for Neighbour { similarity, place } in neighbours.nearest {
                if seen.contains(&place) || passed_over.contains(&(place.clone(), similarity.to_bits())) {
                    continue;
                }
                if lanes::spend(ROW_UNITS) {
                    lanes::yield_now().await;
                }
                let Some(entry) = Entry::decode(&Bytes::new(), &place) else { continue };
                match self.similarity_of(engine, &entry, search).await? {
                    Some(own) if !is_below(own, similarity) => {
                        let (token, key) = (entry.token, entry.key);
                        let row = entry.row.unwrap_or_default();
                        found.push(Candidate { similarity: own, token, key, row });
                        seen.insert(place);
                    }
                    _ => {
                        if self.slice.filters.is_empty() && reported < REPORTED_MAX {
                            reported += 1;
                            graph.push(WrittenVector { place: place.clone(), vector: None });
                        }
                        passed_over.insert((place, similarity.to_bits()));
                    }
                }
                if found.len() >= wanted {
                    return Ok(Some(found));
                }
            }
            if neighbours.are_all {
                return Ok(Some(found));
            }
            count *= 4;
        }
        Ok(None)
    }

    /// Returns the similarity of a row of this core, if it is one of the query.
    async fn similarity_of(
        &self,
        engine: &Rc<Embedded>,
        entry: &Entry,
        search: &NearestSearch,
    ) -> Result<Option<f32>, Error> {
        let row = entry.row.as_deref().unwrap_or_default();
        if !self.tokens.contains(&entry.token) || !is_in(&self.slice.ranges, row) {
            return Ok(None);
        }
        let nearness = Nearness::measure(search);
        let slice = Slice { nearest: Some(nearness.clone()), ..self.slice.clone() };
        let range = [(Bound::Included(row), Bound::Included(row))];
        let (mut read, mut chunk) = (PartitionRead::default(), comparing());
        slice.over(&engine.shard, entry.token, &entry.key, &range, &mut read, &mut chunk).await?;
        Ok(nearness.measured())
    }
}

impl Slice {
    /// Adds the row of a candidate to the chunk, unless it is not as near any more.
    async fn show(
        &self,
        candidate: &Candidate,
        search: &NearestSearch,
        chunk: &mut Chunk,
    ) -> Result<(), Error> {
        let Candidate { similarity, token, key, row } = candidate;
        let ranges = [(Bound::Included(row.clone()), Bound::Included(row.clone()))];
        let slice = Slice {
            ranges: ranges.into(),
            nearest: Some(Nearness::show(search, *similarity)),
            probe: None,
            ..self.clone()
        };
        chunk.of_partition = 0;
        slice.one_on(Embedded::local().owner(*token), *token, key, None, chunk).await.map(drop)
    }
}

/// Returns a chunk for rows that are compared and not shown.
fn comparing() -> Chunk {
    Chunk::new(ResultRows::new(Arc::from([])), u32::MAX, usize::MAX, Ends::Portion)
}

/// Returns true if a row is less similar than a graph says: it has another vector now.
fn is_below(own: f32, expected: f32) -> bool {
    own < expected - (expected.abs() * TOLERANCE).max(TOLERANCE_LEAST)
}

/// Searches graph and queue on the heavy lane. Returns the nearest, about `count`; `None` if the
/// graph has failed or was freed.
async fn neighbours(searched: Searched, search: &NearestSearch, count: usize) -> Option<Neighbours> {
    let (vector, similarity) = (search.vector.clone(), search.similarity);
    heavy(async move {
        let Searched { nodes, queued } = searched;
        let query: Vec<f32> = floats(&vector).collect();
        let (found, size) = match &*nodes.read() {
            Some(graph) => (graph.nearest(&query, count).ok()?, graph.len()),
            None => (Vec::new(), 0),
        };
        let has_all = found.len() == size;
        let neighbour =
            |found: vectors::Found| Neighbour { similarity: found.similarity, place: found.place };
        let mut all: Vec<Neighbour> = found.into_iter().map(neighbour).collect();
        for (at, written) in queued.iter().flat_map(|chunk| chunk.iter()).enumerate() {
            let own = written.vector.as_deref().and_then(|own| similarity.of(&vector, own));
            if let Some(similarity) = own.filter(|own| !own.is_nan()) {
                all.push(Neighbour { similarity, place: written.place.clone() });
            }
            if at % VECTORS_PER_YIELD == 0 {
                lanes::heavy_yield().await;
            }
        }
        all.sort_by(|a, b| b.similarity.total_cmp(&a.similarity));
        let are_all = has_all && all.len() <= count;
        all.truncate(count);
        Some(Neighbours { nearest: all, are_all })
    })
    .await
}
