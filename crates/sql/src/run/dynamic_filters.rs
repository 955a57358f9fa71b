//! Dynamic filters: conditions that a running query learns about the rows that it still needs. For
//! `ORDER BY x LIMIT 10`, once ten rows are there, only rows before the last of them count. A join
//! that has read one side knows the least and the greatest key for the other. DataFusion's
//! operators publish this as *dynamic filters*. A scan checks them between batches and skips
//! blocks without reading them.
//!
//! ```text
//!   SortExec: TopK(10) ──"x < 7"──▶ ScanExec ──Filter { x: ..7 }──▶ BatchSource::push_down
//!        ▲                                                              │
//!        └──────────────────────── batches ◀────────────────────────────┘
//! ```
//!
//! Dynamic filters only save time. A condition that is not understood here is left to the operator
//! that made it. `ORDER BY x DESC` gives a scan no filter if `x` may be null: nulls come first,
//! and zone maps do not record them. With `NULLS LAST` it does.

use std::sync::Arc;

use ::schema::{ColumnKind, TableDef, value};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, DynamicFilterTracking, InListExpr,
    IsNullExpr, Literal,
};
use datafusion::scalar::ScalarValue;
use engine::Relation;
use engine::scan::Filter;

use crate::run::filter::{any_of, compared, one_of};

/// The dynamic filters of one partition of a scan.
#[derive(Debug)]
pub(crate) struct DynamicFilters {
    relation: Relation,
    watched: Vec<(Arc<dyn PhysicalExpr>, DynamicFilterTracking)>,
    /// No check so far: the first one reports what is known already.
    is_new: bool,
}

impl DynamicFilters {
    /// Returns true if a condition may change while a query runs.
    pub(crate) fn is_dynamic(condition: &Arc<dyn PhysicalExpr>) -> bool {
        DynamicFilterTracking::classify(condition).contains_dynamic_filter()
    }

    pub(crate) fn new(relation: Relation, conditions: &[Arc<dyn PhysicalExpr>]) -> DynamicFilters {
        let watched = conditions.iter().map(|c| (c.clone(), DynamicFilterTracking::classify(c))).collect();
        let is_new = !conditions.is_empty();
        DynamicFilters { relation, watched, is_new }
    }

    /// Returns filters that every row still needed meets. `None` if nothing has changed since the
    /// last call.
    pub(crate) fn changed(&mut self) -> Option<Vec<Filter>> {
        let mut changed = std::mem::take(&mut self.is_new);
        for (_, tracking) in &mut self.watched {
            changed |= tracking.watcher().is_some_and(|watcher| watcher.changed());
        }
        changed.then(|| {
            self.watched.iter().flat_map(|(condition, _)| conditions(&self.relation, condition)).collect()
        })
    }
}

/// Converts a condition to filters that all hold where the condition holds. Empty if the scan
/// cannot use it.
fn conditions(relation: &Relation, condition: &Arc<dyn PhysicalExpr>) -> Vec<Filter> {
    let def = &relation.def;
    if let Some(dynamic) = condition.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return dynamic.current().map_or_else(|_| Vec::new(), |current| conditions(relation, &current));
    }
    if let Some(list) = condition.downcast_ref::<InListExpr>().filter(|list| !list.negated()) {
        let values = list.list().iter().map(|one| one.downcast_ref::<Literal>().map(Literal::value));
        return column(list.expr()).and_then(|name| one_of(def, name, values)).into_iter().collect();
    }
    if let Some(case) = condition.downcast_ref::<CaseExpr>() {
        return one_of_cases(relation, case);
    }
    let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Vec::new() };
    let (left, right) = (binary.left(), binary.right());
    match binary.op() {
        Operator::And => {
            let mut both = conditions(relation, left);
            both.extend(conditions(relation, right));
            both
        }
        Operator::Or if is_never(relation, left) => conditions(relation, right),
        Operator::Or => any_of(def, [left, right].into_iter().map(|side| conditions(relation, side))),
        op => comparison(def, left, *op, right).into_iter().collect(),
    }
}

/// Returns filters that hold in every case of `case`. A partitioned join makes one case for each
/// partition.
fn one_of_cases(relation: &Relation, case: &CaseExpr) -> Vec<Filter> {
    let is_false = |part: &&Arc<dyn PhysicalExpr>| {
        let literal = part.downcast_ref::<Literal>();
        literal.is_some_and(|literal| *literal.value() == ScalarValue::Boolean(Some(false)))
    };
    let parts = case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr());
    let parts = parts.filter(|part| !is_false(part)).map(|part| conditions(relation, part));
    any_of(&relation.def, parts)
}

