//! Reading a slice of one partition on the core that owns it, encoded for CQL.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{ANSWER_BYTES_MAX, AnswerGrant, Error, Guardrail, Guardrails, ROW_BYTES_MAX, Reads, Rows};
use schema::{ColumnKind, TableDef};
use storage::{PartitionView, ScanPiece, Shard, StoredRow, TableId};

use crate::bind::filter::BoundFilter;
use crate::bind::select::Projection;
use crate::bind::show::RowSource;
use crate::bind::slice::Range;
use crate::heavy_lane::heavy;
use crate::read::paging::Position;
use crate::read::row_answer::{self, units_of_row};
use crate::system::own_tables::is_server_keyspace;
use crate::{Embedded, storage_error};

/// Rows requested from storage at a time, at most. Each source copies and merges this many in one
/// task poll.
const CHUNK_ROWS_MAX: usize = 256;

/// Work units of requesting a chunk of a partition from storage.
const CHUNK_UNITS: u32 = 5;

/// Work units of a row beyond which a heavy lane shows the rows: 50 µs.
const ROW_UNITS_MAX: u32 = lanes::UNITS_PER_POLL;

/// Bytes of static cells beyond which a heavy lane shows rows with them.
pub(crate) const STATIC_BYTES_MAX: usize = 8 << 10;

/// Lower and upper bound on clustering keys.
type Between<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Part of a partition to read. It is sent to the core that owns the partition.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) def: Arc<TableDef>,
    pub(crate) projection: Arc<Projection>,
    pub(crate) ranges: Arc<[Range]>,
    pub(crate) filters: Arc<[BoundFilter]>,
    pub(crate) reversed: bool,
    pub(crate) distinct: bool,
    /// True without clustering restrictions: a partition with static cells alone then shows as one
    /// row.
    pub(crate) whole: bool,
    pub(crate) per_partition: u32,
    pub(crate) now_s: u32,
    /// Blocks that are not in the cache are read without inserting them.
    pub(crate) bypass_cache: bool,
    /// Count of the rows that it reads.
    pub(crate) reads: Arc<Reads>,
}

/// Progress of a read.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: Rows,
    /// Rows counted by a `count`.
    pub(crate) counted: u64,
    /// Clustering key of the last row taken from the current partition, and the number of its rows
    /// taken.
    pub(crate) last: Option<Bytes>,
    pub(crate) of_partition: u32,
    /// Rows that may still be taken.
    pub(crate) left: u32,
    /// Bytes of cells at which no more rows are taken.
    pub(crate) bytes_max: usize,
    pub(crate) ends: Ends,
    /// Dead rows and partitions skipped for this page, or for this part of a scan.
    pub(crate) dead: u64,
    /// Rows looked at that are not in the count of the statement yet, and their bytes.
    looked_at: (u64, u64),
    /// Clustering key of each row and the end of its cells, if a merge needs them.
    pub(crate) places: Option<Vec<(Bytes, usize)>>,
    pub(crate) grants: Grants,
    /// Limits of an answer without pages. A heavy lane has no engine to get them from.
    pub(crate) guardrails: Option<Arc<Guardrails>>,
    /// Bytes to reserve when the first row arrives. A read that still waits for its rows reserves
    /// nothing.
    pub(crate) room: usize,
}

/// End of a read at its `bytes_max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// Ends before a large row that does not fit, but has at least one row.
    Page,
    /// Ends before a large row that does not fit, even if it is the first. Its reader then reads
    /// that row alone.
    Portion,
    /// The answer has no pages: it is refused.
    Whole,
}

/// Bytes of a result that are granted at a time. The first ones need no grant, so that short
/// results cost no accounting.
pub(crate) const GRANT_BYTES: usize = 64 << 10;

/// Memory granted to a result as it grows.
#[derive(Debug)]
pub(crate) struct Grants {
    answer: Option<Arc<dyn AnswerGrant>>,
    granted: usize,
    /// Bytes of the answer elsewhere, to which the covered ones are added.
    base: usize,
}

impl Grants {
    /// Returns grants from `answer`; without it every request is granted.
    pub(crate) fn of(answer: Option<Arc<dyn AnswerGrant>>) -> Grants {
        Grants { answer, granted: GRANT_BYTES, base: 0 }
    }

