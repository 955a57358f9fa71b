//! Values as CQL constants, for DESCRIBE, logs and messages. The CQL parser reads back all of them.

use std::fmt::Write;
use std::net::IpAddr;

use num_bigint::BigInt;
use uuid::Uuid;

use super::calendar::{date_text, time_text, timestamp_text};
use super::collection::{components, elements, pairs, vector_elements};
use super::{Duration, decimal, order};
use crate::{CqlType, names};

/// Returns the value as a CQL constant. Bytes that are invalid for the type become a blob, and
/// empty values `null`, as in Cassandra: there is no constant of them.
pub fn to_text(ty: &CqlType, bytes: &[u8]) -> String {
    let mut out = String::new();
    if super::is_empty(ty, bytes) || super::check(ty, bytes).is_ok() {
        write(ty, bytes, &mut out)
    } else {
        out = hex(bytes)
    }
    out
}

/// Returns the bytes as a blob constant.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("0x");
    for byte in bytes {
        out.push(char::from_digit(u32::from(byte >> 4), 16).expect("four bits are a digit"));
        out.push(char::from_digit(u32::from(byte & 15), 16).expect("four bits are a digit"));
    }
    out
}

/// Appends the value. `bytes` have passed the check, so that their length is valid.
fn write(ty: &CqlType, bytes: &[u8], out: &mut String) {
    match ty {
        _ if super::is_empty(ty, bytes) => out.push_str("null"),
        CqlType::Ascii | CqlType::Text => quote(&String::from_utf8_lossy(bytes), out),
        CqlType::Blob => out.push_str(&hex(bytes)),
        CqlType::Boolean => out.push_str(if order::is_true(bytes) { "true" } else { "false" }),
        CqlType::TinyInt | CqlType::SmallInt | CqlType::Int | CqlType::BigInt | CqlType::Counter => {
            push(out, integer(bytes));
        }
        CqlType::Varint => push(out, BigInt::from_signed_bytes_be(bytes)),
        CqlType::Decimal => out.push_str(&decimal::to_text(bytes)),
        CqlType::Float => float(f32::from_bits(integer(bytes) as u32), out),
        CqlType::Double => float(f64::from_bits(integer(bytes) as u64), out),
        CqlType::Date => quote(&date_text(integer(bytes) as u32), out),
        CqlType::Time => quote(&time_text(integer(bytes)), out),
        CqlType::Timestamp => quote(&timestamp_text(integer(bytes)), out),
        CqlType::Duration => push(out, Duration::from_bytes(bytes).unwrap_or_default()),
        CqlType::Inet => {
            let address = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            quote(&address.map(|a| a.to_string()).unwrap_or_default(), out);
        }
        CqlType::Uuid | CqlType::TimeUuid => push(out, Uuid::from_slice(bytes).unwrap_or_default()),
        CqlType::List(element) => {
            list(out, ["[", "]"], elements(bytes), |value, out| write(element, value, out));
        }
        CqlType::Vector(element, dimension) => {
            let elements = vector_elements(element, *dimension, bytes);
            list(out, ["[", "]"], elements, |value, out| write(element, value, out));
        }
        CqlType::Set(element) => {
            list(out, ["{", "}"], elements(bytes), |value, out| write(element, value, out));
        }
        CqlType::Map(key_type, value_type) => list(out, ["{", "}"], pairs(bytes), |(key, value), out| {
            write(key_type, key, out);
            out.push_str(": ");
            write(value_type, value, out);
        }),
        CqlType::Tuple(types) => {
            let fields = types.iter().zip(components(bytes)).map(|(ty, field)| Ok::<_, ()>((ty, field)));
            list(out, ["(", ")"], fields, |(ty, field), out| nullable(ty, field.ok().flatten(), out));
        }
        CqlType::Udt(udt) => {
            let fields = udt.fields.iter().zip(components(bytes)).map(Ok::<_, ()>);
            list(out, ["{", "}"], fields, |((name, ty), field), out| {
                out.push_str(&names::quoted(name));
                out.push_str(": ");
                nullable(ty, field.ok().flatten(), out);
            });
        }
        CqlType::Frozen(inner) => write(inner, bytes, out),
    }
}

fn list<T, E>(
    out: &mut String,
    [open, close]: [&str; 2],
    parts: impl Iterator<Item = Result<T, E>>,
    mut one: impl FnMut(T, &mut String),
) {
    out.push_str(open);
    for (i, part) in parts.map_while(Result::ok).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        one(part, out);
    }
    out.push_str(close);
}

fn nullable(ty: &CqlType, field: Option<&[u8]>, out: &mut String) {
    match field {
        Some(value) => write(ty, value, out),
        None => out.push_str("null"),
    }
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a string takes all");
}

fn quote(text: &str, out: &mut String) {
    out.push('\'');
    out.push_str(&text.replace('\'', "''"));
    out.push('\'');
}

/// Returns a two's-complement integer of up to 8 bytes.
pub(super) fn integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|&byte| byte >= 0x80) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, &byte| (number << 8) | i64::from(byte))
}

/// Appends the shortest digits that parse to the same number, with a decimal point or an exponent.
fn float<F: std::fmt::Debug + Into<f64> + Copy>(number: F, out: &mut String) {
    let wide: f64 = number.into();
    if wide.is_infinite() {
        out.push_str(if wide > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        write!(out, "{number:?}").expect("a string takes all");
    }
}
