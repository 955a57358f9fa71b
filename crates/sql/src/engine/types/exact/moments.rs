//! Functions of dates, times and intervals as in PostgreSQL:
//!
//! - `extract` returns a field as `numeric`, `date_part` as `double precision`.
//! - The difference of timestamps is an interval of days and hours.
//! - Intervals are compared by their length: a month has 30 days and a day 24 hours.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeZone, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Int64Array, IntervalMonthDayNanoArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit,
};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::type_names::{is_text, refused, type_name};
use crate::failure::{refusal, state};

/// Length of a second, in microseconds.
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// Returns `extract(field FROM moment)` and `date_part(field, moment)`.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let field = |is_numeric| {
        let signature = Signature::user_defined(Volatility::Immutable);
        let aliases = if is_numeric { Vec::new() } else { vec!["datepart".to_owned()] };
        ScalarUDF::new_from_impl(FieldOf { is_numeric, aliases, signature })
    };
    vec![field(true), field(false)]
}

/// Returns the difference of two timestamps in microseconds, both with or both without time zone.
pub(crate) fn difference(left: Expr, right: Expr) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    ScalarUDF::new_from_impl(Difference(signature)).call(vec![left, right])
}

/// Returns the point in time that many seconds after 1970, in microseconds.
pub(crate) fn point(seconds: Expr, zone: &str) -> Expr {
    let to = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from(zone)));
    ScalarUDF::new_from_impl(Point { to, signature: Signature::any(1, Volatility::Immutable) })
        .call(vec![seconds])
}

/// Returns the length of an interval in nanoseconds, by which it is compared.
pub(crate) fn span(interval: Expr) -> Expr {
    ScalarUDF::new_from_impl(Span(Signature::any(1, Volatility::Immutable))).call(vec![interval])
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Difference(Signature);

impl ScalarUDFImpl for Difference {
    fn name(&self) -> &'static str {
        "difference"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&call.args)?;
        let numbers = |column: &ArrayRef| cast(column, &DataType::Int64);
        let (left, right) = (numbers(&arrays[0])?, numbers(&arrays[1])?);
        let (left, right) = (left.as_primitive::<Int64Type>(), right.as_primitive::<Int64Type>());
        let one = |(left, right): (Option<i64>, Option<i64>)| {
            let Some((left, right)) = left.zip(right) else { return Ok(None) };
            let out = || refusal(state::TIME_RANGE, "interval out of range");
            let between = left.checked_sub(right).ok_or_else(out)?;
            let days = i32::try_from(between / DAY).map_err(|_| out())?;
            Ok(Some(IntervalMonthDayNano { months: 0, days, nanoseconds: between % DAY * 1000 }))
        };
        let found: Result<IntervalMonthDayNanoArray> = left.iter().zip(right).map(one).collect();
        Ok(ColumnarValue::Array(Arc::new(found?)))
    }
}

/// `to_timestamp` of a number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Point {
    to: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Point {
    fn name(&self) -> &'static str {
        "to_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = call.args[0].to_array(call.number_rows)?;
        let one = |seconds: f64| {
            let micros = (seconds * SECOND as f64).round_ties_even();
            // Years that dates can have here.
            match micros.abs() < 8e18 {
                true => Ok(micros as i64),
                false => refused(state::TIME_RANGE, format!("timestamp out of range: \"{seconds}\"")),
            }
        };
        let seconds = column.as_primitive::<Float64Type>().iter();
        let points: Result<Int64Array> = seconds.map(|seconds| seconds.map(one).transpose()).collect();
        Ok(ColumnarValue::Array(cast(&points?, &self.to)?))
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Span(Signature);

impl ScalarUDFImpl for Span {
    fn name(&self) -> &'static str {
        "span"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = call.args[0].to_array(call.number_rows)?;
        let one = |interval: IntervalMonthDayNano| {
            let days = i128::from(interval.months) * 30 + i128::from(interval.days);
            days * i128::from(DAY) * 1000 + i128::from(interval.nanoseconds)
        };
        let intervals = column.as_primitive::<IntervalMonthDayNanoType>().iter();
        let spans: Decimal128Array = intervals.map(|interval| interval.map(one)).collect();
        let spans = spans.with_data_type(DataType::Decimal128(38, 0));
        Ok(ColumnarValue::Array(Arc::new(spans)))
    }
}

