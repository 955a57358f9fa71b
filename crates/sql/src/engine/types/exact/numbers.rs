//! Functions of numbers with PostgreSQL's types and errors:
//!
//! - `round`, `trunc`, `ceil`, `floor` and `sign` of a `numeric` return a `numeric`. Floating point
//!   rounds half to even.
//! - Logarithms, roots and powers refuse arguments without a result.
//! - `concat` converts its arguments to text as results are.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type};
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::engine::types::exact::decimals::{DIGITS_MAX, decimal_of, rounded_quotient, too_long};
use crate::engine::types::exact::type_names::{is_int, refused, type_name};
use crate::engine::types::{argument_errors, text_form};
use crate::failure::state;

/// Returns the functions that have a name in SQL.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let rounding = |mode| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Rounding { mode, signature })
    };
    let guarded = |inner: Arc<ScalarUDF>| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::new_from_impl(Guarded { inner, signature })
    };
    let mut functions: Vec<ScalarUDF> =
        [Mode::Round, Mode::Trunc, Mode::Ceil, Mode::Floor, Mode::Sign].map(rounding).into();
    functions.extend(
        [math::ln(), math::log(), math::log10(), math::log2(), math::exp(), math::sqrt(), math::power()]
            .map(guarded),
    );
    functions
}

/// Returns the text form of a value in a result, for `concat`: `t` for true.
pub(crate) fn output(expr: Expr) -> Expr {
    ScalarUDF::new_from_impl(Output(Signature::any(1, Volatility::Immutable))).call(vec![expr])
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Output(Signature);

impl ScalarUDFImpl for Output {
    fn name(&self) -> &'static str {
        "output"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &call.args[0] {
            ColumnarValue::Array(column) => ColumnarValue::Array(Arc::new(text_form::texts(column)?)),
            ColumnarValue::Scalar(value) => {
                let texts: ArrayRef = Arc::new(text_form::texts(&value.to_array()?)?);
                ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
            }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mode {
    Round,
    Trunc,
    Ceil,
    Floor,
    Sign,
}

/// `round`, `trunc`, `ceil`, `floor` or `sign`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Rounding {
    mode: Mode,
    signature: Signature,
}

impl Rounding {
    fn float(&self, value: f64) -> f64 {
        match self.mode {
            Mode::Round => value.round_ties_even(),
            Mode::Trunc => value.trunc(),
            Mode::Ceil => value.ceil(),
            Mode::Floor => value.floor(),
            Mode::Sign if value == 0.0 || value.is_nan() => 0.0,
            Mode::Sign => value.signum(),
        }
    }

    /// Rounds `value / power` to a whole number.
    fn whole(&self, value: i128, power: i128) -> i128 {
        match self.mode {
            Mode::Round => rounded_quotient(value, power),
            Mode::Trunc => value / power,
            Mode::Ceil => -((-value).div_euclid(power)),
            Mode::Floor => value.div_euclid(power),
            Mode::Sign => value.signum(),
        }
    }

    /// Returns the scale of the result, and the scale to which it is rounded, which may be
    /// negative.
    fn places(&self, places: Option<&ScalarValue>, scale: i8) -> Result<(i8, i32)> {
        let places = match places {
            None => 0,
            Some(value) if value.is_null() => 0,
            Some(value) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(Some(places)) => places,
                _ => return refused(state::UNSUPPORTED, "the decimals to round to must be a constant"),
            },
        };
        let places = places.clamp(-i64::from(DIGITS_MAX), i64::from(DIGITS_MAX));
        let places = i32::try_from(places).unwrap_or(0);
        let shown = i8::try_from(places.max(0)).unwrap_or(0);
        // A larger scale than that of the argument only appends zeros.
        Ok((shown, places.min(i32::from(scale))))
    }
}

impl ScalarUDFImpl for Rounding {
    fn name(&self) -> &'static str {
        match self.mode {
            Mode::Round => "round",
            Mode::Trunc => "trunc",
            Mode::Ceil => "ceil",
            Mode::Floor => "floor",
            Mode::Sign => "sign",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let takes_two = matches!(self.mode, Mode::Round | Mode::Trunc);
        let types = || arguments.iter().map(type_name).collect::<Vec<_>>().join(", ");
        match arguments {
            [DataType::Decimal128(digits, scale)] => Ok(vec![DataType::Decimal128(*digits, *scale)]),
            [number] if number.is_numeric() || *number == DataType::Null => Ok(vec![DataType::Float64]),
            // The places keep their type: a constant that is converted is none any more.
            [number, places] if takes_two && (is_int(places) || *places == DataType::Null) => match number {
                DataType::Decimal128(..) => Ok(vec![number.clone(), places.clone()]),
                DataType::Null => Ok(vec![DataType::Decimal128(1, 0), places.clone()]),
                number if is_int(number) => Ok(vec![decimal_of(number), places.clone()]),
                _ => refused(
                    state::NO_FUNCTION,
                    format!("function {}({}) does not exist", self.name(), types()),
                ),
            },
            _ => refused(state::NO_FUNCTION, format!("function {}({}) does not exist", self.name(), types())),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        refused(state::INTERNAL, "the type of a rounded number depends on its arguments")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let ty = match arguments.arg_fields[0].data_type() {
            DataType::Decimal128(_, scale) => {
                let places = match arguments.scalar_arguments.get(1) {
                    None => None,
                    Some(Some(places)) => Some(places.cast_to(&DataType::Int64)?),
                    Some(None) => {
                        return refused(state::UNSUPPORTED, "the decimals to round to must be a constant");
                    }
                };
                DataType::Decimal128(DIGITS_MAX, self.places(places.as_ref(), *scale)?.0)
            }
            _ => DataType::Float64,
        };
        Ok(Arc::new(Field::new(self.name(), ty, true)))
    }

    /// Returns bounds of the result's type, which interval arithmetic of the caller expects.
    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&inputs.first().map_or(DataType::Float64, |input| input.data_type()))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = call.args[0].to_array(call.number_rows)?;
        let DataType::Decimal128(_, scale) = column.data_type() else {
            let floats = column.as_primitive::<Float64Type>().iter();
            let rounded: Float64Array = floats.map(|value| value.map(|value| self.float(value))).collect();
            return Ok(ColumnarValue::Array(Arc::new(rounded)));
        };
        let places = match call.args.get(1) {
            Some(ColumnarValue::Scalar(places)) => Some(places),
            Some(ColumnarValue::Array(_)) => {
                return refused(state::UNSUPPORTED, "the decimals to round to must be a constant");
            }
            None => None,
        };
        let is_null = places.is_some_and(ScalarValue::is_null);
        let (shown, to) = self.places(places, *scale)?;
        let power = |by: i32| 10_i128.checked_pow(u32::try_from(by).unwrap_or(0));
        // Divide by the power of the removed digits, then multiply by that of the added zeros.
        let (below, zeros) = match self.mode {
            Mode::Sign => (Some(1), Some(1)),
            _ => (power(i32::from(*scale) - to), power(i32::from(shown) - to)),
        };
        let one = |value: i128| {
            let rounded = below.map_or(0, |below| self.whole(value, below));
            let whole = zeros.map_or((rounded == 0).then_some(0), |zeros| rounded.checked_mul(zeros));
            let whole = whole.filter(|whole| whole.unsigned_abs() < 10_u128.pow(DIGITS_MAX.into()));
            whole.map_or_else(|| refused(state::RANGE, too_long()), Ok)
        };
        let decimals = column.as_primitive::<Decimal128Type>().iter();
        let rounded: Result<Decimal128Array> =
            decimals.map(|value| value.filter(|_| !is_null).map(one).transpose()).collect();
        let rounded = rounded?.with_data_type(call.return_field.data_type().clone());
        Ok(ColumnarValue::Array(Arc::new(rounded)))
    }
}

