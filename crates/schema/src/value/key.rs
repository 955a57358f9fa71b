//! Keys as bytes whose plain order is the order of the values: what the memtable and the table files compare.
//!
//! A key is its parts one after the other. No part's encoding is the beginning of another's of the same type, so
//! that parts need no separators, order is decided by the first part that differs, and the keys that begin with
//! certain parts are exactly those whose bytes begin with these parts' bytes.
//!
//! ```text
//! integers, time, timestamp   big-endian, sign bit turned
//! float, double               bits turned (order.rs); every NaN is one
//! boolean, date               as they are (true is 1)
//! uuid, timeuuid              version or time first (order.rs)
//! text, ascii, blob,          the bytes, 00 as 00 FF, then 00 00; so that '' is 00 00
//!   inet, duration
//! varint                      80+length (FF and u32 if over 126), then the shortest two's complement;
//!                             a negative one 7F−length (00 and the inverted u32)
//! decimal                     00 negative, 01 zero, 02 positive; exponent in 5 bytes; digits in pairs, each
//!                             pair + 1; 00. Exponent and digits of a negative number are inverted
//! list, set, map              before each element (or key and value) 01; at the end 00
//! tuple, user type            each field: 00 null or missing, 01 and the value
//! ```
//!
//! A descending part is all of this with every byte inverted. Values that compare as equal encode alike and
//! come back in one form: see `decimal` for numbers; short tuples come back with nulls in full length.

use super::collection::{components, elements, pairs};
use super::decimal::Digits;
use super::order::{
    double_rank, float_rank, stripped, timeuuid_of_rank, timeuuid_rank, truth, uuid_of_rank, uuid_rank,
};
use super::{ValueError, decimal};
use crate::CqlType;

const ESCAPED: u8 = 0xff;
const END: u8 = 0x00;
const NEXT: u8 = 0x01;

const NEGATIVE: u8 = 0;
const ZERO: u8 = 1;
const POSITIVE: u8 = 2;
/// Moves every exponent of ten above zero, in five bytes: exponents have little more than 32 bits.
const EXPONENT_BIAS: i64 = 1 << 39;

/// The longest varint whose length is in its first byte.
const SHORT_VARINT: usize = 126;

/// Appends the part for `value`, which must have passed `check`.
///
/// # Panics
/// If a value of a type of fixed length has another one, so that the key would be no key.
pub fn encode_key_part(ty: &CqlType, value: &[u8], descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    encode(ty, value, out);
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Takes one part off the front of `input` and appends its value to `out`. On an error, `input` and `out` are
/// of no more use.
pub fn decode_key_part(
    ty: &CqlType,
    descending: bool,
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let mut source = Source { rest: input, turned: if descending { 0xff } else { 0 } };
    decode(ty, &mut source, out).map_err(|NotAKey| ValueError::Key)?;
    *input = source.rest;
    Ok(())
}

/// The smallest bytes that are greater than every key beginning with `prefix`; `None` if there are none, that is
/// if `prefix` is nothing but FF (or empty): then the range has no upper bound.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn fixed<const N: usize>(ty: &CqlType, value: &[u8]) -> [u8; N] {
    match value.try_into() {
        Ok(bytes) => bytes,
        Err(_) => panic!("a key part of type {ty} has {} bytes: it has not been checked", value.len()),
    }
}

