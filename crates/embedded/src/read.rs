//! Reading: one partition's slice on the core that owns it, encoded as CQL wants it.

use std::borrow::Cow;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{AnswerRoom, Error, Guardrail, Rows};
use schema::TableDef;
use storage::{PartitionView, ScanPiece, Shard, TableId};

use crate::definition::is_kept;
use crate::filter::BoundFilter;
use crate::paging::Position;
use crate::select::Want;
use crate::show::{Show, Source, inside};
use crate::slice::Range;
use crate::{Embedded, storage_error};

/// Storage is asked for so many rows at a time at most: each source copies and merges as many in
/// one task poll.
const PIECE_ROWS_MAX: usize = 256;

/// Work units of asking storage for a piece of a partition.
const PIECE_UNITS: u32 = 5;

/// Columns of a row that cost a work unit to show or test.
const COLUMNS_A_UNIT: u32 = 4;

/// Bytes of cells that cost a work unit to copy.
const BYTES_A_UNIT: usize = 1 << 10;

/// Two bounds over clustering keys.
type Between<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// What to read of a partition. It travels to the core that owns the partition.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) def: Arc<TableDef>,
    pub(crate) want: Arc<Want>,
    pub(crate) ranges: Arc<[Range]>,
    pub(crate) filters: Arc<[BoundFilter]>,
    pub(crate) reversed: bool,
    pub(crate) distinct: bool,
    /// No clustering restriction: a partition with static cells alone shows as one row.
    pub(crate) whole: bool,
    pub(crate) per_partition: u32,
    pub(crate) now_s: u32,
    /// Blocks that are not in the cache are read past it.
    pub(crate) bypass_cache: bool,
}

/// How far reading has come.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: Rows,
    /// Rows counted, where a count is wanted.
    pub(crate) counted: u64,
    /// The clustering key of the last row taken from the present partition, and how many were.
    pub(crate) last: Option<Bytes>,
    pub(crate) of_partition: u32,
    /// Rows that may still be taken.
    pub(crate) left: u32,
    /// At so many bytes of cells no more rows are taken.
    pub(crate) bytes_max: usize,
    /// Dead rows and partitions that were gone through for this page, or this part of a scan.
    pub(crate) dead: u64,
    /// Where a merge needs them: each row's clustering key, and the end of its cells.
    pub(crate) places: Option<Vec<(Bytes, usize)>>,
    pub(crate) grants: Grants,
    /// Bytes that the first row makes room for. A read that still waits for its rows has no room.
    pub(crate) room: usize,
}

/// Bytes of an answer that are granted at a time. The first of them need no grant, so that short
/// answers cost no accounting.
const GRANT_BYTES: usize = 64 << 10;

/// Memory that an answer without pages is granted as it grows.
#[derive(Debug)]
pub(crate) struct Grants {
    room: Option<Arc<dyn AnswerRoom>>,
    granted: usize,
}

impl Grants {
    /// Grants out of `room`; without it all is granted.
    pub(crate) fn of(room: Option<Arc<dyn AnswerRoom>>) -> Grants {
        Grants { room, granted: GRANT_BYTES }
    }

    /// Has so many bytes of the answer granted.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes > self.granted
            && let Some(room) = &self.room
        {
            let granted = bytes.next_multiple_of(GRANT_BYTES);
            room.grow(granted as u64)?;
            self.granted = granted;
        }
        Ok(())
    }
}

/// A partition that is read in pieces.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// The first piece, which has the static cells.
    head: Option<PartitionView>,
    /// It has a row.
    found: bool,
}

impl Chunk {
    /// Without rows yet, for at most `left` of them.
    pub(crate) fn new(rows: Rows, left: u32, bytes_max: usize) -> Chunk {
        Chunk {
            rows,
            counted: 0,
            last: None,
            of_partition: 0,
            left,
            bytes_max,
            dead: 0,
            places: None,
            grants: Grants::of(None),
            room: 0,
        }
    }

    /// Counts dead rows and partitions of a table.
    ///
    /// # Errors
    /// They are beyond the guardrail. The server's own tables are read whatever is dead in them: it
    /// does not start without.
    pub(crate) fn passed_over(&mut self, def: &TableDef, dead: u64) -> Result<(), Error> {
        if dead == 0 || is_kept(&def.keyspace) {
            return Ok(());
        }
        self.dead += dead;
        let engine = Embedded::local();
        engine.uses.of(def, &engine).passed_over(dead, self.dead);
        engine.guardrails().check_growth(Guardrail::Tombstones, self.dead - dead, self.dead)
    }

    /// The chunk itself, to be sent to another core; an empty one stays here until it comes back.
    pub(crate) fn take(&mut self) -> Chunk {
        std::mem::replace(self, Chunk::new(Rows::new(Arc::from([])), 0, 0))
    }

    /// Where to go on behind the last row taken, within a partition; behind the partition where none was.
    pub(crate) fn inside(&self, token: i64, key: Bytes) -> Position {
        Position { of_partition: self.of_partition, row: self.last.clone(), ..Position::after(token, key) }
    }

    /// Remembers the place of the row that was taken last.
    fn place(&mut self) {
        if let Some(places) = &mut self.places {
            places.push((self.last.clone().unwrap_or_default(), self.rows.cells.len()));
        }
    }

    /// Takes no more rows once there are enough bytes.
    ///
    /// # Errors
    /// There is no memory for an answer that grows on.
    pub(crate) fn bound(&mut self) -> Result<(), Error> {
        let bytes = self.rows.cells.len();
        if bytes >= self.bytes_max {
            self.left = 0;
        }
        self.grants.cover(bytes)
    }
}