/// A function of floating point that refuses arguments without a result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Guarded {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |ty: &DataType| ty.is_numeric() || *ty == DataType::Null;
        let takes = argument_errors::takes(&self.inner.signature().type_signature, arguments.len());
        if !takes || !arguments.iter().all(is_number) {
            return argument_errors::refuse_call(self.name(), arguments);
        }
        Ok(vec![DataType::Float64; arguments.len()])
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    /// Returns bounds of the result's type, which interval arithmetic of the caller expects.
    fn evaluate_bounds(&self, _inputs: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&DataType::Float64)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (rows, arguments) = (call.number_rows, call.args.clone());
        let arguments: Result<Vec<ArrayRef>> = arguments.iter().map(|value| value.to_array(rows)).collect();
        let arguments = arguments?;
        let columns: Vec<&Float64Array> = arguments.iter().map(|column| column.as_primitive()).collect();
        // Checked before the call, because DataFusion's function returns other errors.
        let values = |row: usize| columns.iter().map(move |column| column.value(row));
        let is_null = |row: usize| columns.iter().any(|column| column.is_null(row));
        let is_logarithm = matches!(self.name(), "ln" | "log" | "log10" | "log2");
        for row in (0..rows).filter(|row| !is_null(*row)) {
            let sign = values(row).find(|value| *value <= 0.0);
            match (self.name(), sign) {
                (_, Some(0.0)) if is_logarithm => return refused("2201E", "cannot take logarithm of zero"),
                (_, Some(_)) if is_logarithm => {
                    return refused("2201E", "cannot take logarithm of a negative number");
                }
                ("sqrt", Some(value)) if value < 0.0 => {
                    return refused("2201F", "cannot take square root of a negative number");
                }
                _ => {}
            }
        }
        let result = self.inner.invoke_with_args(call)?;
        let column = result.to_array(rows)?;
        for (row, value) in column.as_primitive::<Float64Type>().iter().enumerate() {
            let Some(value) = value else { continue };
            let are_finite = values(row).all(f64::is_finite);
            if are_finite && value.is_infinite() {
                let is_zero = self.name() == "power" && values(row).next() == Some(0.0);
                return match is_zero {
                    true => refused("2201F", "zero raised to a negative power is undefined"),
                    false => refused(state::RANGE, "value out of range: overflow"),
                };
            }
            if are_finite && value.is_nan() {
                let text = "a negative number raised to a non-integer power yields a complex result";
                return refused("2201F", text);
            }
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_matches_postgres() {
        let rounding = |mode| Rounding { mode, signature: Signature::user_defined(Volatility::Immutable) };
        let round = rounding(Mode::Round);
        assert_eq!([2.5, -2.5, 3.5, 0.5].map(|value| round.float(value)), [2.0, -2.0, 4.0, 0.0]);
        assert_eq!([25, -25, 35, 4].map(|value| round.whole(value, 10)), [3, -3, 4, 0]);
        assert_eq!([21, -21, 20].map(|value| rounding(Mode::Ceil).whole(value, 10)), [3, -2, 2]);
        assert_eq!([29, -29, 20].map(|value| rounding(Mode::Floor).whole(value, 10)), [2, -3, 2]);
        assert_eq!([27, -27].map(|value| rounding(Mode::Trunc).whole(value, 10)), [2, -2]);
        let places = |places: i64, scale| round.places(Some(&ScalarValue::Int64(Some(places))), scale).ok();
        assert_eq!(places(2, 3), Some((2, 2)));
        assert_eq!(places(-2, 3), Some((0, -2)));
        assert_eq!(places(5, 3), Some((5, 3)));
    }
}
