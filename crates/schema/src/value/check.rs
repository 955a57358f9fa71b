//! Check of values against their type. All values from clients pass this check first.
//!
//! The recursion follows the type, whose depth is bounded, and never the data.

use std::borrow::Cow;

use super::calendar::DAY_NANOSECONDS;
use super::collection::{components, elements, encode_list, encode_map, encode_tuple, pairs};
use super::duration::Duration;
use super::varint::NUMBER_BYTES_MAX;
use super::{ValueError, compare};
use crate::CqlType;

/// Checks that `bytes` are a value of type `ty`. Empty bytes are valid for `text`, `ascii` and
/// `blob` only.
pub fn check(ty: &CqlType, bytes: &[u8]) -> Result<(), ValueError> {
    let malformed = |why| Err(ValueError::malformed(ty.kind_name(), why));
    match ty {
        CqlType::Blob => Ok(()),
        CqlType::Ascii if !bytes.is_ascii() => malformed("there are bytes that are not ASCII"),
        CqlType::Ascii => Ok(()),
        CqlType::Text if std::str::from_utf8(bytes).is_err() => malformed("it is not UTF-8"),
        CqlType::Text => Ok(()),
        CqlType::Boolean | CqlType::TinyInt => fixed(ty, bytes, 1, "1"),
        CqlType::SmallInt => fixed(ty, bytes, 2, "2"),
        CqlType::Int | CqlType::Float | CqlType::Date => fixed(ty, bytes, 4, "4"),
        CqlType::BigInt | CqlType::Counter | CqlType::Double | CqlType::Timestamp => fixed(ty, bytes, 8, "8"),
        CqlType::Uuid => fixed(ty, bytes, 16, "16"),
        CqlType::TimeUuid => match bytes.get(6) {
            Some(version) if version >> 4 != 1 && bytes.len() == 16 => {
                malformed("it is a uuid of another version than 1")
            }
            _ => fixed(ty, bytes, 16, "16"),
        },
        CqlType::Time => {
            fixed(ty, bytes, 8, "8")?;
            let nanoseconds = bytes.first_chunk::<8>().map(|b| i64::from_be_bytes(*b));
            match nanoseconds {
                Some(0..DAY_NANOSECONDS) => Ok(()),
                _ => malformed("it is outside of a day"),
            }
        }
        CqlType::Inet if matches!(bytes.len(), 4 | 16) => Ok(()),
        CqlType::Inet => length(ty, "4 or 16", bytes),
        CqlType::Varint if bytes.is_empty() => length(ty, "at least 1", bytes),
        CqlType::Varint if bytes.len() > NUMBER_BYTES_MAX => malformed("it has more than 1024 bytes"),
        CqlType::Varint => Ok(()),
        CqlType::Decimal if bytes.len() < 5 => length(ty, "at least 5", bytes),
        CqlType::Decimal if bytes.len() > 4 + NUMBER_BYTES_MAX => malformed("it has more than 1024 bytes"),
        CqlType::Decimal => Ok(()),
        CqlType::Duration => Duration::from_bytes(bytes).map(|_| ()),
        CqlType::List(element) | CqlType::Set(element) => {
            elements(bytes).try_for_each(|value| check(element, value?))
        }
        CqlType::Map(key, value) => pairs(bytes).try_for_each(|pair| {
            let (k, v) = pair?;
            check(key, k)?;
            check(value, v)
        }),
        CqlType::Tuple(types) => fields(ty, types.iter(), bytes),
        CqlType::Udt(udt) => fields(ty, udt.fields.iter().map(|(_, ty)| ty), bytes),
        CqlType::Frozen(inner) => check(inner, bytes),
    }
}

fn fixed(ty: &CqlType, bytes: &[u8], expected: usize, words: &'static str) -> Result<(), ValueError> {
    if bytes.len() == expected { Ok(()) } else { length(ty, words, bytes) }
}

fn length(ty: &CqlType, expected: &'static str, bytes: &[u8]) -> Result<(), ValueError> {
    Err(ValueError::Length { ty: ty.kind_name(), expected, actual: bytes.len() })
}

fn fields<'t>(
    ty: &CqlType,
    mut types: impl Iterator<Item = &'t CqlType>,
    bytes: &[u8],
) -> Result<(), ValueError> {
    for field in components(bytes) {
        match (types.next(), field?) {
            (None, _) => return Err(ValueError::malformed(ty.kind_name(), "it has too many fields")),
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
