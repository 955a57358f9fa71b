//! What a flush or compaction may leave out.
//!
//! Shadowed data goes always: the deletion that shadows it is kept beside it. Expired values lose their bytes.
//! Tombstones go when they are older than the grace period *and* no other file or memtable could hold something they
//! shadow; only a merge of everything there is can know that.

use std::sync::Arc;

use imbl::OrdMap;

use crate::model::{Cell, CellValue, Deletion, Row};
use crate::partition::{Full, Partition};
use crate::reconcile::floor_of;

/// The rule of one merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Purge {
    /// The clock, Unix seconds.
    pub(crate) now_s: u32,
    /// Tombstones made before this second are forgotten; 0 keeps all.
    pub(crate) forget_before_s: u32,
}

impl Purge {
    fn keeps(&self, deletion: &Deletion) -> bool {
        deletion.deleted_at_s >= self.forget_before_s
    }

    /// What is left of a partition; `None` when nothing is.
    pub(crate) fn partition(&self, partition: Partition) -> Option<Partition> {
        match partition {
            Partition::Single(row) => Some(Partition::Single(self.row(row, i64::MIN)?)),
            Partition::Full(full) => {
                let floor = floor_of(full.deletion);
                let rows: OrdMap<_, _> = full
                    .rows
                    .iter()
                    .filter_map(|(key, row)| {
                        let floor = floor.max(floor_of(full.ranges.covering(key)));
                        Some((key.clone(), self.row(row.clone(), floor)?))
                    })
                    .collect();
                let left = Full {
                    deletion: full.deletion.filter(|deletion| self.keeps(deletion)),
                    static_cells: self.cells(&full.static_cells, floor),
                    ranges: full
                        .ranges
                        .filtered(|deletion| self.keeps(&deletion) && deletion.timestamp > floor),
                    rows,
                };
                let empty = left.deletion.is_none()
                    && left.static_cells.is_empty()
                    && left.ranges.is_empty()
                    && left.rows.is_empty();
                (!empty).then(|| Partition::Full(Arc::new(left)))
            }
        }
    }

    fn row(&self, row: Arc<Row>, floor: i64) -> Option<Arc<Row>> {
        let shadowed = |timestamp: i64| floor != i64::MIN && timestamp <= floor;
        let clean = |cell: &Cell| !shadowed(cell.timestamp) && cell.is_live(self.now_s);
        let liveness_stays = row.liveness.is_none_or(|l| !shadowed(l.timestamp) && l.is_live(self.now_s));
        if row.deletion.is_none() && liveness_stays && row.cells.iter().all(clean) {
            let empty = row.liveness.is_none() && row.cells.is_empty();
            return (!empty).then_some(row);
        }
        let mut left = Row::clone(&row);
        left.cells = self.cells(&row.cells, floor);
        left.deletion = row.deletion.filter(|d| self.keeps(d) && !shadowed(d.timestamp));
        // An expired marker keeps its place until it may be forgotten: it still wins over older ones.
        left.liveness = row.liveness.filter(|l| {
            let forgotten = l.expiry.is_some_and(|e| e.at_s <= self.now_s && e.at_s < self.forget_before_s);
            !shadowed(l.timestamp) && !forgotten
        });
        let empty = left.cells.is_empty() && left.deletion.is_none() && left.liveness.is_none();
        (!empty).then(|| Arc::new(left))
    }

    fn cells(&self, cells: &[Cell], floor: i64) -> Vec<Cell> {
        let shadowed = |timestamp: i64| floor != i64::MIN && timestamp <= floor;
        let keep = |cell: &Cell| {
            let gone_at_s = match &cell.value {
                CellValue::Live { expiry: Some(expiry), .. } if expiry.at_s <= self.now_s => {
                    Some(expiry.at_s)
                }
                CellValue::Live { .. } => None,
                CellValue::Dead { deleted_at_s } => Some(*deleted_at_s),
            };
            if shadowed(cell.timestamp) || gone_at_s.is_some_and(|at| at < self.forget_before_s) {
                return None;
            }
            let mut cell = cell.clone();
            if gone_at_s.is_some()
                && let CellValue::Live { value, .. } = &mut cell.value
            {
                // It stays an expired cell, so that ties are settled as before, but needs no value any more.
                value.clear();
            }
            Some(cell)
        };
        cells.iter().filter_map(keep).collect()
    }
}
