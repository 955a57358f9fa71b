//! Reading a slice of one partition on the core that owns it, encoded for CQL.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Reads};
use schema::{ColumnKind, TableDef};
use storage::{PartitionView, RowView, ScanPiece, Shard, StoredRow, TableId};

use crate::bind::expression::groups::Groups;
use crate::bind::filter::BoundFilter;
use crate::bind::projection::Projection;
use crate::bind::show::RowSource;
use crate::bind::slice::{Range, is_in};
use crate::heavy_lane::heavy;
use crate::index::cursor::Probe;
use crate::index::view::ViewSource;
use crate::read::by_column::{ColumnScan, PARTITION_ROWS, Stopped};
use crate::read::chunk::Chunk;
use crate::read::nearness::Nearness;
use crate::read::row_answer::{self, units_of_row};
use crate::{Embedded, storage_error};

/// Rows requested from storage at a time, at most. Each source copies and merges this many in one
/// task poll.
const CHUNK_ROWS_MAX: usize = 256;

/// Work units of requesting a chunk of a partition from storage.
const CHUNK_UNITS: u32 = 5;

/// Work units of a row beyond which a heavy lane shows the rows: 50 µs.
pub(super) const ROW_UNITS_MAX: u32 = lanes::UNITS_PER_POLL;

/// Bytes of static cells beyond which a heavy lane shows rows with them.
pub(crate) const STATIC_BYTES_MAX: usize = 8 << 10;

/// Lower and upper bound on clustering keys.
pub(super) type Between<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

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
    /// Value to look up in an index. `None`: all rows are read.
    pub(crate) probe: Option<Arc<Probe>>,
    /// View that is read. `None`: a table.
    pub(crate) view: Option<Arc<ViewSource>>,
    /// Comparison of the rows with a vector.
    pub(crate) nearest: Option<Arc<Nearness>>,
}

/// A partition, by its token and key.
#[derive(Clone, Copy)]
pub(super) struct PartitionKey<'a> {
    pub(super) token: i64,
    pub(super) key: &'a Bytes,
}

/// Partition that is being read in chunks.
#[derive(Debug, Default)]
pub(crate) struct PartitionRead {
    /// First chunk, which has the static cells.
    head: Option<PartitionView>,
    /// True if a row was found.
    found: bool,
}

/// Partition whose rows are added, with the view that has its static cells.
#[derive(Clone, Copy)]
struct OpenPartition<'a> {
    token: i64,
    key: &'a [u8],
    view: &'a PartitionView,
    /// True if rows between the ranges are read too, so that each row is compared with them.
    between: bool,
}

/// Result of adding one stored row.
pub(super) enum Shown {
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

impl Slice {
    /// Reads one partition after a row, on the core that owns it. Returns true if it was read to
    /// its end.
    pub(super) async fn one(
        &self,
        shard: &Rc<Shard>,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let whole = self.one_in_chunks(shard, token, key, after, chunk).await?;
        self.close_group(chunk)?;
        Ok(whole)
    }

    /// Closes the last group of a partition.
    pub(super) fn close_group(&self, chunk: &mut Chunk) -> Result<(), Error> {
        self.projection.groups().map_or(Ok(()), |groups| chunk.close_group(groups))
    }

    /// Reads one partition as [`Slice::one`] does. Storage returns it in chunks.
    async fn one_in_chunks(
        &self,
        shard: &Rc<Shard>,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        chunk.last.clone_from(&after);
        if let Some(probe) = self.probe.as_ref().filter(|probe| probe.finds_rows_of_partition()) {
            return self
                .rows_by_index(shard, probe, PartitionKey { token, key }, after.as_ref(), chunk)
                .await;
        }
        let mut read = PartitionRead { found: after.is_some(), ..PartitionRead::default() };
        let ranges = self.ranges_after(after.as_ref());
        let ended = self.over(shard, token, key, &ranges, &mut read, chunk).await?;
        Ok(ended.unwrap_or(true))
    }

