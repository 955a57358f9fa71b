//! Check of values against their type. All values from clients pass this check first.
//!
//! The recursion follows the type, whose depth is bounded, and never the data.

use std::borrow::Cow;

use super::calendar::DAY_NANOSECONDS;
use super::collection::{
    EXTRANEOUS, NULL_INSIDE, components, elements, encode_list, encode_map, encode_tuple, encode_vector,
    pairs, vector_elements,
};
use super::duration::Duration;
use super::varint::NUMBER_BYTES_MAX;
use super::{ValueError, compare};
use crate::CqlType;

/// Most bytes of an address of a wrong length that its error repeats.
const SHOWN_BYTES_MAX: usize = 32;

/// Returns true for an *empty value*: no bytes, of a type whose other values have bytes. It is no
/// null, sorts before all others, and has no text. Cassandra has empty values of most scalars:
/// their clients wrote them when there was no null.
pub fn is_empty(ty: &CqlType, bytes: &[u8]) -> bool {
    use CqlType as T;
    bytes.is_empty()
        && matches!(
            ty.thawed(),
            T::Boolean
                | T::Int
                | T::BigInt
                | T::Float
                | T::Double
                | T::Timestamp
                | T::Uuid
                | T::TimeUuid
                | T::Inet
                | T::Varint
                | T::Decimal
                | T::TinyInt
                | T::SmallInt
                | T::Duration
        )
}

/// Checks that `bytes` are a value of type `ty`. Empty bytes are valid for `text`, `ascii`, `blob`,
/// tuples and user types, and as empty values: see [`is_empty`].
pub fn check(ty: &CqlType, bytes: &[u8]) -> Result<(), ValueError> {
    // As in Cassandra, only texts of JSON and of tuples make empty values of the small types.
    let is_of_text = matches!(ty, CqlType::TinyInt | CqlType::SmallInt | CqlType::Duration);
    if bytes.is_empty() && is_empty(ty, bytes) && !is_of_text {
        return Ok(());
    }
    let text = |message: &str| Err(ValueError::text(message.to_owned()));
    match ty {
        CqlType::Blob => Ok(()),
        CqlType::Ascii => match bytes.iter().find(|byte| !byte.is_ascii()) {
            Some(byte) => text(&format!("Invalid byte for ascii: {}", byte.cast_signed())),
            None => Ok(()),
        },
        CqlType::Text if std::str::from_utf8(bytes).is_err() => text("String didn't validate."),
        CqlType::Text => Ok(()),
        CqlType::Boolean => fixed(bytes, 1, "Expected 1 or 0 byte value"),
        CqlType::TinyInt => fixed(bytes, 1, "Expected 1 byte for a tinyint"),
        CqlType::SmallInt => fixed(bytes, 2, "Expected 2 bytes for a smallint"),
        CqlType::Int => fixed(bytes, 4, "Expected 4 or 0 byte int"),
        CqlType::Float => fixed(bytes, 4, "Expected 4 or 0 byte value for a float"),
        CqlType::Date => fixed(bytes, 4, "Expected 4 byte long for date"),
        CqlType::BigInt | CqlType::Counter => fixed(bytes, 8, "Expected 8 or 0 byte long"),
        CqlType::Double => fixed(bytes, 8, "Expected 8 or 0 byte value for a double"),
        CqlType::Timestamp => fixed(bytes, 8, "Expected 8 or 0 byte long for date"),
        CqlType::Uuid => fixed(bytes, 16, "UUID should be 16 or 0 bytes"),
        CqlType::TimeUuid => match bytes.get(6) {
            Some(version) if version >> 4 != 1 && bytes.len() == 16 => {
                text(&format!("Invalid version for TimeUUID type: {:#x}", version >> 4))
            }
            _ => fixed(bytes, 16, "UUID should be 16 or 0 bytes"),
        },
        CqlType::Time => {
            fixed(bytes, 8, "Expected 8 byte long for time")?;
            let nanoseconds = bytes.first_chunk::<8>().map(|b| i64::from_be_bytes(*b));
            match nanoseconds {
                Some(0..DAY_NANOSECONDS) => Ok(()),
                _ => malformed(ty, "it is outside of a day"),
            }
        }
        CqlType::Inet if matches!(bytes.len(), 4 | 16) => Ok(()),
        CqlType::Inet => {
            let hex = super::text::hex(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]);
            text(&format!("Expected 4 or 16 byte inetaddress; got {}", &hex[2..]))
        }
        CqlType::Varint if bytes.len() > NUMBER_BYTES_MAX => malformed(ty, "it has more than 1024 bytes"),
        CqlType::Varint => Ok(()),
        CqlType::Decimal if bytes.len() < 5 => length("Expected 0 or at least 5 bytes", bytes),
        CqlType::Decimal if bytes.len() > 4 + NUMBER_BYTES_MAX => {
            malformed(ty, "it has more than 1024 bytes")
        }
        CqlType::Decimal => Ok(()),
        CqlType::Duration => Duration::from_bytes(bytes).map(|_| ()),
        CqlType::List(element) | CqlType::Set(element) => {
            elements(bytes).try_for_each(|value| check(element, value.map_err(|e| shape(ty, bytes, e))?))
        }
        CqlType::Map(key, value) => pairs(bytes).try_for_each(|pair| {
            let (k, v) = pair.map_err(|e| shape(ty, bytes, e))?;
            check(key, k)?;
            check(value, v)
        }),
        CqlType::Tuple(types) => fields(ty, types.iter(), bytes),
        CqlType::Udt(udt) => fields(ty, udt.fields.iter().map(|(_, ty)| ty), bytes),
        CqlType::Vector(element, dimension) => vector(ty, element, *dimension, bytes),
        CqlType::Frozen(inner) => check(inner, bytes),
    }
}

