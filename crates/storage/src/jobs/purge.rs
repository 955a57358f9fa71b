//! Decides which data a flush or compaction leaves out.
//!
//! Shadowed data is always removed, because the deletion that shadows it is kept. Expired values
//! lose their bytes. A tombstone is removed if it is older than the grace period *and* no other
//! file or memtable may contain data that it shadows.

use std::sync::Arc;

use crate::model::layers::Placed;
use crate::model::partition::{Full, Partition, PartitionRows};
use crate::model::reconcile::floor_of;
use crate::model::row::{EncodedRow, RowBuilder};
use crate::model::{CellRef, CellValue, Deletion, Liveness};
use crate::state::settings::DroppedCells;

/// The rules of one job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Purge {
    /// The current time, Unix seconds.
    pub(crate) now_s: u32,
    /// Tombstones made before this second are removed; 0 keeps all.
    pub(crate) forget_before_s: u32,
    /// Cells of dropped columns, ascending by column. No reader sees them, so they are removed.
    pub(crate) dropped: Arc<[DroppedCells]>,
}

impl Purge {
    fn keeps(&self, deletion: &Deletion) -> bool {
        deletion.deleted_at_s >= self.forget_before_s
    }

    fn is_dropped(&self, cell: &CellRef<'_>) -> bool {
        let found = self.dropped.binary_search_by_key(&cell.column, |dropped| dropped.column);
        found.is_ok_and(|at| cell.timestamp <= self.dropped[at].up_to_us)
    }

    /// Returns true if nothing in a partition is dead or shadowed, so that every rule keeps all of
    /// it.
    pub(crate) fn is_all_alive(&self, partition: &Partition) -> bool {
        match partition {
            Partition::Single(row) => self.is_alive(row),
            Partition::Full(full) => {
                let plain = full.deletion.is_none() && full.ranges.is_empty() && full.rows.len() > 0;
                plain && full.statics().into_iter().chain(full.rows.iter()).all(|row| self.is_alive(row))
            }
        }
    }

    fn is_alive(&self, row: &EncodedRow) -> bool {
        let (head, mut cells) = row.open();
        let marked = head.marker.is_some_and(|marker| marker.is_live(self.now_s));
        let stays = head.deletion.is_none() && (marked || head.marker.is_none() && !row.is_empty());
        stays && cells.all(|cell| cell.is_live(self.now_s) && !self.is_dropped(&cell))
    }

    /// Returns what the rules leave of a partition; `None` if that is empty.
    pub(crate) fn partition(&self, partition: Partition) -> Option<Partition> {
        match partition {
            Partition::Single(row) => Some(Partition::Single(self.row(&row, i64::MIN)?)),
            Partition::Full(full) => {
                let floor = floor_of(full.deletion);
                let left = Full {
                    deletion: full.deletion.filter(|deletion| self.keeps(deletion)),
                    statics: full.statics().and_then(|row| self.row(row, floor)).map(Placed::Row),
                    ranges: full
                        .ranges
                        .filtered(|deletion| self.keeps(&deletion) && deletion.timestamp > floor),
                    rows: self.rows(&full),
                };
                let empty = left.deletion.is_none()
                    && left.statics.is_none()
                    && left.ranges.is_empty()
                    && left.rows.len() == 0;
                (!empty).then(|| Partition::Full(Arc::new(left)))
            }
        }
    }

    /// Returns what the rules leave of the rows of a piece that is not the partition's first.
    pub(crate) fn later_piece(&self, partition: Partition) -> Option<Partition> {
        match partition {
            Partition::Single(_) => self.partition(partition),
            Partition::Full(full) => {
                let rows = self.rows(&full);
                (rows.len() > 0).then(|| Partition::Full(Arc::new(Full { rows, ..Full::default() })))
            }
        }
    }

    fn rows(&self, full: &Full) -> PartitionRows {
        let floor = floor_of(full.deletion);
        let mut rows = PartitionRows::default();
        for row in full.rows.iter() {
            let floor = floor.max(floor_of(full.ranges.covering(row.clustering())));
            self.row(row, floor).into_iter().for_each(|row| rows.push(row));
        }
        rows
    }

    fn row(&self, row: &EncodedRow, floor: i64) -> Option<EncodedRow> {
        let shadowed = |timestamp: i64| floor != i64::MIN && timestamp <= floor;
        let (deletion, marker) = (row.deletion(), row.marker());
        let clean = |cell: CellRef<'_>| {
            !shadowed(cell.timestamp) && cell.is_live(self.now_s) && !self.is_dropped(&cell)
        };
        let marker_stays = marker.is_none_or(|l| !shadowed(l.timestamp) && l.is_live(self.now_s));
        if deletion.is_none() && marker_stays && row.cells().all(clean) {
            return (!row.is_empty()).then(|| row.clone());
        }
        // An expired marker is kept until it may be forgotten, because it still wins over older
        // markers.
        let keep_marker = |l: &Liveness| {
            let forgotten = l.expiry.is_some_and(|e| e.at_s <= self.now_s && e.at_s < self.forget_before_s);
            !shadowed(l.timestamp) && !forgotten
        };
        let keep_deletion = |d: &Deletion| self.keeps(d) && !shadowed(d.timestamp);
        let mut left = RowBuilder::new(row.key(), row.clustering(), row.timestamp());
        left.deletion(deletion.filter(keep_deletion));
        left.marker(marker.filter(keep_marker));
        row.cells().filter_map(|cell| self.cell(cell, &shadowed)).for_each(|cell| left.push(cell));
        let left = left.finish();
        (!left.is_empty()).then_some(left)
    }

    fn cell<'a>(&self, cell: CellRef<'a>, shadowed: &impl Fn(i64) -> bool) -> Option<CellRef<'a>> {
        if self.is_dropped(&cell) {
            return None;
        }
        let gone_at_s = match cell.value {
            CellValue::Live { expiry: Some(expiry), .. } if expiry.at_s <= self.now_s => Some(expiry.at_s),
            CellValue::Live { .. } => None,
            CellValue::Dead { deleted_at_s } => Some(deleted_at_s),
        };
        if shadowed(cell.timestamp) || gone_at_s.is_some_and(|at| at < self.forget_before_s) {
            return None;
        }
        Some(match cell.value {
            // The cell stays expired, so that timestamp ties resolve as before, but needs no value
            // any more.
            CellValue::Live { expiry, .. } if gone_at_s.is_some() => {
                CellRef { value: CellValue::Live { value: &[], expiry }, ..cell }
            }
            _ => cell,
        })
    }
}
