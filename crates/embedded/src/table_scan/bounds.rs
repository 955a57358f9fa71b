//! Bounds that filters imply for a scan: tokens, clustering keys and blocks. All functions are
//! pure. Bounds may be loose, since the caller drops rows that do not match. They must never
//! exclude a row that does.
//!
//! Some filters imply no bounds: those on types with several byte forms of one value (`boolean`,
//! `decimal`, `varint`, `duration`), on collections, tuples and user types, and on static columns.
//! The exception are clustering columns, whose encoding has one form.

use std::cmp::Ordering;
use std::ops::{Bound, RangeInclusive};

use bytes::Bytes;
use engine::Error;
use engine::scan::Filter;
use schema::{ColumnDef, ColumnKind, CqlType, TableDef, token, value};
use storage::{ColumnEncoding, ColumnLayout, ValueRange};

use crate::bind::slice::{self, Range};

/// Partitions looked up one by one, at most. Their tokens are computed on a fast lane. With more
/// the whole range is scanned.
const LOOKED_UP_MAX: usize = 256;

/// Part of a table that a scan must read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reach {
    /// Token ranges, ascending.
    pub(crate) tokens: Vec<RangeInclusive<i64>>,
    pub(crate) clustering: Range,
    pub(crate) conditions: Vec<ValueRange>,
}

