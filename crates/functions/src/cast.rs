//! `CAST(value AS type)`: between numbers, between times, and to text.

use std::net::Ipv6Addr;

use schema::CqlType;
use schema::value::json::float_text;
use schema::value::{is_empty, to_text};

use crate::argument::is_same;
use crate::decimal::Decimal;
use crate::function::Body;
use crate::number::{NUMBERS, Number};
use crate::{Argument, Function, FunctionError, resolve};

/// Resolves `CAST(argument AS to)`. A cast to the type that the argument has returns its value. As
/// in Cassandra, the caller names such a column as if there were no cast.
///
/// # Errors
/// Returns Cassandra's text if there is no such cast: `a cannot be cast to boolean`.
pub fn cast(argument: &dyn Argument, to: &CqlType) -> Result<Function, FunctionError> {
    let name = format!("cast_as_{}", to.kind_name());
    if let Some(from) = argument.ty()
        && is_same(&from, to)
    {
        return Ok(Function::new(&name, vec![from], to.clone(), Body::Same));
    }
    let mut overloads = overloads(&name);
    match overloads.len() {
        0 => Err(FunctionError::invalid(format!("{} cannot be cast to {to}", argument.text()))),
        1 => resolve::only(overloads.remove(0), &[argument]),
        _ => resolve::best(&format!("system.{name}"), overloads, &[argument], None),
    }
}

/// Returns the overloads of a function such as `cast_as_int` or `castAsInt`. Empty: no such
/// function.
pub(crate) fn overloads(name: &str) -> Vec<Function> {
    let to = match name.strip_prefix("cast_as_") {
        Some(to) => CqlType::scalar(to).filter(|ty| ty.kind_name() == to),
        None => {
            let old = |to: &str| CqlType::scalar(to).filter(|ty| capitalized(ty.kind_name()) == to);
            name.strip_prefix("castAs").and_then(old)
        }
    };
    let Some(to) = to else { return Vec::new() };
    let one = |(from, body): (CqlType, Body)| Function::new(name, vec![from], to.clone(), body);
    sources(&to).into_iter().map(one).collect()
}

fn capitalized(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// Returns the types that can be cast to this one.
fn sources(to: &CqlType) -> Vec<(CqlType, Body)> {
    use CqlType as T;
    let numbers = |body| NUMBERS.iter().filter(|from| *from != to).map(move |from| (from.clone(), body));
    match to {
        T::Counter => Vec::new(),
        T::Date => [T::TimeUuid, T::Timestamp].map(|from| (from, Body::Convert)).to_vec(),
        T::Timestamp => [T::TimeUuid, T::Date].map(|from| (from, Body::Convert)).to_vec(),
        T::Text | T::Ascii => {
            let mut sources: Vec<_> = numbers(Body::CastText).collect();
            if *to == T::Text {
                sources.push((T::Ascii, Body::Same));
            }
            let others = [T::Inet, T::Boolean, T::TimeUuid, T::Timestamp, T::Date, T::Time, T::Uuid];
            sources.extend(others.map(|from| (from, Body::CastText)));
            sources
        }
        number if NUMBERS.contains(number) => numbers(Body::CastNumber).collect(),
        _ => Vec::new(),
    }
}

/// Casts a number to another type. Integers lose their high bits, fractions are cut off.
pub(crate) fn number(function: &Function, value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let Some(number) = Number::from_bytes(&function.arguments[0], value) else { return Ok(None) };
    // Unlike in arithmetic, 1 becomes 1 and not 1.0, and a `float` keeps its own digits.
    let number = match (number, &function.result) {
        (Number::Integer(number), CqlType::Decimal) => Number::Decimal(Decimal::from_integer(number.into())),
        (Number::Float(number), CqlType::Decimal) if number.is_finite() => {
            let decimal = Decimal::parse(&float_text(number));
            Number::Decimal(decimal.ok_or_else(|| FunctionError::invalid("Overflow"))?)
        }
        (number, _) => number,
    };
    number.to_bytes(&function.result).map(Some).map_err(FunctionError::invalid)
}

/// Returns the text of a value. `None`: the bytes are no value of the type.
pub(crate) fn text(ty: &CqlType, value: &[u8]) -> Option<Vec<u8>> {
    if is_empty(ty, value) {
        return None;
    }
    let text = match (Number::from_bytes(ty, value), ty) {
        (Some(Number::Integer(number)), _) => number.to_string(),
        (Some(Number::Float(number)), _) => float_text(number),
        (Some(Number::Double(number)), _) => float_text(number),
        (Some(Number::Varint(number)), _) => number.to_string(),
        (Some(Number::Decimal(_)), _) => to_text(ty, value),
        (None, CqlType::Inet) if value.len() == 16 => {
            // Java does not shorten zeros.
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?);
            address.segments().map(|part| format!("{part:x}")).join(":")
        }
        (None, _) => {
            schema::value::check(ty, value).ok()?;
            let constant = to_text(ty, value);
            let text = constant.trim_matches('\'');
            if *ty == CqlType::Timestamp { text.replacen(' ', "T", 1) } else { text.to_owned() }
        }
    };
    Some(text.into_bytes())
}
