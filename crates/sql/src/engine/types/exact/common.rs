//! Finds the common type of values in one column: branches of `CASE`, arguments of `coalesce`,
//! rows of `VALUES`, inputs of `UNION`. DataFusion converts numbers to text if one value is text.
//! PostgreSQL converts constant texts to the type of the other values, and refuses other texts.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::coerce_plan_expr_for_schema;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Case, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, Union,
};

use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::casts::{self, as_type};
use crate::engine::types::exact::decimals::decimal_of;
use crate::engine::types::exact::type_names::{is_int, is_text, refused, type_name};
use crate::failure::state;

/// Returns the common type of `types`. `None` if they have none.
pub(super) fn common_type<'a>(types: impl Iterator<Item = &'a DataType>) -> Option<DataType> {
    types.cloned().map(Some).reduce(|one, other| {
        let (one, other) = (one?, other?);
        match (&one, &other) {
            (DataType::Null, ty) | (ty, DataType::Null) => Some(ty.clone()),
            (one, other) if one == other => Some(one.clone()),
            (one, other) if is_int(one) && is_int(other) => type_union_coercion(one, other),
            (one, other) => type_union_coercion(&numeric(one, other), &numeric(other, one)),
        }
    })?
}

/// Returns the decimal type of a whole number if `other` is a decimal, and `double precision` for
/// other numbers beside floating point. Else returns `one`.
fn numeric(one: &DataType, other: &DataType) -> DataType {
    match other {
        other if is_float(other) && (one.is_decimal() || is_int(one)) => DataType::Float64,
        DataType::Decimal128(..) => decimal_of(one),
        _ => one.clone(),
    }
}

fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::Float32 | DataType::Float64)
}

/// Returns the types in which values of two types are compared, where DataFusion has others:
/// floating point and other numbers as `double precision`, and local times as points in time of the
/// zone.
pub(super) fn compared_as(left: &DataType, right: &DataType, zone: &str) -> Option<(DataType, DataType)> {
    let is_mixed = |one: &DataType, other: &DataType| is_float(one) && (other.is_decimal() || is_int(other));
    if is_mixed(left, right) || is_mixed(right, left) {
        return Some((DataType::Float64, DataType::Float64));
    }
    let is_local = |ty: &DataType| matches!(ty, DataType::Date32 | DataType::Timestamp(_, None));
    let point = || DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from(zone)));
    match (left, right) {
        (DataType::Timestamp(_, Some(_)), other) if is_local(other) => Some((left.clone(), point())),
        (other, DataType::Timestamp(_, Some(_))) if is_local(other) => Some((point(), right.clone())),
        _ => None,
    }
}

/// True for types that constant texts are converted to.
fn is_read(ty: &DataType) -> bool {
    ty.is_numeric()
        || matches!(
            ty,
            DataType::Boolean
                | DataType::Binary
                | DataType::Date32
                | DataType::List(_)
                | DataType::Time64(_)
                | DataType::Timestamp(
                    TimeUnit::Microsecond | TimeUnit::Nanosecond | TimeUnit::Millisecond,
                    _
                )
                | DataType::Interval(IntervalUnit::MonthDayNano)
        )
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Alias(alias) => is_constant(&alias.expr),
        _ => false,
    }
}

/// Returns the common type of expressions. Constant texts do not affect it. `None` leaves the
/// conversion to DataFusion.
fn resolved(exprs: &[&Expr], schema: &DFSchema) -> Result<Option<DataType>> {
    let types: Result<Vec<DataType>> = exprs.iter().map(|expr| expr.get_type(schema)).collect();
    // Parameters may have no type.
    let Ok(types) = types else { return Ok(None) };
    let others = || exprs.iter().zip(&types).filter(|(expr, ty)| !(is_text(ty) && is_constant(expr)));
    let others = || others().map(|(_, ty)| ty).filter(|ty| **ty != DataType::Null);
    if others().any(is_text) && others().any(|ty| !is_text(ty)) {
        let mut names: Vec<String> = others().map(type_name).collect();
        names.dedup();
        return refused(state::TYPE, format!("types {} cannot be matched", names.join(" and ")));
    }
    match common_type(others()) {
        Some(ty) if is_read(&ty) => Ok(Some(ty)),
        _ => Ok(None),
    }
}

fn converted(expr: Expr, schema: &DFSchema, to: &DataType) -> Result<Expr> {
    let from = expr.get_type(schema)?;
    Ok(match from {
        from if is_text(&from) => casts::convert_now(expr, to)?,
        from => as_type(expr, &from, to),
    })
}

/// Converts expressions to their common type.
pub(super) fn one_type(exprs: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let Some(ty) = resolved(&exprs.iter().collect::<Vec<_>>(), schema)? else { return Ok(exprs) };
    exprs.into_iter().map(|expr| converted(expr, schema, &ty)).collect()
}

