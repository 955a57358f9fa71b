//! Tests of filters in CQL terms, and of the part of a small table that a scan reads because of
//! them.

use schema::{ClusteringOrder, TableOptions};

use super::*;

const COLUMNS: [(&str, &str, ColumnKind); 8] = [
    ("p", "int", ColumnKind::PartitionKey(0)),
    ("q", "text", ColumnKind::PartitionKey(1)),
    ("c", "int", ColumnKind::Clustering(0, ClusteringOrder::Asc)),
    ("d", "text", ColumnKind::Clustering(1, ClusteringOrder::Desc)),
    ("b", "boolean", ColumnKind::Regular),
    ("f", "float", ColumnKind::Regular),
    ("n", "bigint", ColumnKind::Regular),
    ("u", "uuid", ColumnKind::Regular),
];

fn def() -> TableDef {
    let ty = |text: &str| CqlType::parse(text, &|_| None).expect("a type");
    let column = |(id, (name, text, kind)): (usize, &(&str, &str, ColumnKind))| ColumnDef {
        id: id as u32,
        name: (*name).into(),
        ty: ty(text),
        kind: *kind,
    };
    TableDef {
        id: uuid::Uuid::nil(),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: COLUMNS.iter().enumerate().map(column).collect(),
        next_column_id: COLUMNS.len() as u32,
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        options: TableOptions::default(),
    }
}

/// Parses a filter such as `c >= 5`.
fn filter(text: &str) -> Filter {
    let def = def();
    let parts: Vec<&str> = text.split(' ').collect();
    let (column, own) = def.column(parts[0]).expect("a column");
    let edge = || Bytes::from(value::parse_text(&own.ty, parts[2]).expect("a value"));
    let (from, to) = match parts[1] {
        "=" => return Filter::equal(column, edge()),
        "in" => {
            let one =
                |text: &str| Filter::equal(column, value::parse_text(&own.ty, text).expect("a value").into());
            let all =
                parts[2].split(',').map(one).reduce(|one, other| one.or(other, &own.ty).expect("bounds"));
            return all.expect("values");
        }
        ">=" => (Bound::Included(edge()), Bound::Unbounded),
        ">" => (Bound::Excluded(edge()), Bound::Unbounded),
        "<=" => (Bound::Unbounded, Bound::Included(edge())),
        _ => (Bound::Unbounded, Bound::Excluded(edge())),
    };
    Filter::between(column, from, to)
}

fn reached(filters: &[&str]) -> Reach {
    let filters: Vec<Filter> = filters.iter().map(|text| filter(text)).collect();
    reach(&def(), i64::MIN..=i64::MAX, &filters).expect("sound filters")
}

fn token_of(p: i32, q: &str) -> i64 {
    let mut key = Vec::new();
    token::compose_partition_key([&p.to_be_bytes()[..], q.as_bytes()].into_iter(), &mut key).expect("a key");
    token::token(&key)
}

/// Checks the partitions that are looked up one by one; `None` if all are scanned.
fn check_partitions(filters: &[&str], expected: Option<&[(i32, &str)]>) {
    let everywhere = i64::MIN..=i64::MAX;
    let found = reached(filters).tokens;
    let expected = expected.map(|keys| keys.iter().map(|(p, q)| token_of(*p, q)).collect::<Vec<_>>());
    let expected = expected.map(|mut tokens| {
        tokens.sort_unstable();
        tokens.into_iter().map(|token| token..=token).collect()
    });
    assert_eq!(found, expected.unwrap_or_else(|| vec![everywhere]), "{filters:?}");
}

#[test]
fn whole_partition_keys_are_tokens() {
    check_partitions(&["p = 7", "q = x"], Some(&[(7, "x")]));
    check_partitions(&["p = 7", "q = x", "p >= 3"], Some(&[(7, "x")]));
    check_partitions(&["p in 7,8", "q in x,y"], Some(&[(7, "x"), (7, "y"), (8, "x"), (8, "y")]));
    check_partitions(&["p in 7,8,7,9", "p > 7", "p in 8,7", "q = x"], Some(&[(8, "x")]));
    check_partitions(&["p >= 7", "p <= 7", "q = x"], Some(&[(7, "x")]));
    for none in [&["p = 7", "p = 8", "q = x"][..], &["p in 7,8", "p > 8", "q = x"]] {
        check_partitions(none, Some(&[]));
    }
    for loose in [&["p = 7"][..], &["p = 7", "q > x"], &["p in 7,8", "q > x"]] {
        check_partitions(loose, None);
    }
    let token = token_of(7, "x");
    let outside = reach(&def(), token.saturating_add(1)..=i64::MAX, &[filter("p = 7"), filter("q = x")]);
    assert_eq!(outside.expect("sound").tokens, []);
}

