//! Which of two versions wins: Cassandra's rules, as pure functions.
//!
//! Every function here is commutative, associative and idempotent, so the order in which memtables and files
//! are merged, and how often, makes no difference.
//!
//! 1. The higher timestamp wins.
//! 2. At the same timestamp, what is deleted or will expire beats what lasts for ever.
//! 3. Of those, a tombstone beats an expiring value; then the later deletion or expiry wins.
//! 4. Otherwise the larger value, compared as bytes.

use std::cmp::Ordering;

use crate::model::{Cell, CellValue, Deletion, Liveness, Row};

/// Orders two versions of the same cell; the greater one survives.
pub(crate) fn compare_cells(left: &Cell, right: &Cell) -> Ordering {
    // The last two places settle the ties that rules 1 to 4 leave, so that merging commutes in every case.
    type Rank<'a> = (i64, bool, bool, u32, &'a [u8], u32);
    fn rank(cell: &Cell) -> Rank<'_> {
        match &cell.value {
            CellValue::Live { value, expiry: None } => (cell.timestamp, false, false, 0, value, 0),
            CellValue::Live { value, expiry: Some(e) } => {
                (cell.timestamp, true, false, e.at_s, value, e.ttl_s)
            }
            CellValue::Dead { deleted_at_s } => (cell.timestamp, true, true, *deleted_at_s, &[], 0),
        }
    }
    if left.timestamp != right.timestamp {
        return left.timestamp.cmp(&right.timestamp);
    }
    rank(left).cmp(&rank(right))
}

/// The surviving row marker.
pub(crate) fn merge_liveness(left: Option<Liveness>, right: Option<Liveness>) -> Option<Liveness> {
    let rank = |liveness: &Liveness| {
        let expiry = liveness.expiry;
        (liveness.timestamp, expiry.is_some(), expiry.map_or(0, |e| e.at_s), expiry.map_or(0, |e| e.ttl_s))
    };
    match (left, right) {
        (Some(l), Some(r)) => Some(if rank(&l) >= rank(&r) { l } else { r }),
        (l, r) => l.or(r),
    }
}

/// The surviving deletion.
#[inline]
pub(crate) fn merge_deletion(left: Option<Deletion>, right: Option<Deletion>) -> Option<Deletion> {
    left.max(right)
}

/// The timestamp up to which a deletion shadows; nothing is as old as `i64::MIN`.
#[inline]
pub(crate) fn floor_of(deletion: Option<Deletion>) -> i64 {
    deletion.map_or(i64::MIN, |deletion| deletion.timestamp)
}

/// Merges `from` into `into`, both ascending by column.
pub(crate) fn merge_cells(into: &mut Vec<Cell>, from: impl IntoIterator<Item = Cell>) {
    for cell in from {
        // Statements mostly name columns in order, and past the end for a new row: look at the end first.
        let place = match into.last() {
            Some(last) if last.column < cell.column => Err(into.len()),
            _ => into.binary_search_by_key(&cell.column, |c| c.column),
        };
        match place {
            Ok(at) if compare_cells(&into[at], &cell) == Ordering::Less => into[at] = cell,
            Ok(_) => {}
            Err(at) => into.insert(at, cell),
        }
    }
}

/// Merges what a newer or older version of the same row says into `into`.
pub(crate) fn merge_row(into: &mut Row, from: &Row) {
    merge_row_parts(into, from.liveness, from.deletion, from.cells.iter().cloned());
}

/// As [`merge_row`], from parts.
pub(crate) fn merge_row_parts(
    into: &mut Row,
    liveness: Option<Liveness>,
    deletion: Option<Deletion>,
    cells: impl IntoIterator<Item = Cell>,
) {
    into.liveness = merge_liveness(into.liveness, liveness);
    into.deletion = merge_deletion(into.deletion, deletion);
    merge_cells(&mut into.cells, cells);
    shadow_row(into);
}

/// Drops what the row's own deletion shadows, so that readers need not ask.
pub(crate) fn shadow_row(row: &mut Row) {
    if let Some(deletion) = row.deletion {
        row.cells.retain(|cell| cell.timestamp > deletion.timestamp);
        row.liveness = row.liveness.filter(|liveness| liveness.timestamp > deletion.timestamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Expiry;

    fn check(loser: Cell, winner: Cell) {
        assert_eq!(compare_cells(&loser, &winner), Ordering::Less, "{loser:?} against {winner:?}");
        assert_eq!(compare_cells(&winner, &loser), Ordering::Greater);
        let mut one = vec![loser.clone()];
        merge_cells(&mut one, [winner.clone()]);
        let mut other = vec![winner.clone()];
        merge_cells(&mut other, [loser]);
        assert_eq!((&one, &other), (&vec![winner.clone()], &vec![winner]));
    }

    #[test]
    fn cells_reconcile_as_in_cassandra() {
        let expiring = |ts, value: &'static str, at_s| {
            Cell::expiring(1, ts, value.as_bytes(), Expiry { ttl_s: 10, at_s })
        };
        check(Cell::live(1, 1, "z"), Cell::live(1, 2, "a"));
        check(Cell::dead(1, 1, 9), Cell::live(1, 2, "a"));
        check(Cell::live(1, 5, "a"), Cell::live(1, 5, "b"));
        check(Cell::live(1, 5, "z"), Cell::dead(1, 5, 0));
        check(Cell::live(1, 5, "z"), expiring(5, "a", 100));
        check(expiring(5, "z", 100), expiring(5, "a", 101));
        check(expiring(5, "a", 100), expiring(5, "b", 100));
        check(expiring(5, "z", 200), Cell::dead(1, 5, 1));
        check(Cell::dead(1, 5, 1), Cell::dead(1, 5, 2));
        check(Cell::live(1, i64::MIN, ""), Cell::live(1, i64::MIN + 1, ""));
    }

    #[test]
    fn a_row_deletion_shadows_up_to_its_timestamp() {
        let mut row = Row {
            liveness: Some(Liveness { timestamp: 5, expiry: None }),
            cells: vec![Cell::live(1, 5, "a"), Cell::live(2, 6, "b")],
            ..Row::default()
        };
        merge_row_parts(&mut row, None, Some(Deletion { timestamp: 5, deleted_at_s: 0 }), []);
        assert_eq!(row.liveness, None);
        assert_eq!(row.cells, vec![Cell::live(2, 6, "b")]);
        merge_row_parts(&mut row, None, None, [Cell::live(1, 5, "late")]);
        assert_eq!(row.cells, vec![Cell::live(2, 6, "b")]);
    }
}
