//! Replaces expressions of a plan: constants, and those that compare or have a subquery. Operators,
//! casts and calls have files of their own.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InList, InSubquery, SetComparison};
use datafusion::logical_expr::{
    Between, Case, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Subquery,
};
use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::byte_strings::has_bytes;
use crate::engine::types::exact::casts::UNCONSTRAINED;
use crate::engine::types::exact::decimals::DIGITS_MAX;
use crate::engine::types::exact::lists::KEPT;
use crate::engine::types::exact::type_names::{is_int, refused};
use crate::engine::types::exact::{
    Pass, aggregates, arithmetic, byte_strings, casts, common, intervals, lists, moments, subqueries,
};
use crate::failure::state;

impl Pass<'_> {
    /// Replaces an expression over columns of `schema`. Its parts are replaced already.
    pub(super) fn expression(self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let type_of = |expr: &Expr| expr.get_type(schema).ok().filter(|ty| *ty != DataType::Null);
        Ok(match expr {
            Expr::Literal(value, metadata) => match constant(&value) {
                Some(value) => Transformed::yes(Expr::Literal(value, metadata)),
                None => Transformed::no(Expr::Literal(value, metadata)),
            },
            Expr::Negative(inner) => match type_of(&inner) {
                Some(ty) if is_int(&ty) => Transformed::yes(arithmetic::negative(*inner, &ty)?),
                _ => Transformed::no(Expr::Negative(inner)),
            },
            Expr::BinaryExpr(binary) => match (type_of(&binary.left), type_of(&binary.right)) {
                (Some(left), Some(right)) => Transformed::yes(self.operator(binary, left, right)?),
                _ => Transformed::no(Expr::BinaryExpr(binary)),
            },
            Expr::Cast(cast) => match type_of(&cast.expr) {
                Some(from) => Transformed::yes(casts::planned(*cast.expr, &from, &cast.field)?),
                None if *cast.field.data_type() == UNCONSTRAINED => {
                    let plain = DataType::Decimal128(DIGITS_MAX, 10);
                    Transformed::yes(Expr::Cast(Cast::new(cast.expr, plain)))
                }
                None => Transformed::no(Expr::Cast(cast)),
            },
            Expr::Case(case) => Transformed::yes(self.case(case, schema)?),
            Expr::InList(list) => Transformed::yes(self.in_list(list, schema)?),
            Expr::Between(between) => Transformed::yes(self.between(between, schema)?),
            Expr::AggregateFunction(call) => Transformed::yes(aggregates::aggregate(call, schema)?),
            Expr::WindowFunction(call) => Transformed::yes(aggregates::window(*call, schema)?),
            // Its second argument has told two aggregates apart.
            Expr::ScalarFunction(mut call) if call.func.name() == KEPT && call.args.len() == 2 => {
                Transformed::yes(call.args.swap_remove(0))
            }
            Expr::ScalarFunction(call) => Transformed::yes(self.call(call, schema)?),
            // DataFusion has two opinions on whether their results may be null.
            Expr::IsUnknown(inner) => Transformed::yes(Expr::IsNull(inner)),
            Expr::IsNotUnknown(inner) => Transformed::yes(Expr::IsNotNull(inner)),
            Expr::Like(like) | Expr::SimilarTo(like) if has_bytes(&like.expr, schema) => {
                return byte_strings::not_supported("LIKE");
            }
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => {
                Transformed::yes(self.with_subquery(expr, schema)?)
            }
            other => Transformed::no(other),
        })
    }

    fn case(self, mut case: Case, schema: &DFSchema) -> Result<Expr> {
        if let Some(of) = case.expr.take_if(|of| intervals::is_interval(of, schema)) {
            case.expr = Some(Box::new(moments::span(*of)));
            for (when, _) in &mut case.when_then_expr {
                **when = intervals::as_length(std::mem::take(when), schema);
            }
        }
        if let Some(of) = case.expr.as_deref().filter(|of| has_bytes(of, schema)) {
            let whens = case.when_then_expr.iter().map(|(when, _)| (**when).clone()).collect();
            let (_, whens) = common::with_first(of.clone(), whens, schema, self.zone)?;
            for ((when, _), converted) in case.when_then_expr.iter_mut().zip(whens) {
                **when = converted;
            }
        }
        Ok(Expr::Case(common::case(case, schema)?))
    }

    fn in_list(self, list: InList, schema: &DFSchema) -> Result<Expr> {
        let InList { expr, list, negated } = list;
        let (expr, list) = common::with_first(*expr, list, schema, self.zone)?;
        let (expr, list) = (intervals::as_length(expr, schema), intervals::as_lengths(list, schema));
        Ok(Expr::InList(InList { expr: Box::new(expr), list, negated }))
    }

    fn between(self, between: Between, schema: &DFSchema) -> Result<Expr> {
        if let Ok(ty @ DataType::List(_)) = between.expr.get_type(schema) {
            return self.between_arrays(between, &ty, schema);
        }
        let Between { expr, negated, low, high } = between;
        let (expr, bounds) = common::with_first(*expr, vec![*low, *high], schema, self.zone)?;
        let Ok([low, high]) = <[Expr; 2]>::try_from(intervals::as_lengths(bounds, schema)) else {
            return refused(state::INTERNAL, "two bounds");
        };
        Ok(Expr::Between(Between {
            expr: Box::new(intervals::as_length(expr, schema)),
            negated,
            low: Box::new(low),
            high: Box::new(high),
        }))
    }

    /// Replaces the plan of an expression's subquery.
    fn with_subquery(self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        Ok(match expr {
            Expr::ScalarSubquery(subquery) => {
                Expr::ScalarSubquery(nullable(self.subquery(subquery, schema)?)?)
            }
            Expr::Exists(Exists { subquery, negated }) => {
                let subquery = self.subquery(subquery, schema)?;
                Expr::Exists(Exists { subquery, negated })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                if intervals::is_interval(&expr, schema) {
                    return intervals::not_supported("IN (SELECT …)");
                }
                let subquery = self.subquery(subquery, schema)?;
                Expr::InSubquery(InSubquery { expr, subquery, negated })
            }
            Expr::SetComparison(comparison) => {
                if intervals::is_interval(&comparison.expr, schema) {
                    return intervals::not_supported("Comparison with a subquery");
                }
                if subqueries::has_subquery(&comparison.expr) {
                    let text = "a subquery on the left of ALL (SELECT …) is not supported: join instead";
                    return refused(state::UNSUPPORTED, text);
                }
                let subquery = self.subquery(comparison.subquery, schema)?;
                Expr::SetComparison(SetComparison { subquery, ..comparison })
            }
            other => other,
        })
    }
}

