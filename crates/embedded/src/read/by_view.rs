//! Reading a materialized view: the rows of one partition of it, or those of all partitions.
//!
//! 1. Every core reads its entries, a portion at a time in the order of the view, and for each the
//!    row of the base table that it names. An entry whose row has another key now is stale.
//! 2. The core that runs the statement merges the portions, and shows each row as if a table had
//!    it. So everything that a SELECT can do with a table it can do with a view.
//!
//! If the partition key of the view determines that of the base, only one core is asked.

use std::collections::VecDeque;
use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::Error;
use schema::{token, value};
use storage::{Pick, RowView, Shard, TableId};

use crate::bind::show::RowSource;
use crate::bind::slice::{Range, is_in};
use crate::heavy_lane::heavy;
use crate::index::entry::CLASS_BYTES;
use crate::index::stale::REPORTED_MAX;
use crate::index::view::{ViewEntry, ViewSource};
use crate::index::view_stale::StaleEntry;
use crate::read::chunk::Chunk;
use crate::read::paging::Position;
use crate::read::partition::{ROW_UNITS_MAX, Shown, Slice};
use crate::read::scan::{PORTION_BYTES_MAX, PORTION_ROWS_MAX};
use crate::{Embedded, storage_error};

/// Entries that one portion looks at, at most. It may then have no rows.
const PORTION_ENTRIES_MAX: usize = 5000;

/// Entries of a partition read at a time.
const ENTRIES_AT_ONCE: usize = 256;

/// Work units of reading an entry and its row.
const ENTRY_UNITS: u32 = 6;

/// Part of a view to read.
#[derive(Clone, Debug)]
pub(super) enum Within {
    /// A partition, by its token and key.
    Partition(i64, Bytes),
    /// All partitions with these tokens.
    Tokens(RangeInclusive<i64>),
}

/// Row of a view.
#[derive(Clone, Debug)]
struct ViewRow {
    token: i64,
    key: Bytes,
    /// Clustering key in the view, with the keys of the base behind it.
    place: Bytes,
    /// Row of the base.
    row: RowView,
}

/// Rows that one core has read at a time.
#[derive(Debug, Default)]
struct Portion {
    rows: VecDeque<ViewRow>,
    bytes: usize,
    /// Entries looked at, and those that gave no row.
    looked: usize,
    dead: u64,
    /// Position to continue from; `None` at the end.
    next: Option<Position>,
}

/// Limits of a portion.
#[derive(Clone, Copy, Debug)]
struct PortionLimits {
    rows: usize,
    bytes: usize,
}

/// Reading of one portion on a core.
struct Reader<'a> {
    slice: &'a Slice,
    view: &'a Arc<ViewSource>,
    shard: &'a Rc<Shard>,
    limits: PortionLimits,
    portion: Portion,
    stale: Vec<StaleEntry>,
    /// The last place, to skip other classes of its entry.
    last: Option<(Bytes, Bytes)>,
}

/// Returns ranges of places for ranges of clustering keys: places are longer than keys.
pub(super) fn ranges_of_places(ranges: Vec<Range>) -> Vec<Range> {
    let end = |end: Bound<Bytes>| match end {
        Bound::Included(key) => {
            value::prefix_end(&key).map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()))
        }
        other => other,
    };
    ranges.into_iter().map(|(start, last)| (start, end(last))).collect()
}