/// Returns the layouts with which storage keeps the order of a table's numbers.
pub(crate) fn layouts(def: &TableDef) -> Vec<ColumnLayout> {
    let cells = def.columns.iter().filter(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let layout = |column: &ColumnDef| {
        let encoding = encoding(&column.ty)?;
        (encoding != ColumnEncoding::Bytes).then_some(ColumnLayout { column: column.id, encoding })
    };
    cells.filter_map(layout).collect()
}

/// Returns the encoding of a type, if each of its values has one byte form.
fn encoding(ty: &CqlType) -> Option<ColumnEncoding> {
    Some(match ty {
        CqlType::TinyInt => ColumnEncoding::Signed(1),
        CqlType::SmallInt => ColumnEncoding::Signed(2),
        CqlType::Int => ColumnEncoding::Signed(4),
        CqlType::BigInt | CqlType::Counter | CqlType::Timestamp | CqlType::Time => ColumnEncoding::Signed(8),
        CqlType::Date => ColumnEncoding::Unsigned(4),
        CqlType::Float => ColumnEncoding::Float(4),
        CqlType::Double => ColumnEncoding::Float(8),
        CqlType::Ascii
        | CqlType::Text
        | CqlType::Blob
        | CqlType::Uuid
        | CqlType::TimeUuid
        | CqlType::Inet => ColumnEncoding::Bytes,
        CqlType::Frozen(inner) => encoding(inner)?,
        _ => return None,
    })
}

/// Returns true if CQL's order of the values is that of their encoding.
fn is_ordered(ty: &CqlType) -> bool {
    !matches!(ty.thawed(), CqlType::Uuid | CqlType::TimeUuid | CqlType::Inet)
}

/// Returns the part of the table that may have rows meeting all filters. The filters' columns must
/// exist.
pub(crate) fn reach(def: &TableDef, tokens: RangeInclusive<i64>, filters: &[Filter]) -> Result<Reach, Error> {
    let mut all: Vec<Option<Between>> = vec![None; def.columns.len()];
    for filter in filters {
        let column = &def.columns[filter.column];
        let between = Between::of(column, filter)?;
        let before = all[filter.column].take();
        all[filter.column] = Some(match before {
            Some(before) => before.and(&column.ty, between),
            None => between,
        });
    }
    let of = |column: &ColumnDef| {
        let at = def.columns.iter().position(|own| own.id == column.id).expect("it is a column of the table");
        all[at].as_ref()
    };
    let tokens = match partition_tokens(def, of) {
        Some(found) => found.into_iter().filter(|one| tokens.contains(one)).map(|one| one..=one).collect(),
        None => vec![tokens],
    };
    let regular = def.columns.iter().filter(|column| column.kind == ColumnKind::Regular);
    let conditions = regular.filter_map(|column| value_range(column, of(column)?)).collect();
    Ok(Reach { tokens, clustering: clustering(def, of)?, conditions })
}

/// Bounds on a value.
#[derive(Clone, PartialEq, Debug)]
struct Between {
    from: Bound<Bytes>,
    to: Bound<Bytes>,
    /// Possible values, in addition to the bounds.
    values: Option<Vec<Bytes>>,
}

impl Between {
    fn of(column: &ColumnDef, filter: &Filter) -> Result<Between, Error> {
        let ty = &column.ty;
        let edges = [&filter.from, &filter.to].into_iter().filter_map(|bound| match bound {
            Bound::Included(edge) | Bound::Excluded(edge) => Some(edge),
            Bound::Unbounded => None,
        });
        // With more values than are looked up one by one, the list is useless.
        let values = filter.values.as_ref().filter(|values| values.len() <= LOOKED_UP_MAX);
        for value in edges.chain(values.into_iter().flatten()) {
            value::check(ty, value).map_err(|e| Error::Invalid(e.for_column(&column.name)))?;
        }
        let (from, to) = (loosened(ty, &filter.from, true), loosened(ty, &filter.to, false));
        Ok(Between { from, to, values: values.cloned() })
    }

    /// Returns the intersection of two bounds.
    fn and(self, ty: &CqlType, other: Between) -> Between {
        let tighter = |a: Bound<Bytes>, b: Bound<Bytes>, wins: Ordering| match (&a, &b) {
            (Bound::Unbounded, _) => b,
            (_, Bound::Unbounded) => a,
            (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) => {
                match value::compare(ty, x, y) {
                    Ordering::Equal if matches!(a, Bound::Excluded(_)) => a,
                    order if order == wins => a,
                    _ => b,
                }
            }
        };
        let values = match (self.values, other.values) {
            (Some(mut one), Some(mut other)) => {
                other.sort_unstable_by(|a, b| value::compare(ty, a, b));
                one.retain(|value| other.binary_search_by(|own| value::compare(ty, own, value)).is_ok());
                Some(one)
            }
            (one, other) => one.or(other),
        };
        Between {
            from: tighter(self.from, other.from, Ordering::Greater),
            to: tighter(self.to, other.to, Ordering::Less),
            values,
        }
    }

    fn holds(&self, ty: &CqlType, value: &[u8]) -> bool {
        let (above, below) = (
            match &self.from {
                Bound::Included(from) => value::compare(ty, value, from).is_ge(),
                Bound::Excluded(from) => value::compare(ty, value, from).is_gt(),
                Bound::Unbounded => true,
            },
            match &self.to {
                Bound::Included(to) => value::compare(ty, value, to).is_le(),
                Bound::Excluded(to) => value::compare(ty, value, to).is_lt(),
                Bound::Unbounded => true,
            },
        );
        above && below
    }

    /// Returns the possible values, if they are known.
    fn values(&self, ty: &CqlType) -> Option<Vec<&Bytes>> {
        let known: Vec<&Bytes> = match &self.values {
            Some(values) => values.iter().collect(),
            None => vec![self.value(ty)?],
        };
        Some(known.into_iter().filter(|value| self.holds(ty, value)).collect())
    }

    /// Returns the only possible value, if there is exactly one.
    fn value(&self, ty: &CqlType) -> Option<&Bytes> {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) if value::compare(ty, from, to).is_eq() => {
                Some(from)
            }
            _ => None,
        }
    }
}

/// Loosens bounds on floats, because comparisons differ about zeros (is −0 below 0?) and NaN. Both
/// zeros stay inside, and NaN is no bound.
fn loosened(ty: &CqlType, bound: &Bound<Bytes>, lower: bool) -> Bound<Bytes> {
    let (Bound::Included(edge) | Bound::Excluded(edge)) = bound else { return Bound::Unbounded };
    let number = match (ty.thawed(), &edge[..]) {
        (CqlType::Float, bytes) => bytes.try_into().map(|b| f64::from(f32::from_be_bytes(b))).ok(),
        (CqlType::Double, bytes) => bytes.try_into().map(f64::from_be_bytes).ok(),
        _ => None,
    };
    match number {
        Some(number) if number.is_nan() => Bound::Unbounded,
        Some(0.0) => {
            let mut zero = vec![0; edge.len()];
            zero[0] = if lower { 0x80 } else { 0 };
            Bound::Included(zero.into())
        }
        _ => bound.clone(),
    }
}

