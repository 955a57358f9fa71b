//! Stored form of a partition, in memtables and as decoded from files: all data and tombstones.
//!
//! Most partitions of most tables are one row without clustering, so that shape has a compact form:
//! one pointer, no inner map. All others have a copy-on-write set of rows. Cloning either is O(1),
//! and a clone never changes, so that readers use it as a snapshot. The set keeps large rows in
//! layers (`layers.rs`).

use std::iter::Sum;
use std::ops::{Add, Bound};
use std::sync::Arc;

use imbl::OrdSet;

use crate::model::FreeInChunks;
use crate::model::layers::Placed;
use crate::model::ranges::{Position, Ranges};
use crate::model::reconcile::{LAYERED_BYTES, floor_of, merge_deletion, merge_rows};
use crate::model::row::EncodedRow;
use crate::model::{Change, Deletion};

/// A partition. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Partition {
    /// Exactly one row, with empty clustering, and nothing else.
    Single(EncodedRow),
    /// The general form.
    Full(Arc<Full>),
}

/// The general form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Full {
    pub(crate) deletion: Option<Deletion>,
    pub(crate) statics: Option<Placed>,
    pub(crate) ranges: Ranges,
    pub(crate) rows: PartitionRows,
}

/// The effect of a change on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Growth {
    /// Approximate growth in bytes.
    pub(crate) bytes: usize,
    /// Bytes of the largest row that was changed.
    pub(crate) row: usize,
}

impl Add for Growth {
    type Output = Growth;

    fn add(self, other: Growth) -> Growth {
        Growth { bytes: self.bytes + other.bytes, row: self.row.max(other.row) }
    }
}

impl Sum for Growth {
    fn sum<I: Iterator<Item = Growth>>(all: I) -> Growth {
        all.fold(Growth::default(), Add::add)
    }
}

/// Rows in clustering order. Cloning is O(1).
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionRows(OrdSet<Placed>);

/// An iterator over rows, from both ends.
pub(crate) type RangeOfRows<'a> = imbl::ordset::RangedIter<'a, Placed, imbl::shared_ptr::DefaultSharedPtr>;

/// Bytes of a row in the set beside its own: its slot in a leaf that is about two thirds full.
const ROW_OVERHEAD: usize = size_of::<Placed>() * 3 / 2;

/// Bytes of a range in the map of ranges.
const RANGE_OVERHEAD: usize = 2 * (size_of::<Position>() + size_of::<Option<Deletion>>());

/// A partition of more rows is freed row by row. Removing one row costs as much as dropping several
/// with their set.
const ROWS_AT_ONCE: usize = 64;

/// Maximum number of rows to prefetch.
const ROWS_FETCHED: usize = 8;

impl FreeInChunks for Partition {
    /// Frees rows only. A partition has few ranges, or they were written one by one to one key.
    fn free_chunk(&mut self, left: &mut usize) -> bool {
        let Partition::Full(full) = self else { return false };
        let Some(full) = Arc::get_mut(full) else { return false };
        while full.rows.len() > ROWS_AT_ONCE {
            if *left == 0 {
                return true;
            }
            full.rows.0.remove_min();
            *left -= 1;
        }
        *left = left.saturating_sub(full.rows.len());
        false
    }
}

impl Full {
    /// Returns true if a row has more than `limit` bytes. Merges its layers if they have.
    fn is_large(&self, placed: &Placed, limit: usize) -> bool {
        placed.bytes() > limit && placed.row().bytes() > limit && {
            let deletion = merge_deletion(self.deletion, self.ranges.covering(placed.row().clustering()));
            placed.row().timestamp() > floor_of(deletion)
        }
    }

    fn has_large_statics(&self, limit: usize) -> bool {
        self.statics.as_ref().is_some_and(|placed| {
            placed.bytes() > limit
                && placed.row().bytes() > limit
                && placed.row().timestamp() > floor_of(self.deletion)
        })
    }

