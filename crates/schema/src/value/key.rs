//! Order-preserving encoding of keys: byte order is the order of the values. The memtable and the
//! table files compare these bytes.
//!
//! A key is the concatenation of its parts. No encoding of a type is a prefix of another of that
//! type. Hence parts need no separators, and the first part that differs decides the order. The
//! keys that begin with given parts are exactly those whose bytes begin with the bytes of these
//! parts.
//!
//! ```text
//! integers, time, timestamp   big-endian, sign bit inverted
//! float, double               order-preserving bits (order.rs); all NaNs are equal
//! boolean, date               unchanged (true is 1)
//! uuid, timeuuid              version or time first (order.rs)
//! text, ascii, blob,          the bytes with 00 as 00 FF, then 00 00; '' is 00 00
//!   inet, duration
//! varint                      80+length (FF and u32 above 126), then the shortest two's complement;
//!                             a negative one 7F−length (00 and the inverted u32)
//! decimal                     00 negative, 01 zero, 02 positive; exponent in 5 bytes; digits in pairs, each
//!                             pair + 1; 00. Exponent and digits of a negative number are inverted
//! list, set, map              01 before each element (or key and value); 00 at the end
//! vector                      the elements, as many as its dimension
//! tuple                       each field: 00 null or missing, 01 and the value
//! user type                   each field up to the last that is not null: 01 null, 02 and the value;
//!                             00 at the end
//! ```
//!
//! A user type can get more fields. Then all keys keep their bytes, because trailing nulls are not
//! encoded, and a value has one encoding with few fields and with many. User types that are not
//! extensible (see [`UdtType::is_extensible`]) are encoded as tuples.
//!
//! Empty values of numbers, booleans and UUIDs have no encoding, because values of full length use
//! all of it. They cannot be parts of keys.
//!
//! A descending part has every byte inverted. Equal values have equal encodings and are decoded to
//! one canonical form: see `decimal` for numbers. Short tuples and user types are decoded in full
//! length, with nulls.

use super::collection::{components, elements, pairs, vector_elements};
use super::decimal::Digits;
use super::error::InvalidKey;
#[cfg(doc)]
use super::is_empty;
use super::order::{
    double_rank, float_rank, is_true, timeuuid_of_rank, timeuuid_rank, uuid_of_rank, uuid_rank,
};
use super::varint::trimmed;
use super::vint::push_unsigned_vint;
use super::{ValueError, decimal};
use crate::{CqlType, UdtType};

const ESCAPED: u8 = 0xff;
const END: u8 = 0x00;
const NEXT: u8 = 0x01;
/// Null field of an extensible user type. Another field that is not null follows.
const NULL_FIELD: u8 = 0x01;
/// Field of an extensible user type with a value, above [`NULL_FIELD`]: null is the least value.
const VALUE_FIELD: u8 = 0x02;

const NEGATIVE: u8 = 0;
const ZERO: u8 = 1;
const POSITIVE: u8 = 2;
/// Offset that makes every exponent of ten positive, in five bytes. Exponents have little more than
/// 32 bits.
const EXPONENT_BIAS: i64 = 1 << 39;

/// Most bytes of a varint whose length fits the first byte.
const SHORT_VARINT_BYTES_MAX: usize = 126;

/// Appends the encoding of `value`, which must have passed `check`.
///
/// # Errors
/// The value is empty, or has an empty value inside, of a type that has no encoding for it: see
/// [`is_empty`]. `out` is undefined then.
pub fn encode_key_part(
    ty: &CqlType,
    value: &[u8],
    descending: bool,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let start = out.len();
    encode(ty, value, out).map_err(|InvalidKey| {
        let text = "expected a value in a key of type";
        ValueError::text(format!("{text} {ty}, got an empty value: choose another one"))
    })?;
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Decodes the first part of `input`, removes it, and appends its value to `out`. After an error,
/// `input` and `out` are undefined.
pub fn decode_key_part(
    ty: &CqlType,
    descending: bool,
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let mut source = KeyBytes { rest: input, mask: if descending { 0xff } else { 0 } };
    decode(ty, &mut source, out).map_err(|InvalidKey| ValueError::Key)?;
    *input = source.rest;
    Ok(())
}

/// Returns the smallest bytes above every key that begins with `prefix`. `None`: the range has no
/// upper bound, because `prefix` is empty or consists of FF.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], InvalidKey> {
    value.try_into().map_err(|_| InvalidKey)
}