    /// Returns grants for a part of the answer, in addition to its other `base` bytes.
    pub(crate) fn beside(&self, base: usize) -> Grants {
        Grants { answer: self.answer.clone(), granted: self.granted, base }
    }

    /// Requests grants for `bytes` of the result.
    ///
    /// # Errors
    /// Returns an error if there is no memory for them.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        let bytes = self.base + bytes;
        if bytes > self.granted
            && let Some(answer) = &self.answer
        {
            let granted = bytes.next_multiple_of(GRANT_BYTES);
            answer.grow(granted as u64)?;
            self.granted = granted;
        }
        Ok(())
    }
}

/// Partition that is being read in chunks.
#[derive(Debug, Default)]
pub(crate) struct PartitionRead {
    /// First chunk, which has the static cells.
    head: Option<PartitionView>,
    /// True if a row was found.
    found: bool,
}

/// Result of adding one stored row.
enum Shown {
    /// It is dead.
    Dead,
    /// It has nothing but cells of dropped columns.
    Hidden,
    /// It was added, or did not pass a filter.
    Next,
    /// It is for a heavy lane.
    Large,
    /// No more rows of the partition are wanted. True if all requested rows of it were taken.
    End(bool),
}

impl Chunk {
    /// Returns a chunk without rows, for at most `left` rows.
    pub(crate) fn new(rows: Rows, left: u32, bytes_max: usize, ends: Ends) -> Chunk {
        Chunk {
            rows,
            counted: 0,
            last: None,
            of_partition: 0,
            left,
            bytes_max,
            ends,
            dead: 0,
            looked_at: (0, 0),
            places: None,
            grants: Grants::of(None),
            guardrails: None,
            room: 0,
        }
    }

    /// Counts dead rows and partitions of a table.
    ///
    /// # Errors
    /// Returns an error if the count exceeds the guardrail. System tables are exempt: the server
    /// cannot start without reading them.
    pub(crate) fn count_dead(&mut self, def: &TableDef, dead: u64) -> Result<(), Error> {
        if dead == 0 || is_server_keyspace(&def.keyspace) {
            return Ok(());
        }
        self.dead += dead;
        let engine = Embedded::local();
        engine.uses.of(def, || engine.current.schema()).count_dead(dead, self.dead);
        engine.guardrails().check_growth(Guardrail::Tombstones, self.dead - dead, self.dead)
    }

    /// Takes the chunk, to send it to another core. Leaves an empty one until it comes back.
    pub(crate) fn take(&mut self) -> Chunk {
        std::mem::replace(self, Chunk::new(Rows::new(Arc::from([])), 0, 0, Ends::Page))
    }

    /// Returns the position after the last row taken from the partition, or after the partition if
    /// none was taken.
    pub(crate) fn inside(&self, token: i64, key: Bytes) -> Position {
        Position { of_partition: self.of_partition, row: self.last.clone(), ..Position::after(token, key) }
    }

    /// Records the place of the row taken last.
    fn place(&mut self) {
        if let Some(places) = &mut self.places {
            places.push((self.last.clone().unwrap_or_default(), self.rows.cells.len()));
        }
    }

    /// Takes no more rows once there are `bytes_max` bytes of cells.
    ///
    /// # Errors
    /// Returns an error if there is no memory for a larger result.
    pub(crate) fn bound(&mut self) -> Result<(), Error> {
        let bytes = self.rows.cells.len();
        if bytes >= self.bytes_max {
            self.left = 0;
        }
        if bytes > ANSWER_BYTES_MAX {
            return Err(answer_too_large(bytes));
        }
        self.grants.cover(bytes)
    }

