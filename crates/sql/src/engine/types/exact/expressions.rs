//! Replaces expressions of a plan: constants, operators, casts and calls.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions_nested::replace::array_replace_all_udf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Exists, InList, InSubquery, ScalarFunction, SetComparison, WindowFunction,
};
use datafusion::logical_expr::{
    AggregateUDF, Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    Operator, Subquery, WindowFunctionDefinition,
};
use datafusion::scalar::ScalarValue;

use crate::engine::limits::planning;
use crate::engine::types::exact::byte_strings::{has_bytes, is_bytes};
use crate::engine::types::exact::casts::{UNCONSTRAINED, as_type};
use crate::engine::types::exact::decimals::DIGITS_MAX;
use crate::engine::types::exact::lists::KEPT;
use crate::engine::types::exact::type_names::{is_int, is_text, list_of, refused, type_name};
use crate::engine::types::exact::{
    Pass, arithmetic, arrays, byte_strings, casts, common, extremes, intervals, lists, moments, numbers,
    subqueries, totals,
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
                Some(from) => Transformed::yes(self.cast(cast, &from)?),
                None if *cast.field.data_type() == UNCONSTRAINED => {
                    let plain = DataType::Decimal128(DIGITS_MAX, 10);
                    Transformed::yes(Expr::Cast(Cast::new(cast.expr, plain)))
                }
                None => Transformed::no(Expr::Cast(cast)),
            },
            Expr::Case(mut case) => {
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
                Transformed::yes(Expr::Case(common::case(case, schema)?))
            }
            Expr::InList(InList { expr, list, negated }) => {
                let (expr, list) = common::with_first(*expr, list, schema, self.zone)?;
                let (expr, list) = (intervals::as_length(expr, schema), intervals::as_lengths(list, schema));
                Transformed::yes(Expr::InList(InList { expr: Box::new(expr), list, negated }))
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                if let Some(ty @ DataType::List(_)) = type_of(&expr) {
                    return self.between_arrays(Between { expr, negated, low, high }, &ty, schema);
                }
                let (expr, bounds) = common::with_first(*expr, vec![*low, *high], schema, self.zone)?;
                match <[Expr; 2]>::try_from(intervals::as_lengths(bounds, schema)) {
                    Ok([low, high]) => Transformed::yes(Expr::Between(Between {
                        expr: Box::new(intervals::as_length(expr, schema)),
                        negated,
                        low: Box::new(low),
                        high: Box::new(high),
                    })),
                    Err(_) => return refused(state::INTERNAL, "two bounds"),
                }
            }
            // Optimizer rules recognize `count(*)` by its `bigint` argument 1.
            Expr::AggregateFunction(AggregateFunction { mut func, mut params }) => {
                if func.name() == "count" {
                    restore_one(&mut params.args);
                }
                if let Some(small) = small_sum(func.name(), &mut params.args, schema) {
                    func = small;
                }
                if let [argument] = &params.args[..]
                    && let Some(of_floats) =
                        type_of(argument).and_then(|ty| extremes::of_floats(func.name(), &ty))
                {
                    func = of_floats;
                }
                params.args = compared(func.name(), params.args, params.distinct, schema)?;
                params.order_by = intervals::as_keys(params.order_by, schema);
                Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
            }
            Expr::WindowFunction(call) => {
                let WindowFunction { mut fun, mut params } = *call;
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
                Transformed::yes(Expr::WindowFunction(Box::new(WindowFunction { fun, params })))
            }
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
            Expr::ScalarSubquery(subquery) => {
                let subquery = self.subquery(subquery, schema)?;
                Transformed::yes(Expr::ScalarSubquery(nullable(subquery)?))
            }
            Expr::Exists(Exists { subquery, negated }) => {
                let subquery = self.subquery(subquery, schema)?;
                Transformed::yes(Expr::Exists(Exists { subquery, negated }))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                if intervals::is_interval(&expr, schema) {
                    return intervals::not_supported("IN (SELECT …)");
                }
                let subquery = self.subquery(subquery, schema)?;
                Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated }))
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
                Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison }))
            }
            other => Transformed::no(other),
        })
    }

    pub(super) fn operator(
        self,
        mut binary: BinaryExpr,
        mut left: DataType,
        mut right: DataType,
    ) -> Result<Expr> {
        use DataType::{Interval, Timestamp};
        // As in PostgreSQL, a constant text gets the type of the other side.
        let is_constant = |expr: &Expr, ty: &DataType| is_text(ty) && matches!(expr, Expr::Literal(..));
        let takes = |ty: &DataType| {
            ty.is_numeric()
                || matches!(
                    ty,
                    DataType::Boolean
                        | DataType::Date32
                        | DataType::Binary
                        | DataType::Timestamp(..)
                        | DataType::List(_)
                )
        };
        // Constants may be finer than columns.
        let finest = |ty: &DataType| match ty {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            other => other.clone(),
        };
        if binary.op != Operator::StringConcat || is_bytes(&left) || is_bytes(&right) {
            if is_constant(&binary.left, &left) && takes(&right) {
                left = finest(&right);
                *binary.left = casts::convert_now(*binary.left, &left)?;
            } else if is_constant(&binary.right, &right) && takes(&left) {
                right = finest(&left);
                *binary.right = casts::convert_now(*binary.right, &right)?;
            }
        }
        if binary.op == Operator::StringConcat && (is_text(&left) || is_text(&right)) {
            let is_other = |ty: &DataType| !is_text(ty) && !ty.is_nested();
            if is_other(&left) {
                *binary.left = casts::convert(*binary.left, &DataType::Utf8);
            }
            if is_other(&right) {
                *binary.right = casts::convert(*binary.right, &DataType::Utf8);
            }
            return Ok(Expr::BinaryExpr(binary));
        }
        let compares = binary.op.supports_propagation() || binary.op == Operator::NotEq;
        if compares && let Some((of_left, of_right)) = common::compared_as(&left, &right, self.zone) {
            *binary.left = as_type(*binary.left, &left, &of_left);
            *binary.right = as_type(*binary.right, &right, &of_right);
            return Ok(Expr::BinaryExpr(binary));
        }
        if let (DataType::List(_), DataType::List(_)) = (&left, &right)
            && let Some(compared) =
                arrays::compared((*binary.left).clone(), binary.op, (*binary.right).clone())
        {
            return Ok(compared);
        }
        match (&left, &right) {
            (Timestamp(_, zone), Timestamp(_, other)) if binary.op == Operator::Minus => {
                let zone = zone.clone().or_else(|| other.clone()).map(|_| Arc::from(self.zone));
                let ty = Timestamp(TimeUnit::Microsecond, zone);
                let (from, to) = (as_type(*binary.left, &left, &ty), as_type(*binary.right, &right, &ty));
                Ok(moments::difference(from, to))
            }
            (Interval(IntervalUnit::MonthDayNano), Interval(IntervalUnit::MonthDayNano)) if compares => {
                *binary.left = moments::span(*binary.left);
                *binary.right = moments::span(*binary.right);
                Ok(Expr::BinaryExpr(binary))
            }
            // Constant texts are left to DataFusion, which converts them to the other type.
            (text, other)
                if compares && is_text(text) && is_no_text(other) && !is_constant(&binary.left, text) =>
            {
                refused(state::NO_FUNCTION, no_operator(text, &binary.op, other))
            }
            (other, text)
                if compares && is_text(text) && is_no_text(other) && !is_constant(&binary.right, text) =>
            {
                refused(state::NO_FUNCTION, no_operator(other, &binary.op, text))
            }
            (left, right) => arithmetic::planned(binary, left, right),
        }
    }

    /// Replaces BETWEEN of arrays by two comparisons.
    fn between_arrays(self, between: Between, ty: &DataType, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Between { expr, negated, low, high } = between;
        let side = |op: Operator, bound: Box<Expr>| {
            let of_bound = bound.get_type(schema)?;
            self.operator(BinaryExpr::new(expr.clone(), op, bound), ty.clone(), of_bound)
        };
        let both = side(Operator::GtEq, low)?.and(side(Operator::LtEq, high)?);
        Ok(Transformed::yes(if negated { Expr::Not(Box::new(both)) } else { both }))
    }

    fn cast(self, cast: Cast, from: &DataType) -> Result<Expr> {
        casts::planned(*cast.expr, from, &cast.field)
    }

    /// Replaces calls of functions whose types or results differ from PostgreSQL's.
    fn call(self, mut call: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        if let Some(replaced) = byte_strings::call(&call, schema)? {
            return Ok(replaced);
        }
        let first_type = |call: &ScalarFunction| call.args.first()?.get_type(schema).ok();
        match call.func.name() {
            "concat" | "concat_ws" => {
                for argument in &mut call.args {
                    let ty = argument.get_type(schema)?;
                    if !is_text(&ty) && ty != DataType::Null {
                        *argument = numbers::output(argument.clone());
                    }
                }
            }
            "nullif" | "greatest" | "least"
                if call.args.iter().any(|argument| intervals::is_interval(argument, schema)) =>
            {
                return intervals::not_supported(call.func.name());
            }
            "greatest" | "least" if matches!(first_type(&call), Some(DataType::List(_))) => {
                let text = format!("{} of arrays is not supported: use CASE", call.func.name());
                return refused(state::UNSUPPORTED, text);
            }
            // DataFusion's null arrays keep their elements, which its functions then find.
            "nullif" if matches!(first_type(&call), Some(DataType::List(_))) => {
                let mut args = common::one_type(call.args, schema)?;
                let (Some(other), Some(value)) = (args.pop(), args.pop()) else {
                    return refused(state::INTERNAL, "two arguments");
                };
                let (of_value, of_other) = (value.get_type(schema)?, other.get_type(schema)?);
                let null = Expr::Literal(ScalarValue::try_from(&of_value)?, None);
                let equal = BinaryExpr::new(Box::new(value.clone()), Operator::Eq, Box::new(other));
                let equal = self.operator(equal, of_value, of_other)?;
                let when_then_expr = vec![(Box::new(equal), Box::new(null))];
                let else_expr = Some(Box::new(value));
                return Ok(Expr::Case(Case { expr: None, when_then_expr, else_expr }));
            }
            "coalesce" | "nullif" | "greatest" | "least" | "make_array" | "nvl" => {
                call.args = common::one_type(call.args, schema)?;
            }
            "to_timestamp" => {
                if let [seconds] = &mut call.args[..]
                    && let Ok(ty) = seconds.get_type(schema)
                    && ty.is_numeric()
                {
                    let seconds = as_type(std::mem::take(seconds), &ty, &DataType::Float64);
                    return Ok(moments::point(seconds, self.zone));
                }
            }
            // DataFusion's `array_replace` replaces the first element only.
            "array_replace" => call.func = array_replace_all_udf(),
            "array_element" | "array_slice" => {
                arrays::check_subscript(&call.args[0].get_type(schema)?)?;
                // The step of a slice, which PostgreSQL lacks, is 1.
                call.args.truncate(3);
                return Ok(match call.func.name() {
                    "array_element" => arrays::element(call.args),
                    _ => arrays::slice(call.args),
                });
            }
            "array_has_all" | "array_has_any" => {
                let types: Result<Vec<DataType>> =
                    call.args.iter().map(|argument| argument.get_type(schema)).collect();
                if let [left, right] = &types?[..] {
                    arrays::read(&mut call.args[0], left, right)?;
                    arrays::read(&mut call.args[1], right, left)?;
                }
            }
            "array_to_string" => {
                if let Some(array) = call.args.first_mut()
                    && let DataType::List(item) = array.get_type(schema)?
                    && !is_text(item.data_type())
                {
                    *array = arrays::texts(std::mem::take(array));
                }
            }
            "generate_series" if matches!(first_type(&call), Some(DataType::Date32)) => {
                return refused(state::UNSUPPORTED, SERIES_OF_DATES);
            }
            "regexp_like" | "regexp_count" | "regexp_instr" => {
                if let Some(pattern) = call.args.get_mut(1) {
                    *pattern = with_lines(std::mem::take(pattern));
                }
            }
            "date_trunc" => {
                if let [Expr::Literal(name, _), moment] = &mut call.args[..] {
                    let part = name.try_as_str().flatten().map(str::to_lowercase);
                    let single = part.as_deref().and_then(|part| part.strip_suffix('s'));
                    if let Some(single @ ("millisecond" | "microsecond")) = single {
                        *name = ScalarValue::Utf8(Some(single.to_owned()));
                    }
                    if let Some(part @ ("decade" | "century" | "millennium")) = part.as_deref() {
                        let text = format!("date_trunc: the unit \"{part}\" is not supported");
                        return refused(state::UNSUPPORTED, text);
                    }
                    if moment.get_type(schema)? == DataType::Date32 {
                        let point = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from(self.zone)));
                        *moment = Expr::Cast(Cast::new(Box::new(moment.clone()), point));
                    }
                }
            }
            // The bits of an `int4`. DataFusion converts it to `bigint`, which has other bits if
            // negative.
            "to_hex"
                if matches!(
                    call.args.first().map(|number| number.get_type(schema)),
                    Some(Ok(DataType::Int32))
                ) =>
            {
                let number = Expr::Cast(Cast::new(Box::new(call.args.remove(0)), DataType::Int64));
                let bits = Expr::Literal(ScalarValue::Int64(Some(i64::from(u32::MAX))), None);
                let bits = BinaryExpr::new(Box::new(number), Operator::BitwiseAnd, Box::new(bits));
                call.args = vec![Expr::BinaryExpr(bits)];
            }
            "array_has" => {
                if let [list, item] = &mut call.args[..] {
                    let (list_type, item) = (list.get_type(schema)?, item.get_type(schema)?);
                    arrays::read(list, &list_type, &list_of(&item))?;
                }
                return any(call);
            }
            _ => {}
        }
        let counts = matches!(
            call.func.name(),
            "array_length" | "cardinality" | "array_position" | "array_ndims" | "strpos" | "character_length"
        );
        let is_length = call.func.name() == "array_length";
        let expr = Expr::ScalarFunction(call);
        Ok(match expr.get_type(schema) {
            Ok(DataType::Timestamp(unit, Some(zone))) if *zone != *self.zone => {
                Expr::Cast(Cast::new(Box::new(expr), DataType::Timestamp(unit, Some(Arc::from(self.zone)))))
            }
            Ok(DataType::UInt64) if counts => {
                let number = Expr::Cast(Cast::new(Box::new(expr), DataType::Int32));
                // The length of an empty array is null.
                let zero = Expr::Literal(ScalarValue::Int32(Some(0)), None);
                if is_length {
                    datafusion::functions::core::nullif().call(vec![number, zero])
                } else {
                    number
                }
            }
            _ => expr,
        })
    }
}