fn encode(ty: &CqlType, value: &[u8], out: &mut Vec<u8>) {
    match ty {
        CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Inet | CqlType::Duration => {
            escape(value, out)
        }
        CqlType::Int => {
            out.extend_from_slice(&(u32::from_be_bytes(fixed(ty, value)) ^ (1 << 31)).to_be_bytes())
        }
        CqlType::BigInt | CqlType::Counter | CqlType::Time | CqlType::Timestamp => {
            out.extend_from_slice(&(u64::from_be_bytes(fixed(ty, value)) ^ (1 << 63)).to_be_bytes());
        }
        CqlType::SmallInt => {
            out.extend_from_slice(&(u16::from_be_bytes(fixed(ty, value)) ^ (1 << 15)).to_be_bytes())
        }
        CqlType::TinyInt => out.push(fixed::<1>(ty, value)[0] ^ (1 << 7)),
        CqlType::Boolean => out.push(u8::from(truth(&fixed::<1>(ty, value)))),
        CqlType::Date => out.extend_from_slice(&fixed::<4>(ty, value)),
        CqlType::Float => {
            out.extend_from_slice(&float_rank(u32::from_be_bytes(fixed(ty, value))).to_be_bytes())
        }
        CqlType::Double => {
            out.extend_from_slice(&double_rank(u64::from_be_bytes(fixed(ty, value))).to_be_bytes())
        }
        CqlType::Uuid => out.extend_from_slice(&uuid_rank(fixed(ty, value)).to_be_bytes()),
        CqlType::TimeUuid => out.extend_from_slice(&timeuuid_rank(fixed(ty, value)).to_be_bytes()),
        CqlType::Varint => encode_varint(stripped(value), out),
        CqlType::Decimal => encode_decimal(value, out),
        CqlType::List(element) | CqlType::Set(element) => {
            for value in elements(value).map_while(Result::ok) {
                out.push(NEXT);
                encode(element, value, out);
            }
            out.push(END);
        }
        CqlType::Map(key_type, value_type) => {
            for (key, value) in pairs(value).map_while(Result::ok) {
                out.push(NEXT);
                encode(key_type, key, out);
                encode(value_type, value, out);
            }
            out.push(END);
        }
        CqlType::Tuple(types) => encode_fields(types.iter(), value, out),
        CqlType::Udt(udt) => encode_fields(udt.fields.iter().map(|(_, ty)| ty), value, out),
        CqlType::Frozen(inner) => encode(inner, value, out),
    }
}

fn encode_fields<'t>(types: impl Iterator<Item = &'t CqlType>, value: &[u8], out: &mut Vec<u8>) {
    let mut fields = components(value);
    for ty in types {
        match fields.next().and_then(Result::ok).flatten() {
            Some(value) => {
                out.push(NEXT);
                encode(ty, value, out);
            }
            None => out.push(END),
        }
    }
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
    let turned = if negative { 0xff } else { 0 };
    if value.len() <= SHORT_VARINT {
        out.push((0x80 + value.len() as u8) ^ turned);
    } else {
        let length = u32::try_from(value.len()).expect("a checked varint is short");
        out.push(0xff ^ turned);
        out.extend(length.to_be_bytes().map(|byte| byte ^ turned));
    }
    out.extend_from_slice(value);
}

fn encode_decimal(value: &[u8], out: &mut Vec<u8>) {
    let number = Digits::from_bytes(value);
    if number.digits.is_empty() {
        out.push(ZERO);
        return;
    }
    let turned = if number.negative { 0xff } else { 0 };
    out.push(if number.negative { NEGATIVE } else { POSITIVE });
    let exponent = (number.exponent + EXPONENT_BIAS).to_be_bytes();
    out.extend(exponent[3..].iter().map(|byte| byte ^ turned));
    for pair in number.digits.chunks(2) {
        let hundredth = pair[0] * 10 + pair.get(1).copied().unwrap_or(0);
        out.push((hundredth + 1) ^ turned);
    }
    out.push(END ^ turned);
}

/// Bytes that are no encoded key. Without fields, so that a part is decoded without passing errors about.
pub(super) struct NotAKey;

/// Encoded bytes, read from the front; those of a descending part are turned back while they are read.
struct Source<'a> {
    rest: &'a [u8],
    turned: u8,
}

impl<'a> Source<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], NotAKey> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(NotAKey)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotAKey> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(NotAKey)?;
        self.rest = rest;
        // A loop in place, which becomes one instruction; `map` goes byte by byte.
        let mut taken = *taken;
        taken.iter_mut().for_each(|byte| *byte ^= self.turned);
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, NotAKey> {
        Ok(self.array::<1>()?[0])
    }

    fn append(&mut self, count: usize, out: &mut Vec<u8>) -> Result<(), NotAKey> {
        let taken = self.take(count)?;
        match self.turned {
            0 => out.extend_from_slice(taken),
            turned => out.extend(taken.iter().map(|byte| byte ^ turned)),
        }
        Ok(())
    }

    /// Whether an element or a value follows; the end or a null does otherwise.
    fn next_follows(&mut self) -> Result<bool, NotAKey> {
        match self.byte()? {
            NEXT => Ok(true),
            END => Ok(false),
            _ => Err(NotAKey),
        }
    }
}