    /// Returns true if a row of `bytes` fits, and requests grants for it and for `beside` bytes
    /// more. Otherwise takes no more rows.
    ///
    /// # Errors
    /// Returns an error if the row fits into no page, or if there is no memory for it.
    pub(crate) fn admits(&mut self, bytes: usize, beside: usize) -> Result<bool, Error> {
        if bytes > ROW_BYTES_MAX {
            return Err(row_answer::too_large(bytes));
        }
        let after = self.rows.cells.len() + bytes;
        if after > self.bytes_max {
            let is_over = match self.ends {
                Ends::Page => self.rows.count > 0,
                Ends::Portion => true,
                Ends::Whole => {
                    let check =
                        |limits: &Arc<Guardrails>| limits.check(Guardrail::UnpagedBytes, after as u64);
                    self.guardrails.as_ref().map_or(Ok(()), check)?;
                    false
                }
            };
            if is_over {
                self.left = 0;
                return Ok(false);
            }
        }
        if after > ANSWER_BYTES_MAX {
            return Err(answer_too_large(after));
        }
        match self.grants.cover(after + beside) {
            // The rows so far are a page.
            Err(Error::Overloaded(_)) if self.ends == Ends::Page && self.rows.count > 0 => {
                self.left = 0;
                Ok(false)
            }
            granted => granted.map(|()| true),
        }
    }

    /// Counts a row whose cells follow.
    pub(crate) fn begin_row(&mut self) {
        self.of_partition += 1;
        self.left -= 1;
        self.rows.count += 1;
        self.rows.cells.reserve(std::mem::take(&mut self.room));
    }
}

/// Returns the error for an answer without pages that is larger than the protocol allows.
pub(crate) fn answer_too_large(bytes: usize) -> Error {
    Error::Invalid(format!(
        "expected at most {ANSWER_BYTES_MAX} bytes in one answer, got {bytes} or more: \
         read it in pages, or select fewer rows and columns"
    ))
}

impl Slice {
    /// Reads one partition after a row, on the core that owns it. Returns true if it was read to
    /// its end. Storage returns it in chunks.
    async fn one(
        &self,
        shard: &Rc<Shard>,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let table = TableId(self.def.data_id().as_u128());
        chunk.last.clone_from(&after);
        let (mut found, mut head) = (after.is_some(), None);
        for (start, end) in self.ranges_after(after.as_ref()) {
            let (start, end) = (start.map(Bytes::copy_from_slice), end.map(Bytes::copy_from_slice));
            // Request one row more than fits, to find out if there are more.
            let rows = (chunk.left.min(self.per_partition) as usize).saturating_add(1).min(CHUNK_ROWS_MAX);
            let bypass_cache = self.bypass_cache;
            let reversed = self.reversed;
            // The static cells come with the first chunk.
            let statics = head.is_none();
            let mut piece = storage::Slice { start, end, reversed, rows, bypass_cache, statics };
            loop {
                if lanes::spend(CHUNK_UNITS) {
                    lanes::yield_now().await;
                }
                let read = shard.read_slice(table, token, key, &piece, self.now_s).wait().await;
                let Some(sliced) = read.map_err(storage_error)? else { return Ok(true) };
                // Rows merged by storage. The handling of each row is counted in addition.
                let _ = lanes::spend(sliced.view.stored() as u32);
                let rows = sliced.view.range(Bound::Unbounded, Bound::Unbounded, self.reversed);
                let head = head.get_or_insert_with(|| sliced.view.clone());
                if let Some(whole) = self.rows((token, key), head, rows, &mut found, chunk).await? {
                    return Ok(whole);
                }
                match sliced.next {
                    // If most rows are dead, a small LIMIT would request the rest two rows at a
                    // time.
                    Some(last) => {
                        let rows = piece.rows.saturating_mul(2).min(CHUNK_ROWS_MAX);
                        piece = storage::Slice { rows, ..piece.behind(last) };
                    }
                    None if found || !self.whole => break,
                    None => return self.statics_alone((token, key), head, chunk).await,
                }
            }
        }
        Ok(true)
    }

    /// Reads one partition as [`Slice::one`] does, from any core.
    pub(crate) async fn one_on(
        &self,
        core: usize,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        if core == lanes::current_core() {
            return self.one(&Embedded::local().shard, token, key, after, chunk).await;
        }
        let (mut away, slice, key) = (chunk.take(), self.clone(), key.clone());
        let read = move || async move {
            let whole = slice.one(&Embedded::local().shard, token, &key, after, &mut away).await;
            (away, whole)
        };
        let (back, whole) = lanes::call(core, read).await;
        *chunk = back;
        whole
    }

