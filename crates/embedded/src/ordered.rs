//! `ORDER BY` over several partitions: rows of all partitions that an `IN` names, as one sequence.
//!
//! Each partition is in order on disk, and the partitions are merged:
//!
//! 1. A partition is read [`PART_ROWS`] rows at a time, at most LIMIT rows of it.
//! 2. Rows beyond LIMIT are dropped whenever there are twice as many. The last one kept is the
//!    bound: a partition is left at its first row that is not before it.
//! 3. At the end the rows are sorted. The sort is stable: rows that are equal in the columns of
//!    ORDER BY stay in the order of their partitions' tokens.
//!
//! Memory is bounded by twice LIMIT rows, and without LIMIT by the guardrail of unpaged answers.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Guardrail, Rows};
use schema::{TableDef, value};

use crate::Embedded;
use crate::definition::is_kept;
use crate::heavily::heavy;
use crate::read::{Chunk, Slice};
use crate::slice::descending;

/// Rows of a partition that are read at a time: few enough that a small LIMIT reads little more
/// than its rows of each partition.
const PART_ROWS: u32 = 256;

/// Bytes of cells at which a part ends early.
const PART_BYTES_MAX: usize = 256 << 10;

/// Rows that are sorted in one task poll: about 50 µs. A heavy lane sorts more.
const SORTED_AT_ONCE: usize = 500;

/// Work units of asking for one partition.
const KEY_UNITS: u32 = 5;

/// A row: the bytes that it is sorted by, and where its cells are.
#[derive(Debug)]
struct Placed {
    sort: Bytes,
    start: usize,
    end: usize,
}

/// The first rows of those that were seen.
#[derive(Debug)]
struct First {
    def: Arc<TableDef>,
    /// Clustering columns that ORDER BY names.
    columns: usize,
    reversed: bool,
    rows_max: usize,
    cells: Vec<u8>,
    rows: Vec<Placed>,
    /// There are `rows_max` rows that are not behind this.
    bound: Option<Bytes>,
}

impl First {
    /// Whether a row with these bytes is behind the bound, or beside it: rows seen before go first.
    fn is_beyond(&self, sort: &[u8]) -> bool {
        self.bound.as_deref().is_some_and(|bound| if self.reversed { sort <= bound } else { sort >= bound })
    }

    /// The bytes of a clustering key that ORDER BY sorts by.
    fn sort_of(&self, clustering: &Bytes) -> Result<Bytes, Error> {
        let (mut left, mut scratch) = (&clustering[..], Vec::new());
        // A partition with static cells alone shows as a row without clustering.
        let columns = if clustering.is_empty() { 0 } else { self.columns };
        for column in self.def.clustering().take(columns) {
            scratch.clear();
            value::decode_key_part(&column.ty, descending(column), &mut left, &mut scratch)
                .map_err(|e| Error::Server(format!("a stored clustering key is damaged: {e}")))?;
        }
        Ok(clustering.slice(..clustering.len() - left.len()))
    }

    /// Adds rows of one partition. Returns whether the partition's next rows are of no use.
    fn add(&mut self, part: &Chunk) -> Result<bool, Error> {
        let mut start = 0;
        for (clustering, end) in part.places.iter().flatten() {
            let (sort, cells) = (self.sort_of(clustering)?, start..*end);
            start = *end;
            if self.is_beyond(&sort) {
                return Ok(true);
            }
            let from = self.cells.len();
            self.cells.extend_from_slice(&part.rows.cells[cells]);
            self.rows.push(Placed { sort, start: from, end: self.cells.len() });
        }
        Ok(false)
    }

    fn is_due(&self) -> bool {
        self.rows.len() >= self.rows_max.saturating_mul(2)
            || self.bound.is_none() && self.rows.len() >= self.rows_max
    }

    /// Sorts the rows and leaves the first `rows_max`.
    fn sorted(mut self) -> First {
        match self.reversed {
            false => self.rows.sort_by(|a, b| a.sort.cmp(&b.sort)),
            true => self.rows.sort_by(|a, b| b.sort.cmp(&a.sort)),
        }
        self.rows.truncate(self.rows_max);
        let mut cells = Vec::with_capacity(self.rows.iter().map(|row| row.end - row.start).sum());
        for row in &mut self.rows {
            let start = cells.len();
            cells.extend_from_slice(&self.cells[row.start..row.end]);
            (row.start, row.end) = (start, cells.len());
        }
        self.cells = cells;
        if self.rows.len() == self.rows_max {
            self.bound = self.rows.last().map(|row| row.sort.clone());
        }
        self
    }

    /// As [`First::sorted`], where it does not delay others.
    async fn sorted_politely(self) -> First {
        if self.rows.len() > SORTED_AT_ONCE || self.cells.len() > PART_BYTES_MAX {
            return heavy(async move { self.sorted() }).await;
        }
        if lanes::spend(self.rows.len() as u32) {
            lanes::yield_now().await;
        }
        self.sorted()
    }
}

impl Slice {
    /// Reads the named partitions and puts the first `chunk.left` of their rows into the chunk, in
    /// the order of the first `columns` clustering columns.
    pub(crate) async fn in_order(
        &self,
        engine: &Rc<Embedded>,
        keys: Vec<(i64, Bytes)>,
        columns: usize,
        chunk: &mut Chunk,
    ) -> Result<(), Error> {
        let rows_max = chunk.left as usize;
        let (def, reversed) = (self.def.clone(), self.reversed);
        let (cells, rows) = (Vec::new(), Vec::new());
        let mut first = First { def, columns, reversed, rows_max, cells, rows, bound: None };
        for (token, key) in keys {
            if lanes::spend(KEY_UNITS) {
                lanes::yield_now().await;
            }
            let core = engine.owner(token);
            let (mut after, mut of_partition) = (None, 0);
            loop {
                let left = (chunk.left - of_partition.min(chunk.left)).min(PART_ROWS);
                if left == 0 {
                    break;
                }
                let mut part = Chunk::new(Rows::new(Arc::from([])), left, PART_BYTES_MAX);
                (part.of_partition, part.dead, part.places) = (of_partition, chunk.dead, Some(Vec::new()));
                let is_whole = self.one_on(core, token, &key, after.take(), &mut part).await?;
                chunk.dead = part.dead;
                let is_beyond = first.add(&part)?;
                if first.is_due() {
                    first = first.sorted_politely().await;
                }
                self.check_bytes(engine, &first, chunk)?;
                if lanes::spend(part.rows.count) {
                    lanes::yield_now().await;
                }
                if is_whole || is_beyond {
                    break;
                }
                (after, of_partition) = (part.last, part.of_partition);
            }
        }
        let first = first.sorted_politely().await;
        chunk.rows.count = first.rows.len() as u32;
        chunk.rows.cells = first.cells;
        Ok(())
    }

    /// Has memory granted for the rows so far.
    fn check_bytes(&self, engine: &Embedded, first: &First, chunk: &mut Chunk) -> Result<(), Error> {
        let bytes = first.cells.len();
        if first.rows.len() <= first.rows_max && !is_kept(&self.def.keyspace) {
            engine.guardrails().check(Guardrail::UnpagedBytes, bytes as u64)?;
        }
        chunk.grants.cover(bytes)
    }
}
