//! Conditions in terms of CQL, and what a scan of a small table looks at because of them.

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
        options: TableOptions::default(),
    }
}

/// `c >= 5`, say.
fn filter(text: &str) -> Filter {
    let def = def();
    let parts: Vec<&str> = text.split(' ').collect();
    let (column, own) = def.column(parts[0]).expect("a column");
    let edge = Bytes::from(value::parse_text(&own.ty, parts[2]).expect("a value"));
    let (from, to) = match parts[1] {
        "=" => return Filter::equal(column, edge),
        ">=" => (Bound::Included(edge), Bound::Unbounded),
        ">" => (Bound::Excluded(edge), Bound::Unbounded),
        "<=" => (Bound::Unbounded, Bound::Included(edge)),
        _ => (Bound::Unbounded, Bound::Excluded(edge)),
    };
    Filter { column, from, to }
}

fn reached(filters: &[&str]) -> Reach {
    let filters: Vec<Filter> = filters.iter().map(|text| filter(text)).collect();
    reach(&def(), i64::MIN..=i64::MAX, &filters).expect("sound filters")
}

#[test]
fn a_whole_partition_key_is_one_token() {
    let mut key = Vec::new();
    token::compose_partition_key([&7_i32.to_be_bytes()[..], b"x"].into_iter(), &mut key).expect("a key");
    let token = token::token(&key);
    assert_eq!(reached(&["p = 7", "q = x"]).tokens, token..=token);
    assert_eq!(reached(&["p = 7", "q = x", "p >= 3"]).tokens, token..=token);
    for loose in [&["p = 7"][..], &["p = 7", "q > x"], &["p = 7", "p = 8", "q = x"]] {
        assert_eq!(reached(loose).tokens, i64::MIN..=i64::MAX, "{loose:?}");
    }
    let outside = reach(&def(), token.saturating_add(1)..=i64::MAX, &[filter("p = 7"), filter("q = x")]);
    assert!(outside.expect("sound").tokens.is_empty());
}

/// Which of these rows lie within the bounds.
fn check_rows(filters: &[&str], expected: &[(i32, &str)]) {
    let def = def();
    let range = reached(filters).clustering;
    let mut rows: Vec<(Bytes, (i32, &str))> = Vec::new();
    for c in [-1, 0, 5, 6] {
        for d in ["", "a", "ab", "b"] {
            let mut key = Vec::new();
            slice::encode(&def.columns[2], &i32::to_be_bytes(c), &mut key);
            slice::encode(&def.columns[3], d.as_bytes(), &mut key);
            rows.push((key.into(), (c, d)));
        }
    }
    rows.sort();
    use std::ops::RangeBounds;
    let found: Vec<_> = rows.iter().filter(|row| range.contains(&row.0)).map(|row| row.1).collect();
    assert_eq!(found, expected, "{filters:?}");
}

#[test]
fn clustering_bounds_hold_what_can_match_and_little_else() {
    check_rows(&["c = 5"], &[(5, "b"), (5, "ab"), (5, "a"), (5, "")]);
    check_rows(&["c = 5", "d = ab"], &[(5, "ab")]);
    check_rows(&["c = 5", "d > a"], &[(5, "b"), (5, "ab")]);
    check_rows(&["c = 5", "d >= a", "d < b"], &[(5, "ab"), (5, "a")]);
    check_rows(&["c > 5", "d = a"], &[(6, "b"), (6, "ab"), (6, "a"), (6, "")]);
    check_rows(&["c >= 0", "c < 5"], &[(0, "b"), (0, "ab"), (0, "a"), (0, "")]);
    check_rows(&["c > 6"], &[]);
    check_rows(&["c > 5", "c < 0"], &[]);
    assert_eq!(reached(&["d = a"]).clustering, (Bound::Unbounded, Bound::Unbounded));
}

#[test]
fn values_pass_over_blocks_only_where_they_have_one_form() {
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
fn both_zeros_match_either() {
    let zero = |sign: u8| Bound::Included(Bytes::from(vec![sign, 0, 0, 0]));
    for text in ["f = 0.0", "f = -0.0"] {
        let range = reached(&[text]).conditions.pop().expect("a range");
        assert_eq!((range.low, range.high), (zero(0x80), zero(0)), "{text}");
    }
    let range = reached(&["f >= NaN"]).conditions.pop().expect("a range");
    assert_eq!(range.low, Bound::Unbounded);
}

#[test]
fn a_filter_of_other_bytes_is_an_error() {
    let odd = Filter::equal(0, Bytes::from_static(b"x"));
    let error = reach(&def(), i64::MIN..=i64::MAX, &[odd]).expect_err("one byte is no int");
    assert_eq!(error.to_string(), "Expected 4 byte int (1)");
}
