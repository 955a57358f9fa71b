//! What a running query finds out about the rows it still wants. With `ORDER BY x LIMIT 10`, once ten rows are there, only rows that
//! come before the last of them count; a join that has read one side knows between which values the other side's keys lie.
//! DataFusion's operators say so in *dynamic filters*; a scan looks at them between batches, and passes over blocks unread.
//!
//! ```text
//!   SortExec: TopK(10) ──"x < 7"──▶ ScanExec ──Filter { x: ..7 }──▶ BatchSource::narrow
//!        ▲                                                              │
//!        └──────────────────────── batches ◀────────────────────────────┘
//! ```
//!
//! As with conditions known beforehand, nothing hangs on this but speed: a condition that is not understood is left to whoever made it.
//! Of `ORDER BY x DESC` a scan can use nothing where `x` may be null, since nulls come first there and blocks do not tell whether
//! they have any; with `NULLS LAST` it can.

use std::ops::Bound;
use std::sync::Arc;

use ::schema::{ColumnKind, CqlType, TableDef, value};
use bytes::Bytes;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, DynamicFilterPhysicalExpr, DynamicFilterTracking, IsNullExpr, Literal,
};
use engine::scan::{Filter, columns_of};

use crate::filter::compared;

/// The dynamic filters over one scan, for one of its partitions.
#[derive(Debug)]
pub(crate) struct Narrowing {
    def: Arc<TableDef>,
    watched: Vec<(Arc<dyn PhysicalExpr>, DynamicFilterTracking)>,
}

impl Narrowing {
    /// Whether a condition may change while a query runs.
    pub(crate) fn is_dynamic(condition: &Arc<dyn PhysicalExpr>) -> bool {
        DynamicFilterTracking::classify(condition).contains_dynamic_filter()
    }

    pub(crate) fn new(def: Arc<TableDef>, conditions: &[Arc<dyn PhysicalExpr>]) -> Narrowing {
        let watched = conditions.iter().map(|c| (c.clone(), DynamicFilterTracking::classify(c))).collect();
        Narrowing { def, watched }
    }

    /// What all rows that are still wanted meet, if that has changed.
    pub(crate) fn changed(&mut self) -> Option<Vec<Filter>> {
        let mut changed = false;
        for (_, tracking) in &mut self.watched {
            changed |= tracking.watcher().is_some_and(|watcher| watcher.changed());
        }
        changed.then(|| {
            self.watched.iter().flat_map(|(condition, _)| conditions(&self.def, condition)).collect()
        })
    }
}

/// Filters of which all hold where the condition does; none for what a scan has no use for.
fn conditions(def: &TableDef, condition: &Arc<dyn PhysicalExpr>) -> Vec<Filter> {
    if let Some(dynamic) = condition.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return dynamic.current().map_or_else(|_| Vec::new(), |current| conditions(def, &current));
    }
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Vec::new() };
    let (left, right) = (binary.left(), binary.right());
    match binary.op() {
        Operator::And => {
            let mut both = conditions(def, left);
            both.extend(conditions(def, right));
            both
        }
        Operator::Or if is_never(def, left) => conditions(def, right),
        Operator::Or => either(def, &conditions(def, left), &conditions(def, right)),
        op => comparison(def, left, *op, right).into_iter().collect(),
    }
}

/// Whether it asks for nulls where there are none.
fn is_never(def: &TableDef, condition: &Arc<dyn PhysicalExpr>) -> bool {
    let asked = condition.downcast_ref::<IsNullExpr>().and_then(|is_null| column(is_null.arg()));
    let Some(kind) = asked.and_then(|name| Some(def.column(name)?.1.kind)) else { return false };
    match kind {
        ColumnKind::PartitionKey(_) => true,
        // Of a partition with static cells alone there is a row without them.
        ColumnKind::Clustering(..) => def.columns.iter().all(|column| column.kind != ColumnKind::Static),
        ColumnKind::Static | ColumnKind::Regular => false,
    }
}

fn comparison(
    def: &TableDef,
    left: &Arc<dyn PhysicalExpr>,
    op: Operator,
    right: &Arc<dyn PhysicalExpr>,
) -> Option<Filter> {
    match (left.downcast_ref::<Literal>(), right.downcast_ref::<Literal>()) {
        (None, Some(literal)) => compared(def, column(left)?, op, literal.value()),
        (Some(literal), None) => compared(def, column(right)?, op.swap()?, literal.value()),
        _ => None,
    }
}

/// A column, or one that is compared as another type.
fn column(side: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    match side.downcast_ref::<CastExpr>() {
        Some(cast) => cast.expr().downcast_ref::<Column>(),
        None => side.downcast_ref::<Column>(),
    }
    .map(Column::name)
}

