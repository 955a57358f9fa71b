//! The stored form of a partition, in memtables and as decoded from files: everything known about it, dead or alive.
//!
//! Most partitions of most tables are one row without clustering, so that shape has a form of its own: one
//! pointer, no inner map. Everything else has a copy-on-write map of rows. Cloning either is O(1), and a clone
//! never changes: that is the snapshot readers get.

use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::model::{Cell, Change, Deletion, Row};
use crate::ranges::{Position, Ranges};
use crate::reconcile::{floor_of, merge_cells, merge_deletion, merge_row, merge_row_parts, shadow_row};

/// A partition. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Partition {
    /// Exactly one row, with empty clustering; nothing else.
    Single(Arc<Row>),
    /// Any shape.
    Full(Arc<Full>),
}

/// The general shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Full {
    pub(crate) deletion: Option<Deletion>,
    pub(crate) static_cells: Vec<Cell>,
    pub(crate) ranges: Ranges,
    pub(crate) rows: OrdMap<Bytes, Arc<Row>>,
}

/// Bytes a row takes beside its cells and values: the row, two reference counts, its place in a map.
const ROW_OVERHEAD: usize = size_of::<Row>() + 16 + 24 + 48;

/// Bytes of a position in a range map, with its deletion.
const RANGE_OVERHEAD: usize = 2 * (size_of::<Position>() + size_of::<Option<Deletion>>());

impl Partition {
    /// A partition that nothing is known about.
    pub(crate) fn empty() -> Partition {
        Partition::Full(Arc::default())
    }

    /// A partition from its first changes, and the bytes it takes.
    pub(crate) fn from_changes(changes: Vec<Change>) -> (Partition, usize) {
        let mut changes = changes.into_iter();
        let (mut partition, mut bytes) = match changes.next() {
            Some(Change::Row { clustering, liveness, deletion, cells }) if clustering.is_empty() => {
                let mut row = Row { clustering, liveness, deletion, cells };
                shadow_row(&mut row);
                let bytes = row_bytes(&row);
                (Partition::Single(Arc::new(row)), bytes)
            }
            first => {
                let mut partition = Partition::empty();
                let bytes = first.map_or(0, |change| partition.apply(change));
                (partition, bytes)
            }
        };
        for change in changes {
            bytes += partition.apply(change);
        }
        (partition, bytes)
    }

    /// Applies one change; returns about how many bytes the partition grew by.
    pub(crate) fn apply(&mut self, change: Change) -> usize {
        if let (Partition::Single(row), Change::Row { clustering, .. }) = (&mut *self, &change)
            && clustering.is_empty()
        {
            let Change::Row { liveness, deletion, cells, .. } = change else { unreachable!("matched above") };
            return grow_row(Arc::make_mut(row), liveness, deletion, cells);
        }
        let full = self.make_full();
        match change {
            Change::Row { clustering, liveness, deletion, cells } => {
                if let Some(row) = full.rows.get_mut(&clustering[..]) {
                    // The values share their allocation with the clustering key, which thus stays, if unused.
                    return clustering.len() + grow_row(Arc::make_mut(row), liveness, deletion, cells);
                }
                let mut row = Row { clustering: clustering.clone(), liveness, deletion, cells };
                shadow_row(&mut row);
                let bytes = row_bytes(&row);
                full.rows.insert(clustering, Arc::new(row));
                bytes
            }
            Change::Static { cells } => {
                let before = cells_bytes(&full.static_cells);
                merge_cells(&mut full.static_cells, cells);
                cells_bytes(&full.static_cells).saturating_sub(before)
            }
            Change::DeletePartition(deletion) => {
                full.deletion = merge_deletion(full.deletion, Some(deletion));
                // Rows stay until the flush drops them: a big partition must not be walked here.
                size_of::<Full>()
            }
            Change::DeleteRange { start, end, deletion } => {
                let (start, end) = (Position::of_start(&start), Position::of_end(&end));
                let before = full.ranges.len();
                full.ranges.insert(start, end, deletion);
                full.ranges.len().saturating_sub(before) * RANGE_OVERHEAD
            }
        }
    }