/// Returns the error of a collection's shape in Cassandra's words.
fn shape(ty: &CqlType, bytes: &[u8], error: ValueError) -> ValueError {
    let kind = ty.kind_name();
    let count = bytes.first_chunk::<4>().map(|count| i32::from_be_bytes(*count));
    // Most elements that the bytes behind the count can have: each has a length.
    let room = bytes.len() as i64 / 4 - 1;
    ValueError::text(match error {
        _ if count.is_some_and(i32::is_negative) => format!("The data cannot be deserialized as a {kind}"),
        ValueError::Malformed { why: EXTRANEOUS, .. } => {
            format!("Unexpected extraneous bytes after {kind} value")
        }
        // Cassandra reads on behind the nulls of a list.
        ValueError::Malformed { why: NULL_INSIDE, .. }
            if matches!(ty, CqlType::List(_)) && count.is_some_and(|count| i64::from(count) > room) =>
        {
            format!("Not enough bytes to read a {kind}")
        }
        ValueError::Malformed { why: NULL_INSIDE, .. } => "Null value read when not allowed".to_owned(),
        _ => format!("Not enough bytes to read a {kind}"),
    })
}

fn vector(ty: &CqlType, element: &CqlType, dimension: u32, bytes: &[u8]) -> Result<(), ValueError> {
    let wrong = |message: String| Err(ValueError::text(message));
    if bytes.is_empty() {
        return wrong("Invalid empty vector value".into());
    }
    use CqlType as T;
    let takes_all =
        matches!(element, T::Boolean | T::Int | T::BigInt | T::Float | T::Double | T::Timestamp | T::Uuid);
    // Vectors of thousands of numbers are frequent, and all their bytes are valid.
    if takes_all && ty.fixed_len() == Some(bytes.len()) {
        return Ok(());
    }
    let mut elements = vector_elements(element, dimension, bytes);
    for value in elements.by_ref().take(dimension as usize) {
        match value {
            Ok(value) => check(element, value)?,
            Err(_) => return wrong(format!("Not enough bytes to read a {ty}")),
        }
    }
    match elements.rest.len() {
        0 => Ok(()),
        more => wrong(format!("Unexpected {more} extraneous bytes after {ty} value")),
    }
}