fn encode(ty: &CqlType, value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    match ty {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration => {
            escape(value, out)
        }
        CqlType::Int => out.extend_from_slice(&(u32::from_be_bytes(fixed(value)?) ^ (1 << 31)).to_be_bytes()),
        CqlType::BigInt | CqlType::Counter | CqlType::Time | CqlType::Timestamp => {
            out.extend_from_slice(&(u64::from_be_bytes(fixed(value)?) ^ (1 << 63)).to_be_bytes());
        }
        CqlType::SmallInt => {
            out.extend_from_slice(&(u16::from_be_bytes(fixed(value)?) ^ (1 << 15)).to_be_bytes())
        }
        CqlType::TinyInt => out.push(fixed::<1>(value)?[0] ^ (1 << 7)),
        CqlType::Boolean => out.push(u8::from(is_true(&fixed::<1>(value)?))),
        CqlType::Date => out.extend_from_slice(&fixed::<4>(value)?),
        CqlType::Float => out.extend_from_slice(&float_rank(u32::from_be_bytes(fixed(value)?)).to_be_bytes()),
        CqlType::Double => {
            out.extend_from_slice(&double_rank(u64::from_be_bytes(fixed(value)?)).to_be_bytes())
        }
        CqlType::Uuid => out.extend_from_slice(&uuid_rank(fixed(value)?).to_be_bytes()),
        CqlType::TimeUuid => out.extend_from_slice(&timeuuid_rank(fixed(value)?).to_be_bytes()),
        CqlType::Varint | CqlType::Decimal if value.is_empty() => return Err(InvalidKey),
        CqlType::Varint => encode_varint(trimmed(value), out),
        CqlType::Decimal => encode_decimal(value, out),
        CqlType::List(element) | CqlType::Set(element) => {
            for value in elements(value).map_while(Result::ok) {
                out.push(NEXT);
                encode(element, value, out)?;
            }
            out.push(END);
        }
        CqlType::Map(key_type, value_type) => {
            for (key, value) in pairs(value).map_while(Result::ok) {
                out.push(NEXT);
                encode(key_type, key, out)?;
                encode(value_type, value, out)?;
            }
            out.push(END);
        }
        CqlType::Vector(element, dimension) => {
            for value in vector_elements(element, *dimension, value).map_while(Result::ok) {
                encode(element, value, out)?;
            }
        }
        CqlType::Tuple(types) => encode_fields(types.iter(), value, out)?,
        CqlType::Udt(udt) if udt.is_extensible => encode_extensible(udt, value, out)?,
        CqlType::Udt(udt) => encode_fields(udt.fields.iter().map(|(_, ty)| ty), value, out)?,
        CqlType::Frozen(inner) => encode(inner, value, out)?,
    }
    Ok(())
}

fn encode_fields<'t>(
    types: impl Iterator<Item = &'t CqlType>,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), InvalidKey> {
    let mut fields = components(value);
    for ty in types {
        match fields.next().and_then(Result::ok).flatten() {
            Some(value) => {
                out.push(NEXT);
                encode(ty, value, out)?;
            }
            None => out.push(END),
        }
    }
    Ok(())
}

fn encode_extensible(udt: &UdtType, value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    let mut nulls = 0;
    for ((_, ty), field) in udt.fields.iter().zip(components(value).map_while(Result::ok)) {
        match field {
            Some(value) => {
                out.resize(out.len() + std::mem::take(&mut nulls), NULL_FIELD);
                out.push(VALUE_FIELD);
                encode(ty, value, out)?;
            }
            None => nulls += 1,
        }
    }
    out.push(END);
    Ok(())
}

fn escape(value: &[u8], out: &mut Vec<u8>) {
    out.reserve(value.len() + 2);
    let mut rest = value;
    while let Some(zero) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(ESCAPED);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[END, END]);
}

fn encode_varint(value: &[u8], out: &mut Vec<u8>) {
    let negative = value.first().is_some_and(|&byte| byte >= 0x80);
    let mask = if negative { 0xff } else { 0 };
    if value.len() <= SHORT_VARINT_BYTES_MAX {
        out.push((0x80 + value.len() as u8) ^ mask);
    } else {
        let length = u32::try_from(value.len()).expect("a checked varint is short");
        out.push(0xff ^ mask);
        out.extend(length.to_be_bytes().map(|byte| byte ^ mask));
    }
    out.extend_from_slice(value);
}