    /// Returns the static cells.
    pub(crate) fn statics(&self) -> Option<&EncodedRow> {
        self.statics.as_ref().map(Placed::row)
    }
}

impl PartitionRows {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn get(&self, clustering: &[u8]) -> Option<&EncodedRow> {
        self.0.get(clustering).map(Placed::row)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EncodedRow> {
        self.0.iter().map(Placed::row)
    }

    pub(crate) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> RangeOfRows<'_> {
        self.0.range::<_, [u8]>((start, end))
    }

    pub(crate) fn last(&self) -> Option<&EncodedRow> {
        self.0.get_max().map(Placed::row)
    }

    /// Returns the rows between two bounds. Collects them one by one, so there should be few.
    pub(crate) fn part(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> PartitionRows {
        PartitionRows(self.0.range::<_, [u8]>((start, end)).cloned().collect())
    }

    /// Adds a row at a new position.
    pub(crate) fn push(&mut self, row: EncodedRow) {
        self.0.insert(Placed::Row(row));
    }

    /// Adds a row at a new position, with its layers.
    pub(crate) fn push_placed(&mut self, placed: Placed) {
        self.0.insert(placed);
    }

    /// Merges a row with the stored one, without a merge of large layers.
    fn merge_placed(&mut self, placed: &Placed) -> Growth {
        if let Placed::Row(row) = placed {
            return self.merge(row);
        }
        match self.0.insert(placed.clone()) {
            None => Growth { bytes: placed.bytes() + ROW_OVERHEAD, row: placed.bytes() },
            Some(old) => {
                let (before, now) = (old.bytes(), old.with_all(placed));
                let bytes = now.bytes();
                self.0.insert(now);
                Growth { bytes: bytes.saturating_sub(before), row: bytes }
            }
        }
    }

    /// Merges a row with the stored one.
    pub(crate) fn merge(&mut self, row: &EncodedRow) -> Growth {
        // Most rows are new, and one search is cheaper than two.
        match self.0.insert(Placed::Row(row.clone())) {
            None => Growth { bytes: row.bytes() + ROW_OVERHEAD, row: row.bytes() },
            Some(old) => {
                let before = old.bytes();
                let now = old.with(row);
                let bytes = now.bytes();
                if !matches!(&now, Placed::Row(now) if now == row) {
                    self.0.insert(now);
                }
                Growth { bytes: bytes.saturating_sub(before), row: bytes }
            }
        }
    }
}

impl Partition {
    /// Returns a partition without data.
    pub(crate) fn empty() -> Partition {
        Partition::Full(Arc::default())
    }

    /// Returns a partition made from its first changes, and its approximate size.
    pub(crate) fn from_changes(changes: &[Change]) -> (Partition, Growth) {
        let (mut partition, first, rest) = match changes {
            [Change::Row(row), rest @ ..] if row.clustering().is_empty() => {
                (Partition::Single(row.clone()), Growth { bytes: row.bytes(), row: row.bytes() }, rest)
            }
            all => (Partition::empty(), Growth { bytes: size_of::<Full>(), row: 0 }, all),
        };
        let growth = rest.iter().map(|change| partition.apply(change)).fold(first, Add::add);
        (partition, growth)
    }

    /// Prefetches the first bytes that a reader needs.
    #[inline]
    pub(crate) fn prefetch(&self) {
        match self {
            Partition::Single(row) => row.prefetch(),
            Partition::Full(full) => lanes::prefetch(&**full),
        }
    }

