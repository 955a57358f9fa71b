//! Reconciliation of two versions by the rules of Cassandra, as pure functions.
//!
//! Every function here is commutative, associative and idempotent. So the order and number of
//! merges of memtables and files make no difference.
//!
//! 1. The higher timestamp wins.
//! 2. At the same timestamp, a tombstone or an expiring value wins over a value that does not
//!    expire.
//! 3. Of those, a tombstone wins over an expiring value; then the later deletion or expiry wins.
//! 4. Otherwise the larger value wins, compared as bytes.

use std::cmp::Ordering;

use crate::model::row::{EncodedRow, RowBuilder};
use crate::model::{CellRef, CellValue, Deletion, Liveness};

/// A row of fewer bytes is merged with each write to it, in about 5 µs for 100 cells. A larger one
/// is kept in layers (`layers.rs`).
pub(crate) const LAYERED_BYTES: usize = 4 << 10;

/// Compares two versions of the same cell. The greater one wins.
pub(crate) fn compare_cells(left: &CellRef<'_>, right: &CellRef<'_>) -> Ordering {
    // The last two components decide the ties that rules 1 to 4 leave, so that merging always
    // commutes.
    type Rank<'a> = (bool, bool, u32, &'a [u8], u32);
    fn rank<'a>(cell: &CellRef<'a>) -> Rank<'a> {
        match cell.value {
            CellValue::Live { value, expiry: None } => (false, false, 0, value, 0),
            CellValue::Live { value, expiry: Some(e) } => (true, false, e.at_s, value, e.ttl_s),
            CellValue::Dead { deleted_at_s } => (true, true, deleted_at_s, &[], 0),
        }
    }
    left.timestamp.cmp(&right.timestamp).then_with(|| rank(left).cmp(&rank(right)))
}

/// Returns the winning row marker.
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

/// Returns the winning deletion.
#[inline]
pub(crate) fn merge_deletion(left: Option<Deletion>, right: Option<Deletion>) -> Option<Deletion> {
    left.max(right)
}

/// Returns the timestamp up to which a deletion shadows. `i64::MIN` shadows nothing.
#[inline]
pub(crate) fn floor_of(deletion: Option<Deletion>) -> i64 {
    deletion.map_or(i64::MIN, |deletion| deletion.timestamp)
}

