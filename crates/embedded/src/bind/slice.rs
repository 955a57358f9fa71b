//! Keys and slices: from restrictions and values to partition keys and ranges of clustering bytes.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;
use cql::ast::CompareOp;
use engine::{Error, Value};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, TableDef, token, value};

use crate::bind::choice::{Choice, for_each_combination, single};
use crate::bind::restrict::{Restrictions, is_lower};
use crate::bind::term::Given;
use crate::bind::tuple::{SliceBound, TupleBind};

/// Range of clustering bytes.
pub(crate) type Range = (Bound<Bytes>, Bound<Bytes>);

/// Returns the named partitions, by token and key, without duplicates.
pub(crate) fn partition_keys(choices: &[Choice], values: &[Value<'_>]) -> Result<Vec<(i64, Bytes)>, Error> {
    if let [choice] = choices
        && let Some(key) = single(choice, values)
    {
        let key = checked(key?.into_owned())?;
        return Ok(vec![(token::token(&key), key)]);
    }
    let mut keys = Vec::new();
    for_each_combination(choices, values, |parts| {
        let mut key = Vec::new();
        token::compose_partition_key(parts.iter().copied(), &mut key)
            .map_err(|e| Error::Invalid(e.to_string()))?;
        let key = checked(key)?;
        keys.push((token::token(&key), key));
        Ok(())
    })?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Compares two partition keys by the types of their columns, and equal ones as bytes: the order in
/// which Cassandra returns the partitions of an IN.
pub(crate) fn compare_keys(def: &TableDef, a: &[u8], b: &[u8]) -> Ordering {
    let columns = def.partition_key().count();
    let parts = |key| token::partition_key_components(columns, key).map_while(Result::ok);
    let by_type = def.partition_key().zip(parts(a).zip(parts(b)));
    let mut by_type = by_type.map(|(column, (x, y))| value::compare(&column.ty, x, y));
    by_type.find(|order| order.is_ne()).unwrap_or_else(|| a.cmp(b))
}

fn checked(key: Vec<u8>) -> Result<Bytes, Error> {
    check_key(&key)?;
    Ok(key.into())
}

/// Checks that a partition may have this key.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() {
        return Err(Error::Invalid("Key may not be empty".into()));
    }
    check_length(key.len())
}

fn check_length(bytes: usize) -> Result<(), Error> {
    match bytes > usize::from(u16::MAX) {
        true => Err(Error::Invalid(format!("Key length of {bytes} is longer than maximum of {}", u16::MAX))),
        false => Ok(()),
    }
}

/// Appends one clustering value in key encoding.
///
/// # Errors
/// The value is empty, and its type has no encoding of that.
pub(crate) fn encode(column: &ColumnDef, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    value::encode_key_part(&column.ty, bytes, descending(column), out)
        .map_err(|error| Error::Invalid(error.for_column(&column.name)))
}

/// Returns true if the column is sorted in descending order on disk.
pub(crate) fn descending(column: &ColumnDef) -> bool {
    matches!(column.kind, ColumnKind::Clustering(_, ClusteringOrder::Desc))
}