impl Reader<'_> {
    fn is_full(&self) -> bool {
        let Portion { rows, bytes, looked, .. } = &self.portion;
        rows.len() >= self.limits.rows || *bytes >= self.limits.bytes || *looked >= PORTION_ENTRIES_MAX
    }

    /// Reads the row of an entry. Returns false if the portion is full before it.
    async fn entry(&mut self, token: i64, key: &Bytes, clustering: &[u8]) -> Result<bool, Error> {
        if self.is_full() {
            return Ok(false);
        }
        let entry = ViewEntry::decode(clustering).ok_or_else(|| {
            Error::Server("an entry of a view is damaged: drop the view and create it again".into())
        })?;
        let (slice, view) = (self.slice, self.view);
        self.portion.looked += 1;
        self.portion.next =
            Some(Position { row: Some(entry.place.clone()), ..Position::after(token, key.clone()) });
        let place = (key.clone(), entry.place.clone());
        if self.last.as_ref() == Some(&place) || !is_in(&slice.ranges, &entry.place) {
            return Ok(true);
        }
        self.last = Some(place);
        if lanes::spend(ENTRY_UNITS) {
            lanes::yield_now().await;
        }
        let base = TableId(view.base.data_id().as_u128());
        let pick = Pick { columns: None, bypass_cache: slice.bypass_cache };
        let read = self.shard.read_row(base, entry.token, &entry.key, &entry.row, pick, slice.now_s);
        let row = read.wait().await.map_err(storage_error)?.filter(|row| view.has(key, &entry, row));
        let Some(row) = row else {
            self.portion.dead += 1;
            if self.stale.len() < REPORTED_MAX {
                self.stale.push((key.clone(), entry));
            }
            return Ok(true);
        };
        let (now_s, place) = (slice.now_s, None);
        let of_base = RowSource {
            def: &view.base,
            token: entry.token,
            key: &entry.key,
            row: Some(&row),
            place,
            view: None,
            now_s,
        };
        if !of_base.exists() {
            return Ok(true);
        }
        let shown = RowSource { def: &slice.def, token, key, place: Some(&entry.place), ..of_base };
        // The others are tested where they are shown.
        if row.is_small() && !slice.passes(&shown)? {
            slice.reads.add(1, row.bytes() as u64);
            return Ok(true);
        }
        self.portion.bytes += row.bytes();
        self.portion.rows.push_back(ViewRow { token, key: key.clone(), place: entry.place, row });
        Ok(true)
    }

    /// Reads the entries of a partition after a place. Returns false if the portion is full before
    /// its end.
    async fn partition(&mut self, token: i64, key: &Bytes, after: Option<&Bytes>) -> Result<bool, Error> {
        let slice = self.slice;
        let bound = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
        // An entry is its place, and a class.
        let after = after.map(|place| match slice.reversed {
            true => place.clone(),
            false => Bytes::from([&place[..], &[0xff; CLASS_BYTES]].concat()),
        });
        for (start, end) in slice.ranges_after(after.as_ref()) {
            let mut rest = storage::Slice {
                start: bound(start),
                end: bound(end),
                reversed: slice.reversed,
                ..storage::Slice::all(ENTRIES_AT_ONCE.min(self.limits.rows.saturating_add(1)))
            };
            loop {
                let read = self.shard.read_slice(self.view.keys.data, token, key, &rest, slice.now_s);
                let Some(sliced) = read.wait().await.map_err(storage_error)? else { return Ok(true) };
                if lanes::spend(1 + sliced.view.stored() as u32) {
                    lanes::yield_now().await;
                }
                for row in sliced.view.range(Bound::Unbounded, Bound::Unbounded, slice.reversed) {
                    if !self.entry(token, key, row.clustering()).await? {
                        return Ok(false);
                    }
                }
                let Some(last) = sliced.next else { break };
                rest = storage::Slice { rows: ENTRIES_AT_ONCE, ..rest.behind(last) };
            }
        }
        Ok(true)
    }

    /// Reads the entries of all partitions with these tokens, after a position. Returns false if
    /// the portion is full before their end.
    async fn tokens(&mut self, tokens: RangeInclusive<i64>, start: &Position) -> Result<bool, Error> {
        if let (Some(key), Some(row)) = (&start.key, &start.row)
            && !self.partition(start.token, key, Some(row)).await?
        {
            return Ok(false);
        }
        let after = start.key.clone().map(|key| (start.token, key));
        let mut scan = self.shard.scan(self.view.keys.data, tokens, after, self.slice.now_s);
        while let Some(piece) = scan.next_piece().await.map_err(storage_error)? {
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
            let mut rows = piece.view.rows();
            while let Some(row) = rows.next_stored() {
                if let Some(row) = row
                    && !self.entry(piece.token, &piece.key, row.clustering()).await?
                {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

impl Slice {
    /// Reads rows of a view on this core, after `start`.
    async fn portion_of_view(
        &self,
        shard: &Rc<Shard>,
        within: &Within,
        start: Position,
        limits: PortionLimits,
    ) -> Result<Portion, Error> {
        let view = self.view.as_ref().expect("the slice is of a view");
        let portion = Portion { next: Some(start.clone()), ..Portion::default() };
        let mut reader = Reader { slice: self, view, shard, limits, portion, stale: Vec::new(), last: None };
        let is_whole = match within {
            Within::Partition(token, key) => reader.partition(*token, key, start.row.as_ref()).await?,
            Within::Tokens(tokens) => reader.tokens(tokens.clone(), &start).await?,
        };
        let engine = Embedded::local();
        // Entries of a view that is dropped meanwhile are missing.
        if !engine.indexes.maintains(TableId(view.base.data_id().as_u128()), view.keys.data) {
            return Err(Error::Stale);
        }
        engine.check_view_entries(view, reader.stale);
        let next = reader.portion.next.filter(|_| !is_whole);
        Ok(Portion { next, ..reader.portion })
    }

    /// Reads one partition of a view after a row, from any core. Returns as [`Slice::one_on`] does.
    pub(super) async fn one_of_view(
        &self,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let of_partition = chunk.of_partition;
        let start = Position { row: after, of_partition, ..Position::after(token, key.clone()) };
        let next = self.rows_of_view(Within::Partition(token, key.clone()), start, chunk).await?;
        Ok(next.is_none())
    }

    /// Adds rows of a view to the chunk from `start` on, until it is full or there are no more.
    /// Returns the position to continue from, if there are more.
    pub(super) async fn rows_of_view(
        &self,
        within: Within,
        start: Position,
        chunk: &mut Chunk,
    ) -> Result<Option<Position>, Error> {
        let mut rows = ViewRows::new(self, within, &start);
        let mut reached = start.clone();
        let mut partition = start.row.is_some().then(|| (start.token, start.key.clone().unwrap_or_default()));
        (chunk.of_partition, chunk.last) = (start.of_partition, start.row);
        let is_grouped = self.projection.groups().is_some();
        let stopped = |chunk: &Chunk, partition: &Option<(i64, Bytes)>, reached: &Position| match partition {
            Some((token, key)) if chunk.last.is_some() => chunk.inside(*token, key.clone()),
            _ => reached.clone(),
        };
        loop {
            if chunk.left == 0 && !is_grouped && rows.may_have_more() {
                return Ok(Some(stopped(chunk, &partition, &reached)));
            }
            let Some(row) = rows.first(chunk).await? else { break };
            if !partition.as_ref().is_some_and(|(token, key)| *token == row.token && *key == row.key) {
                self.close_group(chunk)?;
                if let Some((token, key)) = partition.take() {
                    reached = Position::after(token, key);
                }
                (chunk.of_partition, chunk.last) = (0, None);
                partition = Some((row.token, row.key.clone()));
            }
            match self.row_of_view(&row, chunk).await? {
                Shown::End(false) => return Ok(Some(stopped(chunk, &partition, &reached))),
                Shown::End(true) => {
                    self.close_group(chunk)?;
                    rows.skip_partition(row.token, &row.key);
                    reached = Position::after(row.token, row.key);
                    (partition, chunk.last) = (None, None);
                }
                _ => rows.advance(),
            }
        }
        self.close_group(chunk)?;
        Ok(None)
    }

    /// Adds a row of a view to the chunk. Large ones are shown on a heavy lane.
    async fn row_of_view(&self, row: &ViewRow, chunk: &mut Chunk) -> Result<Shown, Error> {
        let of_row = self.row_units();
        self.reads.add(1, row.row.bytes() as u64);
        if of_row <= ROW_UNITS_MAX && row.row.is_small() {
            if lanes::spend(of_row) {
                lanes::yield_now().await;
            }
            match self.shown(&self.source_of(row), chunk, false)? {
                Shown::Large => {}
                shown => return Ok(shown),
            }
        }
        let (slice, row, mut away) = (self.clone(), row.clone(), chunk.take());
        let show = async move {
            let shown = slice.shown(&slice.source_of(&row), &mut away, true);
            (away, shown)
        };
        let (back, shown) = heavy(show).await;
        *chunk = back;
        shown
    }

    fn source_of<'v>(&'v self, row: &'v ViewRow) -> RowSource<'v> {
        RowSource {
            def: &self.def,
            token: row.token,
            key: &row.key,
            row: Some(&row.row),
            place: Some(&row.place),
            view: None,
            now_s: self.now_s,
        }
    }
}

/// Rows of a view in its order: the portions of all cores, merged.
struct ViewRows<'s> {
    slice: &'s Slice,
    within: Within,
    cores: Vec<(usize, Portion)>,
    /// Core whose first row is the next one.
    next: Option<usize>,
}

impl<'s> ViewRows<'s> {
    fn new(slice: &'s Slice, within: Within, start: &Position) -> ViewRows<'s> {
        let base_key = match (&within, &slice.view) {
            (Within::Partition(_, key), Some(view)) => view.base_key(key),
            _ => None,
        };
        let cores = match base_key {
            Some(key) => {
                let core = Embedded::local().owner(token::token(&key));
                core..core + 1
            }
            None => 0..lanes::cores(),
        };
        let portion = || Portion { next: Some(start.clone()), ..Portion::default() };
        ViewRows { slice, within, cores: cores.map(|core| (core, portion())).collect(), next: None }
    }

    /// Returns true if there may be rows that were not returned.
    fn may_have_more(&self) -> bool {
        self.cores.iter().any(|(_, portion)| !portion.rows.is_empty() || portion.next.is_some())
    }

    /// Returns the next row, and keeps it until [`ViewRows::advance`].
    async fn first(&mut self, chunk: &mut Chunk) -> Result<Option<ViewRow>, Error> {
        self.refill(chunk).await?;
        let is_reversed = self.slice.reversed;
        let heads =
            self.cores.iter().enumerate().filter_map(|(at, (_, portion))| Some((at, portion.rows.front()?)));
        let first = heads.min_by(|(_, a), (_, b)| {
            let partitions = (a.token, &a.key).cmp(&(b.token, &b.key));
            let places = a.place.cmp(&b.place);
            partitions.then(if is_reversed { places.reverse() } else { places })
        });
        let first = first.map(|(at, row)| (at, row.clone()));
        self.next = first.as_ref().map(|(at, _)| *at);
        Ok(first.map(|(_, row)| row))
    }

    /// Continues behind the row that was returned last.
    fn advance(&mut self) {
        if let Some(at) = self.next.take() {
            self.cores[at].1.rows.pop_front();
        }
    }

    /// Continues behind a partition.
    fn skip_partition(&mut self, token: i64, key: &Bytes) {
        for (_, portion) in &mut self.cores {
            while portion.rows.front().is_some_and(|row| row.token == token && row.key == *key) {
                portion.rows.pop_front();
            }
            let is_inside = |next: &Position| next.token == token && next.key.as_ref() == Some(key);
            if portion.rows.is_empty() && portion.next.as_ref().is_some_and(is_inside) {
                portion.next = match self.within {
                    Within::Partition(..) => None,
                    Within::Tokens(_) => Some(Position::after(token, key.clone())),
                };
            }
        }
    }

    /// Refills the portions of all cores that ran out, in parallel, until each has rows or has
    /// reached its end.
    async fn refill(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        let is_grouped = self.slice.projection.groups().is_some();
        let cores = self.cores.len() as u32;
        let rows = match is_grouped {
            true => PORTION_ROWS_MAX,
            // Keys are spread evenly, but not exactly.
            false => (chunk.left.min(PORTION_ROWS_MAX) * 5 / 4 / cores + 8)
                .min(chunk.left)
                .clamp(1, PORTION_ROWS_MAX),
        };
        let limits = PortionLimits { rows: rows as usize, bytes: chunk.bytes_max.min(PORTION_BYTES_MAX) };
        loop {
            let mut reads = Vec::new();
            for (core, portion) in self.cores.iter_mut().filter(|(_, portion)| portion.rows.is_empty()) {
                let Some(start) = portion.next.take() else { continue };
                let (slice, within, core) = (self.slice.clone(), self.within.clone(), *core);
                engine::note(|| format!("Reading a view on core {core}, at most {rows} rows"));
                let read = move || async move {
                    slice.portion_of_view(&Embedded::local().shard, &within, start, limits).await
                };
                reads.push((portion, lanes::spawn(lanes::current_group(), lanes::call(core, read))));
            }
            if reads.is_empty() {
                let ahead = self.cores.iter().map(|(_, portion)| portion.bytes).sum::<usize>();
                return chunk.grants.cover(chunk.rows.cells.len() + ahead);
            }
            for (portion, task) in reads {
                *portion = task.await?;
                chunk.count_dead(&self.slice.def, portion.dead)?;
            }
        }
    }
}