/// Returns true if the condition is `IS NULL` of a column that cannot be null.
fn is_never(relation: &Relation, condition: &Arc<dyn PhysicalExpr>) -> bool {
    let def = &relation.def;
    let tested = condition.downcast_ref::<IsNullExpr>().and_then(|is_null| column(is_null.arg()));
    let Some((_, column)) = tested.and_then(|name| def.column(name)) else { return false };
    match column.kind {
        // Empty numbers are null. The whole key of a table is never empty; that of a view may be.
        ColumnKind::PartitionKey(_) => {
            let is_whole = relation.base.is_none() && def.partition_key().count() == 1;
            is_whole || !value::is_empty(&column.ty, &[])
        }
        // A partition with static cells only yields a row whose clustering columns are null.
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

/// Returns the name of a column, also under a cast.
fn column(side: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    match side.downcast_ref::<CastExpr>() {
        Some(cast) => cast.expr().downcast_ref::<Column>(),
        None => side.downcast_ref::<Column>(),
    }
    .map(Column::name)
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use ::schema::CqlType;
    use bytes::Bytes;
    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_expr::expressions::{binary, col, in_list, is_null, lit};

    use super::*;

    type Expr = Arc<dyn PhysicalExpr>;

    fn def() -> Arc<TableDef> {
        let columns = [("id", CqlType::Int), ("price", CqlType::Int), ("name", CqlType::Text)];
        engine::VirtualTable::new("k", "t", 1, 0, &columns, Vec::new).def
    }

    fn is(name: &str, op: Operator, value: i32) -> Expr {
        let schema = engine::scan::schema_of(&def(), 6);
        binary(col(name, &schema).expect("a column"), op, lit(value), &schema).expect("a comparison")
    }

    fn both(left: Expr, op: Operator, right: Expr) -> Expr {
        binary(left, op, right, &Schema::empty()).expect("two conditions")
    }

    fn null(name: &str) -> Expr {
        is_null(col(name, &engine::scan::schema_of(&def(), 6)).expect("a column")).expect("a condition")
    }

    fn check(condition: &Expr, expected: &[(usize, Bound<i32>, Bound<i32>)]) {
        let bytes = |bound: Bound<i32>| bound.map(|value| Bytes::copy_from_slice(&value.to_be_bytes()));
        let expected: Vec<Filter> = expected
            .iter()
            .map(|(column, from, to)| Filter::between(*column, bytes(*from), bytes(*to)))
            .collect();
        let found =
            conditions(&def().into(), condition).into_iter().map(|filter| Filter { values: None, ..filter });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{condition}");
    }

    #[test]
    fn conditions_of_operators_bound_columns() {
        use Bound::{Excluded, Included, Unbounded};
        use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, Or};
        check(&is("price", Lt, 7), &[(1, Unbounded, Excluded(7))]);
        let between = both(is("price", GtEq, 3), And, is("price", LtEq, 7));
        check(&between, &[(1, Included(3), Unbounded), (1, Unbounded, Included(7))]);
        // ORDER BY price, id: rows before (7, 3).
        let tie = both(is("price", Eq, 7), And, is("id", Lt, 3));
        let order = both(is("price", Lt, 7), Or, tie);
        check(&order, &[(1, Unbounded, Included(7))]);
        // Two ranges give the range around both, and no filter if it is unbounded.
        let ranges = both(is("id", Eq, 9), Or, is("id", Eq, -2));
        check(&ranges, &[(0, Included(-2), Included(9))]);
        check(&both(is("id", Lt, 1), Or, is("id", Gt, 2)), &[]);
        let schema = engine::scan::schema_of(&def(), 6);
        let listed = |negated: bool| {
            let list = vec![lit(9), lit(4), lit(7)];
            in_list(col("price", &schema).expect("a column"), list, &negated, &schema).expect("a list")
        };
        check(&listed(false), &[(1, Included(4), Included(9))]);
        check(&listed(true), &[]);
        check(&both(is("id", Lt, 1), Or, is("price", Lt, 1)), &[]);
    }

    #[test]
    fn filters_hold_in_every_case() {
        use Bound::{Included, Unbounded};
        use Operator::{GtEq, LtEq};
        let case = |parts: &[Expr], otherwise: Expr| -> Expr {
            let cases = parts.iter().enumerate().map(|(n, part)| (lit(n as i32), part.clone())).collect();
            Arc::new(CaseExpr::try_new(Some(lit(1)), cases, Some(otherwise)).expect("a case"))
        };
        let parts = [is("price", GtEq, 7), is("price", GtEq, 4), lit(false)];
        check(&case(&parts, lit(false)), &[(1, Included(4), Unbounded)]);
        check(&case(&parts, lit(true)), &[]);
        check(&case(&[is("price", GtEq, 7), is("id", LtEq, 4)], lit(false)), &[]);
        check(&case(&[lit(false)], lit(false)), &[]);
    }

    #[test]
    fn is_null_prevents_filters() {
        use Operator::{Gt, Or};
        check(&both(null("price"), Or, is("price", Gt, 7)), &[]);
        // The partition key of a table is never null. That of a view may be an empty number.
        let or_null = both(null("id"), Or, is("id", Gt, 7));
        check(&or_null, &[(0, Bound::Excluded(7), Bound::Unbounded)]);
        assert!(conditions(&Relation { base: Some(def()), def: def() }, &or_null).is_empty());
        check(&lit(false), &[]);
    }

    #[test]
    fn changed_dynamic_filter_is_reported_once() {
        let schema = engine::scan::schema_of(&def(), 6);
        let price = col("price", &schema).expect("a column");
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![price], lit(true)));
        let condition: Expr = dynamic.clone();
        assert!(DynamicFilters::is_dynamic(&condition) && !DynamicFilters::is_dynamic(&lit(true)));
        let mut filters = DynamicFilters::new(def().into(), &[condition]);
        assert_eq!(filters.changed(), Some(vec![]), "as it is");
        assert_eq!(filters.changed(), None);
        dynamic.update(is("price", Operator::Lt, 7)).expect("updated");
        assert_eq!(filters.changed().map(|filters| filters.len()), Some(1));
        assert_eq!(filters.changed(), None);
        // A filter that is complete before the scan starts.
        dynamic.mark_complete();
        let mut late = DynamicFilters::new(def().into(), &[dynamic]);
        assert_eq!(late.changed().map(|filters| filters.len()), Some(1));
        assert_eq!(late.changed(), None);
    }
}