#[cfg(test)]
thread_local! {
    /// Number of cells copied by merges of rows.
    pub(crate) static MERGED_CELLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Merges two versions of the same row.
pub(crate) fn merge_rows(left: &EncodedRow, right: &EncodedRow) -> EncodedRow {
    if left.supersedes(right) {
        return left.clone();
    }
    if right.supersedes(left) {
        return right.clone();
    }
    let key = if left.key().is_empty() { right.key() } else { left.key() };
    let mut merged = RowBuilder::new(key, left.clustering(), left.timestamp().max(right.timestamp()));
    merged.deletion(merge_deletion(left.deletion(), right.deletion()));
    merged.marker(merge_liveness(left.marker(), right.marker()));
    let mut ours = left.cells().peekable();
    let mut theirs = right.cells().peekable();
    loop {
        let order = match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) => our.place().cmp(&their.place()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return merged.finish(),
        };
        let our = if order.is_le() { ours.next() } else { None };
        let their = if order.is_ge() { theirs.next() } else { None };
        let winner = match (our, their) {
            (Some(our), Some(their)) if compare_cells(&our, &their).is_lt() => Some(their),
            (our, their) => our.or(their),
        };
        winner.into_iter().for_each(|cell| merged.push(cell));
        #[cfg(test)]
        MERGED_CELLS.set(MERGED_CELLS.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Expiry;

    fn row(cells: &[CellRef<'_>]) -> EncodedRow {
        let mut row = RowBuilder::new(&[], &[], 5);
        cells.iter().for_each(|cell| row.push(*cell));
        row.finish()
    }

    fn check(loser: CellRef<'_>, winner: CellRef<'_>) {
        assert_eq!(compare_cells(&loser, &winner), Ordering::Less, "{loser:?} against {winner:?}");
        assert_eq!(compare_cells(&winner, &loser), Ordering::Greater);
        for (one, other) in [(loser, winner), (winner, loser)] {
            let merged = merge_rows(&row(&[one]), &row(&[other]));
            assert_eq!(merged.cells().collect::<Vec<_>>(), [winner]);
        }
    }

    #[test]
    fn cells_reconcile_as_in_cassandra() {
        let expiring = |ts, value: &'static str, at_s| {
            CellRef::expiring(1, ts, value.as_bytes(), Expiry { ttl_s: 10, at_s })
        };
        check(CellRef::live(1, 1, b"z"), CellRef::live(1, 2, b"a"));
        check(CellRef::dead(1, 1, 9), CellRef::live(1, 2, b"a"));
        check(CellRef::live(1, 5, b"a"), CellRef::live(1, 5, b"b"));
        check(CellRef::live(1, 5, b"z"), CellRef::dead(1, 5, 0));
        check(CellRef::live(1, 5, b"z"), expiring(5, "a", 100));
        check(expiring(5, "z", 100), expiring(5, "a", 101));
        check(expiring(5, "a", 100), expiring(5, "b", 100));
        check(expiring(5, "z", 200), CellRef::dead(1, 5, 1));
        check(CellRef::dead(1, 5, 1), CellRef::dead(1, 5, 2));
        check(CellRef::live(1, i64::MIN, b""), CellRef::live(1, i64::MIN + 1, b""));
    }

    #[test]
    fn row_deletion_shadows_up_to_its_timestamp() {
        let mut old = RowBuilder::new(&[], &[], 5);
        old.marker(Some(Liveness { timestamp: 5, expiry: None }));
        old.push(CellRef::live(1, 5, b"a"));
        old.push(CellRef::live(2, 6, b"b"));
        let mut deleted = RowBuilder::new(&[], &[], 5);
        deleted.deletion(Some(Deletion { timestamp: 5, deleted_at_s: 0 }));
        let merged = merge_rows(&old.finish(), &deleted.finish());
        assert_eq!(merged.marker(), None);
        assert_eq!(merged.cells().collect::<Vec<_>>(), [CellRef::live(2, 6, b"b")]);
        let merged = merge_rows(&merged, &row(&[CellRef::live(1, 5, b"late")]));
        assert_eq!(merged.cells().collect::<Vec<_>>(), [CellRef::live(2, 6, b"b")]);
    }

    #[test]
    fn dead_column_shadows_elements_up_to_its_timestamp() {
        let elements = row(&[
            CellRef::live(1, 5, b"a").at(b"x"),
            CellRef::live(1, 6, b"b").at(b"y"),
            CellRef::live(2, 1, b"c").at(b"x"),
        ]);
        let merged = merge_rows(&elements, &row(&[CellRef::dead(1, 5, 9)]));
        let left =
            [CellRef::dead(1, 5, 9), CellRef::live(1, 6, b"b").at(b"y"), CellRef::live(2, 1, b"c").at(b"x")];
        assert_eq!(merged.cells().collect::<Vec<_>>(), left);
        assert_eq!(merge_rows(&merged, &elements), merge_rows(&elements, &merged));
    }

    #[test]
    fn superseding_row_equals_the_merge() {
        let mut numbers = testkit::Random::new(3);
        let mut next = |below: u64| numbers.below(below);
        let mut quick = 0;
        for _ in 0..5000 {
            let mut random = |base: u64| {
                let timestamp = (base + next(2)) as i64;
                let mut row = RowBuilder::new(&[], b"c", timestamp);
                if next(20) == 0 {
                    row.deletion(Some(Deletion { timestamp: timestamp - 1, deleted_at_s: 0 }));
                }
                if next(2) == 0 {
                    row.marker(Some(Liveness { timestamp, expiry: None }));
                }
                for column in (0..3).filter(|_| next(4) != 0).collect::<Vec<_>>() {
                    let timestamp = timestamp - i64::from(next(10) == 0);
                    match next(4) {
                        0 => row.push(CellRef::dead(column, timestamp, 7)),
                        _ => row.push(CellRef::live(column, timestamp, &[next(256) as u8; 5])),
                    }
                }
                row.finish()
            };
            let (old, new) = (random(4), random(5));
            if new.supersedes(&old) {
                quick += 1;
                let mut slow = RowBuilder::new(&[], b"c", new.timestamp());
                slow.marker(merge_liveness(old.marker(), new.marker()));
                let mut cells = std::collections::BTreeMap::new();
                for cell in old.cells().chain(new.cells()) {
                    let kept = cells.entry(cell.column).or_insert(cell);
                    if compare_cells(kept, &cell).is_lt() {
                        *kept = cell;
                    }
                }
                cells.into_values().for_each(|cell| slow.push(cell));
                assert_eq!(slow.finish(), new);
            }
            assert_eq!(merge_rows(&old, &new), merge_rows(&new, &old));
        }
        assert!(quick > 300, "{quick}");
    }
}