#[test]
fn too_many_partitions_are_scanned_as_one_range() {
    let list = |count: usize| (0..count).map(|p| p.to_string()).collect::<Vec<_>>().join(",");
    let looked_up = |count: usize| reached(&[&format!("p in {}", list(count)), "q = x"]).tokens.len();
    assert_eq!((looked_up(LOOKED_UP_MAX), looked_up(LOOKED_UP_MAX + 1)), (LOOKED_UP_MAX, 1));
}

/// Checks which of these rows are within the bounds.
fn check_rows(filters: &[&str], expected: &[(i32, &str)]) {
    let def = def();
    let range = reached(filters).clustering;
    let mut rows: Vec<(Bytes, (i32, &str))> = Vec::new();
    for c in [-1, 0, 5, 6] {
        for d in ["", "a", "ab", "b"] {
            let mut key = Vec::new();
            slice::encode(&def.columns[2], &i32::to_be_bytes(c), &mut key).unwrap();
            slice::encode(&def.columns[3], d.as_bytes(), &mut key).unwrap();
            rows.push((key.into(), (c, d)));
        }
    }
    rows.sort();
    use std::ops::RangeBounds;
    let found: Vec<_> = rows.iter().filter(|row| range.contains(&row.0)).map(|row| row.1).collect();
    assert_eq!(found, expected, "{filters:?}");
}

#[test]
fn clustering_bounds_include_every_possible_row() {
    check_rows(&["c = 5"], &[(5, "b"), (5, "ab"), (5, "a"), (5, "")]);
    check_rows(&["c = 5", "d = ab"], &[(5, "ab")]);
    check_rows(&["c = 5", "d > a"], &[(5, "b"), (5, "ab")]);
    check_rows(&["c = 5", "d >= a", "d < b"], &[(5, "ab"), (5, "a")]);
    check_rows(&["c > 5", "d = a"], &[(6, "b"), (6, "ab"), (6, "a"), (6, "")]);
    check_rows(&["c >= 0", "c < 5"], &[(0, "b"), (0, "ab"), (0, "a"), (0, "")]);
    check_rows(
        &["c in 0,5", "d = a"],
        &[(0, "b"), (0, "ab"), (0, "a"), (0, ""), (5, "b"), (5, "ab"), (5, "a"), (5, "")],
    );
    check_rows(&["c > 6"], &[]);
    check_rows(&["c > 5", "c < 0"], &[]);
    assert_eq!(reached(&["d = a"]).clustering, (Bound::Unbounded, Bound::Unbounded));
}

#[test]
fn only_types_with_one_form_skip_blocks() {
    let conditions = |filters: &[&str]| reached(filters).conditions;
    let [range] = &conditions(&["n > 5", "n > 7", "n <= 9"])[..] else { panic!("one range") };
    assert_eq!(range.low, Bound::Excluded(Bytes::copy_from_slice(&7_i64.to_be_bytes())));
    assert_eq!(range.high, Bound::Included(Bytes::copy_from_slice(&9_i64.to_be_bytes())));
    assert_eq!(conditions(&["b = true", "p > 1", "c = 3"]), []);
    let uuid = "u = 00000000-0000-0000-0000-000000000001";
    assert_eq!(conditions(&[uuid]).len(), 1);
    assert_eq!(conditions(&[&uuid.replace('=', ">=")]), []);
}

#[test]
fn bounds_on_floats_include_both_zeros() {
    let zero = |sign: u8| Bound::Included(Bytes::from(vec![sign, 0, 0, 0]));
    for text in ["f = 0.0", "f = -0.0"] {
        let range = reached(&[text]).conditions.pop().expect("a range");
        assert_eq!((range.low, range.high), (zero(0x80), zero(0)), "{text}");
    }
    let range = reached(&["f >= NaN"]).conditions.pop().expect("a range");
    assert_eq!(range.low, Bound::Unbounded);
}

#[test]
fn filter_with_malformed_bytes_is_an_error() {
    let odd = Bytes::from_static(b"x");
    let listed = Filter { values: Some(vec![odd.clone()]), ..filter("p > 7") };
    for odd in [Filter::equal(0, odd), listed] {
        let error = reach(&def(), i64::MIN..=i64::MAX, &[odd]).expect_err("one byte is no int");
        assert_eq!(error.to_string(), "Expected 4 or 0 byte int (1)");
    }
}