fn encode_decimal(value: &[u8], out: &mut Vec<u8>) {
    let number = Digits::from_bytes(value);
    if number.digits.is_empty() {
        out.push(ZERO);
        return;
    }
    let mask = if number.negative { 0xff } else { 0 };
    out.push(if number.negative { NEGATIVE } else { POSITIVE });
    let exponent = (number.exponent + EXPONENT_BIAS).to_be_bytes();
    out.extend(exponent[3..].iter().map(|byte| byte ^ mask));
    for pair in number.digits.chunks(2) {
        let hundredth = pair[0] * 10 + pair.get(1).copied().unwrap_or(0);
        out.push((hundredth + 1) ^ mask);
    }
    out.push(END ^ mask);
}

/// Cursor over encoded bytes. XORs the bytes with `mask`, which is FF for a descending part.
struct KeyBytes<'a> {
    rest: &'a [u8],
    mask: u8,
}

impl<'a> KeyBytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], InvalidKey> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(InvalidKey)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidKey> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(InvalidKey)?;
        self.rest = rest;
        // This loop compiles to one instruction. `map` processes byte by byte.
        let mut taken = *taken;
        taken.iter_mut().for_each(|byte| *byte ^= self.mask);
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, InvalidKey> {
        Ok(self.array::<1>()?[0])
    }

    fn append(&mut self, count: usize, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
        let taken = self.take(count)?;
        match self.mask {
            0 => out.extend_from_slice(taken),
            mask => out.extend(taken.iter().map(|byte| byte ^ mask)),
        }
        Ok(())
    }

    /// Returns true if an element or a value follows, and false at the end or for a null.
    fn next_follows(&mut self) -> Result<bool, InvalidKey> {
        match self.byte()? {
            NEXT => Ok(true),
            END => Ok(false),
            _ => Err(InvalidKey),
        }
    }
}

fn decode(ty: &CqlType, source: &mut KeyBytes<'_>, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    match ty {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration => {
            unescape(source, out)?
        }
        CqlType::Int => {
            out.extend_from_slice(&(u32::from_be_bytes(source.array()?) ^ (1 << 31)).to_be_bytes())
        }
        CqlType::BigInt | CqlType::Counter | CqlType::Time | CqlType::Timestamp => {
            out.extend_from_slice(&(u64::from_be_bytes(source.array()?) ^ (1 << 63)).to_be_bytes());
        }
        CqlType::SmallInt => {
            out.extend_from_slice(&(u16::from_be_bytes(source.array()?) ^ (1 << 15)).to_be_bytes())
        }
        CqlType::TinyInt => out.push(source.byte()? ^ (1 << 7)),
        CqlType::Boolean => out.push(source.byte()?),
        CqlType::Date => out.extend_from_slice(&source.array::<4>()?),
        CqlType::Float => {
            let rank = u32::from_be_bytes(source.array()?);
            let bits = if rank >> 31 == 1 { rank ^ (1 << 31) } else { !rank };
            out.extend_from_slice(&bits.to_be_bytes());
        }
        CqlType::Double => {
            let rank = u64::from_be_bytes(source.array()?);
            let bits = if rank >> 63 == 1 { rank ^ (1 << 63) } else { !rank };
            out.extend_from_slice(&bits.to_be_bytes());
        }
        CqlType::Uuid => out.extend_from_slice(&uuid_of_rank(u128::from_be_bytes(source.array()?))),
        CqlType::TimeUuid => out.extend_from_slice(&timeuuid_of_rank(u128::from_be_bytes(source.array()?))),
        CqlType::Varint => decode_varint(source, out)?,
        CqlType::Decimal => decode_decimal(source, out)?,
        nested => decode_nested(nested, source, out)?,
    }
    Ok(())
}

/// Decodes types with inner types. Outlined, so that the code for scalars stays small and fast.
#[inline(never)]
fn decode_nested(ty: &CqlType, source: &mut KeyBytes<'_>, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    match ty {
        CqlType::List(element) | CqlType::Set(element) => {
            decode_counted(source, out, |source, out| sized(out, |out| decode(element, source, out)))
        }
        CqlType::Map(key, value) => decode_counted(source, out, |source, out| {
            sized(out, |out| decode(key, source, out))?;
            sized(out, |out| decode(value, source, out))
        }),
        CqlType::Vector(element, dimension) => decode_vector(element, *dimension, source, out),
        CqlType::Tuple(types) => decode_fields(types.iter(), false, source, out),
        CqlType::Udt(udt) if udt.is_extensible => decode_extensible(udt, source, out),
        CqlType::Udt(udt) => decode_fields(udt.fields.iter().map(|(_, ty)| ty), true, source, out),
        // Here the type is frozen. The inner type may be any type, also a scalar.
        other => decode(other.thawed(), source, out),
    }
}

