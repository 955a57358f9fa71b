//! Writing values as JSON.

use std::fmt::{Debug, LowerExp, Write};
use std::net::Ipv4Addr;

use num_bigint::BigInt;
use uuid::Uuid;

use super::{JSON_BYTES_MAX, JsonError, bounded};
use crate::CqlType;
use crate::value::calendar::{date_text, time_text, timestamp_text};
use crate::value::text::{hex, integer};
use crate::value::{Duration, check, components, decimal, elements, is_empty, order, pairs, vector_elements};

/// Appends a value as JSON. Bytes that are invalid for the type become a string `"0x…"`. An empty
/// value is an empty string, as in Cassandra.
///
/// # Errors
/// Returns an error if `out` gets longer than [`JSON_BYTES_MAX`]. It then ends anywhere.
pub fn to_json(ty: &CqlType, bytes: &[u8], out: &mut String) -> Result<(), JsonError> {
    match is_empty(ty, bytes) || check(ty, bytes).is_ok() {
        true => write(ty, bytes, out),
        false => quote(&hex(bytes), out),
    }
}

/// Appends the name of a column or a field as a JSON string. A name with upper-case letters is in
/// quotes within it.
///
/// # Errors
/// Returns an error if `out` gets longer than [`JSON_BYTES_MAX`].
pub fn push_name(name: &str, out: &mut String) -> Result<(), JsonError> {
    match name.chars().any(char::is_uppercase) {
        true => quote(&format!("\"{name}\""), out),
        false => quote(name, out),
    }
}

/// Appends the value. `bytes` have passed the check, so that their length is valid.
fn write(ty: &CqlType, bytes: &[u8], out: &mut String) -> Result<(), JsonError> {
    bounded(out.len())?;
    if is_empty(ty, bytes) {
        out.push_str("\"\"");
        return Ok(());
    }
    match ty {
        CqlType::Ascii | CqlType::Text => quote(&String::from_utf8_lossy(bytes), out)?,
        CqlType::Blob => {
            bounded(out.len().saturating_add(2 * bytes.len()))?;
            push(out, format_args!("\"{}\"", hex(bytes)));
        }
        CqlType::Boolean => out.push_str(if order::is_true(bytes) { "true" } else { "false" }),
        CqlType::TinyInt | CqlType::SmallInt | CqlType::Int | CqlType::BigInt | CqlType::Counter => {
            push(out, format_args!("{}", integer(bytes)));
        }
        CqlType::Varint => push(out, format_args!("{}", BigInt::from_signed_bytes_be(bytes))),
        CqlType::Decimal => out.push_str(&decimal::to_text(bytes)),
        CqlType::Float => number(f32::from_bits(integer(bytes) as u32), out),
        CqlType::Double => number(f64::from_bits(integer(bytes) as u64), out),
        CqlType::Date => push(out, format_args!("\"{}\"", date_text(integer(bytes) as u32))),
        CqlType::Time => push(out, format_args!("\"{}\"", time_text(integer(bytes)))),
        CqlType::Timestamp => push(out, format_args!("\"{}\"", timestamp_text(integer(bytes)))),
        CqlType::Duration => {
            push(out, format_args!("\"{}\"", Duration::from_bytes(bytes).unwrap_or_default()));
        }
        CqlType::Inet => inet(bytes, out),
        CqlType::Uuid | CqlType::TimeUuid => {
            push(out, format_args!("\"{}\"", Uuid::from_slice(bytes).unwrap_or_default()));
        }
        CqlType::List(element) | CqlType::Set(element) => {
            list(out, ["[", "]"], elements(bytes).flatten(), |value, out| write(element, value, out))?;
        }
        CqlType::Vector(element, dimension) => {
            let elements = vector_elements(element, *dimension, bytes).flatten();
            list(out, ["[", "]"], elements, |value, out| write(element, value, out))?;
        }
        CqlType::Map(key_type, value_type) => {
            list(out, ["{", "}"], pairs(bytes).flatten(), |(key, value), out| {
                string_of(key_type, key, out)?;
                out.push_str(": ");
                write(value_type, value, out)
            })?;
        }
        CqlType::Tuple(types) => {
            let mut fields = components(bytes).flatten();
            list(out, ["[", "]"], types.iter(), |ty, out| nullable(ty, fields.next().flatten(), out))?;
        }
        CqlType::Udt(udt) => {
            let mut fields = components(bytes).flatten();
            list(out, ["{", "}"], udt.fields.iter(), |(name, ty), out| {
                push_name(name, out)?;
                out.push_str(": ");
                nullable(ty, fields.next().flatten(), out)
            })?;
        }
        CqlType::Frozen(inner) => write(inner, bytes, out)?,
    }
    Ok(())
}

