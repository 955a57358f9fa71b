//! The zone map of a block: least and greatest values, by which a scan skips the block unread.
//!
//! ```text
//!  zone map  clustering low string, cut u8, high string | columns varint | bounds of each column, ascending
//!  column    column varint | encoding u8 | width u8 | kind u8 | [low string | high string]
//!  kind      0 unknown | 1 no values | 2 low and high | 3 the same, and high is cut
//! ```
//!
//! A column without an entry has no values in the block. Strings are cut to 32 bytes. A cut lower
//! bound is still a lower bound; a cut upper bound is marked. Expired values count; tombstones do
//! not.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;

use crate::model::codec::{Malformed, Reader, put_bytes, put_varint};
use crate::table::columnar::bits::BitsBuilder;
use crate::table::columnar::layout::ColumnEncoding;
use crate::table::columnar::values::ValuesBuilder;

/// Bytes stored of a bound.
const KEPT: usize = 32;

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const RANGE: u8 = 2;
const CUT: u8 = 3;

/// A condition on a column that the scan's consumer will apply. The scan may leave out rows whose
/// value is absent or outside the range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueRange {
    /// The column.
    pub column: u32,
    /// The encoding of its values. Zone maps written under another encoding are not used.
    pub encoding: ColumnEncoding,
    /// The lower bound, encoded like values.
    pub low: Bound<Bytes>,
    /// The upper bound.
    pub high: Bound<Bytes>,
}

/// Builds the zone map of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneMapBuilder {
    clustering: Vec<u8>,
    count: u64,
    columns: Vec<u8>,
}

fn cut(value: &[u8]) -> &[u8] {
    &value[..value.len().min(KEPT)]
}

/// Returns the least and the greatest of some values. Numbers must have the width of the encoding.
fn min_max<'a>(
    encoding: ColumnEncoding,
    mut values: impl Iterator<Item = &'a [u8]>,
) -> Option<(&'a [u8], &'a [u8])> {
    let first = values.next()?;
    let placed = |value| (encoding.order_prefix(value), value);
    let (mut low, mut high) = (placed(first), placed(first));
    for value in values.map(placed) {
        if value < low {
            low = value;
        } else if value > high {
            high = value;
        }
    }
    Some((low.1, high.1))
}

impl ZoneMapBuilder {
    pub(crate) fn of_clustering(clustering: &ValuesBuilder) -> ZoneMapBuilder {
        let mut bounds = ZoneMapBuilder::default();
        let (low, high) = min_max(ColumnEncoding::Bytes, clustering.all()).unwrap_or_default();
        put_bytes(&mut bounds.clustering, cut(low));
        bounds.clustering.push(u8::from(high.len() > KEPT));
        put_bytes(&mut bounds.clustering, cut(high));
        bounds
    }

    /// Adds a column. Columns arrive in ascending order.
    pub(crate) fn add(
        &mut self,
        column: u32,
        encoding: ColumnEncoding,
        values: &ValuesBuilder,
        valid: &BitsBuilder,
        elements: bool,
    ) {
        self.count += 1;
        let out = &mut self.columns;
        put_varint(out, u64::from(column));
        out.push(encoding.code());
        out.push(encoding.number().unwrap_or(0));
        let odd = |value: &[u8]| encoding.number().is_some_and(|width| value.len() != usize::from(width));
        if elements || values.present(valid).any(odd) {
            return out.push(UNKNOWN);
        }
        let Some((low, high)) = min_max(encoding, values.present(valid)) else { return out.push(NONE) };
        out.push(if high.len() > KEPT { CUT } else { RANGE });
        put_bytes(out, cut(low));
        put_bytes(out, cut(high));
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.clustering);
        put_varint(out, self.count);
        out.extend_from_slice(&self.columns);
    }
}

/// Returns true if a value from `low` to `high` may be within the requested bounds.
fn overlaps(
    order: impl Fn(&[u8], &[u8]) -> Ordering,
    (low, high, high_cut): (&[u8], &[u8], bool),
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
) -> bool {
    let above = match to {
        Bound::Unbounded => false,
        Bound::Included(to) => order(low, to).is_gt(),
        Bound::Excluded(to) => order(low, to).is_ge(),
    };
    let below = match from {
        Bound::Unbounded => false,
        Bound::Included(from) | Bound::Excluded(from) if high_cut && from.starts_with(high) => false,
        Bound::Included(from) => order(high, from).is_lt(),
        Bound::Excluded(from) => order(high, from).is_le(),
    };
    !above && !below
}

