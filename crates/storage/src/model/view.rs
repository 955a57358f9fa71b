//! Snapshot of a partition for readers, without shadowed or expired data.
//!
//! A view contains the merged partition and the reader's clock, and filters on each access. So
//! making one is O(1), and callers may yield between rows.

use std::ops::Bound;

use crate::model::partition::{Partition, RangeOfRows};
use crate::model::reconcile::floor_of;
use crate::model::row::{Finder, Row};
use crate::model::{CellRef, Liveness};

/// A snapshot of one partition at one moment.
#[derive(Clone, Debug)]
pub struct PartitionView {
    partition: Partition,
    now_s: u32,
}

impl PartitionView {
    pub(crate) fn new(partition: Partition, now_s: u32) -> PartitionView {
        PartitionView { partition, now_s }
    }

    /// Returns the live static cell of a column.
    pub fn static_cell(&self, column: u32) -> Option<CellRef<'_>> {
        self.static_cells().find(|cell| cell.column == column && cell.path.is_none())
    }

    /// Returns the live elements of a static column, ordered by path.
    pub fn static_elements(&self, column: u32) -> impl Iterator<Item = CellRef<'_>> {
        self.static_cells().filter(move |cell| cell.column == column && cell.path.is_some())
    }

    /// Returns the live static cells, in ascending order of column and path.
    pub fn static_cells(&self) -> impl Iterator<Item = CellRef<'_>> {
        let (row, floor) = match &self.partition {
            Partition::Single(_) => (None, i64::MIN),
            Partition::Full(full) => (full.statics(), floor_of(full.deletion)),
        };
        let now_s = self.now_s;
        let cells = row.into_iter().flat_map(Row::cells);
        cells.filter(move |cell| shows(cell.timestamp, floor) && cell.is_live(now_s))
    }

    /// Returns the bytes of the static cells, live or not, with their directory.
    #[must_use]
    pub fn statics_bytes(&self) -> usize {
        match &self.partition {
            Partition::Single(_) => 0,
            Partition::Full(full) => full.statics().map_or(0, Row::bytes),
        }
    }

    /// Returns the live row with this clustering.
    pub fn get(&self, clustering: &[u8]) -> Option<RowView> {
        self.row_view(self.partition.row(clustering)?)
    }

    /// Returns the live rows between two bounds, lazily, in clustering order or in reverse.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, reversed: bool) -> Rows<'_> {
        let rows = match &self.partition {
            Partition::Single(row) => {
                Source::Single((in_bounds(row.clustering(), start, end)).then_some(row))
            }
            Partition::Full(_) if is_empty_range(start, end) => Source::Single(None),
            Partition::Full(full) => Source::Many(full.rows.range(start, end)),
        };
        Rows { view: self, rows, reversed }
    }

    /// Returns all live rows in clustering order.
    pub fn rows(&self) -> Rows<'_> {
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

    fn row_view(&self, row: &Row) -> Option<RowView> {
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
fn shows(timestamp: i64, floor: i64) -> bool {
    timestamp > floor || floor == i64::MIN
}

/// An iterator over live rows. It skips any number of dead rows without a yield; callers that yield
/// use [`Rows::next_stored`].
#[derive(Debug)]
pub struct Rows<'a> {
    view: &'a PartitionView,
    rows: Source<'a>,
    reversed: bool,
}

enum Source<'a> {
    Single(Option<&'a Row>),
    Many(RangeOfRows<'a>),
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rows")
    }
}

impl<'a> Rows<'a> {
    /// Returns the next stored row: `Some(None)` if it is dead, `None` at the end.
    pub fn next_stored(&mut self) -> Option<Option<RowView>> {
        self.next_placed().map(|(_, row)| row)
    }

    /// As [`Rows::next_stored`], with the clustering of the row.
    pub(crate) fn next_placed(&mut self) -> Option<(&'a [u8], Option<RowView>)> {
        let row = match &mut self.rows {
            Source::Single(row) => row.take()?,
            Source::Many(rows) if self.reversed => rows.next_back()?.row(),
            Source::Many(rows) => rows.next()?.row(),
        };
        Some((row.clustering(), self.view.row_view(row)))
    }
}

impl Iterator for Rows<'_> {
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
    row: Row,
    floor: i64,
    now_s: u32,
    finder: Finder,
}

impl RowView {
    /// Returns the row if it is live.
    #[inline]
    pub(crate) fn new(row: Row, floor: i64, now_s: u32) -> Option<RowView> {
        let alive = |cell: CellRef<'_>| shows(cell.timestamp, floor) && cell.is_live(now_s);
        let mut cells = row.cells();
        let finder = Finder::new(&cells);
        if !cells.any(alive) && !row.marker().is_some_and(|l| shows(l.timestamp, floor) && l.is_live(now_s)) {
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