fn decode(ty: &CqlType, source: &mut Source<'_>, out: &mut Vec<u8>) -> Result<(), NotAKey> {
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

/// Apart from the scalars, whose code stays small and quick without it.
#[inline(never)]
fn decode_nested(ty: &CqlType, source: &mut Source<'_>, out: &mut Vec<u8>) -> Result<(), NotAKey> {
    match ty {
        CqlType::List(element) | CqlType::Set(element) => {
            decode_counted(source, out, |source, out| sized(out, |out| decode(element, source, out)))
        }
        CqlType::Map(key, value) => decode_counted(source, out, |source, out| {
            sized(out, |out| decode(key, source, out))?;
            sized(out, |out| decode(value, source, out))
        }),
        CqlType::Tuple(types) => decode_fields(types.iter(), source, out),
        CqlType::Udt(udt) => decode_fields(udt.fields.iter().map(|(_, ty)| ty), source, out),
        // A frozen type: its inner one is a type that `decode` knows, or one of the above.
        other => decode(other.thawed(), source, out),
    }
}

fn decode_counted(
    source: &mut Source<'_>,
    out: &mut Vec<u8>,
    mut one: impl FnMut(&mut Source<'_>, &mut Vec<u8>) -> Result<(), NotAKey>,
) -> Result<(), NotAKey> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0_i32;
    while source.next_follows()? {
        one(source, out)?;
        count = count.checked_add(1).ok_or(NotAKey)?;
    }
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

fn decode_fields<'t>(
    types: impl Iterator<Item = &'t CqlType>,
    source: &mut Source<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NotAKey> {
    for ty in types {
        if source.next_follows()? {
            sized(out, |out| decode(ty, source, out))?;
        } else {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
        }
    }
    Ok(())
}

/// Appends what `write` writes, its length before it.
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), NotAKey>) -> Result<(), NotAKey> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = i32::try_from(out.len() - start - 4).map_err(|_| NotAKey)?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn unescape(source: &mut Source<'_>, out: &mut Vec<u8>) -> Result<(), NotAKey> {
    loop {
        let zero = memchr::memchr(source.turned, source.rest).ok_or(NotAKey)?;
        source.append(zero, out)?;
        source.take(1)?;
        match source.byte()? {
            END => return Ok(()),
            ESCAPED => out.push(0),
            _ => return Err(NotAKey),
        }
    }
}

fn decode_varint(source: &mut Source<'_>, out: &mut Vec<u8>) -> Result<(), NotAKey> {
    let first = source.byte()?;
    let turned = if first < 0x80 { 0xff } else { 0 };
    let length = match first ^ turned {
        0xff => u32::from_be_bytes(source.array::<4>()?.map(|byte| byte ^ turned)) as usize,
        short => usize::from(short - 0x80),
    };
    source.append(length, out)
}

fn decode_decimal(source: &mut Source<'_>, out: &mut Vec<u8>) -> Result<(), NotAKey> {
    let sign = source.byte()?;
    if sign > POSITIVE {
        return Err(NotAKey);
    }
    let mut number = Digits { negative: sign == NEGATIVE, exponent: 0, digits: Vec::new() };
    if sign != ZERO {
        let turned = if number.negative { 0xff } else { 0 };
        let mut exponent = [0; 8];
        exponent[3..].copy_from_slice(&source.array::<5>()?.map(|byte| byte ^ turned));
        number.exponent = i64::from_be_bytes(exponent) - EXPONENT_BIAS;
        loop {
            match source.byte()? ^ turned {
                END => break,
                pair @ 1..=100 => number.digits.extend([(pair - 1) / 10, (pair - 1) % 10]),
                _ => return Err(NotAKey),
            }
            if number.digits.len() > decimal::DIGITS_MAX * 2 {
                return Err(NotAKey);
            }
        }
        if number.digits.last() == Some(&0) {
            number.digits.pop();
        }
    }
    out.extend_from_slice(&number.to_bytes()?);
    Ok(())
}
