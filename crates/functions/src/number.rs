//! Numbers of all CQL types, with the conversions of Java's `Number`.

use num_bigint::BigInt;
use schema::CqlType;
use schema::value::NUMBER_BYTES_MAX;
use schema::value::json::float_text;

use crate::decimal::{Decimal, Failure, low_bits};

/// Types of numbers, in Cassandra's order.
pub(crate) static NUMBERS: [CqlType; 9] = [
    CqlType::TinyInt,
    CqlType::SmallInt,
    CqlType::Int,
    CqlType::BigInt,
    CqlType::Float,
    CqlType::Double,
    CqlType::Decimal,
    CqlType::Varint,
    CqlType::Counter,
];

/// A number.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Number {
    /// `tinyint`, `smallint`, `int`, `bigint` or `counter`.
    Integer(i64),
    Float(f32),
    Double(f64),
    Varint(BigInt),
    Decimal(Decimal),
}

impl Number {
    /// Parses a serialized number. `None`: another type, or bytes that are no such number.
    pub(crate) fn from_bytes(ty: &CqlType, bytes: &[u8]) -> Option<Number> {
        Some(match ty {
            CqlType::TinyInt => Number::Integer(i8::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::SmallInt => Number::Integer(i16::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::Int => Number::Integer(i32::from_be_bytes(bytes.try_into().ok()?).into()),
            CqlType::BigInt | CqlType::Counter => Number::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Float => Number::Float(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => Number::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Varint if (1..=NUMBER_BYTES_MAX).contains(&bytes.len()) => {
                Number::Varint(BigInt::from_signed_bytes_be(bytes))
            }
            CqlType::Decimal => Number::Decimal(Decimal::from_bytes(bytes)?),
            _ => return None,
        })
    }

    /// Converts to a type of numbers and serializes. An integer keeps its low bits.
    ///
    /// # Errors
    /// Returns the reason if the type cannot represent the number, or is none of numbers.
    pub(crate) fn to_bytes(&self, ty: &CqlType) -> Result<Vec<u8>, Failure> {
        Ok(match ty {
            CqlType::TinyInt => (self.to_i32() as i8).to_be_bytes().to_vec(),
            CqlType::SmallInt => (self.to_i32() as i16).to_be_bytes().to_vec(),
            CqlType::Int => self.to_i32().to_be_bytes().to_vec(),
            CqlType::BigInt | CqlType::Counter => self.to_i64().to_be_bytes().to_vec(),
            CqlType::Float => self.to_f32().to_be_bytes().to_vec(),
            CqlType::Double => self.to_f64().to_be_bytes().to_vec(),
            CqlType::Varint => {
                let bytes = self.to_varint().to_signed_bytes_be();
                if bytes.len() > NUMBER_BYTES_MAX {
                    return Err("Overflow");
                }
                bytes
            }
            CqlType::Decimal => self.to_decimal()?.to_bytes()?,
            _ => return Err("not a number"),
        })
    }

    /// Returns Java's `intValue`: the low bits of an integer, the nearest `int` of a floating-point
    /// number.
    pub(crate) fn to_i32(&self) -> i32 {
        match self {
            Number::Float(number) => *number as i32,
            Number::Double(number) => *number as i32,
            other => other.to_i64() as i32,
        }
    }

    /// Returns Java's `longValue`.
    pub(crate) fn to_i64(&self) -> i64 {
        match self {
            Number::Integer(number) => *number,
            Number::Float(number) => *number as i64,
            Number::Double(number) => *number as i64,
            Number::Varint(number) => low_bits(number),
            Number::Decimal(number) => number.low_bits(),
        }
    }

    pub(crate) fn to_f32(&self) -> f32 {
        match self {
            Number::Integer(number) => *number as f32,
            Number::Float(number) => *number,
            Number::Double(number) => *number as f32,
            // The parser rounds to the nearest number, also of thousands of digits.
            Number::Varint(number) => number.to_string().parse().unwrap_or(f32::NAN),
            Number::Decimal(number) => number.exponent_text().parse().unwrap_or(f32::NAN),
        }
    }

    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            Number::Integer(number) => *number as f64,
            Number::Float(number) => (*number).into(),
            Number::Double(number) => *number,
            Number::Varint(number) => number.to_string().parse().unwrap_or(f64::NAN),
            Number::Decimal(number) => number.exponent_text().parse().unwrap_or(f64::NAN),
        }
    }

    /// Returns an integer with the value of Java's `longValue`, unless it is a `varint` already.
    pub(crate) fn to_varint(&self) -> BigInt {
        match self {
            Number::Varint(number) => number.clone(),
            other => other.to_i64().into(),
        }
    }

    /// Converts as Cassandra's arithmetic does: small integers and floating-point numbers by the
    /// text of a double, so that 1 becomes 1.0.
    pub(crate) fn to_decimal(&self) -> Result<Decimal, Failure> {
        match self {
            Number::Decimal(number) => Ok(number.clone()),
            Number::Varint(number) => Ok(Decimal::from_integer(number.clone())),
            other => {
                let double = other.to_f64();
                if double.is_nan() {
                    return Err("A NaN cannot be converted into a decimal");
                }
                if double.is_infinite() {
                    return Err("An infinite number cannot be converted into a decimal");
                }
                Decimal::parse(&float_text(double)).ok_or("Overflow")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_java() {
        let check = |number: Number, ty: CqlType, expected: &[u8]| {
            assert_eq!(number.to_bytes(&ty).unwrap(), expected, "{number:?} as {ty}");
        };
        check(Number::Integer(257), CqlType::TinyInt, &[1]);
        check(Number::Double(1e10), CqlType::TinyInt, &[0xff]);
        check(Number::Double(1e10), CqlType::Int, &i32::MAX.to_be_bytes());
        check(Number::Double(f64::NAN), CqlType::Int, &[0; 4]);
        check(Number::Float(5.2), CqlType::BigInt, &5_i64.to_be_bytes());
        check(Number::Varint(BigInt::from(1_u128 << 70 | 5)), CqlType::BigInt, &5_i64.to_be_bytes());
        check(Number::Integer(-1), CqlType::Varint, &[0xff]);
        check(Number::Integer(1), CqlType::Decimal, &[0, 0, 0, 1, 10]);
        check(Number::Double(0.25), CqlType::Decimal, &[0, 0, 0, 2, 25]);
    }

    #[test]
    fn bytes_of_another_length_are_no_number() {
        for ty in &NUMBERS {
            assert_eq!(Number::from_bytes(ty, &[]), None, "{ty}");
        }
        assert_eq!(Number::from_bytes(&CqlType::Int, &[1, 2]), None);
        assert_eq!(Number::from_bytes(&CqlType::Varint, &[1; NUMBER_BYTES_MAX + 1]), None);
        assert_eq!(Number::from_bytes(&CqlType::Text, b"1"), None);
    }
}