fn list<T>(
    out: &mut String,
    [open, close]: [&str; 2],
    parts: impl Iterator<Item = T>,
    mut one: impl FnMut(T, &mut String) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    out.push_str(open);
    for (at, part) in parts.enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        one(part, out)?;
    }
    out.push_str(close);
    Ok(())
}

fn nullable(ty: &CqlType, field: Option<&[u8]>, out: &mut String) -> Result<(), JsonError> {
    match field {
        Some(value) => write(ty, value, out),
        None => {
            out.push_str("null");
            bounded(out.len())
        }
    }
}

/// Appends a key of a map, which must be a string.
fn string_of(ty: &CqlType, key: &[u8], out: &mut String) -> Result<(), JsonError> {
    let start = out.len();
    write(ty, key, out)?;
    if out[start..].starts_with('"') {
        return Ok(());
    }
    let key = out.split_off(start);
    quote(&key, out)
}

/// Appends a string in quotes, escaped as Cassandra's library does.
fn quote(text: &str, out: &mut String) -> Result<(), JsonError> {
    // Count only if the longest form, six bytes for each, might be too long.
    if out.len().saturating_add(text.len().saturating_mul(6)) > JSON_BYTES_MAX {
        let longer = text.bytes().map(|byte| escape(byte).map_or(1, |_| 6)).sum::<usize>();
        bounded(out.len().saturating_add(longer))?;
    }
    out.push('"');
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let Some(escape) = escape(byte) else { continue };
        out.push_str(&text[written..at]);
        match escape {
            'u' => push(out, format_args!("\\u{byte:04X}")),
            short => out.extend(['\\', short]),
        }
        written = at + 1;
    }
    out.push_str(&text[written..]);
    out.push('"');
    Ok(())
}

/// Returns the character after the backslash: `u` if four digits follow. `None`: no escape.
fn escape(byte: u8) -> Option<char> {
    Some(match byte {
        b'"' => '"',
        b'\\' => '\\',
        0x08 => 'b',
        b'\t' => 't',
        b'\n' => 'n',
        0x0c => 'f',
        b'\r' => 'r',
        0..0x20 => 'u',
        _ => return None,
    })
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes all");
}

/// Appends an address. Java does not shorten IPv6.
fn inet(bytes: &[u8], out: &mut String) {
    if let Ok(address) = <[u8; 4]>::try_from(bytes) {
        return push(out, format_args!("\"{}\"", Ipv4Addr::from(address)));
    }
    for (at, group) in bytes.chunks_exact(2).enumerate() {
        let separator = if at == 0 { '"' } else { ':' };
        push(out, format_args!("{separator}{:x}", u16::from_be_bytes([group[0], group[1]])));
    }
    out.push('"');
}

/// Appends a number as Java does; JSON has no other than finite ones.
fn number<F: Debug + LowerExp + Into<f64> + Copy>(number: F, out: &mut String) {
    let wide: f64 = number.into();
    match wide.is_finite() {
        true => push_java(number, out),
        false => out.push_str("null"),
    }
}

/// Returns the text of a floating-point number as Java writes it, and Cassandra in JSON and casts.
pub fn float_text<F: Debug + LowerExp + Into<f64> + Copy>(number: F) -> String {
    let mut text = String::new();
    push_java(number, &mut text);
    text
}

/// Appends the text of Java's `toString`: the shortest digits that parse to the same number, with
/// an exponent below 10⁻³ and from 10⁷ on.
pub(super) fn push_java<F: Debug + LowerExp + Into<f64> + Copy>(number: F, out: &mut String) {
    let wide: f64 = number.into();
    if wide.is_infinite() {
        return out.push_str(if wide > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if wide == 0.0 || wide.is_nan() || (1e-3..1e7).contains(&wide.abs()) {
        return push(out, format_args!("{number:?}"));
    }
    let mut text = format!("{number:e}");
    if !text.contains('.') {
        // Java takes the nearest number of one or two digits. They differ for the least numbers.
        let near = format!("{number:.1e}");
        let parsed = if size_of::<F>() == 4 { near.parse::<f32>().map(f64::from) } else { near.parse() };
        if parsed == Ok(wide) {
            text = near;
        }
    }
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let fraction = if digits.contains('.') { "" } else { ".0" };
    push(out, format_args!("{digits}{fraction}E{exponent}"));
}