/// Returns the tokens of the requested partitions, ascending, if they are few. A key has exactly
/// these bytes only if each value of its types has one form.
fn partition_tokens<'b>(def: &TableDef, of: impl Fn(&ColumnDef) -> Option<&'b Between>) -> Option<Vec<i64>> {
    let part = |column: &ColumnDef| match encoding(&column.ty)? {
        ColumnEncoding::Float(_) => None,
        _ => of(column)?.values(&column.ty),
    };
    let mut keys: Vec<Vec<&Bytes>> = vec![Vec::new()];
    for column in def.partition_key() {
        let values = part(column)?;
        if keys.len().saturating_mul(values.len()) > LOOKED_UP_MAX {
            return None;
        }
        let with = |key: &Vec<&'b Bytes>| -> Vec<Vec<&'b Bytes>> {
            values.iter().map(|value| key.iter().copied().chain([*value]).collect()).collect()
        };
        keys = keys.iter().flat_map(with).collect();
    }
    let token_of = |parts: Vec<&Bytes>| {
        let mut key = Vec::new();
        token::compose_partition_key(parts.iter().map(|part| &part[..]), &mut key).ok()?;
        Some(token::token(&key))
    };
    let mut tokens: Vec<i64> = keys.into_iter().map(token_of).collect::<Option<_>>()?;
    tokens.sort_unstable();
    tokens.dedup();
    Some(tokens)
}

/// Returns the range of possible clustering keys: those with the given values as prefix, within the
/// bounds of the next column.
fn clustering<'b>(def: &TableDef, of: impl Fn(&ColumnDef) -> Option<&'b Between>) -> Result<Range, Error> {
    let mut prefix = Vec::new();
    for column in def.clustering() {
        let Some(between) = of(column) else { break };
        if let Some(value) = between.value(&column.ty) {
            slice::encode(column, value, &mut prefix)?;
            continue;
        }
        let encoded = |value: &Bytes| {
            let mut edge = prefix.clone();
            slice::encode(column, value, &mut edge).map(|()| edge)
        };
        let edge = |bound: &Bound<Bytes>| {
            Ok::<_, Error>(match bound {
                Bound::Included(value) => Bound::Included(encoded(value)?),
                Bound::Excluded(value) => Bound::Excluded(encoded(value)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let (mut low, mut high) = (edge(&between.from)?, edge(&between.to)?);
        if slice::descending(column) {
            (low, high) = (high, low);
        }
        let start = match low {
            Bound::Included(edge) => Bound::Included(edge.into()),
            Bound::Excluded(edge) => slice::past(&edge),
            Bound::Unbounded => from_prefix(&prefix),
        };
        let end = match high {
            Bound::Included(edge) => slice::after(&edge),
            Bound::Excluded(edge) => Bound::Excluded(edge.into()),
            Bound::Unbounded => slice::after(&prefix),
        };
        return Ok((start, end));
    }
    Ok((from_prefix(&prefix), slice::after(&prefix)))
}

fn from_prefix(prefix: &[u8]) -> Bound<Bytes> {
    if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(Bytes::copy_from_slice(prefix)) }
}

/// Returns the range of a regular column that lets the scan skip blocks.
fn value_range(column: &ColumnDef, between: &Between) -> Option<ValueRange> {
    let encoding = encoding(&column.ty)?;
    (is_ordered(&column.ty) || between.value(&column.ty).is_some()).then(|| ValueRange {
        column: column.id,
        encoding,
        low: between.from.clone(),
        high: between.to.clone(),
    })
}

#[cfg(test)]
mod tests;
