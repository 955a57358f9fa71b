//! Calls of functions that DataFusion knows by another name, or as another expression.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, OrderByExpr, OrderByOptions, Value, ValueWithSpan,
};

use crate::engine::parse::syntax::{binary, call, cast, is_call_of, nested, of_names};
use crate::engine::types::exact::PERCENTILE;

/// Renames functions that DataFusion knows by another name. Returns an expression for those it has
/// as an operator.
pub(super) fn function_of(function: &mut Function) -> Option<Expr> {
    for (name, other) in [("ceiling", "ceil"), ("every", "bool_and"), ("variance", "var_samp")] {
        if is_call_of(function, name) {
            function.name = of_names(&[other]);
        }
    }
    sort_distinct(function);
    if is_call_of(function, "percentile_cont") && function.over.is_none() {
        return percentile(function);
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let arguments: Option<Vec<&Expr>> = list
        .args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect();
    let is_null = |expr: &Expr| matches!(expr, Expr::Value(ValueWithSpan { value: Value::Null, .. }));
    match arguments?[..] {
        // DataFusion takes a null without a type for no array.
        [null, array] | [array, null] if is_call_of(function, "array_cat") && is_null(null) => {
            Some(array.clone())
        }
        [value, divisor] if is_call_of(function, "mod") => {
            let (value, divisor) = (nested(value.clone()), nested(divisor.clone()));
            Some(nested(binary(value, BinaryOperator::Modulo, divisor)))
        }
        _ => None,
    }
}

/// Sorts the distinct values that an aggregate collects, as PostgreSQL does.
fn sort_distinct(function: &mut Function) {
    if !is_call_of(function, "array_agg") && !is_call_of(function, "string_agg") {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        && list.clauses.is_empty()
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) = list.args.first()
    {
        let options = OrderByOptions { asc: None, nulls_first: None };
        let order = OrderByExpr { expr: expr.clone(), options, with_fill: None };
        list.clauses = vec![FunctionArgumentClause::OrderBy(vec![order])];
    }
}

/// Returns `percentile_cont` as a function of a sorted array.
fn percentile(function: &Function) -> Option<Expr> {
    let ([order], FunctionArguments::List(list)) = (&function.within_group[..], &function.args) else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(fraction))] = &list.args[..] else { return None };
    let number = cast(order.expr.clone(), DataType::DoublePrecision);
    let known = Expr::IsNotNull(Box::new(nested(order.expr.clone())));
    let filter = match &function.filter {
        None => known,
        Some(filter) => binary(nested((**filter).clone()), BinaryOperator::And, known),
    };
    let Expr::Function(mut sorted) = call("array_agg", vec![number]) else { return None };
    if let FunctionArguments::List(list) = &mut sorted.args {
        list.clauses = vec![FunctionArgumentClause::OrderBy(vec![order.clone()])];
    }
    sorted.filter = Some(Box::new(filter));
    Some(call(PERCENTILE, vec![Expr::Function(sorted), fraction.clone()]))
}
