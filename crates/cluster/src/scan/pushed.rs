//! Conditions of a scan that its texts contain, so that nodes leave rows out. Pure. They may leave
//! rows in that do not match: the caller checks all conditions again.
//!
//! - Equality on all columns of the partition key, at most [`KEYS_MAX`] keys: each key is read by
//!   itself.
//! - Equality on the first clustering columns, and bounds on the next one.
//!
//! Types with several forms of one value (`boolean`, `decimal`, `varint`, `duration`, both zeros of
//! floats), and types that this crate does not know, have no conditions.

use std::cmp::Ordering;
use std::ops::Bound;

use bytes::Bytes;
use engine::Error;
use engine::scan::Filter;
use schema::{CqlType, TableDef, Token, token, value};

use crate::catalog::ClusterTable;

/// Partitions that are read one by one, at most.
const KEYS_MAX: usize = 1_000;

/// A partition key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) token: Token,
    /// Serialized values of its columns, in order.
    pub(crate) parts: Vec<Bytes>,
}

/// Condition on a clustering column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Condition {
    pub(crate) column: usize,
    pub(crate) operator: &'static str,
    pub(crate) value: Bytes,
}

/// Conditions of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pushed {
    /// The only possible keys, by token. `None`: not known.
    pub(crate) keys: Option<Vec<Key>>,
    pub(crate) clustering: Vec<Condition>,
}

/// Returns the conditions that filters imply. Their columns must exist.
///
/// # Errors
/// [`Error::Invalid`]: a bound is not a value of its column.
pub(crate) fn pushed(table: &ClusterTable, filters: &[Filter]) -> Result<Pushed, Error> {
    let mut useful: Vec<&Filter> = Vec::new();
    for filter in filters {
        let column = &table.def.columns[filter.column];
        if table.is_opaque(filter.column) || !has_one_form(&column.ty) {
            continue;
        }
        let bounds = [&filter.from, &filter.to].into_iter().filter_map(edge);
        for bytes in bounds.chain(filter.values.iter().flatten()) {
            value::check(&column.ty, bytes)
                .map_err(|error| Error::Invalid(error.for_column(&column.name)))?;
        }
        useful.push(filter);
    }
    Ok(Pushed { keys: keys(&table.def, &useful), clustering: clustering(&table.def, &useful) })
}

/// Returns true if each value of the type has one serialized form.
fn has_one_form(ty: &CqlType) -> bool {
    is_ordered(ty) || matches!(ty.thawed(), CqlType::Uuid | CqlType::TimeUuid | CqlType::Inet)
}

/// Returns true if bounds mean the same to nodes and to the caller as well.
fn is_ordered(ty: &CqlType) -> bool {
    matches!(
        ty.thawed(),
        CqlType::TinyInt
            | CqlType::SmallInt
            | CqlType::Int
            | CqlType::BigInt
            | CqlType::Timestamp
            | CqlType::Time
            | CqlType::Date
            | CqlType::Ascii
            | CqlType::Text
            | CqlType::Blob
    )
}

fn edge(bound: &Bound<Bytes>) -> Option<&Bytes> {
    match bound {
        Bound::Included(edge) | Bound::Excluded(edge) => Some(edge),
        Bound::Unbounded => None,
    }
}

/// Returns the only possible values of a column, by one of its filters.
fn values<'f>(filters: &[&'f Filter], column: usize) -> Option<&'f [Bytes]> {
    filters.iter().filter(|filter| filter.column == column).find_map(|filter| {
        match (&filter.values, &filter.from, &filter.to) {
            (Some(values), ..) => Some(&values[..]),
            (None, Bound::Included(from), Bound::Included(to)) if from == to => {
                Some(std::slice::from_ref(from))
            }
            _ => None,
        }
    })
}

fn keys(def: &TableDef, filters: &[&Filter]) -> Option<Vec<Key>> {
    let mut all: Vec<Vec<Bytes>> = vec![Vec::new()];
    for (column, _) in def.partition_key().enumerate() {
        let mut values = values(filters, column)?.to_vec();
        values.sort_unstable();
        values.dedup();
        if all.len().saturating_mul(values.len()) > KEYS_MAX {
            return None;
        }
        let with = |key: &Vec<Bytes>| -> Vec<Vec<Bytes>> {
            values.iter().map(|value| key.iter().chain([value]).cloned().collect()).collect()
        };
        all = all.iter().flat_map(with).collect();
    }
    let key = |parts: Vec<Bytes>| {
        let mut bytes = Vec::new();
        // No partition has a longer key, or an empty one.
        token::compose_partition_key(parts.iter().map(|part| &part[..]), &mut bytes).ok()?;
        (!bytes.is_empty()).then(|| Key { token: token::token(&bytes), parts })
    };
    let mut keys: Vec<Key> = all.into_iter().filter_map(key).collect();
    keys.sort_unstable_by_key(|key| key.token);
    Some(keys)
}

fn clustering(def: &TableDef, filters: &[&Filter]) -> Vec<Condition> {
    let first = def.partition_key().count();
    let mut conditions = Vec::new();
    for (column, ty) in (first..).zip(def.clustering().map(|column| &column.ty)) {
        if let Some([value]) = values(filters, column) {
            conditions.push(Condition { column, operator: "=", value: value.clone() });
            continue;
        }
        if is_ordered(ty) {
            conditions.extend(bounds(ty, filters, column));
        }
        break;
    }
    conditions
}

/// Returns the first lower and the first upper bound of a column.
fn bounds(ty: &CqlType, filters: &[&Filter], column: usize) -> Vec<Condition> {
    let of = |filter: &&&Filter| filter.column == column;
    let own = || filters.iter().filter(of);
    let condition = |bound: &Bound<Bytes>, included, excluded| {
        let operator = if matches!(bound, Bound::Included(_)) { included } else { excluded };
        edge(bound).map(|value| Condition { column, operator, value: value.clone() })
    };
    let from = own().find_map(|filter| condition(&filter.from, ">=", ">"));
    let to = own().find_map(|filter| condition(&filter.to, "<=", "<"));
    match (from, to) {
        // Nodes refuse some of the bounds between which nothing is.
        (Some(from), Some(to)) if value::compare(ty, &from.value, &to.value) != Ordering::Less => vec![from],
        (from, to) => from.into_iter().chain(to).collect(),
    }
}
