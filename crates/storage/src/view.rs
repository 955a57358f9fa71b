//! What readers see: a snapshot of a partition with everything shadowed or expired left out.
//!
//! Nothing is copied or filtered up front. A view holds the merged partition and the reader's clock; every access
//! decides then, so making a view is O(1) and callers may yield between rows.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{Cell, Liveness, Row};
use crate::partition::Partition;
use crate::reconcile::floor_of;

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

    /// The live static cell of a column.
    pub fn static_cell(&self, column: u32) -> Option<&Cell> {
        self.static_cells().find(|cell| cell.column == column)
    }

    /// The live static cells, ascending by column.
    pub fn static_cells(&self) -> impl Iterator<Item = &Cell> {
        let (cells, floor): (&[Cell], i64) = match &self.partition {
            Partition::Single(_) => (&[], i64::MIN),
            Partition::Full(full) => (&full.static_cells, floor_of(full.deletion)),
        };
        let now_s = self.now_s;
        cells.iter().filter(move |cell| shows(cell.timestamp, floor) && cell.is_live(now_s))
    }

    /// The live row with this clustering.
    pub fn get(&self, clustering: &[u8]) -> Option<RowView> {
        self.see(self.partition.row(clustering)?)
    }

    /// The live rows between two bounds, lazily, in clustering order or backwards.
    pub fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, reversed: bool) -> Rows<'_> {
        let rows = match &self.partition {
            Partition::Single(row) => Source::Single((in_bounds(&row.clustering, start, end)).then_some(row)),
            Partition::Full(_) if is_empty_range(start, end) => Source::Single(None),
            Partition::Full(full) => Source::Many(full.rows.range::<_, [u8]>((start, end))),
        };
        Rows { view: self, rows, reversed }
    }

    /// All live rows in clustering order.
    pub fn rows(&self) -> Rows<'_> {
        self.range(Bound::Unbounded, Bound::Unbounded, false)
    }

    /// Whether nothing is alive here: no static cell and no row.
    pub fn is_empty(&self) -> bool {
        self.static_cells().next().is_none() && self.rows().next().is_none()
    }

    fn see(&self, row: &Arc<Row>) -> Option<RowView> {
        RowView::new(row.clone(), self.partition.floor(&row.clustering), self.now_s)
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

/// Written after whatever shadows; `i64::MIN` as a floor means that nothing does.
#[inline]
fn shows(timestamp: i64, floor: i64) -> bool {
    timestamp > floor || floor == i64::MIN
}

/// An iterator over live rows.
#[derive(Debug)]
pub struct Rows<'a> {
    view: &'a PartitionView,
    rows: Source<'a>,
    reversed: bool,
}

enum Source<'a> {
    Single(Option<&'a Arc<Row>>),
    Many(imbl::ordmap::RangedIter<'a, Bytes, Arc<Row>, imbl::shared_ptr::DefaultSharedPtr>),
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rows")
    }
}

impl Iterator for Rows<'_> {
    type Item = RowView;

    fn next(&mut self) -> Option<RowView> {
        loop {
            let row = match &mut self.rows {
                Source::Single(row) => row.take()?,
                Source::Many(rows) if self.reversed => rows.next_back()?.1,
                Source::Many(rows) => rows.next()?.1,
            };
            if let Some(row) = self.view.see(row) {
                return Some(row);
            }
        }
    }
}

/// One live row of a snapshot.
#[derive(Clone, Debug)]
pub struct RowView {
    row: Arc<Row>,
    floor: i64,
    now_s: u32,
}

impl RowView {
    /// The row if it is alive.
    #[inline]
    pub(crate) fn new(row: Arc<Row>, floor: i64, now_s: u32) -> Option<RowView> {
        let view = RowView { row, floor, now_s };
        (view.liveness().is_some() || view.cells().next().is_some()).then_some(view)
    }

    /// The row's place in its partition.
    pub fn clustering(&self) -> &Bytes {
        &self.row.clustering
    }

    /// The row marker, if it is alive: the row exists even when all its columns are null.
    #[inline]
    pub fn liveness(&self) -> Option<&Liveness> {
        self.row.liveness.as_ref().filter(|l| shows(l.timestamp, self.floor) && l.is_live(self.now_s))
    }

    /// The live cell of a column; `None` means null.
    #[inline]
    pub fn cell(&self, column: u32) -> Option<&Cell> {
        let cells = &self.row.cells;
        // Rows are mostly narrow and their columns mostly numbered without gaps.
        let cell = match cells.get(column as usize) {
            Some(cell) if cell.column == column => cell,
            _ => &cells[cells.binary_search_by_key(&column, |cell| cell.column).ok()?],
        };
        self.alive(cell).then_some(cell)
    }

    /// The live cells, ascending by column.
    #[inline]
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.row.cells.iter().filter(|cell| self.alive(cell))
    }

    #[inline]
    fn alive(&self, cell: &Cell) -> bool {
        shows(cell.timestamp, self.floor) && cell.is_live(self.now_s)
    }
}
