//! Arithmetic with PostgreSQL's types and errors. DataFusion's operators wrap around on overflow,
//! even when constants are folded. They divide floating point by zero, and truncate quotients of
//! decimals. The replacements are functions, which constant folding calls as well.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Datum, Decimal128Array, Int64Array, new_empty_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, Int64Type, IntervalUnit,
    TimeUnit, i256,
};
use datafusion::arrow::error::ArrowError;
use datafusion::error::Result;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::engine::limits::call_names::{CallKey, call_name};
use crate::engine::types::exact::casts::as_type;
use crate::engine::types::exact::decimals::{
    DIGITS_MAX, QUOTIENT_SCALE, decimal_of, rounded_quotient, too_long,
};
use crate::engine::types::exact::type_names::{is_int, no_operator, refused, type_name};
use crate::failure::state;

/// The function for `+`, `-`, `*`, `/`, `%`, `&`, `|` or `#` with a result of the type `result`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Arithmetic {
    operator: Operator,
    result: DataType,
    signature: Signature,
    key: CallKey,
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &'static str {
        match self.operator {
            Operator::Plus => "add",
            Operator::Minus => "subtract",
            Operator::Multiply => "multiply",
            Operator::Divide => "divide",
            Operator::BitwiseAnd => "bit_and",
            Operator::BitwiseOr => "bit_or",
            Operator::BitwiseXor => "bit_xor",
            _ => "modulo",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        call_name(self.name(), self.key, args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    /// Returns bounds of the result's type, which interval arithmetic of the caller expects.
    fn evaluate_bounds(&self, _inputs: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&self.result)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = &call.args[..] else { return refused(state::INTERNAL, "two operands") };
        let result = apply(left, right, |left, right| self.compute(left, right));
        result.map_err(|error| match error.find_root() {
            datafusion::error::DataFusionError::ArrowError(inner, _) => match &**inner {
                ArrowError::DivideByZero => crate::failure::refusal(state::ZERO, "division by zero"),
                ArrowError::ArithmeticOverflow(_) => {
                    crate::failure::refusal(state::RANGE, format!("{} out of range", type_name(&self.result)))
                }
                ArrowError::ComputeError(text) => crate::failure::refusal(state::RANGE, text.clone()),
                _ => error,
            },
            _ => error,
        })
    }
}

impl Arithmetic {
    fn compute(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        if self.operator == Operator::Divide && self.result.is_decimal() {
            return quotient(left, right, &self.result);
        }
        if let Operator::BitwiseAnd | Operator::BitwiseOr | Operator::BitwiseXor = self.operator {
            return self.bits(left, right);
        }
        let result = match self.operator {
            Operator::Plus => numeric::add(left, right),
            Operator::Minus => numeric::sub(left, right),
            Operator::Multiply => numeric::mul(left, right),
            Operator::Divide => numeric::div(left, right),
            _ => numeric::rem(left, right),
        }?;
        match self.result {
            DataType::Decimal128(DIGITS_MAX, _) => check_digits(&result)?,
            DataType::Float64 => check_floats::<Float64Type>(self.operator, left, right, &result)?,
            DataType::Float32 => check_floats::<Float32Type>(self.operator, left, right, &result)?,
            _ => {}
        }
        Ok(result)
    }
}

impl Arithmetic {
    /// Computes `&`, `|` or `#`. DataFusion simplifies `x # x` to 0, which is null without `x`.
    fn bits(&self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
        let long = |side: &dyn Array| cast(side, &DataType::Int64);
        let (left, right) = (long(left)?, long(right)?);
        let (left, right) = (left.as_primitive::<Int64Type>(), right.as_primitive::<Int64Type>());
        let rows = if left_is_one { right.len() } else { left.len() };
        let one = |row: usize| {
            let (at, by) = (if left_is_one { 0 } else { row }, if right_is_one { 0 } else { row });
            if left.is_null(at) || right.is_null(by) {
                return None;
            }
            let (value, other) = (left.value(at), right.value(by));
            Some(match self.operator {
                Operator::BitwiseAnd => value & other,
                Operator::BitwiseOr => value | other,
                _ => value ^ other,
            })
        };
        cast(&(0..rows).map(one).collect::<Int64Array>(), &self.result)
    }
}

/// Checks that decimals have at most [`DIGITS_MAX`] digits, which 128 bits exceed.
fn check_digits(result: &ArrayRef) -> Result<(), ArrowError> {
    let decimals = result.as_primitive::<Decimal128Type>();
    let max = 10_u128.pow(DIGITS_MAX.into());
    match decimals.iter().flatten().any(|value| value.unsigned_abs() >= max) {
        true => Err(ArrowError::ComputeError(too_long())),
        false => Ok(()),
    }
}

