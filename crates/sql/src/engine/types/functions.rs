//! Functions of Postgres that DataFusion lacks: settings, quoting, and time zones. Functions about
//! objects that do not exist here (comments, sizes, tablespaces) return constants, because
//! metadata queries of clients contain them.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{AsArray, Int64Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use crate::engine::types::size_pretty;

/// A function that returns the same value for all arguments.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Constant {
    name: String,
    signature: Signature,
    value: ScalarValue,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

/// Returns a function without arguments that returns `text`.
pub(crate) fn text(name: &str, text: String) -> ScalarUDF {
    constant(name, Signature::nullary(Volatility::Stable), ScalarValue::Utf8(Some(text)))
}

/// Returns a function without arguments whose value is a number.
pub(crate) fn number(name: &str, number: i32) -> ScalarUDF {
    constant(name, Signature::nullary(Volatility::Stable), ScalarValue::Int32(Some(number)))
}

fn constant(name: &str, signature: Signature, value: ScalarValue) -> ScalarUDF {
    ScalarUDF::new_from_impl(Constant { name: name.to_owned(), signature, value })
}

/// `current_setting(name [, missing_ok])`: the value of a setting at the time of planning.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct CurrentSetting {
    signature: Signature,
    settings: BTreeMap<String, String>,
}

/// Returns `current_setting` over `settings`, whose names are in lower case.
pub(crate) fn current_setting(settings: BTreeMap<String, String>) -> ScalarUDF {
    let signature = Signature::variadic_any(Volatility::Stable);
    ScalarUDF::new_from_impl(CurrentSetting { signature, settings })
}

fn constant_text(value: &ColumnarValue) -> Option<&str> {
    match value {
        ColumnarValue::Scalar(value) => value.try_as_str().flatten(),
        ColumnarValue::Array(_) => None,
    }
}

impl ScalarUDFImpl for CurrentSetting {
    fn name(&self) -> &'static str {
        "current_setting"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(name) = call.args.first().and_then(constant_text) else {
            return exec_err!("current_setting wants the name of a setting");
        };
        let may_be_missing =
            matches!(call.args.get(1), Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)))));
        match self.settings.get(&name.to_lowercase()) {
            None if !may_be_missing => exec_err!("unrecognized configuration parameter \"{name}\""),
            value => Ok(ColumnarValue::Scalar(ScalarValue::Utf8(value.cloned()))),
        }
    }
}

/// `set_config(name, value, is_local)`. Returns `value`. The session sets it before the statement
/// runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct SetConfig(Signature);

impl ScalarUDFImpl for SetConfig {
    fn name(&self) -> &'static str {
        "set_config"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = call.args.get(1).and_then(constant_text).map(str::to_owned);
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(value)))
    }
}

/// `quote_ident` and `quote_literal`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Quote {
    signature: Signature,
    is_literal: bool,
}

fn quoted(text: &str, is_literal: bool) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let needs_none =
        text.chars().all(plain) && !text.starts_with(|c: char| c.is_ascii_digit()) && !text.is_empty();
    match is_literal {
        true if text.contains('\\') => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        true => format!("'{}'", text.replace('\'', "''")),
        false if needs_none => text.to_owned(),
        false => format!("\"{}\"", text.replace('"', "\"\"")),
    }
}

fn quote(is_literal: bool) -> ScalarUDF {
    let signature = Signature::string(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(Quote { signature, is_literal })
}

impl ScalarUDFImpl for Quote {
    fn name(&self) -> &'static str {
        if self.is_literal { "quote_literal" } else { "quote_ident" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = call.args[0].cast_to(&DataType::Utf8, None)?.into_array(call.number_rows)?;
        let texts = texts.as_string::<i32>();
        let quoted: StringArray =
            texts.iter().map(|text| text.map(|text| quoted(text, self.is_literal))).collect();
        Ok(ColumnarValue::Array(Arc::new(quoted)))
    }
}

/// `timezone(zone, t)`, the meaning of `t AT TIME ZONE zone`. Converts a point in time to the
/// zone's local time, and a local time to a point in time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Timezone(Signature);

/// Time zone of all points in time.
const UTC: &str = "UTC";

impl ScalarUDFImpl for Timezone {
    fn name(&self) -> &'static str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [_, time] = arguments else { return plan_err!("timezone wants a zone and a time") };
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            // As in Postgres, these become points in time. Unlike in Postgres, dates and texts are
            // read in UTC instead of the session's zone.
            DataType::Date32
            | DataType::Date64
            | DataType::Utf8
            | DataType::Utf8View
            | DataType::LargeUtf8
            | DataType::Null => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
            other => return plan_err!("a {other} has no time zone"),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [_, DataType::Timestamp(unit, Some(_))] => Ok(DataType::Timestamp(*unit, None)),
            [_, DataType::Timestamp(unit, None)] => Ok(DataType::Timestamp(*unit, Some(UTC.into()))),
            _ => plan_err!("timezone wants a zone and a time"),
        }
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = call.return_field.data_type();
        if matches!(call.args.first(), Some(ColumnarValue::Scalar(zone)) if zone.is_null()) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(result)?));
        }
        let Some(zone) = call.args.first().and_then(constant_text) else {
            return exec_err!("a time zone that is not a constant is not supported");
        };
        let zone = if zone.eq_ignore_ascii_case(UTC) { UTC.to_owned() } else { eastward(zone) };
        let Ok(zone) = zone.parse::<Tz>() else { return exec_err!("time zone \"{zone}\" not recognized") };
        let time = call.args[1].to_array(call.number_rows)?;
        let DataType::Timestamp(unit, given) = time.data_type() else {
            return exec_err!("timezone wants a zone and a time");
        };
        // Offsets are whole seconds, so the fraction stays unchanged.
        let second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let is_point = given.is_some();
        let moved = |value: i64| {
            let there = DateTime::from_timestamp(value.div_euclid(second), 0)?.naive_utc();
            let offset = if is_point { offset_at(&zone, there) } else { -offset_of_local(&zone, there) };
            value.checked_add(offset.checked_mul(second)?)
        };
        let numbers = cast(&time, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>().iter();
        let moved: Int64Array = numbers.map(|value| value.and_then(moved)).collect();
        Ok(ColumnarValue::Array(cast(&moved, result)?))
    }
}