/// Makes the column of a scalar subquery nullable: without a row its value is null.
fn nullable(mut subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let plan = match plan.schema().fields().iter().next().is_some_and(|field| !field.is_nullable()) {
        true if subquery.outer_ref_columns.is_empty() => {
            let column = Expr::from(plan.schema().qualified_field(0));
            let name = column.schema_name().to_string();
            let expr = lists::nullable(column).alias(name);
            LogicalPlanBuilder::from(plan.clone()).project([expr])?.build()?
        }
        _ => plan,
    };
    subquery.subquery = Arc::<LogicalPlan>::new(plan);
    Ok(subquery)
}

/// Returns a constant with PostgreSQL's type. `None` if DataFusion's type is the same.
fn constant(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Int64(Some(number)) => Some(ScalarValue::Int32(Some(i32::try_from(*number).ok()?))),
        // DataFusion gives constants with an exponent a negative scale.
        ScalarValue::Decimal128(Some(number), _, scale @ ..0) => {
            let power = 10_i128.checked_pow(u32::from(scale.unsigned_abs()))?;
            let number =
                number.checked_mul(power).filter(|number| number.unsigned_abs() < 10_u128.pow(38))?;
            Some(ScalarValue::Decimal128(Some(number), 38, 0))
        }
        ScalarValue::UInt64(Some(number)) => Some(ScalarValue::Decimal128(Some(i128::from(*number)), 20, 0)),
        _ => None,
    }
}