/// What holds for rows of which one or the other does: on each column that both bound, the wider bounds.
fn either(def: &TableDef, left: &[Filter], right: &[Filter]) -> Vec<Filter> {
    let wider = |one: &Filter| {
        let ty = &columns_of(def)[one.column].ty;
        let other = right.iter().find(|other| other.column == one.column)?;
        let from = outer(ty, &one.from, &other.from, true);
        let to = outer(ty, &one.to, &other.to, false);
        let is_bounded = (&from, &to) != (&Bound::Unbounded, &Bound::Unbounded);
        is_bounded.then_some(Filter { column: one.column, from, to })
    };
    left.iter().filter_map(wider).collect()
}

fn outer(ty: &CqlType, one: &Bound<Bytes>, other: &Bound<Bytes>, lower: bool) -> Bound<Bytes> {
    let (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) = (one, other)
    else {
        return Bound::Unbounded;
    };
    let order = value::compare(ty, a, b);
    match if lower { order } else { order.reverse() } {
        std::cmp::Ordering::Less => one.clone(),
        std::cmp::Ordering::Greater => other.clone(),
        std::cmp::Ordering::Equal if matches!(one, Bound::Included(_)) => one.clone(),
        std::cmp::Ordering::Equal => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_expr::expressions::{binary, col, is_null, lit};

    use super::*;

    type Expr = Arc<dyn PhysicalExpr>;

    fn def() -> Arc<TableDef> {
        let columns = [("id", CqlType::Int), ("price", CqlType::Int), ("name", CqlType::Text)];
        engine::VirtualTable::new("k", "t", 1, 0, &columns, Vec::new).def
    }

    fn is(name: &str, op: Operator, value: i32) -> Expr {
        let schema = engine::scan::schema_of(&def());
        binary(col(name, &schema).expect("a column"), op, lit(value), &schema).expect("a comparison")
    }

    fn both(left: Expr, op: Operator, right: Expr) -> Expr {
        binary(left, op, right, &Schema::empty()).expect("two conditions")
    }

    fn null(name: &str) -> Expr {
        is_null(col(name, &engine::scan::schema_of(&def())).expect("a column")).expect("a condition")
    }

    fn check(condition: &Expr, expected: &[(usize, Bound<i32>, Bound<i32>)]) {
        let bytes = |bound: Bound<i32>| bound.map(|value| Bytes::copy_from_slice(&value.to_be_bytes()));
        let expected: Vec<Filter> = expected
            .iter()
            .map(|(column, from, to)| Filter { column: *column, from: bytes(*from), to: bytes(*to) })
            .collect();
        assert_eq!(conditions(&def(), condition), expected, "{condition}");
    }

    #[test]
    fn what_operators_find_out_bounds_columns() {
        use Bound::{Excluded, Included, Unbounded};
        use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, Or};
        check(&is("price", Lt, 7), &[(1, Unbounded, Excluded(7))]);
        let between = both(is("price", GtEq, 3), And, is("price", LtEq, 7));
        check(&between, &[(1, Included(3), Unbounded), (1, Unbounded, Included(7))]);
        // ORDER BY price, id: before (7, 3).
        let tie = both(is("price", Eq, 7), And, is("id", Lt, 3));
        let order = both(is("price", Lt, 7), Or, tie);
        check(&order, &[(1, Unbounded, Included(7))]);
        // Two ranges: the one around both, and none if it has no end.
        let ranges = both(is("id", Eq, 9), Or, is("id", Eq, -2));
        check(&ranges, &[(0, Included(-2), Included(9))]);
        check(&both(is("id", Lt, 1), Or, is("id", Gt, 2)), &[]);
        check(&both(is("id", Lt, 1), Or, is("price", Lt, 1)), &[]);
    }

    #[test]
    fn where_nulls_are_wanted_too_nothing_is_left_out() {
        use Operator::{Gt, Or};
        check(&both(null("price"), Or, is("price", Gt, 7)), &[]);
        // But a partition key is never null.
        check(&both(null("id"), Or, is("id", Gt, 7)), &[(0, Bound::Excluded(7), Bound::Unbounded)]);
        check(&lit(false), &[]);
    }

    #[test]
    fn a_dynamic_filter_counts_as_it_is_when_it_has_changed() {
        let schema = engine::scan::schema_of(&def());
        let price = col("price", &schema).expect("a column");
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![price], lit(true)));
        let condition: Expr = dynamic.clone();
        assert!(Narrowing::is_dynamic(&condition) && !Narrowing::is_dynamic(&lit(true)));
        let mut narrowing = Narrowing::new(def(), &[condition]);
        assert_eq!(narrowing.changed(), None);
        dynamic.update(is("price", Operator::Lt, 7)).expect("updated");
        assert_eq!(narrowing.changed().map(|filters| filters.len()), Some(1));
        assert_eq!(narrowing.changed(), None);
    }
}
