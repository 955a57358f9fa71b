//! Graph as the bytes of a file. Numbers are little-endian, checksums CRC32C.
//!
//! ```text
//! file     header | place of each node | the library's bytes
//! header   magic "FALGRA01" | version u32 (1) | measure u32 (0 cosine, 1 dot product, 2 Euclidean) |
//!          dimension u64 | nodes u64 | slots u64 | next number u64 | bytes of places u64 |
//!          the library's bytes u64 | owner, 32 bytes | crc u32 of what follows the header |
//!          crc u32 of the header above
//! place    number u64 | length u32 | bytes
//! ```
//!
//! The library trusts the bytes that it loads. They are therefore loaded only if both checksums
//! match, and the owner, which the caller chooses, is the same. Slots are those of the library:
//! nodes, and removed ones that are used again.

use std::collections::HashMap;

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};

use crate::{Graph, GraphError, Measure, NODES_FIRST, Node, THREADS, failed};

const MAGIC: [u8; 8] = *b"FALGRA01";

/// Version of the format. A file of another one is not loaded.
const VERSION: u32 = 1;

/// Bytes of an [`Owner`].
pub const OWNER_BYTES: usize = 32;

/// Identity of what a saved graph belongs to, which only the caller interprets.
pub type Owner = [u8; OWNER_BYTES];

/// Bytes ahead of the checksums: magic, two u32, six u64, the owner.
pub(crate) const FACTS_BYTES: usize = 8 + 2 * 4 + 6 * 8 + OWNER_BYTES;

/// Bytes of the header.
const HEADER_BYTES: usize = FACTS_BYTES + 2 * 4;

/// Bytes of a place besides its own.
const PLACE_HEAD_BYTES: usize = 8 + 4;

/// Returns true if a file that begins with these bytes is a saved graph, of whatever version and
/// state.
pub fn is_saved(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
}

fn measure_code(measure: Measure) -> u32 {
    match measure {
        Measure::Cosine => 0,
        Measure::DotProduct => 1,
        Measure::Euclidean => 2,
    }
}

/// Numbers of the header that describe the rest of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    nodes: u64,
    slots: u64,
    next: u64,
    places_bytes: u64,
    library_bytes: u64,
}

impl Graph {
    /// Returns the bytes of a file with the graph, for this owner.
    ///
    /// # Errors
    /// Fails without memory: the bytes take about as much as the graph.
    pub fn save(&self, owner: &Owner) -> Result<Vec<u8>, GraphError> {
        let (library_bytes, count) = (self.index.serialized_length(), self.nodes.len());
        let places_bytes = self.place_bytes + count * PLACE_HEAD_BYTES;
        let mut file = Vec::new();
        let length = HEADER_BYTES + places_bytes + library_bytes;
        file.try_reserve_exact(length).map_err(failed)?;
        file.resize(HEADER_BYTES, 0);
        for (number, place) in &self.places {
            file.extend_from_slice(&number.to_le_bytes());
            file.extend_from_slice(&(place.len() as u32).to_le_bytes());
            file.extend_from_slice(place);
        }
        let at = file.len();
        file.resize(length, 0);
        self.index.save_to_buffer(&mut file[at..]).map_err(failed)?;
        let facts = Facts {
            nodes: count as u64,
            slots: self.slots as u64,
            next: self.next,
            places_bytes: places_bytes as u64,
            library_bytes: library_bytes as u64,
        };
        let header = self.header(facts, owner, &file[HEADER_BYTES..]);
        file[..HEADER_BYTES].copy_from_slice(&header);
        Ok(file)
    }

    fn header(&self, facts: Facts, owner: &Owner, body: &[u8]) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&measure_code(self.measure).to_le_bytes());
        let Facts { nodes, slots, next, places_bytes, library_bytes } = facts;
        for number in [self.dimension as u64, nodes, slots, next, places_bytes, library_bytes] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(owner);
        header.extend_from_slice(&crc32c(body).to_le_bytes());
        header.extend_from_slice(&crc32c(&header).to_le_bytes());
        header
    }

    /// Returns the graph of a file.
    ///
    /// # Errors
    /// The file is damaged, of another version, owner, dimension or measure, or memory is missing.
    pub fn load(file: &[u8], owner: &Owner, dimension: usize, measure: Measure) -> Result<Graph, GraphError> {
        let damaged = || failed("the file is damaged");
        let (header, body) = file.split_at_checked(HEADER_BYTES).ok_or_else(damaged)?;
        let facts = read_header(header).ok_or_else(damaged)?;
        let mut graph = Graph::new(dimension, measure)?;
        // This compares the version, the owner and the checksum of the body, too.
        if header != graph.header(facts, owner, body) {
            return Err(failed("the file is damaged, or of another graph"));
        }
        let (places, library) = body.split_at_checked(facts.places_bytes as usize).ok_or_else(damaged)?;
        if library.len() as u64 != facts.library_bytes {
            return Err(damaged());
        }
        graph.load_places(places, facts.nodes).ok_or_else(damaged)?;
        graph.index.load_from_buffer(library).map_err(failed)?;
        let is_whole = graph.nodes.len() as u64 == facts.nodes
            && graph.places.len() as u64 == facts.nodes
            && graph.index.size() as u64 == facts.nodes
            && graph.index.dimensions() == dimension
            && facts.nodes <= facts.slots;
        if !is_whole {
            return Err(damaged());
        }
        graph.slots = facts.slots as usize;
        graph.free = (facts.slots - facts.nodes) as usize;
        graph.next = facts.next;
        let capacity = (graph.slots + 1).max(NODES_FIRST);
        graph.index.reserve_capacity_and_threads(capacity, THREADS).map_err(failed)?;
        Ok(graph)
    }

    /// Fills the maps from the places of `nodes` nodes. `None`: they are malformed.
    fn load_places(&mut self, mut rest: &[u8], nodes: u64) -> Option<()> {
        let count = (nodes as usize).min(rest.len() / PLACE_HEAD_BYTES);
        (self.nodes, self.places) = (HashMap::with_capacity(count), HashMap::with_capacity(count));
        while !rest.is_empty() {
            let (number, length, place);
            (number, rest) = rest.split_first_chunk()?;
            (length, rest) = rest.split_first_chunk()?;
            (place, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            let (number, place) = (u64::from_le_bytes(*number), Bytes::copy_from_slice(place));
            self.place_bytes += place.len();
            self.places.insert(number, place.clone());
            self.nodes.insert(place, Node { number, scan: 0 });
        }
        Some(())
    }
}

/// Returns the numbers of a header whose own checksum matches. `None`: it is damaged.
fn read_header(header: &[u8]) -> Option<Facts> {
    let (facts, sums) = header.split_at_checked(FACTS_BYTES)?;
    let (of_body, of_header) = sums.split_at_checked(4)?;
    if crc32c_append(crc32c(facts), of_body).to_le_bytes() != of_header {
        return None;
    }
    // Behind the magic, the version, the measure and the dimension.
    let (numbers, _) = facts.get(24..)?.as_chunks::<8>();
    let number = |at: usize| numbers.get(at).map(|number| u64::from_le_bytes(*number));
    Some(Facts {
        nodes: number(0)?,
        slots: number(1)?,
        next: number(2)?,
        places_bytes: number(3)?,
        library_bytes: number(4)?,
    })
}
