//! What conditions spare a scan: which tokens, which clustering keys and which blocks it need not look at. Every function here is pure,
//! and loose where it has to be: a row too many is the caller's to leave out, a row too few would be a wrong answer.
//!
//! Not used for that are conditions on types that have several byte forms of one value (`boolean`, `decimal`, `varint`, `duration`), on
//! collections, tuples and user types, and on static columns; unless they are on clustering columns, whose encoding has one form.

use std::cmp::Ordering;
use std::ops::{Bound, RangeInclusive};

use bytes::Bytes;
use engine::Error;
use engine::scan::Filter;
use schema::{ColumnDef, ColumnKind, CqlType, TableDef, token, value};
use storage::{ColumnEncoding, ColumnLayout, ValueRange};

use crate::slice::{self, Range};

/// Where a scan looks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reach {
    pub(crate) tokens: RangeInclusive<i64>,
    pub(crate) clustering: Range,
    pub(crate) conditions: Vec<ValueRange>,
}

/// How storage is to keep the numbers of a table, so that it knows their order.
pub(crate) fn layouts(def: &TableDef) -> Vec<ColumnLayout> {
    let cells = def.columns.iter().filter(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let layout = |column: &ColumnDef| {
        let encoding = encoding(&column.ty)?;
        (encoding != ColumnEncoding::Bytes).then_some(ColumnLayout { column: column.id, encoding })
    };
    cells.filter_map(layout).collect()
}

/// How values of a type lie, for types whose values have one form each.
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

/// Whether values are in CQL's order when they are in that of their encoding.
fn is_ordered(ty: &CqlType) -> bool {
    !matches!(ty.thawed(), CqlType::Uuid | CqlType::TimeUuid | CqlType::Inet)
}

/// Where to look for rows that meet all filters, whose columns exist.
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
    let tokens = match partition_token(def, of) {
        Some(token) => *tokens.start().max(&token)..=*tokens.end().min(&token),
        None => tokens,
    };
    let regular = def.columns.iter().filter(|column| column.kind == ColumnKind::Regular);
    let conditions = regular.filter_map(|column| value_range(column, of(column)?)).collect();
    Ok(Reach { tokens, clustering: clustering(def, of), conditions })
}

/// A value lies between these.
#[derive(Clone, PartialEq, Debug)]
struct Between {
    from: Bound<Bytes>,
    to: Bound<Bytes>,
}

impl Between {
    fn of(column: &ColumnDef, filter: &Filter) -> Result<Between, Error> {
        let ty = &column.ty;
        for bound in [&filter.from, &filter.to] {
            if let Bound::Included(edge) | Bound::Excluded(edge) = bound {
                value::check(ty, edge).map_err(|e| Error::Invalid(e.for_column(&column.name)))?;
            }
        }
        Ok(Between { from: loosened(ty, &filter.from, true), to: loosened(ty, &filter.to, false) })
    }

    /// Both this and another.
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
        Between {
            from: tighter(self.from, other.from, Ordering::Greater),
            to: tighter(self.to, other.to, Ordering::Less),
        }
    }

    /// The only value that is possible, if there is one.
    fn value(&self, ty: &CqlType) -> Option<&Bytes> {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) if value::compare(ty, from, to).is_eq() => {
                Some(from)
            }
            _ => None,
        }
    }
}

/// Who compares floats differs about zeros (is −0 below 0?) and NaN: both zeros stay in, and NaN bounds nothing.
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

/// The token of the one partition that is asked for. Its key is exactly these bytes only if their types have one form of each value.
fn partition_token<'b>(def: &TableDef, of: impl Fn(&ColumnDef) -> Option<&'b Between>) -> Option<i64> {
    let part = |column: &ColumnDef| match encoding(&column.ty)? {
        ColumnEncoding::Float(_) => None,
        _ => of(column)?.value(&column.ty),
    };
    let parts: Vec<&Bytes> = def.partition_key().map(part).collect::<Option<_>>()?;
    let mut key = Vec::new();
    token::compose_partition_key(parts.iter().map(|part| &part[..]), &mut key).ok()?;
    Some(token::token(&key))
}

/// The clustering keys that can be: those that begin with the values that are given, and lie within the bounds of the next column.
fn clustering<'b>(def: &TableDef, of: impl Fn(&ColumnDef) -> Option<&'b Between>) -> Range {
    let mut prefix = Vec::new();
    for column in def.clustering() {
        let Some(between) = of(column) else { break };
        if let Some(value) = between.value(&column.ty) {
            slice::encode(column, value, &mut prefix);
            continue;
        }
        let edge = |bound: &Bound<Bytes>| {
            bound.as_ref().map(|value| {
                let mut edge = prefix.clone();
                slice::encode(column, value, &mut edge);
                edge
            })
        };
        let (mut low, mut high) = (edge(&between.from), edge(&between.to));
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
        return (start, end);
    }
    (from_prefix(&prefix), slice::after(&prefix))
}

fn from_prefix(prefix: &[u8]) -> Bound<Bytes> {
    if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(Bytes::copy_from_slice(prefix)) }
}

/// The range of a regular column by which blocks are passed over.
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