    /// Adds the rows of a chunk of a partition to the result, until it is full or the chunk ends.
    /// `part` is the state from earlier chunks of the partition. Returns `Some` at the end of the
    /// partition: true if all requested rows of it were taken. Yields every few dozen microseconds.
    pub(crate) async fn piece(
        &self,
        piece: &ScanPiece,
        part: &mut PartitionRead,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let place = (piece.token, &piece.key[..]);
        for (start, end) in self.ranges_after(None) {
            let rows = piece.view.range(start, end, self.reversed);
            let head = part.head.as_ref().unwrap_or(&piece.view);
            let ended = self.rows(place, head, rows, &mut part.found, chunk).await?;
            if ended.is_some() {
                return Ok(ended);
            }
        }
        if !piece.last {
            part.head.get_or_insert_with(|| piece.view.clone());
            return Ok(None);
        }
        match part.found || !self.whole {
            true => Ok(Some(true)),
            false => {
                let head = part.head.as_ref().unwrap_or(&piece.view);
                self.statics_alone(place, head, chunk).await.map(Some)
            }
        }
    }

    /// Returns the ranges that remain after a row, in reading order.
    fn ranges_after<'s>(&'s self, after: Option<&'s Bytes>) -> Vec<Between<'s>> {
        let left = self.ranges.iter().map(|(start, end)| {
            let (start, end) = (as_slice(start), as_slice(end));
            match after {
                Some(row) if self.reversed => (start, lower_end(end, row)),
                Some(row) => (higher_start(start, row), end),
                None => (start, end),
            }
        });
        let mut left: Vec<_> = left.filter(|(start, end)| !is_empty(*start, *end)).collect();
        if self.reversed {
            left.reverse();
        }
        left
    }

    /// Adds rows to the chunk, and counts them. Returns `Some` at the end of the partition: true if
    /// it was read to its end.
    async fn rows(
        &self,
        place: (i64, &[u8]),
        view: &PartitionView,
        rows: storage::Rows<'_>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let added = self.add_rows(place, view, rows, found, chunk).await;
        let (rows, bytes) = std::mem::take(&mut chunk.looked_at);
        self.reads.add(rows, bytes);
        added
    }

    async fn add_rows(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        mut rows: storage::Rows<'_>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let of_row = self.row_units();
        let is_heavy = of_row > ROW_UNITS_MAX || self.shows_large_statics(view);
        while let Some(row) = rows.next_unopened() {
            // A dead row costs as much as a live one. What a heavy lane shows is counted there.
            if lanes::spend(if is_heavy { 1 } else { of_row }) {
                lanes::yield_now().await;
            }
            let shown = match is_heavy || !row.is_small() {
                true => Shown::Large,
                false => self.row((token, key), view, &row, chunk, false)?,
            };
            match shown {
                Shown::Dead => chunk.count_dead(&self.def, 1)?,
                Shown::Large => {
                    let rest =
                        std::iter::once(row).chain(std::iter::from_fn(|| rows.next_unopened())).collect();
                    return self.rows_on_heavy_lane((token, key), view, rest, found, chunk).await;
                }
                Shown::Hidden => {}
                Shown::Next => *found = true,
                Shown::End(whole) => {
                    *found = true;
                    return Ok(Some(whole));
                }
            }
        }
        Ok(None)
    }

    /// Returns the work units of showing one small row.
    fn row_units(&self) -> u32 {
        units_of_row(self.projection.width() + self.filters.len())
    }

    /// Returns true if rows show or test static cells that take long to walk or to copy.
    fn shows_large_statics(&self, view: &PartitionView) -> bool {
        let is_static = |filter: &BoundFilter| self.def.columns[filter.column].kind == ColumnKind::Static;
        view.static_bytes() > STATIC_BYTES_MAX
            && (self.projection.shows_statics(&self.def) || self.filters.iter().any(is_static))
    }

