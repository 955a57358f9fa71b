//! Arithmetic operators on numbers, dates and durations, and the concatenation of texts.
//!
//! The result of two numbers has the size of the larger one. It is a floating-point number if one
//! of them is: `float`, `double` or `decimal`. Integers wrap around.

use schema::CqlType;

use crate::function::Body;
use crate::number::{NUMBERS, Number};
use crate::operator::Operator;
use crate::{Argument, Fit, Function, FunctionError, resolve};

/// Resolves `left op right`. `wanted` is the type that the caller wants, if it wants one.
///
/// # Errors
/// Returns Cassandra's texts for operands that no overload accepts, or several.
pub fn arithmetic(
    op: Operator,
    left: &dyn Argument,
    right: &dyn Argument,
    wanted: Option<&CqlType>,
) -> Result<Function, FunctionError> {
    let compatible = match overloads(op, left, right, wanted) {
        Overloads::Exact(function) => return Ok(*function),
        Overloads::Weak(compatible) => compatible,
    };
    if let [function] = &compatible[..] {
        return Ok(function.clone());
    }
    let (sign, left_text, right_text) = (op.sign(), left.text(), right.text());
    if compatible.is_empty() {
        return Err(FunctionError::invalid(format!(
            "the '{sign}' operation is not supported between {left_text} and {right_text}"
        )));
    }
    // Operands without a type get the type of the result.
    let is_marker = |argument: &dyn Argument| argument.text().starts_with(['?', ':']);
    if let Some(wanted) = wanted
        && !is_marker(left)
        && !is_marker(right)
        && let Some(function) = compatible.iter().find(|f| f.arguments.iter().all(|ty| ty == wanted.thawed()))
    {
        return Ok(function.clone());
    }
    Err(FunctionError::Ambiguous(format!(
        "Ambiguous '{sign}' operation with args {left_text} and {right_text}: use type hint to disambiguate, \
         example '(int) ?'"
    )))
}

/// Overloads that accept the operands.
enum Overloads {
    Exact(Box<Function>),
    Weak(Vec<Function>),
}

fn overloads(op: Operator, left: &dyn Argument, right: &dyn Argument, wanted: Option<&CqlType>) -> Overloads {
    let mut pairs: Vec<(CqlType, CqlType, Fit)> = Vec::new();
    let mut add = |lefts: &[CqlType], rights: &[CqlType]| {
        let fits = |argument: &dyn Argument, types: &[CqlType]| {
            let fits = types.iter().map(|ty| (ty.clone(), argument.fit(ty)));
            fits.filter(|(_, fit)| *fit != Fit::No).collect::<Vec<_>>()
        };
        let rights = fits(right, rights);
        for (left_type, left_fit) in fits(left, lefts) {
            let of = |(ty, fit): &(CqlType, Fit)| (left_type.clone(), ty.clone(), left_fit.max(*fit));
            pairs.extend(rights.iter().map(of));
        }
    };
    add(&NUMBERS, &NUMBERS);
    if matches!(op, Operator::Add | Operator::Subtract) {
        add(&[CqlType::Timestamp, CqlType::Date], &[CqlType::Duration]);
    }
    if op == Operator::Add {
        add(&[CqlType::Text, CqlType::Ascii], &[CqlType::Text, CqlType::Ascii]);
    }
    let mut weak = Vec::new();
    for (left, right, fit) in pairs {
        let (result, body) = operation(op, &left, &right);
        if wanted.is_some_and(|wanted| Fit::of(&result, wanted) == Fit::No) {
            continue;
        }
        let function = Function::new(op.function_name(), vec![left, right], result, body);
        match fit {
            Fit::Exact => return Overloads::Exact(Box::new(function)),
            _ => weak.push(function),
        }
    }
    Overloads::Weak(weak)
}

/// Returns type and body of the overload for these types.
fn operation(op: Operator, left: &CqlType, right: &CqlType) -> (CqlType, Body) {
    match (left, right) {
        (CqlType::Timestamp | CqlType::Date, _) => (left.clone(), Body::Shift(op)),
        (CqlType::Ascii, CqlType::Ascii) => (CqlType::Ascii, Body::Concatenate),
        (CqlType::Ascii | CqlType::Text, _) => (CqlType::Text, Body::Concatenate),
        _ => (result_type(left, right), Body::Arithmetic(op)),
    }
}