    /// Prefetches the first rows.
    pub(crate) fn prefetch_rows(&self) {
        if let Partition::Full(full) = self {
            full.rows.iter().take(ROWS_FETCHED).for_each(EncodedRow::prefetch);
        }
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: &Change) -> Growth {
        if let (Partition::Single(own), Change::Row(row)) = (&mut *self, change)
            && row.clustering().is_empty()
            && (own.bytes().max(row.bytes()) < LAYERED_BYTES || row.supersedes(own))
        {
            let before = own.bytes();
            *own = merge_rows(own, row);
            return Growth { bytes: own.bytes().saturating_sub(before), row: own.bytes() };
        }
        let full = self.make_full();
        match change {
            Change::Row(row) => full.rows.merge(row),
            Change::Static(row) => {
                let before = full.statics.as_ref().map_or(0, Placed::bytes);
                let merged = match full.statics.take() {
                    Some(own) => own.with(row),
                    None => Placed::Row(row.clone()),
                };
                let bytes = merged.bytes();
                full.statics = Some(merged);
                Growth { bytes: bytes.saturating_sub(before), row: bytes }
            }
            Change::DeletePartition(deletion) => {
                full.deletion = merge_deletion(full.deletion, Some(*deletion));
                // Deleted rows stay until the flush drops them, because walking a large partition
                // takes too long here.
                Growth { bytes: size_of::<Full>(), row: 0 }
            }
            Change::DeleteRange { start, end, deletion } => {
                let start = Position::of_start(start);
                let end = Position::of_end(end);
                let before = full.ranges.len();
                full.ranges.insert(start, end, *deletion);
                Growth { bytes: full.ranges.len().saturating_sub(before) * RANGE_OVERHEAD, row: 0 }
            }
        }
    }

    /// Returns the general form, after a conversion if necessary.
    fn make_full(&mut self) -> &mut Full {
        if let Partition::Single(row) = self {
            let mut rows = PartitionRows::default();
            rows.push(row.clone());
            *self = Partition::Full(Arc::new(Full { rows, ..Full::default() }));
        }
        match self {
            Partition::Full(full) => Arc::make_mut(full),
            Partition::Single(_) => unreachable!("converted above"),
        }
    }

    /// Returns true if readers may open the static cells and the only row within a task poll.
    pub(crate) fn opens_at_once(&self) -> bool {
        match self {
            Partition::Single(row) => Placed::Row(row.clone()).opens_at_once(),
            Partition::Full(full) => {
                full.statics.iter().chain(full.rows.0.iter().take(2)).all(Placed::opens_at_once)
            }
        }
    }

    /// Returns the row with this clustering, with its layers, and the timestamp up to which
    /// deletions of the partition or a range shadow it.
    #[inline]
    pub(crate) fn placed(&self, clustering: &[u8]) -> Option<(Placed, i64)> {
        let placed = match self {
            Partition::Single(row) => clustering.is_empty().then(|| Placed::Row(row.clone())),
            Partition::Full(full) => full.rows.0.get(clustering).cloned(),
        };
        Some((placed?, self.floor(clustering)))
    }

    /// Returns the number of stored rows, live or not.
    pub(crate) fn row_count(&self) -> usize {
        match self {
            Partition::Single(_) => 1,
            Partition::Full(full) => full.rows.len(),
        }
    }

    /// Returns the stored row with this clustering.
    #[inline]
    pub(crate) fn row(&self, clustering: &[u8]) -> Option<&EncodedRow> {
        match self {
            Partition::Single(row) => clustering.is_empty().then_some(row),
            Partition::Full(full) => full.rows.get(clustering),
        }
    }

    /// Returns the bytes of the row that a change writes to, without versions that deletions of the
    /// row or the partition shadow.
    pub(crate) fn row_bytes(&self, change: &Change) -> usize {
        match (self, change) {
            (Partition::Single(own), Change::Row(row)) if row.clustering().is_empty() => own.bytes(),
            (Partition::Full(full), Change::Row(row)) => {
                let floor = self.floor(row.clustering());
                full.rows.0.get(row.clustering()).map_or(0, |placed| placed.bytes_above(floor))
            }
            (Partition::Full(full), Change::Static(_)) => {
                full.statics.as_ref().map_or(0, |placed| placed.bytes_above(floor_of(full.deletion)))
            }
            _ => 0,
        }
    }

    /// Returns true if some row, or the static cells, have more than `limit` bytes without what
    /// deletions shadow.
    pub(crate) fn has_large_rows(&self, limit: usize) -> bool {
        match self {
            Partition::Single(row) => row.bytes() > limit,
            Partition::Full(full) => {
                full.has_large_statics(limit) || full.rows.0.iter().any(|placed| full.is_large(placed, limit))
            }
        }
    }

