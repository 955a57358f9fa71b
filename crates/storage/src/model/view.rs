//! Snapshot of a partition for readers, without shadowed or expired data.
//!
//! A view contains the merged partition and the reader's clock, and filters on each access. So
//! making one is O(1), and callers may yield between rows.

use std::cell::OnceCell;
use std::ops::Bound;

use crate::model::layers::Placed;
use crate::model::partition::{Partition, RangeOfRows};
use crate::model::reconcile::floor_of;
use crate::model::row::{EncodedRow, Finder, PASSED_PER_UNIT, Places};
use crate::model::{CellRef, Liveness};

/// A snapshot of one partition at one moment.
#[derive(Clone, Debug)]
pub struct PartitionView {
    partition: Partition,
    now_s: u32,
    /// Columns of the static cells, once a reader has searched for one.
    static_places: OnceCell<Places>,
}

impl PartitionView {
    pub(crate) fn new(partition: Partition, now_s: u32) -> PartitionView {
        PartitionView { partition, now_s, static_places: OnceCell::new() }
    }

    /// Returns the live static cell of a column. The first search walks all static cells.
    pub fn static_cell(&self, column: u32) -> Option<CellRef<'_>> {
        let cell = self.statics_from(column).next()?;
        (cell.column == column && cell.path.is_none() && self.shows_static(&cell)).then_some(cell)
    }

    /// Returns the live elements of a static column, ordered by path.
    pub fn static_elements(&self, column: u32) -> impl Iterator<Item = CellRef<'_>> {
        let cells = self.statics_from(column).take_while(move |cell| cell.column == column);
        cells.filter(|cell| cell.path.is_some() && self.shows_static(cell))
    }

    /// Returns the live static cells, in ascending order of column and path.
    pub fn static_cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        let cells = self.statics().into_iter().flat_map(EncodedRow::cells);
        cells.filter(|cell| self.shows_static(cell))
    }

    /// Returns the bytes of the static cells, live or not, with their directory. Those of layers
    /// are added, and not merged.
    #[must_use]
    pub fn static_bytes(&self) -> usize {
        match &self.partition {
            Partition::Single(_) => 0,
            Partition::Full(full) => full.statics.as_ref().map_or(0, Placed::bytes),
        }
    }

    fn statics(&self) -> Option<&EncodedRow> {
        match &self.partition {
            Partition::Single(_) => None,
            Partition::Full(full) => full.statics(),
        }
    }

    /// Returns the static cells from a column on, live or not.
    fn statics_from(&self, column: u32) -> impl Iterator<Item = CellRef<'_>> {
        let from = |row| self.static_places.get_or_init(|| Places::of(row)).from(row, column);
        self.statics().map(from).into_iter().flatten()
    }

    fn shows_static(&self, cell: &CellRef<'_>) -> bool {
        let floor = match &self.partition {
            Partition::Single(_) => i64::MIN,
            Partition::Full(full) => floor_of(full.deletion),
        };
        shows(cell.timestamp, floor) && cell.is_live(self.now_s)
    }

    /// Returns the live row with this clustering.
    pub fn get(&self, clustering: &[u8]) -> Option<RowView> {
        self.row_view(self.partition.row(clustering)?)
    }

    /// Returns the live rows between two bounds, lazily, in clustering order or in reverse.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, reversed: bool) -> RowViews<'_> {
        let rows = match &self.partition {
            Partition::Single(row) => {
                RowSource::Single((in_bounds(row.clustering(), start, end)).then_some(row))
            }
            Partition::Full(_) if is_empty_range(start, end) => RowSource::Single(None),
            Partition::Full(full) => RowSource::Many(full.rows.range(start, end)),
        };
        RowViews { view: self, rows, reversed }
    }

    /// Returns all live rows in clustering order.
    pub fn rows(&self) -> RowViews<'_> {
        self.range(Bound::Unbounded, Bound::Unbounded, false)
    }

    /// Returns true if there is no live static cell and no live row.
    pub fn is_empty(&self) -> bool {
        self.static_cells().next().is_none() && self.rows().next().is_none()
    }

    /// Returns the number of stored rows, live or not.
    pub fn stored(&self) -> usize {
        self.partition.row_count()
    }

    fn row_view(&self, row: &EncodedRow) -> Option<RowView> {
        RowView::new(row.clone(), self.partition.floor(row.clustering()), self.now_s)
    }
}

fn is_empty_range(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(s), Bound::Included(e)) => s > e,
        (Bound::Included(s) | Bound::Excluded(s), Bound::Included(e) | Bound::Excluded(e)) => s >= e,
    }
}

fn in_bounds(key: &[u8], start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    use std::ops::RangeBounds;
    RangeBounds::<[u8]>::contains(&(start, end), key)
}

/// Returns true if a deletion up to `floor` does not shadow the timestamp. The floor `i64::MIN`
/// shadows nothing.
#[inline]
pub(crate) fn shows(timestamp: i64, floor: i64) -> bool {
    timestamp > floor || floor == i64::MIN
}

/// An iterator over live rows. It skips any number of dead rows without a yield; callers that yield
/// use [`RowViews::next_stored`].
#[derive(Debug)]
pub struct RowViews<'a> {
    view: &'a PartitionView,
    rows: RowSource<'a>,
    reversed: bool,
}

enum RowSource<'a> {
    Single(Option<&'a EncodedRow>),
    Many(RangeOfRows<'a>),
}

impl std::fmt::Debug for RowSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rows")
    }
}

