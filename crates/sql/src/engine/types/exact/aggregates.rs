//! Replaces calls of aggregate and window functions.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, WindowFunctionDefinition};
use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::byte_strings::has_bytes;
use crate::engine::types::exact::casts::as_type;
use crate::engine::types::exact::{byte_strings, extremes, intervals, totals};

/// Returns the call of an aggregate with PostgreSQL's types.
///
/// # Errors
/// The function is not supported for the types of its arguments.
pub(super) fn aggregate(call: AggregateFunction, schema: &DFSchema) -> Result<Expr> {
    let AggregateFunction { mut func, mut params } = call;
    if func.name() == "count" {
        restore_one(&mut params.args);
    }
    if let Some(small) = small_sum(func.name(), &mut params.args, schema) {
        func = small;
    }
    if let [argument] = &params.args[..]
        && let Ok(ty) = argument.get_type(schema)
        && let Some(of_floats) = extremes::of_floats(func.name(), &ty)
    {
        func = of_floats;
    }
    params.args = compared(func.name(), params.args, params.distinct, schema)?;
    params.order_by = intervals::as_keys(params.order_by, schema);
    Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
}

/// Returns the call of a window function with PostgreSQL's types.
///
/// # Errors
/// The function is not supported for the types of its arguments.
pub(super) fn window(call: WindowFunction, schema: &DFSchema) -> Result<Expr> {
    let WindowFunction { mut fun, mut params } = call;
    if fun.name() == "count" {
        restore_one(&mut params.args);
    }
    if let Some(small) = small_sum(fun.name(), &mut params.args, schema) {
        fun = WindowFunctionDefinition::AggregateUDF(small);
    }
    if matches!(fun.name(), "lead" | "lag") {
        params.args = shifted(params.args, schema)?;
    }
    params.args = compared(fun.name(), params.args, params.distinct, schema)?;
    params.order_by = intervals::as_keys(params.order_by, schema);
    params.partition_by = intervals::as_lengths(params.partition_by, schema);
    Ok(Expr::WindowFunction(Box::new(WindowFunction { fun, params })))
}

/// Replaces intervals by their lengths in the arguments of an aggregate that compares them.
///
/// # Errors
/// The aggregate would return an interval, not its length.
fn compared(name: &str, args: Vec<Expr>, is_distinct: bool, schema: &DFSchema) -> Result<Vec<Expr>> {
    match name {
        "count" if is_distinct => Ok(intervals::as_lengths(args, schema)),
        "min" | "max" | "sum" | "avg"
            if args.iter().any(|argument| intervals::is_interval(argument, schema)) =>
        {
            intervals::not_supported(name)
        }
        "string_agg" if args.iter().any(|argument| has_bytes(argument, schema)) => {
            byte_strings::not_supported(name)
        }
        _ if is_distinct && args.iter().any(|argument| intervals::is_interval(argument, schema)) => {
            intervals::not_supported("DISTINCT")
        }
        _ => Ok(args),
    }
}

/// Returns the function for `sum` of `smallint` or `integer`, and converts its argument.
fn small_sum(name: &str, args: &mut [Expr], schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
    let [argument] = args else { return None };
    let is_small = |ty: &DataType| matches!(ty, DataType::Int8 | DataType::Int16 | DataType::Int32);
    let ty = argument.get_type(schema).ok().filter(|ty| name == "sum" && is_small(ty))?;
    *argument = as_type(std::mem::take(argument), &ty, &DataType::Int64);
    Some(totals::small_sum())
}

/// Returns the arguments of `lead` and `lag`. An offset that is null makes the result null.
fn shifted(args: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
    let is_null = |expr: &Expr| match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => matches!(&*cast.expr, Expr::Literal(value, _) if value.is_null()),
        _ => false,
    };
    match &args[..] {
        [value, offset, ..] if is_null(offset) => {
            let null = ScalarValue::try_from(&value.get_type(schema)?)?;
            Ok(vec![Expr::Literal(null, None)])
        }
        _ => Ok(args),
    }
}

/// Restores the `bigint` argument 1, by which optimizer rules recognize `count(*)`.
fn restore_one(arguments: &mut [Expr]) {
    if let [Expr::Literal(value @ ScalarValue::Int32(Some(1)), _)] = arguments {
        *value = ScalarValue::Int64(Some(1));
    }
}
