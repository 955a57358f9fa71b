//! Types of casts and of typed constants.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Expr, Value, ValueWithSpan,
};

use crate::engine::parse::syntax::{call, number, text};
use crate::engine::types::exact::UNCONSTRAINED;
use crate::failure::{Failure, state, unsupported};

/// Rewrites a cast, which `expr` is.
///
/// # Errors
/// The type is not supported.
pub(super) fn cast(expr: &mut Expr) -> Result<(), Failure> {
    let Expr::Cast { kind, expr: inner, data_type, .. } = expr else { return Ok(()) };
    if let Some(length) = length(data_type)? {
        let whole = Expr::Cast {
            kind: kind.clone(),
            expr: inner.clone(),
            data_type: DataType::Text,
            array: false,
            format: None,
        };
        *expr = call("left", vec![whole, number(&length.to_string())]);
        return Ok(());
    }
    exact_type(data_type)?;
    // Floating point covers a wider range than numeric, so parse the text and not a numeric
    // constant.
    if is_float(data_type)
        && let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = &**inner
    {
        **inner = text(digits.clone());
    }
    Ok(())
}

/// Returns the length, in characters, that a type truncates texts to. `None`: it does not.
fn length(ty: &DataType) -> Result<Option<u64>, Failure> {
    let length = match ty {
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            length
        }
        DataType::Char(length) | DataType::Character(length) => {
            return match length {
                Some(CharacterLength::IntegerLength { length, .. }) => Ok(Some(*length)),
                Some(CharacterLength::Max) => Ok(None),
                None => Ok(Some(1)),
            };
        }
        _ => return Ok(None),
    };
    Ok(match length {
        Some(CharacterLength::IntegerLength { length: 0, .. }) => {
            return Err(Failure::new(state::INVALID, "length for type varchar must be at least 1"));
        }
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        _ => None,
    })
}

fn is_float(ty: &DataType) -> bool {
    matches!(
        ty,
        DataType::Float8
            | DataType::Double(_)
            | DataType::DoublePrecision
            | DataType::Real
            | DataType::Float4
            | DataType::Float(_)
    )
}

/// Rewrites a type to the one that DataFusion is to plan.
pub(super) fn exact_type(ty: &mut DataType) -> Result<(), Failure> {
    let datafusion::arrow::datatypes::DataType::Decimal128(digits, scale) = UNCONSTRAINED else {
        return Ok(());
    };
    match ty {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            *ty = DataType::Text
        }
        DataType::Numeric(info @ ExactNumberInfo::None)
        | DataType::Decimal(info @ ExactNumberInfo::None)
        | DataType::Dec(info @ ExactNumberInfo::None) => {
            *info = ExactNumberInfo::PrecisionAndScale(digits.into(), scale.into());
        }
        DataType::Numeric(ExactNumberInfo::PrecisionAndScale(digits, scale))
        | DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits, scale))
            if *digits > 38 || *scale < 0 || u64::try_from(*scale).is_ok_and(|scale| scale > *digits) =>
        {
            return unsupported(format!("numeric({digits},{scale}) is not supported: at most 38 digits"));
        }
        DataType::Timestamp(precision @ None, _) => *precision = Some(6),
        DataType::Timestamp(Some(precision), _) if *precision != 6 => {
            return unsupported(format!(
                "timestamp({precision}) is not supported: timestamps have microseconds"
            ));
        }
        DataType::Time(Some(precision), _) if *precision != 6 => {
            return unsupported(format!("time({precision}) is not supported: times have microseconds"));
        }
        DataType::Time(precision @ Some(_), _) => *precision = None,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            if length(element)?.is_some() {
                return unsupported(format!("an array of {element} is not supported: use text[]"));
            }
            exact_type(element)?;
        }
        _ => {}
    }
    Ok(())
}