/// Reason of the refusal of a series whose type differs from PostgreSQL's.
pub(crate) const SERIES_OF_DATES: &str =
    "generate_series of dates is not supported: write timestamps, which it gives in PostgreSQL";

/// Returns a pattern whose dot matches a line feed too, as in PostgreSQL.
fn with_lines(pattern: Expr) -> Expr {
    const LINES: &str = "(?s)";
    let text = |text: String| Expr::Literal(ScalarValue::Utf8(Some(text)), None);
    match pattern {
        Expr::Literal(value, metadata) => match value.try_as_str().flatten() {
            Some(pattern) => text(format!("{LINES}{pattern}")),
            None => Expr::Literal(value, metadata),
        },
        other => {
            let lines = Box::new(text(LINES.to_owned()));
            Expr::BinaryExpr(BinaryExpr::new(lines, Operator::StringConcat, Box::new(other)))
        }
    }
}

/// Maximum size of the array of `= ANY` that is not constant, in nodes.
const REPEATED_NODES_MAX: u64 = 10_000;

/// Replaces `item = ANY (list)`: the result is null if the list contains null but not the item.
fn any(call: ScalarFunction) -> Result<Expr> {
    let [list, _] = &call.args[..] else { return Ok(Expr::ScalarFunction(call)) };
    let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
    let has_no_null = match list {
        Expr::ScalarFunction(made) if made.func.name() == "make_array" => made.args.iter().all(is_constant),
        _ => false,
    };
    if has_no_null {
        return Ok(Expr::ScalarFunction(call));
    }
    // The list is repeated, and lists within it too.
    if planning::expr_nodes(list) > REPEATED_NODES_MAX {
        let text =
            format!("= ANY: expected an array of at most {REPEATED_NODES_MAX} nodes with nulls or columns");
        return refused(state::COMPLEX, text);
    }
    let null = Expr::Literal(ScalarValue::Null, None);
    let place = datafusion::functions_nested::position::array_position_udf().call(vec![list.clone(), null]);
    let unknown = Expr::Literal(ScalarValue::Boolean(None), None);
    let unknown =
        Expr::BinaryExpr(BinaryExpr::new(Box::new(place.is_not_null()), Operator::And, Box::new(unknown)));
    let found = Box::new(Expr::ScalarFunction(call));
    Ok(Expr::BinaryExpr(BinaryExpr::new(found, Operator::Or, Box::new(unknown))))
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

fn no_operator(left: &DataType, op: &Operator, right: &DataType) -> String {
    format!("operator does not exist: {} {op} {}", type_name(left), type_name(right))
}

/// True for types that PostgreSQL never compares with texts, except constant ones.
fn is_no_text(ty: &DataType) -> bool {
    ty.is_numeric() || ty.is_temporal() || *ty == DataType::Boolean || is_bytes(ty)
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

fn restore_one(arguments: &mut [Expr]) {
    if let [Expr::Literal(value @ ScalarValue::Int32(Some(1)), _)] = arguments {
        *value = ScalarValue::Int64(Some(1));
    }
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