fn decode_counted(
    source: &mut KeyBytes<'_>,
    out: &mut Vec<u8>,
    mut one: impl FnMut(&mut KeyBytes<'_>, &mut Vec<u8>) -> Result<(), InvalidKey>,
) -> Result<(), InvalidKey> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0_i32;
    while source.next_follows()? {
        one(source, out)?;
        count = count.checked_add(1).ok_or(InvalidKey)?;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

fn decode_vector(
    element: &CqlType,
    dimension: u32,
    source: &mut KeyBytes<'_>,
    out: &mut Vec<u8>,
) -> Result<(), InvalidKey> {
    let is_fixed = element.element_len().is_some();
    let mut value = Vec::new();
    for _ in 0..dimension {
        if is_fixed {
            decode(element, source, out)?;
            continue;
        }
        value.clear();
        decode(element, source, &mut value)?;
        push_unsigned_vint(value.len() as u64, out);
        out.extend_from_slice(&value);
    }
    Ok(())
}

/// Decodes a tuple or a user type that is not extensible. With `may_end`, missing fields at the end
/// of all bytes are null: earlier versions added fields to types whose values were in keys.
fn decode_fields<'t>(
    types: impl Iterator<Item = &'t CqlType>,
    may_end: bool,
    source: &mut KeyBytes<'_>,
    out: &mut Vec<u8>,
) -> Result<(), InvalidKey> {
    for ty in types {
        if !(may_end && source.rest.is_empty()) && source.next_follows()? {
            sized(out, |out| decode(ty, source, out))?;
        } else {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
        }
    }
    Ok(())
}

/// Decodes a user type in full length: fields that were added later are null.
fn decode_extensible(udt: &UdtType, source: &mut KeyBytes<'_>, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    let null = (-1_i32).to_be_bytes();
    let mut fields = udt.fields.iter();
    loop {
        match (source.byte()?, fields.next()) {
            (VALUE_FIELD, Some((_, ty))) => sized(out, |out| decode(ty, source, out))?,
            (NULL_FIELD, Some(_)) => out.extend_from_slice(&null),
            (END, missing) => {
                missing.into_iter().chain(fields).for_each(|_| out.extend_from_slice(&null));
                return Ok(());
            }
            _ => return Err(InvalidKey),
        }
    }
}

/// Appends the output of `write`, preceded by its length.
fn sized(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), InvalidKey>,
) -> Result<(), InvalidKey> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = i32::try_from(out.len() - start - 4).map_err(|_| InvalidKey)?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn unescape(source: &mut KeyBytes<'_>, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    loop {
        let zero = memchr::memchr(source.mask, source.rest).ok_or(InvalidKey)?;
        source.append(zero, out)?;
        source.take(1)?;
        match source.byte()? {
            END => return Ok(()),
            ESCAPED => out.push(0),
            _ => return Err(InvalidKey),
        }
    }
}

fn decode_varint(source: &mut KeyBytes<'_>, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    let first = source.byte()?;
    let mask = if first < 0x80 { 0xff } else { 0 };
    let length = match first ^ mask {
        0xff => u32::from_be_bytes(source.array::<4>()?.map(|byte| byte ^ mask)) as usize,
        short => usize::from(short - 0x80),
    };
    source.append(length, out)
}

fn decode_decimal(source: &mut KeyBytes<'_>, out: &mut Vec<u8>) -> Result<(), InvalidKey> {
    let sign = source.byte()?;
    if sign > POSITIVE {
        return Err(InvalidKey);
    }
    let mut number = Digits { negative: sign == NEGATIVE, exponent: 0, digits: Vec::new() };
    if sign != ZERO {
        let mask = if number.negative { 0xff } else { 0 };
        let mut exponent = [0; 8];
        exponent[3..].copy_from_slice(&source.array::<5>()?.map(|byte| byte ^ mask));
        number.exponent = i64::from_be_bytes(exponent) - EXPONENT_BIAS;
        loop {
            match source.byte()? ^ mask {
                END => break,
                pair @ 1..=100 => number.digits.extend([(pair - 1) / 10, (pair - 1) % 10]),
                _ => return Err(InvalidKey),
            }
            if number.digits.len() > decimal::DIGITS_MAX * 2 {
                return Err(InvalidKey);
            }
        }
        if number.digits.last() == Some(&0) {
            number.digits.pop();
        }
    }
    out.extend_from_slice(&number.to_bytes()?);
    Ok(())
}
