//! Keys and slices: from restrictions and values to partition keys and ranges of clustering bytes.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;
use cql::ast::CompareOp;
use engine::{Error, Value};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, TableDef, token, value};

use crate::bind::choice::{Choice, for_each_combination, single};
use crate::bind::restrict::{Restrictions, is_lower};

/// Range of clustering bytes.
pub(crate) type Range = (Bound<Bytes>, Bound<Bytes>);

/// Returns the named partitions, by token and key, without duplicates.
pub(crate) fn partition_keys(
    def: &TableDef,
    choices: &[Choice],
    values: &[Value<'_>],
) -> Result<Vec<(i64, Bytes)>, Error> {
    if let [choice] = choices
        && let Some(key) = single(choice, values)
    {
        let key = checked(def, key?.into_owned())?;
        return Ok(vec![(token::token(&key), key)]);
    }
    let mut keys = Vec::new();
    for_each_combination(choices, values, |parts| {
        let mut key = Vec::new();
        token::compose_partition_key(parts.iter().copied(), &mut key)
            .map_err(|e| Error::Invalid(e.to_string()))?;
        let key = checked(def, key)?;
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

fn checked(def: &TableDef, key: Vec<u8>) -> Result<Bytes, Error> {
    check_key(def, &key)?;
    Ok(key.into())
}

/// Checks that a partition may have this key.
pub(crate) fn check_key(def: &TableDef, key: &[u8]) -> Result<(), Error> {
    if key.is_empty() {
        let name = def.partition_key().next().map_or("", |c| c.name.as_str());
        return Err(Error::Invalid(format!("Key may not be empty (column {name})")));
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

/// Returns the ranges of the clustering restrictions, sorted and without duplicates; one unbounded
/// range if there are none. A full clustering key gives `Included(key)..=Included(key)`.
pub(crate) fn clustering_ranges(
    def: &TableDef,
    restrictions: &Restrictions,
    values: &[Value<'_>],
) -> Result<Vec<Range>, Error> {
    let columns: Vec<&ColumnDef> = def.clustering().collect();
    let prefixed = restrictions.clustering.len();
    let mut ranges = Vec::with_capacity(1);
    for_each_combination(&restrictions.clustering, values, |parts| {
        let mut prefix = Vec::new();
        for (column, part) in columns.iter().zip(parts) {
            encode(column, part, &mut prefix)?;
        }
        if prefixed == columns.len() {
            let row = Bytes::from(prefix);
            ranges.push((Bound::Included(row.clone()), Bound::Included(row)));
            return Ok(());
        }
        let column = columns[prefixed];
        let mut start = Bound::Included(Bytes::copy_from_slice(&prefix));
        let mut end = after(&prefix);
        for (op, bind) in &restrictions.range {
            let mut edge = prefix.clone();
            encode(column, &bind.required(values)?, &mut edge)?;
            let inclusive = matches!(op, CompareOp::GreaterEq | CompareOp::LessEq);
            if is_lower(*op) != descending(column) {
                let new = if inclusive { Bound::Included(edge.into()) } else { past(&edge) };
                start = later(start, new);
            } else {
                let new = if inclusive { after(&edge) } else { Bound::Excluded(edge.into()) };
                end = earlier(end, new);
            }
        }
        ranges.push((start, end));
        Ok(())
    })?;
    ranges.sort_by(|a, b| start_of(a).cmp(start_of(b)));
    ranges.dedup();
    Ok(ranges)
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

fn later(a: Bound<Bytes>, b: Bound<Bytes>) -> Bound<Bytes> {
    let rank = |bound: &Bound<Bytes>| match bound {
        Bound::Unbounded => (Bytes::new(), 0),
        Bound::Included(edge) => (edge.clone(), 1),
        Bound::Excluded(edge) => (edge.clone(), 2),
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

fn earlier(a: Bound<Bytes>, b: Bound<Bytes>) -> Bound<Bytes> {
    match (&a, &b) {
        (Bound::Unbounded, _) => b,
        (_, Bound::Unbounded) => a,
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) => {
            match x.cmp(y) {
                std::cmp::Ordering::Less => a,
                std::cmp::Ordering::Greater => b,
                std::cmp::Ordering::Equal if matches!(a, Bound::Excluded(_)) => a,
                std::cmp::Ordering::Equal => b,
            }
        }
    }
}
