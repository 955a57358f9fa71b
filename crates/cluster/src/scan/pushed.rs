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
use schema::{ColumnKind, CqlType, TableDef, Token, token, value};

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
        let bounds = || {
            let edges = [&filter.from, &filter.to].into_iter().filter_map(edge);
            edges.chain(filter.values.iter().flatten())
        };
        for bytes in bounds() {
            value::check(&column.ty, bytes)
                .map_err(|error| Error::Invalid(error.for_column(&column.name)))?;
        }
        // Nodes refuse longer values of clustering columns. No row has one.
        let is_long = bounds().any(|bytes| bytes.len() > token::PARTITION_KEY_BYTES_MAX);
        if !is_long || matches!(column.kind, ColumnKind::PartitionKey(_)) {
            useful.push(filter);
        }
    }
    Ok(Pushed { keys: keys(table, &useful), clustering: clustering(&table.def, &useful) })
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

fn keys(table: &ClusterTable, filters: &[&Filter]) -> Option<Vec<Key>> {
    let def = &table.def;
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
    // A view may have an empty key, of which nodes return the rows by their range only.
    let is_empty = |key: &Vec<Bytes>| key.len() == 1 && key[0].is_empty();
    if table.is_view() && all.iter().any(is_empty) {
        return None;
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

#[cfg(test)]
mod tests {
    use schema::{ClusteringOrder, ColumnDef, TableOptions};
    use uuid::Uuid;

    use super::*;

    /// Returns a table with the key `((a, b), c, d)` of these types.
    fn table(types: [CqlType; 4], opaque: &[usize]) -> ClusterTable {
        let kinds = [
            ColumnKind::PartitionKey(0),
            ColumnKind::PartitionKey(1),
            ColumnKind::Clustering(0, ClusteringOrder::Desc),
            ColumnKind::Clustering(1, ClusteringOrder::Asc),
        ];
        let column = |((id, name), (ty, kind))| ColumnDef { id, name: String::from(name), ty, kind };
        let columns = (0..).zip(["a", "b", "c", "d"]).zip(types.into_iter().zip(kinds)).map(column);
        let def = TableDef {
            id: Uuid::from_u128(1),
            keyspace: "ks".into(),
            name: "t".into(),
            columns: columns.collect(),
            next_column_id: 4,
            options: TableOptions::default(),
            data: None,
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Vec::new(),
            views: Vec::new(),
        };
        ClusterTable::of(def, opaque.to_vec())
    }

    fn ints() -> ClusterTable {
        table([CqlType::Int, CqlType::Text, CqlType::Int, CqlType::Text], &[])
    }

    fn int(value: i32) -> Bytes {
        Bytes::copy_from_slice(&value.to_be_bytes())
    }

    fn text(value: &'static str) -> Bytes {
        Bytes::from_static(value.as_bytes())
    }

    fn any_of(column: usize, values: Vec<Bytes>) -> Filter {
        Filter { values: Some(values), ..Filter::between(column, Bound::Unbounded, Bound::Unbounded) }
    }

    /// Returns the keys, sorted by their parts.
    fn keys_of(table: &ClusterTable, filters: &[Filter]) -> Option<Vec<Vec<Bytes>>> {
        let keys = pushed(table, filters).expect("valid bounds").keys?;
        for key in &keys {
            let mut bytes = Vec::new();
            token::compose_partition_key(key.parts.iter().map(|part| &part[..]), &mut bytes).expect("short");
            assert_eq!(key.token, token::token(&bytes));
        }
        let mut parts: Vec<Vec<Bytes>> = keys.into_iter().map(|key| key.parts).collect();
        parts.sort();
        Some(parts)
    }

    #[test]
    fn keys_are_all_pairs_of_the_listed_values() {
        let filters = [any_of(0, vec![int(2), int(1), int(2)]), any_of(1, vec![text("x"), text("")])];
        let expected = [(1, ""), (1, "x"), (2, ""), (2, "x")].map(|(a, b)| vec![int(a), text(b)]);
        assert_eq!(keys_of(&ints(), &filters), Some(expected.to_vec()));
        assert_eq!(keys_of(&ints(), &filters[..1]), None, "a part of the key is open");
        assert_eq!(keys_of(&ints(), &[any_of(0, vec![]), any_of(1, vec![text("x")])]), Some(vec![]));
        let bounds = [
            Filter::between(0, Bound::Included(int(1)), Bound::Included(int(1))),
            Filter::between(1, Bound::Included(text("x")), Bound::Excluded(text("y"))),
        ];
        assert_eq!(keys_of(&ints(), &bounds), None);
    }

    #[test]
    fn keys_are_bounded_in_number_and_size() {
        let listed = |count: i32| [any_of(0, (0..count).map(int).collect()), Filter::equal(1, text("x"))];
        assert_eq!(keys_of(&ints(), &listed(1_000)).map(|keys| keys.len()), Some(1_000));
        assert_eq!(keys_of(&ints(), &listed(1_001)), None);
        let long = Bytes::from(vec![b'x'; token::PARTITION_KEY_BYTES_MAX + 1]);
        let filters = [Filter::equal(0, int(1)), any_of(1, vec![long, text("x")])];
        assert_eq!(keys_of(&ints(), &filters), Some(vec![vec![int(1), text("x")]]), "no partition has it");
    }

    /// Cassandra 5.0.9 returns the rows of such a partition for a range of tokens, and refuses its
    /// key.
    #[test]
    fn empty_key_of_a_view_is_found_by_ranges() {
        let mut def = TableDef::clone(&ints().def);
        def.columns.rotate_left(1);
        def.columns.truncate(1);
        def.columns[0].kind = ColumnKind::PartitionKey(0);
        let table = ClusterTable::of(def, Vec::new());
        let filters = [any_of(0, vec![text(""), text("x")])];
        assert_eq!(keys_of(&table, &filters), Some(vec![vec![text("x")]]), "no table has it");
        let view = table.into_view();
        assert_eq!(keys_of(&view, &filters), None);
        assert_eq!(keys_of(&view, &[Filter::equal(0, text("x"))]), Some(vec![vec![text("x")]]));
        assert_eq!(
            keys_of(&ints().into_view(), &[Filter::equal(0, int(1)), Filter::equal(1, text(""))])
                .map(|k| k.len()),
            Some(1)
        );
    }

    #[test]
    fn types_with_several_forms_and_unknown_ones_have_no_conditions() {
        let filters: Vec<Filter> = (0..4).map(|column| Filter::equal(column, int(1))).collect();
        let none = Pushed { keys: None, clustering: Vec::new() };
        for ty in [CqlType::Float, CqlType::Varint] {
            let types = [CqlType::Int, ty.clone(), ty, CqlType::Int];
            assert_eq!(pushed(&table(types, &[]), &filters), Ok(none.clone()));
        }
        let binary = table([CqlType::Int, CqlType::Blob, CqlType::Blob, CqlType::Int], &[1, 2]);
        assert_eq!(pushed(&binary, &filters), Ok(none));
    }

    #[test]
    fn clustering_columns_have_a_prefix_and_bounds_of_the_next() {
        let check = |filters: &[Filter], expected: &[(usize, &str)]| {
            let found = pushed(&ints(), filters).expect("valid bounds").clustering;
            let found: Vec<(usize, &str)> =
                found.iter().map(|condition| (condition.column, condition.operator)).collect();
            assert_eq!(found, expected, "{filters:?}");
        };
        let equal = Filter::equal(2, int(1));
        let below = Filter::between(3, Bound::Unbounded, Bound::Excluded(text("m")));
        check(&[equal.clone(), below.clone()], &[(2, "="), (3, "<")]);
        check(std::slice::from_ref(&below), &[]);
        check(
            &[Filter::between(2, Bound::Excluded(int(1)), Bound::Included(int(3))), below],
            &[(2, ">"), (2, "<=")],
        );
        let long = Bytes::from(vec![b'x'; token::PARTITION_KEY_BYTES_MAX + 1]);
        check(&[equal, Filter::equal(3, long)], &[(2, "=")]);
        let wrong = Filter::equal(2, Bytes::from_static(b"abc"));
        assert!(matches!(pushed(&ints(), &[wrong]), Err(Error::Invalid(_))));
    }
}