/// Checks floating point as PostgreSQL does: refuses division by zero, and results of finite
/// operands that overflow to infinity or underflow to zero.
fn check_floats<T: ArrowPrimitiveType>(
    operator: Operator,
    left: &dyn Datum,
    right: &dyn Datum,
    result: &ArrayRef,
) -> Result<(), ArrowError>
where
    T::Native: Into<f64>,
{
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    let result = result.as_primitive::<T>();
    for (row, value) in result.iter().enumerate() {
        let Some(value) = value else { continue };
        let value: f64 = value.into();
        let left: f64 = left.value(if left_is_one { 0 } else { row }).into();
        let right: f64 = right.value(if right_is_one { 0 } else { row }).into();
        if operator == Operator::Divide && right == 0.0 {
            return Err(ArrowError::DivideByZero);
        }
        if value.is_infinite() && left.is_finite() && right.is_finite() {
            return Err(ArrowError::ComputeError("value out of range: overflow".to_owned()));
        }
        let must_not_be_zero = match operator {
            Operator::Multiply => left != 0.0 && right != 0.0,
            Operator::Divide => left != 0.0 && right.is_finite(),
            _ => false,
        };
        if value == 0.0 && must_not_be_zero {
            return Err(ArrowError::ComputeError("value out of range: underflow".to_owned()));
        }
    }
    Ok(())
}

/// Divides decimals and rounds half away from zero.
fn quotient(left: &dyn Datum, right: &dyn Datum, result: &DataType) -> Result<ArrayRef, ArrowError> {
    let ((left, left_is_one), (right, right_is_one)) = (left.get(), right.get());
    let scale = |ty: &DataType| match ty {
        DataType::Decimal128(_, scale) => i32::from(*scale),
        _ => 0,
    };
    let shift = scale(result) + scale(right.data_type()) - scale(left.data_type());
    let power = i256::from_i128(10).checked_pow(u32::try_from(shift).unwrap_or(0));
    let power = power.ok_or_else(|| ArrowError::ComputeError(too_long()))?;
    let small = 10_i128.checked_pow(u32::try_from(shift).unwrap_or(0));
    let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let rows = if left_is_one { right.len() } else { left.len() };
    let one = |row: usize| {
        let (at, by) = (if left_is_one { 0 } else { row }, if right_is_one { 0 } else { row });
        if left.is_null(at) || right.is_null(by) {
            return Ok(None);
        }
        let (value, divisor) = (left.value(at), right.value(by));
        if divisor == 0 {
            return Err(ArrowError::DivideByZero);
        }
        if let Some(value) = small.and_then(|power| value.checked_mul(power)) {
            return Ok(Some(rounded_quotient(value, divisor)));
        }
        let wide = i256::from_i128(value).checked_mul(power).and_then(|value| {
            let divisor = i256::from_i128(divisor);
            let (whole, rest) = (value.checked_div(divisor)?, value.checked_rem(divisor)?);
            let rest = rest.checked_abs()?.checked_mul(i256::from_i128(2))?;
            let is_negative = value.is_negative() != divisor.is_negative();
            let step = i256::from_i128(if is_negative { -1 } else { 1 });
            let rounds = rest >= divisor.checked_abs()?;
            if rounds { whole.checked_add(step) } else { Some(whole) }
        });
        let wide = wide
            .and_then(i256::to_i128)
            .filter(|value| value.unsigned_abs() < 10_u128.pow(DIGITS_MAX.into()));
        wide.map(Some).ok_or_else(|| ArrowError::ComputeError(too_long()))
    };
    let values: Result<Decimal128Array, ArrowError> = (0..rows).map(one).collect();
    Ok(std::sync::Arc::new(values?.with_data_type(result.clone())))
}

fn call(operator: Operator, left: Expr, right: Expr, result: DataType) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    let key = CallKey::of(&[&left, &right]);
    ScalarUDF::new_from_impl(Arithmetic { operator, result, signature, key }).call(vec![left, right])
}

/// Replaces an arithmetic operator by a checked function. Other operators stay.
///
/// # Errors
/// The operand types lack the operator.
pub(crate) fn planned(binary: BinaryExpr, left: &DataType, right: &DataType) -> Result<Expr> {
    let is_arithmetic = matches!(
        binary.op,
        Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
    );
    let is_bitwise = matches!(binary.op, Operator::BitwiseAnd | Operator::BitwiseOr | Operator::BitwiseXor);
    match (left, right) {
        (left, right) if (is_arithmetic || is_bitwise) && is_int(left) && is_int(right) => {
            Ok(in_type(binary, left, right, &wider(left, right)))
        }
        _ if !is_arithmetic => Ok(Expr::BinaryExpr(binary)),
        (DataType::Boolean, _) | (_, DataType::Boolean) => no_operator(left, binary.op, right),
        (left, right) if is_number(left) && is_number(right) => of_numbers(binary, left, right),
        _ => Ok(with_dates(binary, left, right)),
    }
}

fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::Float32 | DataType::Float64)
}