/// Returns true if a block with this zone map may contain a row that satisfies all conditions.
pub(crate) fn may_match(
    bounds: &Bytes,
    clustering: (Bound<&[u8]>, Bound<&[u8]>),
    conditions: &[ValueRange],
) -> Result<bool, Malformed> {
    let mut reader = Reader::new(bounds.clone());
    let low = reader.bytes()?;
    let (cut, high) = (reader.u8()? != 0, reader.bytes()?);
    let mut possible = overlaps(|l, r| l.cmp(r), (&low, &high, cut), clustering);
    let mut met = vec![false; conditions.len()];
    for _ in 0..reader.count(4)? {
        let column = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let encoding = ColumnEncoding::from_code(reader.u8()?, reader.u8()?)?;
        let kind = reader.u8()?;
        let range = match kind {
            UNKNOWN | NONE => None,
            RANGE | CUT => Some((reader.bytes()?, reader.bytes()?)),
            _ => return Err(Malformed),
        };
        for (condition, met) in conditions.iter().zip(&mut met).filter(|(c, _)| c.column == column) {
            *met = match &range {
                _ if kind == UNKNOWN || encoding != condition.encoding => true,
                None => false,
                Some((low, high)) => {
                    let requested =
                        (condition.low.as_ref().map(|b| &b[..]), condition.high.as_ref().map(|b| &b[..]));
                    overlaps(|l, r| encoding.compare(l, r), (low, high, kind == CUT), requested)
                }
            };
        }
    }
    possible &= met.iter().all(|met| *met);
    Ok(possible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::columnar::encode::all_of;

    fn bounds(encoding: ColumnEncoding, values: &[&[u8]]) -> Bytes {
        let mut builder = ValuesBuilder::default();
        values.iter().for_each(|value| builder.push(value));
        let mut bounds = ZoneMapBuilder::of_clustering(&builder);
        bounds.add(7, encoding, &builder, &all_of(values.len()), false);
        let mut out = Vec::new();
        bounds.put(&mut out);
        Bytes::from(out)
    }

    fn check(
        encoding: ColumnEncoding,
        values: &[&[u8]],
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        expected: bool,
    ) {
        let owned = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
        let condition = ValueRange { column: 7, encoding, low: owned(low), high: owned(high) };
        let all = (Bound::Unbounded, Bound::Unbounded);
        let bounds = bounds(encoding, values);
        let found = may_match(&bounds, all, std::slice::from_ref(&condition)).unwrap();
        assert_eq!(found, expected, "{values:?} {condition:?}");
        if encoding == ColumnEncoding::Bytes {
            assert_eq!(
                may_match(&bounds, (low, high), &[]).unwrap(),
                expected,
                "clustering {values:?} {low:?}"
            );
        }
        let absent = ValueRange { column: 8, ..condition };
        assert!(!may_match(&bounds, all, &[absent]).unwrap(), "a column without values");
    }

    #[test]
    fn min_max_finds_the_least_and_the_greatest() {
        let check = |encoding: ColumnEncoding, values: &[&[u8]]| {
            let order = |left: &&[u8], right: &&[u8]| encoding.compare(left, right);
            let expected = values.iter().copied().min_by(order).zip(values.iter().copied().max_by(order));
            assert_eq!(min_max(encoding, values.iter().copied()), expected, "{values:?}");
        };
        let strings: &[&[u8]] =
            &[b"", b"a", b"a\0", b"abcdefgh", b"abcdefg", b"abcdefgh\0", b"abcdefghi", b"\xff", b"b"];
        let numbers = [0, -1, 7, i64::MIN, i64::MAX, 300].map(i64::to_be_bytes);
        let floats = [0.5, -0.0, 0.0, -3.5, f64::NAN, f64::NEG_INFINITY].map(f64::to_be_bytes);
        let slices = |of: &'static [[u8; 8]]| -> Vec<&[u8]> { of.iter().map(|value| &value[..]).collect() };
        let numbers = slices(Box::leak(Box::new(numbers)));
        let floats = slices(Box::leak(Box::new(floats)));
        let kinds = [
            (ColumnEncoding::Bytes, strings),
            (ColumnEncoding::Signed(8), &numbers),
            (ColumnEncoding::Unsigned(8), &numbers),
            (ColumnEncoding::Float(8), &floats),
        ];
        for (encoding, values) in kinds {
            check(encoding, &[]);
            for from in 0..values.len() {
                let turned = [&values[from..], &values[..from]].concat();
                (1..=turned.len()).for_each(|len| check(encoding, &turned[..len]));
            }
        }
    }

    #[test]
    fn blocks_outside_the_range_are_skipped() {
        use Bound::{Excluded, Included, Unbounded};
        let strings: &[&[u8]] = &[b"dog", b"cat", b"eel"];
        check(ColumnEncoding::Bytes, strings, Included(b"eel"), Unbounded, true);
        check(ColumnEncoding::Bytes, strings, Excluded(b"eel"), Unbounded, false);
        check(ColumnEncoding::Bytes, strings, Unbounded, Excluded(b"cat"), false);
        check(ColumnEncoding::Bytes, strings, Unbounded, Included(b"cat"), true);
        let numbers = [(-5i32).to_be_bytes(), 9i32.to_be_bytes()];
        let numbers: Vec<&[u8]> = numbers.iter().map(|n| &n[..]).collect();
        check(ColumnEncoding::Signed(4), &numbers, Included(&10i32.to_be_bytes()), Unbounded, false);
        check(ColumnEncoding::Signed(4), &numbers, Unbounded, Included(&(-6i32).to_be_bytes()), false);
        check(ColumnEncoding::Signed(4), &numbers, Included(&(-1i32).to_be_bytes()), Unbounded, true);
        let long = [b'x'; 40];
        check(ColumnEncoding::Bytes, &[&long], Included(&[b'x'; 39]), Unbounded, true);
        check(ColumnEncoding::Bytes, &[&long], Included(b"y"), Unbounded, false);
    }
}