impl<'a> RowViews<'a> {
    /// Returns the next stored row: `Some(None)` if it is dead, `None` at the end.
    pub fn next_stored(&mut self) -> Option<Option<RowView>> {
        self.next_placed().map(|(_, row)| row)
    }

    /// As [`RowViews::next_stored`], with the clustering of the row.
    pub(crate) fn next_placed(&mut self) -> Option<(&'a [u8], Option<RowView>)> {
        let row = match &mut self.rows {
            RowSource::Single(row) => row.take()?,
            RowSource::Many(rows) if self.reversed => rows.next_back()?.row(),
            RowSource::Many(rows) => rows.next()?.row(),
        };
        Some((row.clustering(), self.view.row_view(row)))
    }

    /// Returns the next stored row without opening it.
    pub fn next_unopened(&mut self) -> Option<StoredRow> {
        let placed = match &mut self.rows {
            RowSource::Single(row) => Placed::Row(row.take()?.clone()),
            RowSource::Many(rows) if self.reversed => rows.next_back()?.clone(),
            RowSource::Many(rows) => rows.next()?.clone(),
        };
        let floor = self.view.partition.floor(placed.clustering());
        Some(StoredRow { placed, floor, now_s: self.view.now_s })
    }
}

/// A stored row that is not opened yet. Opening a large one merges its layers, and may pass any
/// number of dead cells.
#[derive(Clone, Debug)]
pub struct StoredRow {
    placed: Placed,
    floor: i64,
    now_s: u32,
}

impl StoredRow {
    /// Returns true if opening and showing the row takes at most about 50 µs: it has less than
    /// 8 KiB, or less than 256 KiB without elements.
    #[inline]
    pub fn is_small(&self) -> bool {
        match &self.placed {
            Placed::Row(row) => {
                row.bytes() <= SMALL_BYTES || row.bytes() <= PLAIN_BYTES && !row.has_elements()
            }
            Placed::Layered(_) => self.placed.bytes() <= SMALL_BYTES,
        }
    }

    /// Returns the row if it is live.
    #[inline]
    pub fn open(&self) -> Option<RowView> {
        RowView::new(self.placed.row().clone(), self.floor, self.now_s)
    }
}

/// Bytes of a row with elements that is opened and shown at once: about 600 elements, at 80 ns each
/// 50 µs.
const SMALL_BYTES: usize = 8 << 10;

/// The same for a row without elements, whose values are only copied.
const PLAIN_BYTES: usize = 256 << 10;

impl Iterator for RowViews<'_> {
    type Item = RowView;

    fn next(&mut self) -> Option<RowView> {
        loop {
            if let Some(row) = self.next_stored()? {
                return Some(row);
            }
        }
    }
}

/// A live row of a snapshot.
#[derive(Clone, Debug)]
pub struct RowView {
    row: EncodedRow,
    floor: i64,
    now_s: u32,
    finder: Finder,
}

impl RowView {
    /// Returns the row if it is live.
    #[inline]
    pub(crate) fn new(row: EncodedRow, floor: i64, now_s: u32) -> Option<RowView> {
        let mut passed = 0;
        let alive = |cell: CellRef<'_>| {
            passed += 1;
            shows(cell.timestamp, floor) && cell.is_live(now_s)
        };
        let mut cells = row.cells();
        let finder = Finder::new(&cells);
        let has_cells = cells.any(alive);
        if passed >= PASSED_PER_UNIT {
            lanes::count(passed / PASSED_PER_UNIT);
        }
        if !has_cells && !row.marker().is_some_and(|l| shows(l.timestamp, floor) && l.is_live(now_s)) {
            return None;
        }
        Some(RowView { row, floor, now_s, finder })
    }

    /// Returns the encoded clustering key.
    #[inline]
    pub fn clustering(&self) -> &[u8] {
        self.row.clustering()
    }

    /// Returns the bytes of the row, with its directory and its dead cells.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.row.bytes()
    }

    /// Returns true if showing the row takes at most about 50 µs, as [`StoredRow::is_small`] does.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.row.bytes() <= SMALL_BYTES || self.row.bytes() <= PLAIN_BYTES && !self.row.has_elements()
    }

    /// Returns true if some cell is an element of a collection or a field of a user type.
    #[inline]
    pub fn has_elements(&self) -> bool {
        self.row.has_elements()
    }

    /// Returns the row marker if it is live: the row exists even when all its columns are null.
    pub fn liveness(&self) -> Option<Liveness> {
        self.row.marker().filter(|l| shows(l.timestamp, self.floor) && l.is_live(self.now_s))
    }

    /// Returns the live cell of a simple column; `None` means null. Searches in ascending order of
    /// columns are fastest.
    #[inline]
    pub fn cell(&self, column: u32) -> Option<CellRef<'_>> {
        let cell = self.finder.from(&self.row, column).next()?;
        (cell.column == column && cell.path.is_none() && self.alive(&cell)).then_some(cell)
    }

    /// Returns the live elements of a column, ordered by path.
    pub fn elements(&self, column: u32) -> impl Iterator<Item = CellRef<'_>> {
        let cells = self.finder.from(&self.row, column).take_while(move |cell| cell.column == column);
        cells.filter(|cell| cell.path.is_some() && self.alive(cell))
    }

    /// Returns the live cells, in ascending order of column and path.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.row.cells().filter(|cell| self.alive(cell))
    }

    #[inline]
    fn alive(&self, cell: &CellRef<'_>) -> bool {
        shows(cell.timestamp, self.floor) && cell.is_live(self.now_s)
    }
}