/// `extract`, which returns a `numeric`, or `date_part`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct FieldOf {
    is_numeric: bool,
    aliases: Vec<String>,
    signature: Signature,
}

/// Fields of `extract`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Millennium,
    Century,
    Decade,
    Year,
    IsoYear,
    Quarter,
    Month,
    Week,
    Day,
    Dow,
    IsoDow,
    Doy,
    Julian,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Epoch,
}

impl Unit {
    fn of(name: &str) -> Option<Unit> {
        Some(match name.to_lowercase().as_str() {
            "millennium" | "millenniums" | "millennia" | "mil" | "mils" => Unit::Millennium,
            "century" | "centuries" | "cent" | "c" => Unit::Century,
            "decade" | "decades" | "decs" | "dec" => Unit::Decade,
            "year" | "years" | "y" | "yr" | "yrs" => Unit::Year,
            "isoyear" => Unit::IsoYear,
            "quarter" | "qtr" => Unit::Quarter,
            "month" | "months" | "mon" | "mons" => Unit::Month,
            "week" | "weeks" | "w" => Unit::Week,
            "day" | "days" | "d" => Unit::Day,
            "dow" => Unit::Dow,
            "isodow" => Unit::IsoDow,
            "doy" => Unit::Doy,
            "julian" | "jd" | "j" => Unit::Julian,
            "hour" | "hours" | "h" | "hr" | "hrs" => Unit::Hour,
            "minute" | "minutes" | "m" | "min" | "mins" => Unit::Minute,
            "second" | "seconds" | "s" | "sec" | "secs" => Unit::Second,
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Unit::Millisecond,
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Unit::Microsecond,
            "epoch" => Unit::Epoch,
            _ => return None,
        })
    }

    fn is_of_day(self) -> bool {
        matches!(self, Unit::Hour | Unit::Minute | Unit::Second | Unit::Millisecond | Unit::Microsecond)
    }

    /// Returns the scale of the field of a type.
    fn scale(self, ty: &DataType) -> i8 {
        match (self, ty) {
            (Unit::Epoch, DataType::Date32) => 0,
            (Unit::Second | Unit::Epoch, _) => 6,
            (Unit::Millisecond, _) => 3,
            _ => 0,
        }
    }
}

/// Returns the unit with a name.
///
/// # Errors
/// The name is unknown, or the type lacks the unit.
fn unit(name: &str, ty: &DataType) -> Result<Unit> {
    let of_type = type_name(ty);
    let of_type = if of_type == "timestamp" { "timestamp without time zone" } else { &of_type };
    let Some(unit) = Unit::of(name) else {
        let text = format!("unit \"{name}\" not recognized for type {of_type}");
        // Fields of time zones are not supported.
        let code =
            if name.to_lowercase().starts_with("timezone") { state::UNSUPPORTED } else { state::INVALID };
        return refused(code, text);
    };
    let has = match ty {
        DataType::Date32 => !unit.is_of_day(),
        DataType::Time64(_) => unit.is_of_day() || unit == Unit::Epoch,
        DataType::Interval(_) | DataType::Duration(_) => {
            !matches!(unit, Unit::IsoYear | Unit::Week | Unit::Dow | Unit::IsoDow | Unit::Doy | Unit::Julian)
        }
        // The Julian date of a timestamp has a fraction, which is not supported.
        _ => unit != Unit::Julian,
    };
    match has {
        true => Ok(unit),
        false => refused(state::UNSUPPORTED, format!("unit \"{name}\" not supported for type {of_type}")),
    }
}

