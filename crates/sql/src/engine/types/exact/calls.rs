//! Replaces calls of functions whose types or results differ from PostgreSQL's.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions_nested::replace::array_replace_all_udf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Case, Cast, Expr, ExprSchemable, Operator};
use datafusion::scalar::ScalarValue;

use crate::engine::limits::planning;
use crate::engine::types::exact::casts::as_type;
use crate::engine::types::exact::type_names::{is_text, list_of, refused};
use crate::engine::types::exact::{Pass, arrays, byte_strings, common, intervals, moments, numbers};
use crate::failure::state;

/// Reason of the refusal of a series whose type differs from PostgreSQL's.
pub(crate) const SERIES_OF_DATES: &str =
    "generate_series of dates is not supported: write timestamps, which it gives in PostgreSQL";
/// Start of a regular expression whose dots match a line feed too, as in PostgreSQL.
pub(crate) const DOT_MATCHES_LINE_FEED: &str = "(?s)";
/// Maximum size of the array of `= ANY` that is not constant, in nodes.
const REPEATED_NODES_MAX: u64 = 10_000;

impl Pass<'_> {
    /// Returns the call, or its replacement. Each family of functions below changes the call, or
    /// returns a replacement that is final.
    ///
    /// # Errors
    /// The function is not supported for the types of its arguments.
    pub(super) fn call(self, mut call: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        if let Some(replaced) = byte_strings::call(&call, schema)? {
            return Ok(replaced);
        }
        let replaced = match call.func.name() {
            "coalesce" | "nullif" | "greatest" | "least" | "make_array" | "nvl" => {
                self.choice(&mut call, schema)?
            }
            "to_timestamp" | "date_trunc" | "generate_series" => self.of_time(&mut call, schema)?,
            name if name.starts_with("array_") => of_arrays(&mut call, schema)?,
            _ => {
                of_texts(&mut call, schema)?;
                None
            }
        };
        Ok(replaced.unwrap_or_else(|| self.with_result(call, schema)))
    }

    /// Gives arguments of which the function returns one a common type.
    fn choice(self, call: &mut ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
        let name = call.func.name();
        let is_checked = matches!(name, "nullif" | "greatest" | "least");
        if is_checked && call.args.iter().any(|argument| intervals::is_interval(argument, schema)) {
            return intervals::not_supported(name);
        }
        let of_arrays = is_checked && matches!(first_type(call, schema), Some(DataType::List(_)));
        if of_arrays && name != "nullif" {
            return refused(state::UNSUPPORTED, format!("{name} of arrays is not supported: use CASE"));
        }
        let mut args = common::one_type(std::mem::take(&mut call.args), schema)?;
        if !of_arrays {
            call.args = args;
            return Ok(None);
        }
        // DataFusion's null arrays keep their elements, which its functions then find.
        let (Some(other), Some(value)) = (args.pop(), args.pop()) else {
            return refused(state::INTERNAL, "two arguments");
        };
        let (of_value, of_other) = (value.get_type(schema)?, other.get_type(schema)?);
        let null = Expr::Literal(ScalarValue::try_from(&of_value)?, None);
        let equal = BinaryExpr::new(Box::new(value.clone()), Operator::Eq, Box::new(other));
        let equal = self.operator(equal, of_value, of_other)?;
        let when_then_expr = vec![(Box::new(equal), Box::new(null))];
        let else_expr = Some(Box::new(value));
        Ok(Some(Expr::Case(Case { expr: None, when_then_expr, else_expr })))
    }

    fn of_time(self, call: &mut ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
        match (call.func.name(), &mut call.args[..]) {
            ("to_timestamp", [seconds]) => {
                if let Ok(ty) = seconds.get_type(schema)
                    && ty.is_numeric()
                {
                    let seconds = as_type(std::mem::take(seconds), &ty, &DataType::Float64);
                    return Ok(Some(moments::point(seconds, self.zone)));
                }
            }
            ("date_trunc", [Expr::Literal(name, _), moment]) => {
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
            ("generate_series", [first, ..]) if matches!(first.get_type(schema), Ok(DataType::Date32)) => {
                return refused(state::UNSUPPORTED, SERIES_OF_DATES);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Returns the call with a result of PostgreSQL's type.
    fn with_result(self, call: ScalarFunction, schema: &DFSchema) -> Expr {
        let counts = matches!(
            call.func.name(),
            "array_length" | "cardinality" | "array_position" | "array_ndims" | "strpos" | "character_length"
        );
        let is_length = call.func.name() == "array_length";
        let expr = Expr::ScalarFunction(call);
        match expr.get_type(schema) {
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
        }
    }
}

fn first_type(call: &ScalarFunction, schema: &DFSchema) -> Option<DataType> {
    call.args.first()?.get_type(schema).ok()
}

fn of_arrays(call: &mut ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    match call.func.name() {
        // DataFusion's `array_replace` replaces the first element only.
        "array_replace" => call.func = array_replace_all_udf(),
        name @ ("array_element" | "array_slice") => {
            arrays::check_subscript(&call.args[0].get_type(schema)?)?;
            let mut args = std::mem::take(&mut call.args);
            // The step of a slice, which PostgreSQL lacks, is 1.
            args.truncate(3);
            let is_element = name == "array_element";
            return Ok(Some(if is_element { arrays::element(args) } else { arrays::slice(args) }));
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
        "array_has" => {
            if let [list, item] = &mut call.args[..] {
                let (list_type, item) = (list.get_type(schema)?, item.get_type(schema)?);
                arrays::read(list, &list_type, &list_of(&item))?;
            }
            return any(call);
        }
        _ => {}
    }
    Ok(None)
}

/// Returns a replacement of `item = ANY (list)`: the result is null if the list contains null but
/// not the item.
fn any(call: &mut ScalarFunction) -> Result<Option<Expr>> {
    let [list, _] = &call.args[..] else { return Ok(None) };
    let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
    let has_no_null = match list {
        Expr::ScalarFunction(made) if made.func.name() == "make_array" => made.args.iter().all(is_constant),
        _ => false,
    };
    if has_no_null {
        return Ok(None);
    }
    // The list is repeated, and lists within it too.
    if planning::expr_nodes(list) > REPEATED_NODES_MAX {
        let text =
            format!("= ANY: expected an array of at most {REPEATED_NODES_MAX} nodes with nulls or columns");
        return refused(state::COMPLEX, text);
    }
    let null = Expr::Literal(ScalarValue::Null, None);
    let place = datafusion::functions_nested::position::array_position_udf().call(vec![list.clone(), null]);
    let unknown = place.is_not_null().and(Expr::Literal(ScalarValue::Boolean(None), None));
    let found = ScalarFunction { func: call.func.clone(), args: std::mem::take(&mut call.args) };
    Ok(Some(Expr::ScalarFunction(found).or(unknown)))
}

/// Changes functions of texts, regular expressions and hexadecimal digits.
fn of_texts(call: &mut ScalarFunction, schema: &DFSchema) -> Result<()> {
    match call.func.name() {
        "concat" | "concat_ws" => {
            for argument in &mut call.args {
                let ty = argument.get_type(schema)?;
                if !is_text(&ty) && ty != DataType::Null {
                    *argument = numbers::output(argument.clone());
                }
            }
        }
        "regexp_like" | "regexp_count" | "regexp_instr" => {
            if let Some(pattern) = call.args.get_mut(1) {
                *pattern = matching_line_feeds(std::mem::take(pattern));
            }
        }
        // The bits of an `int4`. DataFusion converts it to `bigint`, which has other bits if
        // negative.
        "to_hex" if matches!(first_type(call, schema), Some(DataType::Int32)) => {
            let number = Expr::Cast(Cast::new(Box::new(call.args.remove(0)), DataType::Int64));
            let bits = Expr::Literal(ScalarValue::Int64(Some(i64::from(u32::MAX))), None);
            let bits = BinaryExpr::new(Box::new(number), Operator::BitwiseAnd, Box::new(bits));
            call.args = vec![Expr::BinaryExpr(bits)];
        }
        _ => {}
    }
    Ok(())
}

/// Returns a pattern whose dot matches a line feed too.
fn matching_line_feeds(pattern: Expr) -> Expr {
    let text = |text: String| Expr::Literal(ScalarValue::Utf8(Some(text)), None);
    match pattern {
        Expr::Literal(value, metadata) => match value.try_as_str().flatten() {
            Some(pattern) => text(format!("{DOT_MATCHES_LINE_FEED}{pattern}")),
            None => Expr::Literal(value, metadata),
        },
        other => {
            let option = Box::new(text(DOT_MATCHES_LINE_FEED.to_owned()));
            Expr::BinaryExpr(BinaryExpr::new(option, Operator::StringConcat, Box::new(other)))
        }
    }
}
