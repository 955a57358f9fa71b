//! The point at which a read of one row may stop, because older sources cannot change its answer.
//!
//! ```text
//!  asked      memtables │ file, to 90 │ file, to 40 │ file, to 35     by their greatest timestamps
//!  found      a = 1 at 95, b deleted at 60, marker at 95
//!  settled    below 60: the columns a and b, and that the row exists
//!                        └ read       └ not read
//! ```
//!
//! A cell shadows all older cells of its column, and a deletion shadows everything up to its
//! timestamp. Whether the row exists is settled by a marker or a live cell. A column of elements is
//! settled by a tombstone of all of them only.

use crate::model::reconcile::floor_of;
use crate::model::row::EncodedRow;
use crate::model::view::shows;

/// Returns the timestamp such that a source with only lower ones cannot change what a reader sees
/// of a row; `i64::MIN` if any source can. `floor`: the timestamp up to which deletions of the
/// partition or a range shadow the row. `picked`: the columns that the reader needs, ascending, or
/// `None` for all. Costs a step for each cell.
pub(crate) fn settled_below(row: Option<&EncodedRow>, floor: i64, picked: Option<&[u32]>, now_s: u32) -> i64 {
    let above = |floor: i64| if floor == i64::MIN { floor } else { floor.saturating_add(1) };
    let Some(row) = row else { return above(floor) };
    let (head, mut cells) = row.open();
    let floor = floor_of(head.deletion).max(floor);
    let Some(picked) = picked else { return above(floor) };
    let (mut oldest, mut is_alive) = (i64::MAX, false);
    let mut next = cells.next();
    for column in picked {
        while next.is_some_and(|cell| cell.column < *column) {
            next = cells.next();
        }
        let whole = next.filter(|cell| cell.column == *column && cell.path.is_none());
        let Some(whole) = whole else { return above(floor) };
        oldest = oldest.min(whole.timestamp);
        while let Some(cell) = next.filter(|cell| cell.column == *column) {
            is_alive |= shows(cell.timestamp, floor) && cell.is_live(now_s);
            next = cells.next();
        }
    }
    if !is_alive {
        let marker = head.marker.filter(|marker| shows(marker.timestamp, floor) && marker.is_live(now_s));
        let Some(marker) = marker else { return above(floor) };
        oldest = oldest.min(marker.timestamp);
    }
    above(floor).max(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::row::RowBuilder;
    use crate::model::{CellRef, Deletion, Expiry, Liveness};

    const NOTHING: i64 = i64::MIN;
    const NOW_S: u32 = 100;

    fn check(cells: &[CellRef<'_>], marker: Option<i64>, picked: &[u32], expected: i64) {
        let mut row = RowBuilder::new(&[], b"c", 50);
        row.marker(marker.map(|timestamp| Liveness { timestamp, expiry: None }));
        cells.iter().for_each(|cell| row.push(*cell));
        let row = row.finish();
        let settled = settled_below(Some(&row), NOTHING, Some(picked), NOW_S);
        assert_eq!(settled, expected, "{cells:?}, marker {marker:?}, {picked:?}");
    }

    #[test]
    fn oldest_of_the_wanted_cells_decides() {
        let cells = [CellRef::live(1, 70, b"a"), CellRef::live(3, 60, b"b"), CellRef::dead(4, 40, 9)];
        check(&cells, None, &[1], 70);
        check(&cells, None, &[1, 3], 60);
        check(&cells, None, &[1, 2], NOTHING);
        check(&cells, None, &[1, 5], NOTHING);
        check(&cells, None, &[1, 4], 40);
        let lowest = [CellRef::live(1, i64::MIN + 1, b"a")];
        check(&lowest, None, &[1], i64::MIN + 1);
    }

    #[test]
    fn existence_is_settled_too() {
        let dead = [CellRef::dead(1, 70, 9)];
        check(&dead, None, &[1], NOTHING);
        check(&dead, Some(80), &[1], 70);
        check(&dead, Some(60), &[1], 60);
        check(&dead, None, &[], NOTHING);
        check(&dead, Some(60), &[], 60);
        let expiry = Expiry { ttl_s: 1, at_s: NOW_S };
        check(&[CellRef::expiring(1, 70, b"a", expiry)], None, &[1], NOTHING);
        check(&[CellRef::expiring(1, 70, b"a", Expiry { at_s: NOW_S + 1, ..expiry })], None, &[1], 70);
    }

    #[test]
    fn elements_are_settled_by_a_tombstone_of_all() {
        let element = |timestamp, path| CellRef::live(2, timestamp, b"v").at(path);
        check(&[element(70, b"x")], None, &[2], NOTHING);
        check(&[CellRef::dead(2, 69, 9), element(70, b"x")], None, &[2], 69);
        check(&[CellRef::dead(2, 69, 9), element(70, b"x").at(b"y")], None, &[2, 3], NOTHING);
        check(&[CellRef::dead(2, 69, 9)], None, &[2], NOTHING);
    }

    #[test]
    fn deletions_settle_all_columns_up_to_their_timestamp() {
        let mut row = RowBuilder::new(&[], b"c", 50);
        row.push(CellRef::live(1, 90, b"a"));
        let row = row.finish();
        assert_eq!(settled_below(Some(&row), 60, None, NOW_S), 61);
        assert_eq!(settled_below(Some(&row), 60, Some(&[1]), NOW_S), 90);
        assert_eq!(settled_below(Some(&row), 60, Some(&[1, 2]), NOW_S), 61);
        assert_eq!(settled_below(None, 60, Some(&[1]), NOW_S), 61);
        let mut deleted = RowBuilder::new(&[], b"c", 50);
        deleted.deletion(Some(Deletion { timestamp: 70, deleted_at_s: 9 }));
        deleted.marker(Some(Liveness { timestamp: 80, expiry: None }));
        let deleted = deleted.finish();
        assert_eq!(settled_below(Some(&deleted), 60, Some(&[1]), NOW_S), 71);
        assert_eq!(settled_below(Some(&deleted), 60, Some(&[]), NOW_S), 80);
    }
}