impl ScalarUDFImpl for FieldOf {
    fn name(&self) -> &'static str {
        if self.is_numeric { "extract" } else { "date_part" }
    }

    /// Returns the alias of DataFusion's function, which would otherwise still be found under it.
    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [name, moment] = arguments else {
            return refused(state::NO_FUNCTION, format!("{} takes a field and a moment", self.name()));
        };
        let moment = match moment {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
            DataType::Date64 => DataType::Date32,
            DataType::Date32 | DataType::Interval(IntervalUnit::MonthDayNano) => moment.clone(),
            // DataFusion's type of a difference of times, before this pass replaces it.
            DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => {
                let text = format!("function {}(text, {}) does not exist", self.name(), type_name(other));
                return refused(state::NO_FUNCTION, text);
            }
        };
        if !is_text(name) {
            return refused(state::NO_FUNCTION, format!("{} takes the name of a field", self.name()));
        }
        Ok(vec![DataType::Utf8, moment])
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        refused(state::INTERNAL, "the type of a field depends on its name")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let name = arguments.scalar_arguments.first().copied().flatten();
        let Some(name) = name.and_then(|name| name.try_as_str().flatten()) else {
            return refused(state::UNSUPPORTED, format!("the field of {} must be a constant", self.name()));
        };
        let moment = arguments.arg_fields[1].data_type();
        let scale = match moment {
            DataType::Null => 0,
            ty => unit(name, ty)?.scale(ty),
        };
        let ty = if self.is_numeric { DataType::Decimal128(38, scale) } else { DataType::Float64 };
        Ok(Arc::new(Field::new(self.name(), ty, true)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ColumnarValue::Scalar(name) = &call.args[0] else {
            return refused(state::UNSUPPORTED, format!("the field of {} must be a constant", self.name()));
        };
        let Some(name) = name.try_as_str().flatten() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(call.return_field.data_type())?));
        };
        let column = call.args[1].to_array(call.number_rows)?;
        let ty = column.data_type().clone();
        let unit = unit(name, &ty)?;
        let values: Decimal128Array = match &ty {
            DataType::Interval(_) => {
                let intervals = column.as_primitive::<IntervalMonthDayNanoType>().iter();
                intervals.map(|interval| interval.map(|interval| of_interval(unit, interval))).collect()
            }
            DataType::Date32 => {
                let days = cast(&cast(&column, &DataType::Int32)?, &DataType::Int64)?;
                let days = days.as_primitive::<Int64Type>().iter();
                let one = |days: i64| of_point(unit, days.checked_mul(DAY)?, None);
                let values = days.map(|days| days.and_then(one));
                // The epoch of a date is a whole number of seconds.
                values
                    .map(|value| {
                        value
                            .map(|value| if unit == Unit::Epoch { value / i128::from(SECOND) } else { value })
                    })
                    .collect()
            }
            DataType::Time64(_) => {
                let times = cast(&column, &DataType::Int64)?;
                let times = times.as_primitive::<Int64Type>().iter();
                times.map(|time| time.map(|time| of_day(unit, time))).collect()
            }
            DataType::Timestamp(_, zone) => {
                let zone: Option<Tz> = zone.as_ref().map(|zone| zone.parse()).transpose()?;
                let points = cast(&column, &DataType::Int64)?;
                let points = points.as_primitive::<Int64Type>().iter();
                points.map(|point| point.and_then(|point| of_point(unit, point, zone.as_ref()))).collect()
            }
            other => return refused(state::NO_FUNCTION, format!("{} of {}", self.name(), type_name(other))),
        };
        let values: ArrayRef = Arc::new(values.with_data_type(DataType::Decimal128(38, unit.scale(&ty))));
        Ok(ColumnarValue::Array(match self.is_numeric {
            true => values,
            false => cast(&values, &DataType::Float64)?,
        }))
    }
}

/// Returns a field of a time of day in microseconds, as a number with the unit's scale.
fn of_day(unit: Unit, time: i64) -> i128 {
    i128::from(match unit {
        Unit::Hour => time / HOUR,
        Unit::Minute => time / (60 * SECOND) % 60,
        Unit::Epoch => time,
        // Seconds of scale 6, milliseconds of scale 3, and microseconds are the same number.
        _ => time % (60 * SECOND),
    })
}

fn of_interval(unit: Unit, interval: IntervalMonthDayNano) -> i128 {
    let (months, time) = (i128::from(interval.months), interval.nanoseconds / 1000);
    match unit {
        Unit::Millennium => months / 12_000,
        Unit::Century => months / 1200,
        Unit::Decade => months / 120,
        Unit::Year => months / 12,
        Unit::Quarter => months % 12 / 3 + 1,
        Unit::Month => months % 12,
        Unit::Day => i128::from(interval.days),
        // As in PostgreSQL, a year has 365.25 days and a month 30.
        Unit::Epoch => {
            let days = months / 12 * 36_525 + (months % 12 * 30 + i128::from(interval.days)) * 100;
            days * i128::from(DAY) / 100 + i128::from(time)
        }
        unit => of_day(unit, time),
    }
}