/// Converts constant texts in a comparison of `first` with `others`, and what DataFusion would
/// compare otherwise ([`compared_as`]). Other types can be compared and stay.
pub(super) fn with_first(
    first: Expr,
    others: Vec<Expr>,
    schema: &DFSchema,
    zone: &str,
) -> Result<(Expr, Vec<Expr>)> {
    let mut all = vec![&first];
    all.extend(&others);
    let ty = resolved(&all, schema)?;
    let types: Vec<DataType> = all.iter().filter_map(|expr| expr.get_type(schema).ok()).collect();
    let is_point = |ty: &DataType| matches!(ty, DataType::Timestamp(_, Some(_)));
    let beside = types.iter().find(|ty| is_point(ty)).or_else(|| types.iter().find(|ty| is_float(ty)));
    let one = |expr: Expr| match (expr.get_type(schema), &ty) {
        (Ok(from), Some(ty)) if is_text(&from) => match ty {
            // Constants may be finer than columns.
            DataType::Timestamp(_, zone) => {
                casts::convert(expr, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
            }
            ty => casts::convert(expr, ty),
        },
        (Ok(from), _) => match beside.and_then(|beside| compared_as(&from, beside, zone)) {
            Some((to, _)) => as_type(expr, &from, &to),
            None => expr,
        },
        _ => expr,
    };
    Ok((one(first), others.into_iter().map(one).collect()))
}

/// Converts the branches of a `CASE` to their common type.
pub(super) fn case(case: Case, schema: &DFSchema) -> Result<Case> {
    let Case { expr, when_then_expr, else_expr } = case;
    let results: Vec<&Expr> =
        when_then_expr.iter().map(|(_, then)| &**then).chain(else_expr.as_deref()).collect();
    let Some(ty) = resolved(&results, schema)? else { return Ok(Case { expr, when_then_expr, else_expr }) };
    let one = |result: Box<Expr>| -> Result<Box<Expr>> { Ok(Box::new(converted(*result, schema, &ty)?)) };
    let when_then_expr: Result<Vec<_>> =
        when_then_expr.into_iter().map(|(when, then)| Ok((when, one(then)?))).collect();
    Ok(Case { expr, when_then_expr: when_then_expr?, else_expr: else_expr.map(one).transpose()? })
}

/// Returns the `VALUES` of `rows`, with each column converted to its common type.
pub(super) fn values(mut rows: Vec<Vec<Expr>>) -> Result<LogicalPlan> {
    let schema = DFSchema::empty();
    for column in 0..rows.first().map_or(0, Vec::len) {
        let exprs: Vec<&Expr> = rows.iter().filter_map(|row| row.get(column)).collect();
        let Some(ty) = resolved(&exprs, &schema)? else { continue };
        for row in &mut rows {
            let expr = std::mem::take(&mut row[column]);
            row[column] = converted(expr, &schema, &ty)?;
        }
    }
    LogicalPlanBuilder::values(rows)?.build()
}

/// Returns the union of `inputs`, with each column converted to its common type.
pub(super) fn union(inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    let mut inputs: Vec<LogicalPlan> = inputs.into_iter().map(Arc::unwrap_or_clone).collect();
    let columns = inputs.first().map_or(0, |input| input.schema().fields().len());
    for column in 0..columns {
        let empty = DFSchema::empty();
        let exprs: Vec<Expr> = inputs.iter().map(|input| output_of(input, column)).collect();
        let types: Vec<DataType> = exprs
            .iter()
            .zip(&inputs)
            .map(|(expr, input)| match expr {
                expr if is_constant(expr) => expr.get_type(&empty),
                _ => Ok(input.schema().field(column).data_type().clone()),
            })
            .collect::<Result<_>>()?;
        let is_constant_text = |place: usize| is_text(&types[place]) && is_constant(&exprs[place]);
        let others =
            || (0..inputs.len()).filter(|place| !is_constant_text(*place)).map(|place| &types[place]);
        let others = || others().filter(|ty| **ty != DataType::Null);
        if others().any(is_text) && others().any(|ty| !is_text(ty)) {
            return refused(state::TYPE, "UNION types text and another cannot be matched");
        }
        let Some(ty) = common_type(others()).filter(is_read) else { continue };
        for (place, input) in inputs.iter_mut().enumerate() {
            if types[place] == ty {
                continue;
            }
            let plan = std::mem::take(input);
            *input = with_column(plan, column, &ty)?;
        }
    }
    let inputs: Vec<Arc<LogicalPlan>> = inputs.into_iter().map(Arc::new).collect();
    Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
}

/// Removes the type that DataFusion's planner gave to nulls in `VALUES` of whole numbers.
pub(super) fn without_casts(node: LogicalPlan) -> LogicalPlan {
    let LogicalPlan::Values(mut values) = node else { return node };
    let is_number = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Int64(Some(_)), _));
    for column in 0..values.values.first().map_or(0, Vec::len) {
        if !values.values.iter().any(|row| is_number(&row[column])) {
            continue;
        }
        for row in &mut values.values {
            let null = match &row[column] {
                Expr::Cast(cast) => matches!(&*cast.expr, Expr::Literal(value, _) if value.is_null()),
                expr => matches!(expr, Expr::Literal(ScalarValue::Int64(None), _)),
            };
            if null {
                row[column] = Expr::Literal(ScalarValue::Null, None);
            }
        }
    }
    LogicalPlan::Values(values)
}

/// Returns the expression of a plan's column: that of a projection, else the column itself.
fn output_of(plan: &LogicalPlan, column: usize) -> Expr {
    match plan {
        LogicalPlan::Projection(projection) => projection.expr[column].clone(),
        plan => Expr::from(plan.schema().qualified_field(column)),
    }
}

/// Returns the plan with a column converted to another type.
fn with_column(plan: LogicalPlan, column: usize, ty: &DataType) -> Result<LogicalPlan> {
    let schema = plan.schema().clone();
    let exprs = (0..schema.fields().len()).map(|place| {
        let (relation, field) = schema.qualified_field(place);
        let expr = Expr::from((relation, field));
        if place != column {
            return Ok(expr);
        }
        let name = field.name().clone();
        Ok(converted(expr, &schema, ty)?.alias_qualified(relation.cloned(), name))
    });
    let exprs: Result<Vec<Expr>> = exprs.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs?, Arc::new(plan))?))
}

/// Converts the columns of a plan to the types of `schema`, where possible.
pub(super) fn as_columns(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    coerce_plan_expr_for_schema(plan, schema)
}