fn is_number(ty: &DataType) -> bool {
    is_int(ty) || is_float(ty) || matches!(ty, DataType::Decimal128(..))
}

/// Computes in one type, to which both operands are converted.
fn in_type(binary: BinaryExpr, left: &DataType, right: &DataType, ty: &DataType) -> Expr {
    let (left, right) = (as_type(*binary.left, left, ty), as_type(*binary.right, right, ty));
    call(binary.op, left, right, ty.clone())
}

/// Computes with numbers of which one is no whole number.
fn of_numbers(binary: BinaryExpr, left: &DataType, right: &DataType) -> Result<Expr> {
    match (left, right) {
        (left, right) if !is_float(left) && !is_float(right) => {
            let (of_left, of_right) = (decimal_of(left), decimal_of(right));
            let ty = decimal_result(binary.op, &of_left, &of_right)?;
            let (left, right) =
                (as_type(*binary.left, left, &of_left), as_type(*binary.right, right, &of_right));
            Ok(call(binary.op, left, right, ty))
        }
        _ if binary.op == Operator::Modulo => no_operator(left, binary.op, right),
        (DataType::Float32, DataType::Float32) => Ok(in_type(binary, left, right, &DataType::Float32)),
        _ => Ok(in_type(binary, left, right, &DataType::Float64)),
    }
}

/// Computes with dates as numbers of days. Other operations stay.
fn with_dates(mut binary: BinaryExpr, left: &DataType, right: &DataType) -> Expr {
    const DAYS: DataType = DataType::Int32;
    let midnight = DataType::Timestamp(TimeUnit::Microsecond, None);
    match (left, binary.op, right) {
        (DataType::Date32, Operator::Minus, DataType::Date32) => return in_type(binary, left, right, &DAYS),
        (DataType::Date32, Operator::Plus | Operator::Minus, days)
        | (days, Operator::Plus, DataType::Date32)
            if is_int(days) =>
        {
            return as_type(in_type(binary, left, right, &DAYS), &DAYS, &DataType::Date32);
        }
        // A date plus an interval is a timestamp.
        (DataType::Date32, _, DataType::Interval(IntervalUnit::MonthDayNano)) => {
            *binary.left = as_type(*binary.left, left, &midnight);
        }
        (DataType::Interval(IntervalUnit::MonthDayNano), _, DataType::Date32) => {
            *binary.right = as_type(*binary.right, right, &midnight);
        }
        _ => {}
    }
    Expr::BinaryExpr(binary)
}

/// Negates a whole number.
pub(crate) fn negative(expr: Expr, ty: &DataType) -> Result<Expr> {
    let ty = wider(ty, ty);
    let zero = datafusion::scalar::ScalarValue::new_zero(&ty)?;
    Ok(call(Operator::Minus, Expr::Literal(zero, None), expr, ty))
}

/// Returns the type of an operation on whole numbers. Types that PostgreSQL lacks become the next
/// wider one.
fn wider(left: &DataType, right: &DataType) -> DataType {
    let width = |ty: &DataType| match ty {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => 2,
        DataType::Int32 | DataType::UInt16 => 4,
        _ => 8,
    };
    match width(left).max(width(right)) {
        2 => DataType::Int16,
        4 => DataType::Int32,
        _ => DataType::Int64,
    }
}

fn decimal_result(op: Operator, left: &DataType, right: &DataType) -> Result<DataType> {
    if op == Operator::Divide {
        let scale = |ty: &DataType| match ty {
            DataType::Decimal128(_, scale) => *scale,
            _ => 0,
        };
        return Ok(DataType::Decimal128(DIGITS_MAX, QUOTIENT_SCALE.max(scale(left)).max(scale(right))));
    }
    let (left, right) = (new_empty_array(left), new_empty_array(right));
    let result = match op {
        Operator::Plus => numeric::add(&left, &right),
        Operator::Minus => numeric::sub(&left, &right),
        Operator::Multiply => numeric::mul(&left, &right),
        _ => numeric::rem(&left, &right),
    };
    match result {
        Ok(result) => Ok(result.data_type().clone()),
        Err(_) => refused(state::UNSUPPORTED, too_long()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_quotients_are_exact() {
        let column = |value: i128, scale| {
            let array = Decimal128Array::from(vec![value]);
            array.with_precision_and_scale(DIGITS_MAX, scale).expect("a decimal")
        };
        let ty = DataType::Decimal128(DIGITS_MAX, 16);
        let widest = 99_999_999_999_999_999_999_i128;
        let found = quotient(&column(widest, 0), &column(30, 1), &ty).expect("a quotient");
        assert_eq!(
            found.as_primitive::<Decimal128Type>().value(0),
            333_333_333_333_333_333_330_000_000_000_000_000
        );
        let error = quotient(&column(10_i128.pow(37), 0), &column(1, 0), &ty).expect_err("too many digits");
        assert!(error.to_string().contains("38 digits"), "{error}");
    }
}