fn malformed(ty: &CqlType, why: &'static str) -> Result<(), ValueError> {
    Err(ValueError::malformed(ty.kind_name(), why))
}

fn fixed(bytes: &[u8], length_bytes: usize, expected: &'static str) -> Result<(), ValueError> {
    if bytes.len() == length_bytes { Ok(()) } else { length(expected, bytes) }
}

fn length(expected: &'static str, bytes: &[u8]) -> Result<(), ValueError> {
    Err(ValueError::Length { expected, actual: bytes.len() })
}

fn fields<'t>(
    ty: &CqlType,
    mut types: impl Iterator<Item = &'t CqlType>,
    bytes: &[u8],
) -> Result<(), ValueError> {
    for field in components(bytes) {
        match (types.next(), field?) {
            (None, _) => {
                let kind = if matches!(ty, CqlType::Udt(_)) { "UDT" } else { "tuple" };
                return Err(ValueError::text(format!("Invalid remaining data after end of {kind} value")));
            }
            (Some(_), None) => {}
            (Some(field_type), Some(value)) => check(field_type, value)?,
        }
    }
    Ok(())
}

/// Returns the value with sorted sets and maps without duplicates, as frozen values are stored.
/// Clients may send them in any order. For a duplicate key the last value is kept, as in Cassandra.
pub fn canonical<'a>(ty: &CqlType, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, ValueError> {
    Ok(match ty {
        CqlType::Frozen(inner) => return canonical(inner, bytes),
        CqlType::List(element) => {
            if element.inner().is_empty() {
                return Ok(Cow::Borrowed(bytes));
            }
            let parts: Vec<_> = elements(bytes).map(|e| canonical(element, e?)).collect::<Result<_, _>>()?;
            Cow::Owned(encode_list(parts.iter().map(|part| &**part)))
        }
        CqlType::Set(element) => {
            let mut parts: Vec<_> =
                elements(bytes).map(|e| canonical(element, e?)).collect::<Result<_, _>>()?;
            parts.sort_by(|a, b| compare(element, a, b));
            parts.dedup_by(|a, b| compare(element, a, b).is_eq());
            Cow::Owned(encode_list(parts.iter().map(|part| &**part)))
        }
        CqlType::Map(key, value) => {
            let part = |pair: Result<(&'a [u8], &'a [u8]), ValueError>| {
                let (k, v) = pair?;
                Ok((canonical(key, k)?, canonical(value, v)?))
            };
            let mut parts: Vec<_> = pairs(bytes).map(part).collect::<Result<_, ValueError>>()?;
            parts.sort_by(|a, b| compare(key, &a.0, &b.0));
            // The sort is stable, so that the later of two equal keys is on the right. It replaces
            // the earlier.
            parts.dedup_by(|later, kept| {
                let same = compare(key, &later.0, &kept.0).is_eq();
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
            Cow::Owned(encode_map(parts.iter().map(|(k, v)| (&**k, &**v))))
        }
        CqlType::Vector(element, dimension) => {
            if element.element_len().is_some() {
                return Ok(Cow::Borrowed(bytes));
            }
            let parts = vector_elements(element, *dimension, bytes).map(|e| canonical(element, e?));
            let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
            Cow::Owned(encode_vector(element, parts.iter().map(|part| &**part)))
        }
        CqlType::Tuple(types) => canonical_fields(types.iter(), bytes)?,
        CqlType::Udt(udt) => canonical_fields(udt.fields.iter().map(|(_, ty)| ty), bytes)?,
        _ => Cow::Borrowed(bytes),
    })
}

fn canonical_fields<'a, 't>(
    mut types: impl Iterator<Item = &'t CqlType>,
    bytes: &'a [u8],
) -> Result<Cow<'a, [u8]>, ValueError> {
    let mut parts = Vec::new();
    for field in components(bytes) {
        let field_type = types.next().ok_or(ValueError::malformed("tuple", "it has too many fields"))?;
        parts.push(field?.map(|value| canonical(field_type, value)).transpose()?);
    }
    Ok(Cow::Owned(encode_tuple(parts.iter().map(Option::as_deref))))
}