    /// The general form, converting if need be.
    fn make_full(&mut self) -> &mut Full {
        if let Partition::Single(row) = self {
            let rows = OrdMap::unit(Bytes::new(), row.clone());
            *self = Partition::Full(Arc::new(Full { rows, ..Full::default() }));
        }
        match self {
            Partition::Full(full) => Arc::make_mut(full),
            Partition::Single(_) => unreachable!("converted above"),
        }
    }

    /// The number of stored rows, live or not.
    pub(crate) fn row_count(&self) -> usize {
        match self {
            Partition::Single(_) => 1,
            Partition::Full(full) => full.rows.len(),
        }
    }

    /// The stored row with this clustering.
    #[inline]
    pub(crate) fn row(&self, clustering: &[u8]) -> Option<&Arc<Row>> {
        match self {
            Partition::Single(row) => clustering.is_empty().then_some(row),
            Partition::Full(full) => full.rows.get(clustering),
        }
    }

    /// The timestamp up to which partition and range deletions shadow this clustering.
    pub(crate) fn floor(&self, clustering: &Bytes) -> i64 {
        match self {
            Partition::Single(_) => i64::MIN,
            Partition::Full(full) => {
                floor_of(merge_deletion(full.deletion, full.ranges.covering(clustering)))
            }
        }
    }

    /// Everything known about one row, as a partition of that row alone: what a point read merges.
    pub(crate) fn only(&self, clustering: &[u8]) -> Partition {
        match self {
            Partition::Single(row) if clustering.is_empty() => Partition::Single(row.clone()),
            Partition::Single(_) => Partition::empty(),
            Partition::Full(full) => {
                let rows = match full.rows.get(clustering) {
                    Some(row) => OrdMap::unit(row.clustering.clone(), row.clone()),
                    None => OrdMap::new(),
                };
                let ranges = full.ranges.clone();
                Partition::Full(Arc::new(Full {
                    deletion: full.deletion,
                    static_cells: Vec::new(),
                    ranges,
                    rows,
                }))
            }
        }
    }

    /// Merges two versions of a partition. Costs the rows of the smaller one (and its logarithm in the larger).
    pub(crate) fn merge(self, other: Partition) -> Partition {
        let (mut large, small) =
            if self.row_count() >= other.row_count() { (self, other) } else { (other, self) };
        match (&mut large, &small) {
            (Partition::Single(into), Partition::Single(from)) => {
                merge_row(Arc::make_mut(into), from);
                return large;
            }
            (Partition::Full(_), Partition::Full(from)) => {
                let full = large.make_full();
                full.deletion = merge_deletion(full.deletion, from.deletion);
                merge_cells(&mut full.static_cells, from.static_cells.iter().cloned());
                full.ranges.merge(&from.ranges);
                from.rows.values().for_each(|row| full.merge_row(row));
            }
            (Partition::Full(_), Partition::Single(row)) => large.make_full().merge_row(row),
            (Partition::Single(_), Partition::Full(from)) => {
                // Equal row counts: take the general one as the base.
                let mut base = Partition::Full(from.clone());
                let Partition::Single(row) = &large else { unreachable!("matched above") };
                base.make_full().merge_row(row);
                return base;
            }
        }
        large
    }
}

impl Full {
    fn merge_row(&mut self, row: &Arc<Row>) {
        match self.rows.get_mut(&row.clustering[..]) {
            Some(mine) => merge_row(Arc::make_mut(mine), row),
            None => {
                self.rows.insert(row.clustering.clone(), row.clone());
            }
        }
    }
}

fn cells_bytes(cells: &[Cell]) -> usize {
    let values: usize = cells.iter().filter_map(|cell| cell.value()).map(|value| value.len()).sum();
    size_of_val(cells) + values
}

/// About how many bytes of memory a row takes.
pub(crate) fn row_bytes(row: &Row) -> usize {
    ROW_OVERHEAD + 2 * row.clustering.len() + cells_bytes(&row.cells)
}

fn grow_row(
    row: &mut Row,
    liveness: Option<crate::model::Liveness>,
    deletion: Option<Deletion>,
    cells: Vec<Cell>,
) -> usize {
    let before = cells_bytes(&row.cells);
    merge_row_parts(row, liveness, deletion, cells);
    cells_bytes(&row.cells).saturating_sub(before)
}