    /// Returns the deletion of the whole partition.
    pub(crate) fn deletion(&self) -> Option<Deletion> {
        match self {
            Partition::Single(_) => None,
            Partition::Full(full) => full.deletion,
        }
    }

    /// Returns true if it has a deletion of the partition or of a range.
    pub(crate) fn has_deletions(&self) -> bool {
        match self {
            Partition::Single(_) => false,
            Partition::Full(full) => full.deletion.is_some() || !full.ranges.is_empty(),
        }
    }

    /// Returns the bytes of a partition of one row beside the row.
    pub(crate) fn overhead(&self) -> usize {
        match self {
            Partition::Single(_) => 0,
            Partition::Full(_) => size_of::<Full>() + ROW_OVERHEAD,
        }
    }

    /// Returns the timestamp up to which partition and range deletions shadow this clustering.
    pub(crate) fn floor(&self, clustering: &[u8]) -> i64 {
        match self {
            Partition::Single(_) => i64::MIN,
            Partition::Full(full) => {
                floor_of(merge_deletion(full.deletion, full.ranges.covering(clustering)))
            }
        }
    }

    /// Returns the data and deletions of one row as a partition, for the merge of a point read. A
    /// range deletion that covers the row becomes one of the partition.
    pub(crate) fn only(&self, clustering: &[u8]) -> Partition {
        match self {
            Partition::Single(row) if clustering.is_empty() => Partition::Single(row.clone()),
            Partition::Single(_) => Partition::empty(),
            Partition::Full(full) => {
                let mut rows = PartitionRows::default();
                full.rows.0.get(clustering).into_iter().for_each(|row| rows.push_placed(row.clone()));
                let deletion = merge_deletion(full.deletion, full.ranges.covering(clustering));
                Partition::Full(Arc::new(Full { deletion, rows, ..Full::default() }))
            }
        }
    }

    /// Merges two versions of a partition. The cost is that of the rows of the smaller one, times a
    /// logarithm of the larger.
    pub(crate) fn merge(self, other: Partition) -> Partition {
        self.merge_measured(other).0
    }

    /// Merges two versions of a partition as [`Partition::merge`] does. Returns also the bytes of
    /// the largest row that was merged.
    pub(crate) fn merge_measured(self, other: Partition) -> (Partition, usize) {
        let (mut large, small) =
            if self.row_count() >= other.row_count() { (self, other) } else { (other, self) };
        let largest = match (&mut large, &small) {
            (Partition::Single(into), Partition::Single(from))
                if into.bytes().max(from.bytes()) < LAYERED_BYTES =>
            {
                *into = merge_rows(into, from);
                into.bytes()
            }
            (Partition::Single(_), Partition::Single(row)) => large.make_full().rows.merge(row).row,
            (Partition::Full(_), Partition::Full(from)) => {
                let full = large.make_full();
                full.deletion = merge_deletion(full.deletion, from.deletion);
                full.statics = match (full.statics.take(), &from.statics) {
                    (Some(ours), Some(theirs)) => Some(ours.with_all(theirs)),
                    (ours, theirs) => ours.or_else(|| theirs.clone()),
                };
                full.ranges.merge(&from.ranges);
                let statics = full.statics.as_ref().map_or(0, Placed::bytes);
                let rows = &from.rows.0;
                rows.iter().fold(statics, |largest, row| largest.max(full.rows.merge_placed(row).row))
            }
            (Partition::Full(_), Partition::Single(row)) => large.make_full().rows.merge(row).row,
            (Partition::Single(_), Partition::Full(from)) => {
                // With equal row counts, use the general form as the base.
                let mut base = Partition::Full(from.clone());
                let Partition::Single(row) = &large else { unreachable!("matched above") };
                let largest = base.make_full().rows.merge(row).row;
                return (base, largest);
            }
        };
        (large, largest)
    }
}