    /// Adds rows as [`Slice::rows`] does, on a heavy lane: some are large.
    async fn rows_on_heavy_lane(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        rows: Vec<StoredRow>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let (slice, key, view) = (self.clone(), Bytes::copy_from_slice(key), view.clone());
        let mut away = chunk.take();
        let show = async move {
            let (mut dead, mut found, mut ended) = (0, false, Ok(None));
            let of_row = slice.row_units();
            for row in rows {
                match slice.row((token, &key), &view, &row, &mut away, true) {
                    Ok(Shown::Dead) => dead += 1,
                    Ok(Shown::Hidden | Shown::Large) => {}
                    Ok(Shown::Next) => found = true,
                    Ok(Shown::End(whole)) => {
                        (found, ended) = (true, Ok(Some(whole)));
                        break;
                    }
                    Err(error) => {
                        ended = Err(error);
                        break;
                    }
                }
                if lanes::spend(of_row) {
                    lanes::yield_now().await;
                }
            }
            (away, dead, found, ended)
        };
        let (back, dead, any, ended) = heavy(show).await;
        *chunk = back;
        *found |= any;
        chunk.count_dead(&self.def, dead)?;
        ended
    }

    /// Adds one row to the chunk if it is alive, passes the filters, and fits. Adds large ones only
    /// on a heavy lane.
    fn row(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        row: &StoredRow,
        chunk: &mut Chunk,
        is_heavy: bool,
    ) -> Result<Shown, Error> {
        chunk.looked_at.0 += 1;
        let Some(row) = row.open() else { return Ok(Shown::Dead) };
        chunk.looked_at.1 += row.bytes() as u64;
        let (row, view) = (Some(&row), Some(view));
        let source = RowSource { def: &self.def, token, key, row, view, now_s: self.now_s };
        if !source.exists() {
            return Ok(Shown::Hidden);
        }
        if !self.passes(&source)? {
            return Ok(Shown::Next);
        }
        if chunk.left == 0 {
            return Ok(Shown::End(false));
        }
        if chunk.of_partition >= self.per_partition {
            return Ok(Shown::End(true));
        }
        if !is_heavy && !row_answer::is_small(&self.projection, &source) {
            return Ok(Shown::Large);
        }
        if !row_answer::add(&self.projection, &source, chunk)? {
            return Ok(Shown::End(false));
        }
        chunk.last = row.map(|row| Bytes::copy_from_slice(row.clustering()));
        chunk.place();
        Ok(if self.distinct { Shown::End(true) } else { Shown::Next })
    }

    /// Shows a partition without rows as one row if it has static cells. Shows large ones on a
    /// heavy lane.
    async fn statics_alone(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let source = RowSource { def: &self.def, token, key, row: None, view: Some(view), now_s: self.now_s };
        let is_short = view.static_bytes() <= STATIC_BYTES_MAX && self.row_units() <= ROW_UNITS_MAX;
        if is_short && row_answer::is_small(&self.projection, &source) {
            return self.statics((token, key), view, chunk);
        }
        let (slice, key, view) = (self.clone(), Bytes::copy_from_slice(key), view.clone());
        let mut away = chunk.take();
        let show = async move {
            let shown = slice.statics((token, &key), &view, &mut away);
            (away, shown)
        };
        let (back, shown) = heavy(show).await;
        *chunk = back;
        shown
    }

    fn statics(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let source = RowSource { def: &self.def, token, key, row: None, view: Some(view), now_s: self.now_s };
        if source.has_statics() && self.passes(&source)? {
            if chunk.left == 0 {
                return Ok(false);
            }
            if !row_answer::add(&self.projection, &source, chunk)? {
                return Ok(false);
            }
            chunk.last = None;
            chunk.place();
        }
        Ok(true)
    }

    fn passes(&self, source: &RowSource<'_>) -> Result<bool, Error> {
        for filter in self.filters.iter() {
            let value = source.column(filter.column)?;
            if !filter.passes(&self.def.columns[filter.column].ty, value.as_deref()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(edge) => Bound::Included(edge),
        Bound::Excluded(edge) => Bound::Excluded(edge),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn higher_start<'a>(start: Bound<&'a [u8]>, row: &'a Bytes) -> Bound<&'a [u8]> {
    match start {
        Bound::Included(edge) | Bound::Excluded(edge) if edge > &row[..] => start,
        _ => Bound::Excluded(row),
    }
}

fn lower_end<'a>(end: Bound<&'a [u8]>, row: &'a Bytes) -> Bound<&'a [u8]> {
    match end {
        Bound::Included(edge) | Bound::Excluded(edge) if edge < &row[..] => end,
        _ => Bound::Excluded(row),
    }
}

fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}