/// Returns the type of the result of two numbers.
fn result_type(left: &CqlType, right: &CqlType) -> CqlType {
    let is_float = |ty: &CqlType| matches!(ty, CqlType::Float | CqlType::Double | CqlType::Decimal);
    let size = |ty: &CqlType| ty.fixed_len().unwrap_or(usize::MAX);
    match (is_float(left) || is_float(right), size(left).max(size(right))) {
        (true, 4) => CqlType::Float,
        (true, 8) => CqlType::Double,
        (true, _) => CqlType::Decimal,
        (false, 1) => CqlType::TinyInt,
        (false, 2) => CqlType::SmallInt,
        (false, 4) => CqlType::Int,
        (false, 8) => CqlType::BigInt,
        (false, _) => CqlType::Varint,
    }
}

/// Resolves `-operand`. `wanted` is the type that the caller wants, if it wants one.
///
/// # Errors
/// Returns Cassandra's texts for operands that are no numbers, and for markers without a type.
pub fn negate(operand: &dyn Argument, wanted: Option<&CqlType>) -> Result<Function, FunctionError> {
    let overloads =
        NUMBERS.iter().map(|ty| Function::new("_negate", vec![ty.clone()], ty.clone(), Body::Negate));
    resolve::best(resolve::NEGATION, overloads.collect(), &[operand], wanted)
}

/// Calls an operator on numbers. Values that are no numbers give null.
pub(crate) fn numbers(
    function: &Function,
    op: Operator,
    left: &[u8],
    right: &[u8],
) -> Result<Option<Vec<u8>>, FunctionError> {
    let [left_type, right_type] = &function.arguments[..] else { return Ok(None) };
    let left = Number::from_bytes(left_type, left);
    let (Some(left), Some(right)) = (left, Number::from_bytes(right_type, right)) else { return Ok(None) };
    let result = compute(op, &function.result, &left, &right);
    let bytes = result.and_then(|number| number.to_bytes(&function.result));
    bytes.map(Some).map_err(|reason| failed(function, op, reason))
}

/// Returns the failure of an operation in Cassandra's words.
pub(crate) fn failed(function: &Function, op: Operator, reason: &str) -> FunctionError {
    let [left, right] = &function.arguments[..] else { return FunctionError::invalid(reason) };
    let message = format!("the operation '{left} {} {right}' failed: {reason}", op.sign());
    FunctionError::failed(&function.name, &function.arguments, message)
}

fn compute(op: Operator, result: &CqlType, left: &Number, right: &Number) -> Result<Number, &'static str> {
    Ok(match result {
        CqlType::Float => Number::Float(float(op, left.to_f32(), right.to_f32())),
        CqlType::Double => Number::Double(float(op, left.to_f64(), right.to_f64())),
        CqlType::Varint => {
            let (left, right) = (left.to_varint(), right.to_varint());
            let is_division = matches!(op, Operator::Divide | Operator::Modulo);
            if is_division && right.sign() == num_bigint::Sign::NoSign {
                return Err("BigInteger divide by zero");
            }
            Number::Varint(match op {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide => left / right,
                Operator::Modulo => left % right,
            })
        }
        CqlType::Decimal => {
            let (left, right) = (left.to_decimal()?, right.to_decimal()?);
            Number::Decimal(match op {
                Operator::Add => left.add(&right)?,
                Operator::Subtract => left.subtract(&right)?,
                Operator::Multiply => left.multiply(&right)?,
                Operator::Divide => left.divide(&right)?,
                Operator::Modulo => left.remainder(&right)?,
            })
        }
        _ => Number::Integer(integer(op, left.to_i64(), right.to_i64()).ok_or("/ by zero")?),
    })
}

/// Calls an operator on floating-point numbers.
fn float<F>(op: Operator, left: F, right: F) -> F
where
    F: std::ops::Add<Output = F>
        + std::ops::Sub<Output = F>
        + std::ops::Mul<Output = F>
        + std::ops::Div<Output = F>
        + std::ops::Rem<Output = F>,
{
    match op {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
    }
}

/// Calls an operator on integers. The caller truncates to the width of the result. `None`: division
/// by zero.
fn integer(op: Operator, left: i64, right: i64) -> Option<i64> {
    Some(match op {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide if right == 0 => return None,
        Operator::Modulo if right == 0 => return None,
        Operator::Divide => left.wrapping_div(right),
        Operator::Modulo => left.wrapping_rem(right),
    })
}

/// Negates a number.
pub(crate) fn negated(function: &Function, value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let Some(number) = Number::from_bytes(&function.result, value) else { return Ok(None) };
    let negated = match number {
        Number::Integer(number) => Number::Integer(number.wrapping_neg()),
        Number::Float(number) => Number::Float(-number),
        Number::Double(number) => Number::Double(-number),
        Number::Varint(number) => Number::Varint(-number),
        Number::Decimal(number) => Number::Decimal(number.negated()),
    };
    negated.to_bytes(&function.result).map(Some).map_err(FunctionError::invalid)
}
