//! `ORDER BY` over several partitions: rows of all partitions that an `IN` names, as one sequence.
//!
//! Each partition is sorted on disk, and the partitions are merged:
//!
//! 1. A partition is read [`PART_ROWS`] rows at a time, at most LIMIT rows in total.
//! 2. Rows beyond LIMIT are dropped whenever there are twice as many. The last row kept is the
//!    bound: reading a partition stops at its first row that is not before the bound.
//! 3. Finally the rows are sorted. The sort is stable: rows with equal ORDER BY columns stay in the
//!    order of their partition keys.
//!
//! Memory is bounded by twice LIMIT rows, and without LIMIT by the guardrail of unpaged results.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{ANSWER_BYTES_MAX, Cells, Error, Guardrail, ResultRows};
use schema::{TableDef, value};

use crate::Embedded;
use crate::bind::slice::descending;
use crate::heavy_lane::heavy;
use crate::read::chunk::{Chunk, Ends, answer_too_large};
use crate::read::partition::Slice;
use crate::system::own_tables::is_server_keyspace;

/// Rows of a partition read at a time. Small, so that a small LIMIT reads little more than its rows
/// of each partition.
const PART_ROWS: u32 = 256;

/// Bytes of cells at which a part ends early.
const PART_BYTES_MAX: usize = 256 << 10;

/// Rows sorted in one task poll: about 50 µs. A heavy lane sorts more.
const SORTED_AT_ONCE: usize = 500;

/// Work units of reading one partition.
const KEY_UNITS: u32 = 5;

/// Row: its sort key, and the location of its cells.
#[derive(Debug)]
struct Placed {
    sort: Bytes,
    start: usize,
    end: usize,
}

/// The first rows, of those seen so far.
#[derive(Debug)]
struct First {
    def: Arc<TableDef>,
    /// Number of clustering columns that ORDER BY names.
    columns: usize,
    reversed: bool,
    rows_max: usize,
    cells: Cells,
    rows: Vec<Placed>,
    /// Sort key of the last row kept, once there are `rows_max` rows.
    bound: Option<Bytes>,
}

impl First {
    /// Returns true if a row with this sort key is after the bound or equal to it: of equal rows,
    /// those seen first win.
    fn is_beyond(&self, sort: &[u8]) -> bool {
        self.bound.as_deref().is_some_and(|bound| if self.reversed { sort <= bound } else { sort >= bound })
    }

    /// Returns the bytes of a clustering key that ORDER BY sorts by.
    fn sort_of(&self, clustering: &Bytes) -> Result<Bytes, Error> {
        let (mut left, mut scratch) = (&clustering[..], Vec::new());
        // A partition with static cells alone shows as a row without clustering key.
        let columns = if clustering.is_empty() { 0 } else { self.columns };
        for column in self.def.clustering().take(columns) {
            scratch.clear();
            value::decode_key_part(&column.ty, descending(column), &mut left, &mut scratch)
                .map_err(|e| Error::Server(format!("a stored clustering key is damaged: {e}")))?;
        }
        Ok(clustering.slice(..clustering.len() - left.len()))
    }

    /// Adds rows of one partition. Returns true if the partition's later rows are not needed.
    fn add(&mut self, part: &Chunk) -> Result<bool, Error> {
        let mut start = 0;
        for (clustering, end) in part.places.iter().flatten() {
            let (sort, cells) = (self.sort_of(clustering)?, start..*end);
            start = *end;
            if self.is_beyond(&sort) {
                return Ok(true);
            }
            let from = self.cells.len();
            self.cells.extend_from(&part.rows.cells, cells);
            self.rows.push(Placed { sort, start: from, end: self.cells.len() });
        }
        Ok(false)
    }

    fn needs_sort(&self) -> bool {
        self.rows.len() >= self.rows_max.saturating_mul(2)
            || self.bound.is_none() && self.rows.len() >= self.rows_max
    }

    /// Sorts the rows and keeps the first `rows_max`.
    fn sorted(mut self) -> First {
        match self.reversed {
            false => self.rows.sort_by(|a, b| a.sort.cmp(&b.sort)),
            true => self.rows.sort_by(|a, b| b.sort.cmp(&a.sort)),
        }
        self.rows.truncate(self.rows_max);
        let mut cells = Cells::default();
        for row in &mut self.rows {
            let start = cells.len();
            cells.extend_from(&self.cells, row.start..row.end);
            (row.start, row.end) = (start, cells.len());
        }
        self.cells = cells;
        if self.rows.len() == self.rows_max {
            self.bound = self.rows.last().map(|row| row.sort.clone());
        }
        self
    }

    /// Sorts as [`First::sorted`] does, on a heavy lane if there are many rows.
    async fn sorted_with_yields(self) -> First {
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
    /// Reads the named partitions and adds the first `chunk.left` of their rows to the chunk, in
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
        let (cells, rows) = (Cells::default(), Vec::new());
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
                let mut part = Chunk::new(ResultRows::new(Arc::from([])), left, PART_BYTES_MAX, Ends::Page);
                part.grants = chunk.grants.beside(first.cells.len());
                (part.of_partition, part.dead, part.places) = (of_partition, chunk.dead, Some(Vec::new()));
                let is_whole = self.one_on(core, token, &key, after.take(), &mut part).await?;
                chunk.dead = part.dead;
                let is_beyond = first.add(&part)?;
                if first.needs_sort() {
                    first = first.sorted_with_yields().await;
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
        let first = first.sorted_with_yields().await;
        chunk.rows.count = first.rows.len() as u32;
        chunk.rows.cells = first.cells;
        Ok(())
    }

    /// Requests memory grants for the rows so far.
    fn check_bytes(&self, engine: &Embedded, first: &First, chunk: &mut Chunk) -> Result<(), Error> {
        let bytes = first.cells.len();
        if first.rows.len() <= first.rows_max && !is_server_keyspace(&self.def.keyspace) {
            engine.guardrails().check(Guardrail::UnpagedBytes, bytes as u64)?;
        }
        if bytes > ANSWER_BYTES_MAX {
            return Err(answer_too_large(bytes));
        }
        // Sorting copies the rows.
        chunk.grants.cover(2 * bytes)
    }
}
