//! Comparison of values in Cassandra's order of each type. Elements of collections, rows of a
//! partition and conditions of a query follow this order, and so does the encoding in `key`.
//!
//! Both values should have passed `check`. Otherwise the result has no meaning, but nothing panics.

use std::cmp::Ordering;

use super::collection::{components, elements, pairs, vector_elements};
use super::{decimal, varint};
use crate::CqlType;

/// Compares two values of type `ty`.
///
/// These types deviate from the plain order:
///
/// - `float` and `double` compare as in Java: −0.0 is below 0.0, and NaN is above all. All NaNs are
///   equal.
/// - `uuid` compares by version, then by time (version 1) or bytes.
/// - `timeuuid` compares by time, then by its other bytes as signed numbers.
/// - `decimal` compares by number: 1.0 equals 1.00.
/// - A missing field of a tuple equals null, which is below every value.
/// - An empty value is below every other.
pub fn compare(ty: &CqlType, a: &[u8], b: &[u8]) -> Ordering {
    match ty {
        CqlType::Boolean | CqlType::Varint | CqlType::Decimal if a.is_empty() || b.is_empty() => {
            b.is_empty().cmp(&a.is_empty())
        }
        CqlType::Text
        | CqlType::Ascii
        | CqlType::Blob
        | CqlType::Inet
        | CqlType::Date
        | CqlType::Duration => a.cmp(b),
        CqlType::TinyInt
        | CqlType::SmallInt
        | CqlType::Int
        | CqlType::BigInt
        | CqlType::Counter
        | CqlType::Time
        | CqlType::Timestamp => signed(a, b),
        CqlType::Boolean => is_true(a).cmp(&is_true(b)),
        CqlType::Float => by_rank(a, b, |bytes| float_rank(u32::from_be_bytes(bytes))),
        CqlType::Double => by_rank(a, b, |bytes| double_rank(u64::from_be_bytes(bytes))),
        CqlType::Uuid => by_rank(a, b, uuid_rank),
        CqlType::TimeUuid => by_rank(a, b, timeuuid_rank),
        CqlType::Varint => varint::compare(a, b),
        CqlType::Decimal => decimal::compare(a, b),
        CqlType::List(element) | CqlType::Set(element) => {
            sequences(elements(a), elements(b), |x, y| compare(element, x, y))
        }
        CqlType::Map(key, value) => sequences(pairs(a), pairs(b), |x, y| {
            compare(key, x.0, y.0).then_with(|| compare(value, x.1, y.1))
        }),
        CqlType::Vector(element, dimension) => {
            let elements = |bytes| vector_elements(element, *dimension, bytes);
            sequences(elements(a), elements(b), |x, y| compare(element, x, y))
        }
        CqlType::Tuple(types) => fields(types.iter(), a, b),
        CqlType::Udt(udt) => fields(udt.fields.iter().map(|(_, ty)| ty), a, b),
        CqlType::Frozen(inner) => compare(inner, a, b),
    }
}

fn signed(a: &[u8], b: &[u8]) -> Ordering {
    match (a.split_first(), b.split_first()) {
        (Some((x, a)), Some((y, b))) => (x ^ 0x80).cmp(&(y ^ 0x80)).then_with(|| a.cmp(b)),
        _ => a.len().cmp(&b.len()),
    }
}

/// Returns true if a byte is not zero: the meaning of `boolean` in Cassandra.
pub(super) fn is_true(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| byte != 0)
}

fn by_rank<const N: usize, R: Ord>(a: &[u8], b: &[u8], rank: impl Fn([u8; N]) -> R) -> Ordering {
    match (a.try_into(), b.try_into()) {
        (Ok(x), Ok(y)) => rank(x).cmp(&rank(y)),
        _ => a.cmp(b),
    }
}

const FLOAT_NAN: u32 = 0x7fc0_0000;
const DOUBLE_NAN: u64 = 0x7ff8_0000_0000_0000;