    /// Reads ranges of one partition. Returns `Some` if no more of it are wanted: true if it was
    /// read to its end.
    pub(super) async fn over(
        &self,
        shard: &Rc<Shard>,
        token: i64,
        key: &Bytes,
        ranges: &[Between<'_>],
        part: &mut PartitionRead,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let table = TableId(self.def.data_id().as_u128());
        let PartitionRead { head, found } = part;
        let (mut by_row, mut may_try_columns) = (0, true);
        for &(start, end) in ranges {
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
                let Some(sliced) = read.map_err(storage_error)? else { return Ok(None) };
                // Rows merged by storage. The handling of each row is counted in addition.
                let _ = lanes::spend(sliced.view.stored() as u32);
                let rows = sliced.view.range(Bound::Unbounded, Bound::Unbounded, self.reversed);
                let head = head.get_or_insert_with(|| sliced.view.clone());
                let open = OpenPartition { token, key, view: head, between: false };
                if let Some(whole) = self.rows(open, rows, found, chunk).await? {
                    return Ok(Some(whole));
                }
                by_row += sliced.view.stored();
                let is_long = by_row >= PARTITION_ROWS && *found;
                if let Some(last) = sliced.next.as_ref().filter(|_| is_long && may_try_columns) {
                    may_try_columns = false;
                    if self.rest_by_column(shard, PartitionKey { token, key }, last, chunk).await? {
                        return Ok(Some(true));
                    }
                }
                match sliced.next {
                    // If most rows are dead, a small LIMIT would request the rest two rows at a
                    // time.
                    Some(last) => {
                        let rows = piece.rows.saturating_mul(2).min(CHUNK_ROWS_MAX);
                        piece = storage::Slice { rows, ..piece.behind(last) };
                    }
                    None if *found || !self.whole => break,
                    None => {
                        let open = OpenPartition { token, key, view: head, between: false };
                        return self.statics_alone(open, chunk).await.map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads the rest of a partition behind a row by column. Returns false if it is to be read by
    /// row.
    async fn rest_by_column(
        &self,
        shard: &Rc<Shard>,
        partition: PartitionKey<'_>,
        last: &Bytes,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let columns = ColumnScan::of_partition(self, shard, partition, last, chunk.group.as_ref());
        let Some(mut columns) = columns else { return Ok(false) };
        loop {
            let (next, stopped) = columns.portion(chunk).await?;
            match stopped {
                Stopped::Portion => columns = next,
                Stopped::Unfit => return Ok(false),
                Stopped::End => {
                    chunk.group = Some(next.into_group());
                    return Ok(true);
                }
            }
        }
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
        if self.view.is_some() {
            return self.one_of_view(token, key, after, chunk).await;
        }
        engine::note(|| format!("Reading a partition on core {core}"));
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
        // An IN has thousands of ranges, and a scan thousands of partitions with a few rows each:
        // comparing the rows is cheaper than looking up the ranges.
        let between = self.ranges.len() > 1;
        let open = |view| OpenPartition { token: piece.token, key: &piece.key, view, between };
        if let (Some((start, _)), Some((_, end))) = (self.ranges.first(), self.ranges.last()) {
            let rows = piece.view.range(as_slice(start), as_slice(end), self.reversed);
            let head = part.head.as_ref().unwrap_or(&piece.view);
            let ended = self.rows(open(head), rows, &mut part.found, chunk).await?;
            if ended.is_some() {
                self.close_group(chunk)?;
                return Ok(ended);
            }
        }
        if !piece.last {
            part.head.get_or_insert_with(|| piece.view.clone());
            return Ok(None);
        }
        let whole = match part.found || !self.whole {
            true => true,
            false => {
                let head = part.head.as_ref().unwrap_or(&piece.view);
                self.statics_alone(open(head), chunk).await?
            }
        };
        self.close_group(chunk)?;
        Ok(Some(whole))
    }

    /// Returns the ranges that remain after a row, in reading order.
    pub(super) fn ranges_after<'s>(&'s self, after: Option<&'s Bytes>) -> Vec<Between<'s>> {
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
        partition: OpenPartition<'_>,
        rows: storage::RowViews<'_>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let added = self.add_rows(partition, rows, found, chunk).await;
        let (rows, bytes) = std::mem::take(&mut chunk.looked_at);
        self.reads.add(rows, bytes);
        added
    }

    async fn add_rows(
        &self,
        partition: OpenPartition<'_>,
        mut rows: storage::RowViews<'_>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let of_row = self.row_units();
        let is_heavy = of_row > ROW_UNITS_MAX || self.shows_large_statics(partition.view);
        while let Some(row) = rows.next_unopened() {
            if let Some(nearness) = self.nearest.as_ref().filter(|nearness| nearness.is_full()) {
                nearness.compare().await;
            }
            // A dead row costs as much as a live one. What a heavy lane shows is counted there.
            if lanes::spend(if is_heavy { 1 } else { of_row }) {
                lanes::yield_now().await;
            }
            let shown = match is_heavy || !row.is_small() {
                true => Shown::Large,
                false => self.row(partition, &row, chunk, false)?,
            };
            match shown {
                Shown::Dead => chunk.count_dead(&self.def, 1)?,
                Shown::Large => {
                    let rest =
                        std::iter::once(row).chain(std::iter::from_fn(|| rows.next_unopened())).collect();
                    return self.rows_on_heavy_lane(partition, rest, found, chunk).await;
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
    pub(super) fn row_units(&self) -> u32 {
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
        partition: OpenPartition<'_>,
        rows: Vec<StoredRow>,
        found: &mut bool,
        chunk: &mut Chunk,
    ) -> Result<Option<bool>, Error> {
        let slice = self.clone();
        let (token, key, view) =
            (partition.token, Bytes::copy_from_slice(partition.key), partition.view.clone());
        let between = partition.between;
        let mut away = chunk.take();
        let show = async move {
            let (mut dead, mut found, mut ended) = (0, false, Ok(None));
            let of_row = slice.row_units();
            for row in rows {
                let open = OpenPartition { token, key: &key, view: &view, between };
                match slice.row(open, &row, &mut away, true) {
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
        partition: OpenPartition<'_>,
        row: &StoredRow,
        chunk: &mut Chunk,
        is_heavy: bool,
    ) -> Result<Shown, Error> {
        chunk.looked_at.0 += 1;
        let Some(row) = row.open() else { return Ok(Shown::Dead) };
        chunk.looked_at.1 += row.bytes() as u64;
        if partition.between && !is_in(&self.ranges, row.clustering()) {
            return Ok(Shown::Next);
        }
        let source = self.source(partition, Some(&row));
        if !source.exists() {
            return Ok(Shown::Hidden);
        }
        self.shown(&source, chunk, is_heavy)
    }

    /// Adds a row that exists to the chunk if it passes the filters, and fits. Adds large ones only
    /// on a heavy lane.
    #[inline]
    pub(super) fn shown(
        &self,
        source: &RowSource<'_>,
        chunk: &mut Chunk,
        is_heavy: bool,
    ) -> Result<Shown, Error> {
        if !self.passes(source)? {
            return Ok(Shown::Next);
        }
        if let Some(nearness) = &self.nearest
            && !nearness.shows(source)?
        {
            chunk.passed += 1;
            return Ok(Shown::Next);
        }
        if let Some(groups) = self.projection.groups() {
            return self.grouped(groups, source, chunk, is_heavy);
        }
        if chunk.left == 0 {
            return Ok(Shown::End(false));
        }
        if chunk.of_partition >= self.per_partition {
            return Ok(Shown::End(true));
        }
        if !is_heavy && !row_answer::is_small(&self.projection, source) {
            return Ok(Shown::Large);
        }
        if !row_answer::add(&self.projection, source, chunk)? {
            return Ok(Shown::End(false));
        }
        chunk.last = Some(Bytes::copy_from_slice(source.clustering()));
        chunk.place();
        Ok(if self.distinct { Shown::End(true) } else { Shown::Next })
    }

    /// Adds one row to its group.
    fn grouped(
        &self,
        groups: &Groups,
        source: &RowSource<'_>,
        chunk: &mut Chunk,
        is_heavy: bool,
    ) -> Result<Shown, Error> {
        if !is_heavy && !row_answer::is_small(&self.projection, source) {
            return Ok(Shown::Large);
        }
        if let Some(whole) = chunk.add_to_group(groups, source, self.per_partition)? {
            return Ok(Shown::End(whole));
        }
        if groups.by.is_some() {
            chunk.last = source.row.map(|_| Bytes::copy_from_slice(source.clustering()));
        }
        Ok(if self.distinct { Shown::End(true) } else { Shown::Next })
    }

    /// Shows a partition without rows as one row if it has static cells. Shows large ones on a
    /// heavy lane.
    async fn statics_alone(&self, partition: OpenPartition<'_>, chunk: &mut Chunk) -> Result<bool, Error> {
        let source = self.source(partition, None);
        let is_short = partition.view.static_bytes() <= STATIC_BYTES_MAX && self.row_units() <= ROW_UNITS_MAX;
        if is_short && row_answer::is_small(&self.projection, &source) {
            return self.statics(partition, chunk);
        }
        let slice = self.clone();
        let (token, key, view) =
            (partition.token, Bytes::copy_from_slice(partition.key), partition.view.clone());
        let mut away = chunk.take();
        let show = async move {
            let shown =
                slice.statics(OpenPartition { token, key: &key, view: &view, between: false }, &mut away);
            (away, shown)
        };
        let (back, shown) = heavy(show).await;
        *chunk = back;
        shown
    }

    fn statics(&self, partition: OpenPartition<'_>, chunk: &mut Chunk) -> Result<bool, Error> {
        let source = self.source(partition, None);
        if source.has_statics() && self.passes(&source)? {
            if let Some(groups) = self.projection.groups() {
                chunk.last = None;
                return Ok(chunk.add_to_group(groups, &source, self.per_partition)?.unwrap_or(true));
            }
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

    /// Returns a row of a partition, or the partition without rows.
    fn source<'a>(&'a self, partition: OpenPartition<'a>, row: Option<&'a RowView>) -> RowSource<'a> {
        let OpenPartition { token, key, view, .. } = partition;
        RowSource { def: &self.def, token, key, row, place: None, view: Some(view), now_s: self.now_s }
    }

    pub(super) fn passes(&self, source: &RowSource<'_>) -> Result<bool, Error> {
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
