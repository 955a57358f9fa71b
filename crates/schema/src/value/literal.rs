//! Conversion of CQL constants to values: the kinds of constant that a type accepts, and their
//! text.

use std::net::Ipv6Addr;

use num_bigint::BigInt;
use uuid::Uuid;

use super::calendar::{parse_date, parse_time, parse_timestamp};
use super::decimal;
use super::{Duration, DurationError, ValueError, check};
use crate::CqlType;

/// A constant from the parser.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Literal<'a> {
    /// Digits with an optional sign.
    Integer(&'a str),
    /// Number with a decimal point or an exponent, `NaN` or `Infinity`, with an optional sign.
    Float(&'a str),
    /// Text between the quotes, with doubled quotes replaced by single ones.
    String(&'a str),
    /// `true` or `false`.
    Boolean(bool),
    /// UUID without quotes.
    Uuid(&'a str),
    /// Bytes of a `0x…` constant.
    Blob(&'a [u8]),
    /// Duration without quotes.
    Duration(&'a str),
}

impl Literal<'_> {
    /// Returns Cassandra's name of the kind of constant.
    pub fn kind(&self) -> &'static str {
        match self {
            Literal::Integer(_) => "INTEGER",
            Literal::Float(_) => "FLOAT",
            Literal::String(_) => "STRING",
            Literal::Boolean(_) => "BOOLEAN",
            Literal::Uuid(_) => "UUID",
            Literal::Blob(_) => "HEX",
            Literal::Duration(_) => "DURATION",
        }
    }

    /// Returns true if the type accepts this kind of constant.
    pub fn is_accepted_by(&self, ty: &CqlType) -> bool {
        use CqlType as T;
        match self {
            Literal::Integer(_) => matches!(
                ty,
                T::TinyInt
                    | T::SmallInt
                    | T::Int
                    | T::BigInt
                    | T::Counter
                    | T::Varint
                    | T::Decimal
                    | T::Float
                    | T::Double
                    | T::Date
                    | T::Time
                    | T::Timestamp
                    | T::Duration
            ),
            Literal::Float(_) => matches!(ty, T::Decimal | T::Float | T::Double),
            Literal::String(_) => {
                matches!(ty, T::Ascii | T::Text | T::Inet | T::Date | T::Time | T::Timestamp)
            }
            Literal::Boolean(_) => matches!(ty, T::Boolean),
            Literal::Uuid(_) => matches!(ty, T::Uuid | T::TimeUuid),
            Literal::Blob(_) => matches!(ty, T::Blob),
            Literal::Duration(_) => matches!(ty, T::Duration),
        }
    }

    /// Returns the text of the constant.
    fn written(&self) -> String {
        match self {
            Literal::Integer(text) | Literal::Float(text) | Literal::Uuid(text) | Literal::Duration(text) => {
                (*text).to_owned()
            }
            // Without quotes, as in Cassandra's messages.
            Literal::String(text) => (*text).to_owned(),
            Literal::Boolean(value) => value.to_string(),
            Literal::Blob(bytes) => super::text::hex(bytes),
        }
    }
}

/// Converts a constant to a value of type `ty`.
pub fn from_literal(ty: &CqlType, literal: Literal<'_>) -> Result<Vec<u8>, ValueError> {
    let shown = ty;
    let ty = ty.thawed();
    if let CqlType::Tuple(_) = ty {
        // As in Cassandra: the text of a constant of any kind, without quotes.
        return match literal {
            Literal::String(text) => parse_text(ty, text),
            other => parse_text(ty, &other.written()),
        };
    }
    if !literal.is_accepted_by(ty) {
        return Err(ValueError::mismatch(literal.kind(), literal.written(), shown));
    }
    match literal {
        Literal::Boolean(value) => Ok(vec![u8::from(value)]),
        Literal::Blob(bytes) => Ok(bytes.to_vec()),
        Literal::Integer(text)
        | Literal::Float(text)
        | Literal::String(text)
        | Literal::Uuid(text)
        | Literal::Duration(text) => parse_text(ty, text),
    }
}

/// Parses the text of a scalar value, whichever kind of constant CQL requires. A blob is `0x…`. As
/// in Cassandra, no text is false, or an empty value.
/// A tuple is its fields with colons between them. Rejects collections, vectors and user types,
/// because the CQL parser splits their constants.
pub fn parse_text(ty: &CqlType, text: &str) -> Result<Vec<u8>, ValueError> {
    let bytes = match ty {
        CqlType::Boolean if text.is_empty() => Some(vec![0]),
        _ if super::is_empty(ty, text.as_bytes()) => return Ok(Vec::new()),
        CqlType::Ascii if text.is_ascii() => Some(text.as_bytes().to_vec()),
        CqlType::Ascii => None,
        CqlType::Text => Some(text.as_bytes().to_vec()),
        CqlType::Blob => blob(text),
        CqlType::Boolean if text.eq_ignore_ascii_case("true") => Some(vec![1]),
        CqlType::Boolean if text.eq_ignore_ascii_case("false") => Some(vec![0]),
        CqlType::Boolean => None,
        CqlType::TinyInt => text.parse::<i8>().ok().map(|n| n.to_be_bytes().to_vec()),
        CqlType::SmallInt => text.parse::<i16>().ok().map(|n| n.to_be_bytes().to_vec()),
        CqlType::Int => text.parse::<i32>().ok().map(|n| n.to_be_bytes().to_vec()),
        CqlType::BigInt | CqlType::Counter => text.parse::<i64>().ok().map(|n| n.to_be_bytes().to_vec()),
        CqlType::Varint => varint(text),
        CqlType::Decimal => decimal::parse(text),
        CqlType::Float => float::<f32>(text).map(|n| n.to_be_bytes().to_vec()),
        CqlType::Double => float::<f64>(text).map(|n| n.to_be_bytes().to_vec()),
        CqlType::Date => parse_date(text).map(|n| n.to_be_bytes().to_vec()),
        CqlType::Time => parse_time(text).map(|n| n.to_be_bytes().to_vec()),
        CqlType::Timestamp => parse_timestamp(text).map(|n| n.to_be_bytes().to_vec()),
        CqlType::Duration => {
            let message = |e: DurationError| e.message(&super::error::shortened(text));
            let parsed = Duration::parse(text);
            Some(parsed.map_err(|e| ValueError::Text { message: message(e) })?.to_bytes())
        }
        CqlType::Inet => inet(text),
        CqlType::Uuid | CqlType::TimeUuid => uuid(text),
        CqlType::Frozen(inner) => return parse_text(inner, text),
        CqlType::Tuple(types) => return tuple(ty, types, text),
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) | CqlType::Udt(_) | CqlType::Vector(..) => {
            return Err(ValueError::mismatch("STRING", text.to_owned(), ty));
        }
    };
    let bytes = bytes.ok_or_else(|| ValueError::unparsable(ty, text))?;
    match check(ty, &bytes) {
        Err(_) if *ty == CqlType::TimeUuid => {
            Err(ValueError::text("TimeUUID supports only version 1 UUIDs".to_owned()))
        }
        checked => checked.map(|()| bytes),
    }
}

/// Parses `1:a:@`: fields with colons between them, in which `\:` is a colon, and `@` null.
fn tuple(ty: &CqlType, types: &[CqlType], text: &str) -> Result<Vec<u8>, ValueError> {
    let mut fields: Vec<String> = Vec::new();
    // Cassandra splits at every colon without a backslash before it, and an empty text into
    // nothing.
    for part in text.split(':').filter(|_| !text.is_empty()) {
        match fields.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => {
                last.pop();
                last.push(':');
                last.push_str(part);
            }
            None => fields.push(part.to_owned()),
        }
    }
    if fields.len() > types.len() {
        return Err(ValueError::Text {
            message: format!(
                "Invalid tuple literal: too many elements. Type {ty} expects {} but got {}",
                types.len(),
                fields.len()
            ),
        });
    }
    let field = |(field, ty): (&String, &CqlType)| match (field.as_str(), ty.thawed()) {
        ("@", _) => Ok(None),
        (hex, CqlType::Blob) => parse_text(&CqlType::Blob, &format!("0x{hex}")).map(Some),
        (text, ty) => parse_text(ty, &text.replace("\\@", "@")).map(Some),
    };
    let fields = fields.iter().zip(types).map(field).collect::<Result<Vec<_>, _>>()?;
    Ok(super::encode_tuple(fields.iter().map(Option::as_deref)))
}

fn varint(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_valid = !digits.is_empty()
        && digits.len() <= decimal::DIGITS_MAX
        && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_valid {
        return None;
    }
    Some(text.parse::<BigInt>().ok()?.to_signed_bytes_be())
}

/// Parses an address as Java does. An address of version 4 may have fewer parts, the last of which
/// has the other bytes: `127.1` is 127.0.0.1. One of version 6 that contains such an address is
/// that address.
fn inet(text: &str) -> Option<Vec<u8>> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        let inner = address.to_ipv4_mapped();
        return Some(inner.map_or_else(|| address.octets().to_vec(), |inner| inner.octets().to_vec()));
    }
    let parts: Vec<&str> = text.split('.').collect();
    let (last, parts) = parts.split_last()?;
    let number =
        |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
    let last: u32 = number(last)?;
    let room = 4_usize.checked_sub(parts.len()).filter(|bytes| *bytes > 0)?;
    let mut address = last.to_be_bytes();
    if room < 4 && last >> (8 * room) != 0 {
        return None;
    }
    for (byte, part) in address.iter_mut().zip(parts) {
        *byte = number(part).and_then(|number| u8::try_from(number).ok())?;
    }
    Some(address.to_vec())
}

/// Parses a number as Java does, which ignores space around it.
fn float<F: std::str::FromStr>(text: &str) -> Option<F> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    let named = matches!(number, "NaN" | "Infinity");
    // The standard library also takes other names.
    (named || number.starts_with(|c: char| c.is_ascii_digit() || c == '.')).then(|| text.parse().ok())?
}

fn uuid(text: &str) -> Option<Vec<u8>> {
    // Accept the form with hyphens only. The library accepts more, such as braces.
    let uuid = if text.len() == 36 { Uuid::try_parse(text).ok()? } else { return None };
    Some(uuid.as_bytes().to_vec())
}

fn blob(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits.chunks_exact(2).map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}