impl Slice {
    /// Reads one partition, on the core that owns it, from after a row: whether to its end. Storage gives it a piece at a time.
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
            // One more than there is room for tells whether there are more.
            let rows = (chunk.left.min(self.per_partition) as usize).saturating_add(1).min(PIECE_ROWS_MAX);
            let bypass_cache = self.bypass_cache;
            let reversed = self.reversed;
            // The static cells come with the first piece.
            let statics = head.is_none();
            let mut piece = storage::Slice { start, end, reversed, rows, bypass_cache, statics };
            loop {
                if lanes::spend(PIECE_UNITS) {
                    lanes::yield_now().await;
                }
                let read = shard.read_slice(table, token, key, &piece, self.now_s).wait().await;
                let Some(sliced) = read.map_err(storage_error)? else { return Ok(true) };
                // What storage has merged; what becomes of each row is counted as well.
                let _ = lanes::spend(sliced.view.stored() as u32);
                let rows = sliced.view.range(Bound::Unbounded, Bound::Unbounded, self.reversed);
                let head = head.get_or_insert_with(|| sliced.view.clone());
                if let Some(whole) = self.rows((token, key), head, rows, &mut found, chunk).await? {
                    return Ok(whole);
                }
                match sliced.next {
                    // Where most rows are dead, a small LIMIT would ask for them two by two.
                    Some(last) => {
                        let rows = piece.rows.saturating_mul(2).min(PIECE_ROWS_MAX);
                        piece = storage::Slice { rows, ..piece.behind(last) };
                    }
                    None if found || !self.whole => break,
                    None => return self.statics_alone((token, key), head, chunk),
                }
            }
        }
        Ok(true)
    }

    /// As [`Slice::one`], from any core.
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

    /// Takes rows of a piece of a partition into the chunk, until it is full or the piece ends; `part` is
    /// what came before of the partition. `Some` ends the partition: whether all that is wanted of it was
    /// taken. Yields every few dozen microseconds.
    pub(crate) async fn piece(
        &self,
        piece: &ScanPiece,
        part: &mut Begun,
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
            false => self.statics_alone(place, part.head.as_ref().unwrap_or(&piece.view), chunk).map(Some),
        }
    }

    /// What is left of the ranges behind a row, in the order of reading.
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

    /// Takes rows into the chunk. `Some` ends the partition: whether it was read to its end.
    async fn rows(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        mut rows: storage::Rows<'_>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let of_row = 1 + (self.want.width() + self.filters.len()) as u32 / COLUMNS_A_UNIT;
        while let Some(row) = rows.next_stored() {
            // A dead row costs what a live one does.
            if lanes::spend(of_row) {
                lanes::yield_now().await;
            }
            let Some(row) = row else {
                chunk.passed_over(&self.def, 1)?;
                continue;
            };
            let (row, view) = (Some(&row), Some(view));
            let source = Source { def: &self.def, token, key, row, view, now_s: self.now_s };
            if !source.is_there() {
                continue;
            }
            *found = true;
            if !self.passes(&source)? {
                continue;
            }
            if chunk.left == 0 {
                return Ok(Some(false));
            }
            if chunk.of_partition >= self.per_partition {
                return Ok(Some(true));
            }
            let bytes = chunk.rows.cells.len();
            take(&self.want, &source, chunk)?;
            let _ = lanes::spend((chunk.rows.cells.len().saturating_sub(bytes) / BYTES_A_UNIT) as u32);
            chunk.last = row.map(|row| Bytes::copy_from_slice(row.clustering()));
            chunk.place();
            if self.distinct {
                return Ok(Some(true));
            }
        }
        Ok(None)
    }

    /// A partition without rows shows as one if it has static cells.
    fn statics_alone(
        &self,
        (token, key): (i64, &[u8]),
        view: &PartitionView,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let source = Source { def: &self.def, token, key, row: None, view: Some(view), now_s: self.now_s };
        if source.has_statics() && self.passes(&source)? {
            if chunk.left == 0 {
                return Ok(false);
            }
            take(&self.want, &source, chunk)?;
            chunk.last = None;
            chunk.place();
        }
        Ok(true)
    }

    fn passes(&self, source: &Source<'_>) -> Result<bool, Error> {
        for filter in self.filters.iter() {
            let value = source.column(filter.column)?;
            if !filter.passes(&self.def.columns[filter.column].ty, value.as_deref()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Takes one row into the chunk.
pub(crate) fn take(want: &Want, source: &Source<'_>, chunk: &mut Chunk) -> Result<(), Error> {
    chunk.of_partition += 1;
    match want {
        Want::Rows(shows) => {
            chunk.left -= 1;
            chunk.rows.count += 1;
            chunk.rows.cells.reserve(std::mem::take(&mut chunk.room));
            let mut scratch = Vec::new();
            // A collection is put together once, however many of its elements are shown.
            let mut whole: Option<(usize, Option<Cow<'_, [u8]>>)> = None;
            for show in shows {
                let Show::Inside(part) = show else {
                    source.push(show, &mut chunk.rows, &mut scratch)?;
                    continue;
                };
                if whole.as_ref().is_none_or(|(column, _)| *column != part.column) {
                    whole = Some((part.column, source.column(part.column)?));
                }
                let value = whole.as_ref().and_then(|(_, value)| value.as_deref());
                let shown = value.map(|value| inside(&part.steps, value)).transpose()?;
                chunk.rows.push(shown.flatten());
            }
            chunk.bound()?;
        }
        Want::Count(None) => chunk.counted += 1,
        Want::Count(Some(show)) => {
            let mut one = Rows::new(Arc::from([]));
            source.push(show, &mut one, &mut Vec::new())?;
            chunk.counted += u64::from(one.cells[..4] != (-1i32).to_be_bytes());
        }
    }
    Ok(())
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