/// Returns an order-preserving form of the bits of a `float`: unsigned order is the order of the
/// numbers. All NaNs give one value.
pub(super) fn float_rank(bits: u32) -> u32 {
    let bits = if f32::from_bits(bits).is_nan() { FLOAT_NAN } else { bits };
    if bits >> 31 == 1 { !bits } else { bits ^ (1 << 31) }
}

/// Returns the same as [`float_rank`] for a `double`.
pub(super) fn double_rank(bits: u64) -> u64 {
    let bits = if f64::from_bits(bits).is_nan() { DOUBLE_NAN } else { bits };
    if bits >> 63 == 1 { !bits } else { bits ^ (1 << 63) }
}

/// Returns an order-preserving form of a `uuid`: its version, then the time of version 1 or the
/// other bytes of other versions.
pub(super) fn uuid_rank(bytes: [u8; 16]) -> u128 {
    let both = u128::from_be_bytes(bytes);
    let high = (both >> 64) as u64;
    let version = (high >> 12) & 0xf;
    let high = if version == 1 {
        time_first(high)
    } else {
        (version << 60) | ((high >> 4) & 0x0fff_ffff_ffff_f000) | (high & 0xfff)
    };
    (u128::from(high) << 64) | u128::from(both as u64)
}

/// Returns the `uuid` of a [`uuid_rank`].
pub(super) fn uuid_of_rank(rank: u128) -> [u8; 16] {
    let high = (rank >> 64) as u64;
    let version = high >> 60;
    let high = if version == 1 {
        time_last(high)
    } else {
        ((high & 0x0fff_ffff_ffff_f000) << 4) | (version << 12) | (high & 0xfff)
    };
    ((u128::from(high) << 64) | u128::from(rank as u64)).to_be_bytes()
}

/// Sign bit of each byte. Cassandra compares the low half of a `timeuuid` as signed bytes.
const SIGN_OF_EACH_BYTE: u64 = 0x8080_8080_8080_8080;

/// Returns an order-preserving form of a `timeuuid`: its time, then the other half as signed bytes.
pub(super) fn timeuuid_rank(bytes: [u8; 16]) -> u128 {
    let both = u128::from_be_bytes(bytes);
    (u128::from(time_first((both >> 64) as u64)) << 64) | u128::from(both as u64 ^ SIGN_OF_EACH_BYTE)
}

/// Returns the `timeuuid` of a [`timeuuid_rank`].
pub(super) fn timeuuid_of_rank(rank: u128) -> [u8; 16] {
    let high = time_last((rank >> 64) as u64);
    ((u128::from(high) << 64) | u128::from(rank as u64 ^ SIGN_OF_EACH_BYTE)).to_be_bytes()
}

/// Reverses the order of the fields `time_low`, `time_mid`, `version+time_high` (32, 16 and 16
/// bits).
fn time_first(high: u64) -> u64 {
    (high << 48) | ((high << 16) & 0xffff_0000_0000) | (high >> 32)
}

fn time_last(high: u64) -> u64 {
    (high << 32) | ((high >> 16) & 0xffff_0000) | (high >> 48)
}

fn sequences<T, E>(
    mut a: impl Iterator<Item = Result<T, E>>,
    mut b: impl Iterator<Item = Result<T, E>>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        let order = match (a.next(), b.next()) {
            (Some(Ok(x)), Some(Ok(y))) => compare(x, y),
            (Some(Ok(_)), _) => return Ordering::Greater,
            (_, Some(Ok(_))) => return Ordering::Less,
            _ => return Ordering::Equal,
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn fields<'t>(types: impl Iterator<Item = &'t CqlType>, a: &[u8], b: &[u8]) -> Ordering {
    let mut a = components(a);
    let mut b = components(b);
    for ty in types {
        let x = a.next().and_then(Result::ok).flatten();
        let y = b.next().and_then(Result::ok).flatten();
        let order = match (x, y) {
            (Some(x), Some(y)) => compare(ty, x, y),
            (x, y) => x.is_some().cmp(&y.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