/// Inverts a zone that is an offset. Offsets of POSIX are positive to the west, those of Arrow to
/// the east.
fn eastward(zone: &str) -> String {
    match (zone.strip_prefix('+'), zone.strip_prefix('-')) {
        (Some(offset), _) => format!("-{offset}"),
        (_, Some(offset)) => format!("+{offset}"),
        _ => zone.to_owned(),
    }
}

/// Returns the offset of a zone from UTC at a point in time, seconds.
fn offset_at(zone: &Tz, utc: NaiveDateTime) -> i64 {
    i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc())
}

/// Returns the offset of a zone from UTC at a local time, seconds. As in Postgres, an ambiguous
/// time is the second one. A time skipped by daylight saving has the offset before the change.
pub(crate) fn offset_of_local(zone: &Tz, local: NaiveDateTime) -> i64 {
    let offset = match zone.offset_from_local_datetime(&local) {
        MappedLocalTime::Single(offset) | MappedLocalTime::Ambiguous(_, offset) => offset,
        MappedLocalTime::None => return offset_at(zone, local - TimeDelta::days(1)),
    };
    i64::from(offset.fix().local_minus_utc())
}

/// Registers the functions of this file. Constants do not replace functions registered before.
pub(crate) fn register(context: &SessionContext, owner: &str) {
    let no_text = ScalarValue::Utf8(None);
    let no_number = ScalarValue::Int64(None);
    let zero = ScalarValue::Int32(Some(0));
    let [truth, falsehood] = [true, false].map(|value| ScalarValue::Boolean(Some(value)));
    let constants = [
        ("col_description", &no_text),
        ("obj_description", &no_text),
        ("shobj_description", &no_text),
        ("pg_database_size", &no_number),
        ("pg_table_size", &no_number),
        ("pg_indexes_size", &no_number),
        ("pg_tablespace_location", &no_text),
        ("pg_function_is_visible", &truth),
        ("pg_type_is_visible", &truth),
        ("pg_get_function_arguments", &no_text),
        ("pg_get_function_identity_arguments", &no_text),
        ("pg_get_function_result", &no_text),
        ("pg_get_indexdef", &no_text),
        ("pg_get_serial_sequence", &no_text),
        ("pg_get_viewdef", &no_text),
        ("pg_advisory_unlock_all", &no_text),
        ("pg_is_in_recovery", &falsehood),
        ("pg_my_temp_schema", &zero),
        ("pg_get_ruledef", &no_text),
        ("pg_column_is_updatable", &falsehood),
        ("pg_export_snapshot", &no_text),
        ("has_function_privilege", &truth),
    ];
    for function in [
        ScalarUDF::new_from_impl(SetConfig(Signature::any(3, Volatility::Stable))),
        ScalarUDF::new_from_impl(Timezone(Signature::user_defined(Volatility::Immutable))),
        size_pretty::function(),
        // The only owner that rows of `pg_catalog` name.
        constant("pg_get_userbyid", Signature::any(1, Volatility::Stable), ScalarValue::from(owner)),
        quote(false),
        quote(true),
    ] {
        context.register_udf(function);
    }
    let state = context.state();
    let is_new = |(name, _): &(&str, &ScalarValue)| !state.scalar_functions().contains_key(*name);
    for (name, value) in constants.into_iter().filter(is_new) {
        let signature =
            Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], Volatility::Stable);
        context.register_udf(constant(name, signature, value.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_and_skipped_times_match_postgres() {
        let zone: Tz = "America/New_York".parse().expect("a zone");
        let offset = |text: &str| offset_of_local(&zone, text.parse().expect("a time")) / 3600;
        assert_eq!(["2026-01-01T12:00:00", "2026-07-01T12:00:00"].map(offset), [-5, -4]);
        assert_eq!(offset("2025-11-02T01:30:00"), -5, "twice: the second one");
        assert_eq!(offset("2026-03-08T02:30:00"), -5, "never: as before");
    }

    #[test]
    fn special_names_and_texts_are_quoted() {
        for (text, ident, literal) in [
            ("orders", "orders", "'orders'"),
            ("Orders", "\"Orders\"", "'Orders'"),
            ("2x", "\"2x\"", "'2x'"),
            ("a\"b'c", "\"a\"\"b'c\"", "'a\"b''c'"),
            ("", "\"\"", "''"),
            ("a\\b", "\"a\\b\"", "E'a\\\\b'"),
        ] {
            assert_eq!((quoted(text, false).as_str(), quoted(text, true).as_str()), (ident, literal));
        }
    }
}