/// Returns a field of a point in time, given in microseconds since 1970: in a zone, or in UTC.
fn of_point(unit: Unit, point: i64, zone: Option<&Tz>) -> Option<i128> {
    let seconds = point.div_euclid(SECOND);
    let nanoseconds = u32::try_from(point.rem_euclid(SECOND) * 1000).ok()?;
    let utc: NaiveDateTime = DateTime::from_timestamp(seconds, nanoseconds)?.naive_utc();
    let local = zone.map_or(utc, |zone| utc + zone.offset_from_utc_datetime(&utc).fix());
    let year = i128::from(local.year());
    // PostgreSQL has no year 0: 1 BC, which is 0 in chrono, is -1.
    let shown = if year > 0 { year } else { year - 1 };
    let nth = |years: i128| if year > 0 { (year + years - 1) / years } else { -((years - year) / years) };
    let microseconds =
        i64::from(local.num_seconds_from_midnight()) * SECOND + i64::from(local.nanosecond()) / 1000;
    Some(match unit {
        Unit::Millennium => nth(1000),
        Unit::Century => nth(100),
        Unit::Decade => year.div_euclid(10),
        Unit::Year => shown,
        Unit::IsoYear => {
            let year = i128::from(local.iso_week().year());
            if year > 0 { year } else { year - 1 }
        }
        Unit::Quarter => i128::from(local.month0() / 3 + 1),
        Unit::Month => i128::from(local.month()),
        Unit::Week => i128::from(local.iso_week().week()),
        Unit::Day => i128::from(local.day()),
        Unit::Dow => i128::from(local.weekday().num_days_from_sunday()),
        Unit::IsoDow => i128::from(local.weekday().number_from_monday()),
        Unit::Doy => i128::from(local.ordinal()),
        Unit::Julian => i128::from(local.num_days_from_ce()) + 1_721_425,
        Unit::Epoch => i128::from(point),
        unit => of_day(unit, microseconds),
    })
}

/// Returns the first value of a column, for tests.
#[cfg(test)]
fn first(column: &ArrayRef) -> i128 {
    column.as_primitive::<datafusion::arrow::datatypes::Decimal128Type>().value(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_time_zone() {
        // 2024-01-31 23:30:00.5 UTC.
        let point = 1_706_743_800 * SECOND + SECOND / 2;
        let zone: Tz = "Europe/Berlin".parse().expect("a zone");
        let fields = [Unit::Day, Unit::Hour, Unit::Month, Unit::Second, Unit::Dow, Unit::Week, Unit::Century];
        let at = |zone| fields.map(|unit| of_point(unit, point, zone).expect("in range"));
        assert_eq!(at(None), [31, 23, 1, 500_000, 3, 5, 21]);
        assert_eq!(at(Some(&zone)), [1, 0, 2, 500_000, 4, 5, 21]);
        assert_eq!(of_point(Unit::Epoch, -SECOND, None), Some(-1_000_000));
    }

    #[test]
    fn intervals_compare_by_months_of_30_days() {
        let spans = |intervals: Vec<IntervalMonthDayNano>| {
            let column: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(intervals));
            let field: FieldRef = Arc::new(Field::new("i", column.data_type().clone(), true));
            let result: FieldRef = Arc::new(Field::new("s", DataType::Decimal128(38, 0), true));
            let call = ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(column)],
                arg_fields: vec![field],
                number_rows: 1,
                return_field: result,
                config_options: Arc::default(),
            };
            let spans = Span(Signature::any(1, Volatility::Immutable)).invoke_with_args(call).expect("spans");
            first(&spans.to_array(1).expect("an array"))
        };
        let interval = |months, days, hours: i64| IntervalMonthDayNano {
            months,
            days,
            nanoseconds: hours * HOUR * 1000,
        };
        assert_eq!(spans(vec![interval(1, 0, 0)]), spans(vec![interval(0, 30, 0)]));
        assert_eq!(spans(vec![interval(0, 1, 0)]), spans(vec![interval(0, 0, 24)]));
    }
}
