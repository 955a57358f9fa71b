//! `abs`, `exp`, `log`, `log10` and `round`. The result has the type of the argument.

use num_bigint::BigInt;
use schema::CqlType;

use crate::decimal::{Decimal, Failure};
use crate::number::Number;
use crate::{FunctionError, transcendental};

/// A mathematical function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Math {
    Abs,
    Exp,
    Log,
    Log10,
    Round,
}

impl Math {
    /// Returns the function with this name.
    pub(crate) fn named(name: &str) -> Option<Math> {
        Some(match name {
            "abs" => Math::Abs,
            "exp" => Math::Exp,
            "log" => Math::Log,
            "log10" => Math::Log10,
            "round" => Math::Round,
            _ => return None,
        })
    }

    fn of_double(self, x: f64) -> f64 {
        match self {
            Math::Abs => x.abs(),
            Math::Exp => x.exp(),
            Math::Log => x.ln(),
            Math::Log10 => x.log10(),
            // Java rounds half up, to a `long`.
            Math::Round => round(x) as i64 as f64,
        }
    }

    fn of_decimal(self, x: &Decimal) -> Result<Decimal, Failure> {
        match self {
            Math::Abs => Ok(x.absolute()),
            Math::Exp => transcendental::exp(x),
            Math::Log => transcendental::ln(x),
            Math::Log10 => transcendental::log10(x),
            Math::Round => x.rounded(),
        }
    }

    fn of_varint(self, x: &BigInt) -> Result<BigInt, Failure> {
        match self {
            Math::Abs => Ok(x.magnitude().clone().into()),
            Math::Round => Ok(x.clone()),
            _ => self.of_decimal(&Decimal::from_integer(x.clone()))?.truncated(),
        }
    }
}

/// Returns the nearest whole number, the higher one of two.
fn round(x: f64) -> f64 {
    let floor = x.floor();
    if x - floor >= 0.5 { floor + 1.0 } else { floor }
}

/// Calls the function with a value of this type. A value that is no number gives null.
pub(crate) fn call(math: Math, ty: &CqlType, value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let Some(number) = Number::from_bytes(ty, value) else { return Ok(None) };
    let result = match number {
        Number::Integer(number) => Ok(match math {
            Math::Abs => Number::Integer(number.wrapping_abs()),
            Math::Round => Number::Integer(number),
            _ => Number::Double(math.of_double(number as f64)),
        }),
        Number::Float(number) => Ok(Number::Float(match math {
            Math::Abs => number.abs(),
            Math::Round => round(number.into()) as i32 as f32,
            _ => math.of_double(number.into()) as f32,
        })),
        Number::Double(number) => Ok(Number::Double(math.of_double(number))),
        Number::Varint(number) => math.of_varint(&number).map(Number::Varint),
        Number::Decimal(number) => math.of_decimal(&number).map(Number::Decimal),
    };
    let bytes = result.and_then(|number| number.to_bytes(ty));
    bytes.map(Some).map_err(FunctionError::invalid)
}