/// Returns the rows that a write names by values of all clustering columns, in order and without
/// duplicates.
///
/// # Errors
/// A key is too long.
pub(crate) fn clustering_keys(
    def: &TableDef,
    choices: &[Choice],
    values: &[Value<'_>],
) -> Result<Vec<Bytes>, Error> {
    let mut keys = Vec::with_capacity(1);
    for_each_combination(choices, values, |parts| {
        check_length(parts.iter().map(|part| part.len()).sum())?;
        let mut key = Vec::new();
        for (column, part) in def.clustering().zip(parts) {
            encode(column, part, &mut key)?;
        }
        keys.push(Bytes::from(key));
        Ok(())
    })?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

impl SliceBound {
    /// Returns the number of ranges of stored keys that meet the bound. Its first column is the
    /// clustering column with this number.
    pub(crate) fn ranges(&self, def: &TableDef, first: usize) -> u64 {
        let columns: Vec<&ColumnDef> = def.clustering().skip(first).take(self.value.width()).collect();
        runs(&columns).count() as u64
    }

    fn is_inclusive(&self) -> bool {
        matches!(self.op, CompareOp::GreaterEq | CompareOp::LessEq)
    }

    /// Returns its values. `None`: it compares one column with null.
    fn values<'a>(&'a self, values: &[Value<'a>]) -> Result<Option<Vec<Cow<'a, [u8]>>>, Error> {
        if let (true, TupleBind::Parts(parts)) = (self.may_be_null, &self.value)
            && parts[0].get(values)? == Given::Null
        {
            return Ok(None);
        }
        self.value.required(values, null_in_condition).map(Some)
    }
}

fn null_in_condition(column: &str) -> String {
    format!("Invalid null value in condition for column {column}")
}

/// Checks that the bounds of a DELETE are not null.
pub(crate) fn check_bounds(restrictions: &Restrictions, values: &[Value<'_>]) -> Result<(), Error> {
    let mut bounds = restrictions.range.iter();
    bounds.try_for_each(|bound| bound.value.required(values, null_in_condition).map(drop))
}

/// Iterates over the runs of columns with the same order on disk, as ranges of indexes.
fn runs<'c>(columns: &'c [&'c ColumnDef]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut end = 0;
    columns.chunk_by(|a, b| descending(a) == descending(b)).map(move |run| {
        let start = end;
        end += run.len();
        start..end
    })
}

/// Appends the ranges of stored keys after `prefix` that meet a bound on these columns, in order.
///
/// A tuple compares as its values do, a stored key in the directions of its columns. Keys above
/// `(a, b)` are those with `x > a`, and those with `x = a` and `y > b`. Columns of one direction
/// compare in storage as a whole, or the other way round as a whole. Each run of them adds one
/// range, inside the keys that are equal in the runs before it:
///
/// ```text
/// (a ASC, b DESC) > (1, 5)     │ (1, 9) … (1, 6) │ (1, 5) … (1, 0) │ (2, 9) …
///                              └ run of b ───────┘                 └ run of a ─
/// ```
///
/// Keys that a run finds behind its prefix are after those of later runs, keys before it are before
/// them.
///
/// As in Cassandra, null is before all stored keys, in either direction.
fn ranges_of(
    bound: &SliceBound,
    columns: &[&ColumnDef],
    values: Option<&[Cow<'_, [u8]>]>,
    prefix: &[u8],
) -> Result<Vec<Range>, Error> {
    let Some(values) = values else {
        let is_behind = is_lower(bound.op) != descending(columns[0]);
        let all = (Bound::Included(Bytes::copy_from_slice(prefix)), after(prefix));
        return Ok(if is_behind { vec![all] } else { Vec::new() });
    };
    let mut key = prefix.to_vec();
    let (mut before, mut behind) = (Vec::with_capacity(1), Vec::new());
    for run in runs(columns) {
        let start = Bytes::copy_from_slice(&key);
        let is_last = run.end == columns.len();
        let is_behind = is_lower(bound.op) != descending(columns[run.start]);
        for at in run {
            encode(columns[at], &values[at], &mut key)?;
        }
        let includes_key = is_last && bound.is_inclusive();
        match (is_behind, includes_key) {
            (true, true) => behind.push((Bound::Included(Bytes::copy_from_slice(&key)), after(&start))),
            (true, false) => behind.push((past(&key), after(&start))),
            (false, true) => before.push((Bound::Included(start), after(&key))),
            (false, false) => {
                before.push((Bound::Included(start), Bound::Excluded(Bytes::copy_from_slice(&key))));
            }
        }
    }
    before.extend(behind.into_iter().rev());
    Ok(before)
}

/// Returns the ranges that are in both lists. Each list is sorted, and its ranges are disjoint.
fn intersection(one: &[Range], other: &[Range]) -> Vec<Range> {
    let (mut a, mut b, mut both) = (0, 0, Vec::with_capacity(1));
    while let (Some(x), Some(y)) = (one.get(a), other.get(b)) {
        let start = later(&x.0, &y.0);
        let x_ends_first = ends_before(&x.1, &y.1);
        let end = if x_ends_first { &x.1 } else { &y.1 };
        if !is_empty(start, end) {
            both.push((start.clone(), end.clone()));
        }
        match x_ends_first {
            true => a += 1,
            false => b += 1,
        }
    }
    both
}

/// Returns the ranges of the clustering restrictions, sorted, disjoint and not empty; one unbounded
/// range if there are none. A full clustering key gives `Included(key)..=Included(key)`.
pub(crate) fn clustering_ranges(
    def: &TableDef,
    restrictions: &Restrictions,
    values: &[Value<'_>],
) -> Result<Vec<Range>, Error> {
    let columns: Vec<&ColumnDef> = def.clustering().collect();
    let chosen = restrictions.chosen();
    let bounds = restrictions.range.iter().map(|bound| Ok((bound, bound.values(values)?)));
    let bounds = bounds.collect::<Result<Vec<_>, Error>>()?;
    let mut ranges = Vec::with_capacity(1);
    for_each_combination(&restrictions.clustering, values, |parts| {
        let mut prefix = Vec::new();
        for (column, part) in columns.iter().zip(parts) {
            encode(column, part, &mut prefix)?;
        }
        if chosen == columns.len() {
            let row = Bytes::from(prefix);
            ranges.push((Bound::Included(row.clone()), Bound::Included(row)));
            return Ok(());
        }
        let of_bound = |(bound, edge): &(&SliceBound, Option<Vec<Cow<'_, [u8]>>>)| {
            let _ = lanes::spend(1);
            let columns = &columns[chosen..chosen + bound.value.width()];
            ranges_of(bound, columns, edge.as_deref(), &prefix)
        };
        match &bounds[..] {
            [] => ranges.push((Bound::Included(Bytes::copy_from_slice(&prefix)), after(&prefix))),
            [one] => ranges.extend(of_bound(one)?),
            [one, other, ..] => ranges.extend(intersection(&of_bound(one)?, &of_bound(other)?)),
        }
        Ok(())
    })?;
    ranges.sort_by(|a, b| start_of(a).cmp(start_of(b)));
    ranges.dedup();
    Ok(ranges)
}

/// Returns true if a clustering key is in one of the ranges, which are sorted and disjoint.
pub(crate) fn is_in(ranges: &[Range], key: &[u8]) -> bool {
    let next = ranges.partition_point(|(_, end)| match end {
        Bound::Included(end) => &end[..] < key,
        Bound::Excluded(end) => &end[..] <= key,
        Bound::Unbounded => false,
    });
    ranges.get(next).is_some_and(|(start, _)| match start {
        Bound::Included(start) => &start[..] <= key,
        Bound::Excluded(start) => &start[..] < key,
        Bound::Unbounded => true,
    })
}

fn start_of(range: &Range) -> &[u8] {
    match &range.0 {
        Bound::Included(edge) | Bound::Excluded(edge) => edge,
        Bound::Unbounded => &[],
    }
}

/// Returns the upper bound that includes all keys with this prefix.
pub(crate) fn after(prefix: &[u8]) -> Bound<Bytes> {
    value::prefix_end(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()))
}

/// Returns the lower bound after all keys with this prefix. If no key can follow, a range from
/// there is empty.
pub(crate) fn past(prefix: &[u8]) -> Bound<Bytes> {
    match value::prefix_end(prefix) {
        Some(end) => Bound::Included(end.into()),
        // All bytes are 0xFF, so only longer strings with that prefix follow. A longer run of 0xFF
        // is after all of them.
        None => Bound::Excluded(Bytes::from(vec![0xff; 1 << 16])),
    }
}

/// Returns the later of two lower bounds.
fn later<'b>(a: &'b Bound<Bytes>, b: &'b Bound<Bytes>) -> &'b Bound<Bytes> {
    let rank = |bound: &'b Bound<Bytes>| match bound {
        Bound::Unbounded => (&[][..], 0),
        Bound::Included(edge) => (&edge[..], 1),
        Bound::Excluded(edge) => (&edge[..], 2),
    };
    if rank(a) >= rank(b) { a } else { b }
}

/// Returns true if the upper bound `a` is before `b`.
fn ends_before(a: &Bound<Bytes>, b: &Bound<Bytes>) -> bool {
    match (a, b) {
        (Bound::Unbounded, _) => false,
        (_, Bound::Unbounded) => true,
        (Bound::Included(x), Bound::Excluded(y)) => x < y,
        (Bound::Excluded(x), Bound::Included(y)) => x <= y,
        (Bound::Included(x), Bound::Included(y)) | (Bound::Excluded(x), Bound::Excluded(y)) => x < y,
    }
}

fn is_empty(start: &Bound<Bytes>, end: &Bound<Bytes>) -> bool {
    match (start, end) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
