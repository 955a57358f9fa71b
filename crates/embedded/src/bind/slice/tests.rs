//! Ranges of stored keys compared with comparisons of tuples.

use cql::ast::{Literal, Term};
use engine::Guardrails;
use schema::{CqlType, TableOptions};

use super::*;
use crate::bind::restrict::{is_bound, sign};
use crate::bind::term::Binder;
use crate::bind::tuple::TupleBind;

/// Values of each column, of which the bounds are the inner ones.
const VALUES: [i32; 4] = [0, 1, 2, 3];

/// Returns a table with three clustering columns. Column `n` is sorted in descending order if bit
/// `n` of `orders` is set.
fn def(orders: u32) -> TableDef {
    let order = |n: u32| match orders >> n & 1 {
        0 => ClusteringOrder::Asc,
        _ => ClusteringOrder::Desc,
    };
    let kind = |id: u32| match id {
        0 => ColumnKind::PartitionKey(0),
        _ => ColumnKind::Clustering(id as usize - 1, order(id - 1)),
    };
    let column = |id: u32| ColumnDef { id, name: format!("c{id}"), ty: CqlType::Int, kind: kind(id) };
    TableDef {
        id: uuid::Uuid::nil(),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: (0..4).map(column).collect(),
        next_column_id: 4,
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        options: TableOptions::default(),
    }
}

fn bound(op: CompareOp, values: &[i32]) -> SliceBound {
    let mut binder = Binder::new(std::sync::Arc::new(Guardrails::default()), 0);
    let bind = |value: &i32| {
        let term = Term::Literal(Literal::Integer(value.to_string()));
        binder.bind("c", &CqlType::Int, &term).expect("a constant")
    };
    SliceBound { op, value: TupleBind::Parts(values.iter().map(bind).collect()), may_be_null: false }
}

fn meets(key: [i32; 3], op: CompareOp, bound: &[i32]) -> bool {
    crate::bind::filter::holds(op, key[..bound.len()].cmp(bound))
}

/// Checks the ranges of these bounds in a table with these orders.
fn check(orders: u32, bounds: &[(CompareOp, &[i32])]) {
    let def = def(orders);
    let range = bounds.iter().map(|(op, values)| bound(*op, values)).collect();
    let restrictions = Restrictions { range, ..Restrictions::default() };
    let ranges = clustering_ranges(&def, &restrictions, &[]).expect("ranges");
    let told = || {
        let bounds: Vec<_> = bounds.iter().map(|(op, values)| format!("{} {values:?}", sign(*op))).collect();
        format!("orders {orders:03b}: {}", bounds.join(" and "))
    };
    for (a, b, c) in
        VALUES.iter().flat_map(|a| VALUES.map(|b| (*a, b))).flat_map(|(a, b)| VALUES.map(|c| (a, b, c)))
    {
        let mut key = Vec::new();
        for (column, value) in def.clustering().zip([a, b, c]) {
            encode(column, &value.to_be_bytes(), &mut key).expect("no error");
        }
        let wanted = bounds.iter().all(|(op, values)| meets([a, b, c], *op, values));
        assert_eq!(is_in(&ranges, &key), wanted, "({a}, {b}, {c}), {}: {ranges:?}", told());
    }
    let ends_before_next = |pair: &[Range]| match (&pair[0].1, &pair[1].0) {
        (Bound::Excluded(end), Bound::Included(start)) => end <= start,
        _ => false,
    };
    assert!(ranges.windows(2).all(ends_before_next), "not sorted, {}: {ranges:?}", told());
    let most = 1 + restrictions.range.iter().map(|bound| bound.ranges(&def, 0) - 1).sum::<u64>();
    assert!(ranges.len() as u64 <= most, "more than {most} ranges, {}: {ranges:?}", told());
}

#[test]
fn tuples_compare_in_every_order_of_the_columns() {
    let ops = [CompareOp::Less, CompareOp::LessEq, CompareOp::Greater, CompareOp::GreaterEq];
    assert!(ops.iter().all(|op| is_bound(*op)));
    let (one, other) = ([1, 2, 1], [2, 1, 2]);
    for orders in 0..8 {
        check(orders, &[]);
        for (op, width) in ops.iter().flat_map(|op| (1..=3).map(|width| (*op, width))) {
            check(orders, &[(op, &one[..width])]);
            for (op2, width2) in ops.iter().flat_map(|op| (1..=3).map(|width| (*op, width))) {
                if is_lower(op) != is_lower(op2) {
                    check(orders, &[(op, &one[..width]), (op2, &other[..width2])]);
                    check(orders, &[(op, &one[..width]), (op2, &one[..width2])]);
                }
            }
        }
    }
}

#[test]
fn columns_of_one_direction_give_one_range() {
    for orders in [0b000, 0b111] {
        let restrictions = Restrictions {
            range: vec![bound(CompareOp::Greater, &[1, 2, 1]), bound(CompareOp::Less, &[2, 1])],
            ..Restrictions::default()
        };
        assert_eq!(clustering_ranges(&def(orders), &restrictions, &[]).expect("ranges").len(), 1);
    }
}
