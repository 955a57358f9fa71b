//! Reading values from JSON.
//!
//! `serde_json` checks and splits the text. Each value stays a slice of it until its type is known,
//! because a number must keep all its digits.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::write::push_java;
use super::{JsonError, bounded, refused};
use crate::value::error::shortened;
use crate::value::{canonical, decimal, encode_vector, parse_text};
use crate::{CqlType, UdtType};

/// Value of a column in the text of an INSERT JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonColumn {
    /// The text does not name the column.
    Missing,
    /// It is null.
    Null,
    /// Serialized value.
    Value(Vec<u8>),
}

/// Returns the value of a JSON text; `None` for null. Text after the value is ignored, as in
/// Cassandra.
///
/// # Errors
/// Returns Cassandra's message if the text is no JSON, or no value of the type.
pub fn from_json(ty: &CqlType, text: &str) -> Result<Option<Vec<u8>>, JsonError> {
    let source = first(text).map_err(|why| {
        JsonError::Syntax(format!("Could not decode JSON string '{}': {why}", shortened(text)))
    })?;
    if source == NULL {
        return Ok(None);
    }
    value(ty, source).map(Some)
}

/// Returns the values of columns in the text of an INSERT JSON, in the order of `columns`.
///
/// # Errors
/// Returns Cassandra's message if the text is no object, names another column, or has a value that
/// is none of its column's type.
pub fn from_json_row<'c>(
    columns: impl ExactSizeIterator<Item = (&'c str, &'c CqlType)>,
    text: &str,
) -> Result<Vec<JsonColumn>, JsonError> {
    let no_map = |why: String| {
        let text = shortened(text);
        JsonError::Syntax(format!("Could not decode JSON string as a map: {why}. (String was: {text})"))
    };
    let source = first(text).map_err(no_map)?;
    if source == NULL {
        return Err(refused("Got null for INSERT JSON values".to_owned()));
    }
    if !source.starts_with('{') {
        return Err(no_map(format!("expected an object, but got a {}", described(&Json::of(source)?))));
    }
    let mut given = members(source, columns.len())?;
    let (mut values, mut bytes) = (Vec::new(), 0);
    for (name, ty) in columns {
        values.push(match given.remove(name) {
            None => JsonColumn::Missing,
            Some(Member { source: NULL, .. }) => JsonColumn::Null,
            Some(member) => {
                let value = value(ty, member.source).map_err(|error| match error {
                    JsonError::Value(why) => refused(format!("Error decoding JSON value for {name}: {why}")),
                    other => other,
                })?;
                bytes += value.len();
                bounded(bytes)?;
                JsonColumn::Value(value)
            }
        });
    }
    match first_of(&given) {
        Some(name) => {
            Err(refused(format!("JSON values map contains unrecognized column: {}", shortened(name))))
        }
        None => Ok(values),
    }
}

/// JSON's null.
const NULL: &str = "null";

/// Returns the source of the first value in a text, without the space around it.
///
/// # Errors
/// Returns the parser's message if there is none, or if it is too long.
fn first(text: &str) -> Result<&str, String> {
    bounded(text.len()).map_err(|error| error.to_string())?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let source = <&RawValue>::deserialize(&mut parser).map_err(|error| error.to_string())?.get();
    let end = source.as_ptr() as usize - text.as_ptr() as usize + source.len();
    let after = text[end..].chars().next();
    let is_apart = match source.as_bytes()[0] {
        b'"' | b'[' | b'{' => true,
        b'-' | b'0'..=b'9' => after.is_none_or(|c| matches!(c, ' ' | '\t' | '\r' | '\n')),
        _ => after.is_none_or(|c| !c.is_alphanumeric()),
    };
    if is_apart {
        Ok(source)
    } else {
        Err(format!("expected a space after the first value, got {:?}", shortened(text)))
    }
}

/// JSON value that is not null inside a container.
enum Json<'a> {
    /// String, without its escapes.
    String(Cow<'a, str>),
    /// Source of any other value.
    Other(&'a str),
}

impl<'a> Json<'a> {
    /// Returns the value of a source that was checked.
    ///
    /// # Errors
    /// A string has an escape that is no character: half of a surrogate pair.
    fn of(source: &'a str) -> Result<Json<'a>, JsonError> {
        let Some(inner) = source.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return Ok(Json::Other(source));
        };
        if !inner.contains('\\') {
            return Ok(Json::String(Cow::Borrowed(inner)));
        }
        let text = serde_json::from_str(source)
            .map_err(|why| refused(format!("Could not decode JSON string '{}': {why}", shortened(inner))))?;
        Ok(Json::String(Cow::Owned(text)))
    }

    /// Returns the text of a string.
    fn string(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            Json::Other(_) => None,
        }
    }

    /// Returns the digits of a number.
    fn number(&self) -> Option<&str> {
        match self {
            Json::Other(source) if source.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                Some(*source)
            }
            _ => None,
        }
    }
}

/// Returns true if Java reads the number as `double`.
fn is_fraction(number: &str) -> bool {
    number.contains(['.', 'e', 'E'])
}

/// Returns the name of Java's class for a value, and its text there.
fn described(json: &Json<'_>) -> String {
    let class = match json {
        Json::String(_) => "String",
        Json::Other(source) => match source.as_bytes()[0] {
            b'[' => "ArrayList",
            b'{' => "LinkedHashMap",
            b't' | b'f' => "Boolean",
            b'n' => NULL,
            _ if is_fraction(source) => "Double",
            _ if source.parse::<i32>().is_ok() => "Integer",
            _ if source.parse::<i64>().is_ok() => "Long",
            _ => "BigInteger",
        },
    };
    format!("{class}: {}", java_text(json))
}

/// Longest source of a list or an object that is shown in Java's form.
const CONVERTED_BYTES_MAX: usize = 1024;

/// Returns Java's text of a value.
fn java_text(json: &Json<'_>) -> String {
    match json {
        Json::String(text) => shortened(text),
        Json::Other(source) if source.starts_with(['[', '{']) && source.len() <= CONVERTED_BYTES_MAX => {
            let mut out = String::new();
            match serde_json::from_str(source) {
                Ok(value) => push_value(&value, &mut out),
                // It is nested too deep.
                Err(_) => out.push_str(source),
            }
            shortened(&out)
        }
        Json::Other(source) if json.number().is_some() && is_fraction(source) => {
            let mut out = String::new();
            push_java(source.parse::<f64>().unwrap_or(f64::NAN), &mut out);
            out
        }
        Json::Other(source) => shortened(source),
    }
}

fn push_value(value: &serde_json::Value, out: &mut String) {
    use serde_json::Value as V;
    match value {
        V::String(text) => out.push_str(text),
        V::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                push_value(value, out);
            }
            out.push(']');
        }
        V::Object(members) => {
            out.push('{');
            for (at, (name, value)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                out.push_str(name);
                out.push('=');
                push_value(value, out);
            }
            out.push('}');
        }
        V::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => push_java(number, out),
            None => out.push_str(&number.to_string()),
        },
        V::Bool(_) | V::Null => out.push_str(&value.to_string()),
    }
}

/// Returns the serialized value of a source, in the form in which it is stored.
fn value(ty: &CqlType, source: &str) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    push(ty, &Json::of(source)?, &mut out)?;
    Ok(if ty.inner().is_empty() { out } else { canonical(ty, &out)?.into_owned() })
}

/// Appends a value that is not null.
fn push(ty: &CqlType, json: &Json<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    bounded(out.len())?;
    let ty = ty.thawed();
    if !ty.is_collection() && !matches!(ty, CqlType::Tuple(_) | CqlType::Udt(_) | CqlType::Vector(..)) {
        out.extend(scalar(ty, json)?);
        return Ok(());
    }
    match json {
        Json::Other(source) => container(ty, json, source, out),
        // A key of a map, or JSON within JSON.
        Json::String(text) => {
            let source = first(text).map_err(|why| refused(format!("Error decoding JSON string: {why}")))?;
            container(ty, &Json::of(source)?, source, out)
        }
    }
}

/// Appends a value of a type with inner types.
fn container(ty: &CqlType, json: &Json<'_>, source: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    match (ty, source.as_bytes()[0]) {
        (CqlType::List(element), b'[') => list(element, "list", source, out),
        (CqlType::Set(element), b'[') => list(element, "set", source, out),
        (CqlType::Map(key, value), b'{') => map(key, value, source, out),
        (CqlType::Vector(element, dimension), b'[') => vector(element, *dimension, json, source, out),
        (CqlType::Tuple(types), b'[') => tuple(types, json, source, out),
        (CqlType::Udt(udt), b'{') => user_type(udt, source, out),
        _ => {
            let wanted = match ty {
                CqlType::List(_) | CqlType::Vector(..) => "a list",
                CqlType::Set(_) => "a list (representing a set)",
                CqlType::Tuple(_) => "a list representation of a tuple",
                _ => "a map",
            };
            Err(refused(format!("Expected {wanted}, but got a {}", described(json))))
        }
    }
}

fn list(element: &CqlType, what: &str, source: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let start = reserve(out);
    let mut count = 0;
    for_each_element(source, &mut |source| {
        if source == NULL {
            return Err(refused(format!("Invalid null element in {what}")));
        }
        count += 1;
        sized(element, &Json::of(source)?, out)
    })?;
    fill(out, start, count);
    Ok(())
}

fn vector(
    element: &CqlType,
    dimension: u32,
    json: &Json<'_>,
    source: &str,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    let mut count = 0_u32;
    for_each_element(source, &mut |_| {
        count += 1;
        Ok(())
    })?;
    if count != dimension {
        let given = java_text(json);
        let text = format!("List had incorrect size: expected {dimension} but given {count}; {given}");
        return Err(refused(text));
    }
    let mut elements = Vec::new();
    for_each_element(source, &mut |source| {
        if source == NULL {
            return Err(refused("Invalid null element in list".to_owned()));
        }
        let mut bytes = Vec::new();
        push(element, &Json::of(source)?, &mut bytes)?;
        elements.push(bytes);
        Ok(())
    })?;
    out.extend(encode_vector(element, elements.iter().map(|bytes| &bytes[..])));
    bounded(out.len())
}

fn map(key: &CqlType, value: &CqlType, source: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let start = reserve(out);
    let mut count = 0;
    for_each_member(source, &mut |name, source| {
        if source == NULL {
            return Err(refused("Invalid null value in map".to_owned()));
        }
        count += 1;
        sized(key, &Json::String(name), out)?;
        sized(value, &Json::of(source)?, out)
    })?;
    fill(out, start, count);
    Ok(())
}

fn tuple(types: &[CqlType], json: &Json<'_>, source: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut count = 0;
    for_each_element(source, &mut |_| {
        count += 1;
        Ok(())
    })?;
    if count != types.len() {
        let what = if count > types.len() { "contains extra" } else { "is missing" };
        let (expected, given) = (types.len(), java_text(json));
        return Err(refused(format!("Tuple {what} items (expected {expected}): {given}")));
    }
    let mut types = types.iter();
    for_each_element(source, &mut |source| match types.next() {
        Some(ty) => field(ty, source, out),
        None => Ok(()),
    })
}

fn user_type(udt: &UdtType, source: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut given = members(source, udt.fields.len())?;
    for (name, ty) in &udt.fields {
        field(ty, given.remove(name).map_or(NULL, |member| member.source), out)?;
    }
    match first_of(&given) {
        Some(name) => Err(refused(format!(
            "Unknown field '{}' in value of user defined type {}",
            shortened(name),
            udt.name
        ))),
        None => Ok(()),
    }
}

fn field(ty: &CqlType, source: &str, out: &mut Vec<u8>) -> Result<(), JsonError> {
    if source != NULL {
        return sized(ty, &Json::of(source)?, out);
    }
    out.extend((-1_i32).to_be_bytes());
    bounded(out.len())
}

/// Appends a value with its length before it.
fn sized(ty: &CqlType, json: &Json<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let start = reserve(out);
    push(ty, json, out)?;
    let length = out.len() - start - 4;
    bounded(length)?;
    fill(out, start, length);
    Ok(())
}

/// Reserves the bytes of a count or a length. Returns their place.
fn reserve(out: &mut Vec<u8>) -> usize {
    out.extend([0; 4]);
    out.len() - 4
}

fn fill(out: &mut [u8], place: usize, number: usize) {
    let number = i32::try_from(number).expect("at most JSON_BYTES_MAX");
    out[place..place + 4].copy_from_slice(&number.to_be_bytes());
}

/// Returns a value of a type without inner types.
fn scalar(ty: &CqlType, json: &Json<'_>) -> Result<Vec<u8>, JsonError> {
    use CqlType as T;
    let text = json.string();
    let number = json.number();
    let whole = number.filter(|number| !is_fraction(number));
    let (parsed, wanted) = match ty {
        T::Text => (text, "a UTF-8 string"),
        T::Ascii => (text, "an ascii string"),
        T::Blob => return blob(json),
        T::Boolean => (text.or(literal(json)), "a boolean value"),
        T::TinyInt => (text.or(number), "a byte value"),
        T::SmallInt => (text.or(number), "a short value"),
        T::Int => (text.or(whole.filter(|n| n.parse::<i32>().is_ok())), "an int value"),
        T::BigInt | T::Counter => (text.or(whole.filter(|n| n.parse::<i64>().is_ok())), "a bigint value"),
        T::Float => (text.or(number), "a float value"),
        T::Double => (text.or(number), "a double value"),
        T::Varint | T::Decimal => return digits(ty, json),
        T::Date => (text, "a string representation of a date value"),
        T::Time => (text, "a string representation of a time value"),
        T::Timestamp => (
            text.or(whole.filter(|n| n.parse::<i64>().is_ok())),
            "a long or a datestring representation of a timestamp value",
        ),
        T::Uuid => (text, "a string representation of a uuid"),
        T::TimeUuid => (text, "a string representation of a timeuuid"),
        T::Inet => (text, "a string representation of an inet value"),
        T::Duration => (text, "a string representation of a duration"),
        T::List(_) | T::Set(_) | T::Map(..) | T::Tuple(_) | T::Udt(_) | T::Frozen(_) | T::Vector(..) => {
            unreachable!("the caller deals with inner types")
        }
    };
    match parsed {
        Some(digits) if number.is_some() && matches!(ty, T::TinyInt | T::SmallInt) => {
            Ok(parse_text(ty, digits).or_else(|_| parse_text(ty, &java_text(json)))?)
        }
        Some(text) if *ty == T::Duration => {
            parse_text(ty, text).map_err(|error| JsonError::Duration(error.to_string()))
        }
        Some(text) => Ok(parse_text(ty, text)?),
        None => Err(refused(format!("Expected {wanted}, but got a {}", described(json)))),
    }
}

/// Returns the source of `true` or `false`.
fn literal<'j>(json: &'j Json<'_>) -> Option<&'j str> {
    match json {
        Json::Other(source) if matches!(*source, "true" | "false") => Some(source),
        _ => None,
    }
}

/// Returns an integer or a decimal of any size up to [`crate::value::NUMBER_BYTES_MAX`].
fn digits(ty: &CqlType, json: &Json<'_>) -> Result<Vec<u8>, JsonError> {
    let text = json.string().or(json.number());
    let parsed = match ty {
        CqlType::Decimal if json.string() == Some("") => Some(Vec::new()),
        CqlType::Decimal => text.and_then(decimal::parse),
        _ => text.filter(|text| !text.is_empty()).and_then(|text| parse_text(ty, text).ok()),
    };
    parsed.ok_or_else(|| {
        let (text, name) = (java_text(json), ty.kind_name());
        refused(format!("Value '{text}' is not a valid representation of a {name} value"))
    })
}

fn blob(json: &Json<'_>) -> Result<Vec<u8>, JsonError> {
    let why = match json.string() {
        None => format!("expected a string, but got a {}", described(json)),
        Some(text) if !text.starts_with("0x") => {
            format!("String representation of blob is missing 0x prefix: {}", shortened(text))
        }
        Some(text) => match parse_text(&CqlType::Blob, text) {
            Ok(bytes) => return Ok(bytes),
            Err(_) => format!("cannot parse '{}' as hex bytes", shortened(&text[2..])),
        },
    };
    Err(refused(format!("Value '{}' is not a valid blob representation: {why}", java_text(json))))
}

/// Member of an object by its name as a column or a field.
struct Member<'a> {
    source: &'a str,
    /// Position in the object.
    at: usize,
    /// True if its name was in quotes or in upper case.
    is_converted: bool,
}

/// Returns the members by name: without quotes, or in lower case. Of equal names the last one wins,
/// and a converted one over others, as in Cassandra. Beyond `known + 1` names, one of which must be
/// unknown, new ones are left out.
fn members(source: &str, known: usize) -> Result<HashMap<String, Member<'_>>, JsonError> {
    let mut all: HashMap<String, Member<'_>> = HashMap::new();
    let mut at = 0;
    for_each_member(source, &mut |name, source| {
        let quoted = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let read = quoted.map_or_else(|| name.to_lowercase(), str::to_owned);
        let is_converted = read != *name;
        at += 1;
        match all.get(&read) {
            Some(earlier) if earlier.is_converted && !is_converted => {}
            None if all.len() > known => {}
            _ => _ = all.insert(read, Member { source, at, is_converted }),
        }
        Ok(())
    })?;
    Ok(all)
}

/// Returns the name of the first member.
fn first_of<'m>(members: &'m HashMap<String, Member<'_>>) -> Option<&'m str> {
    members.iter().min_by_key(|(_, member)| member.at).map(|(name, _)| name.as_str())
}

type EachElement<'f, 'a> = &'f mut dyn FnMut(&'a str) -> Result<(), JsonError>;
type EachMember<'f, 'a> = &'f mut dyn FnMut(Cow<'a, str>, &'a str) -> Result<(), JsonError>;

/// Calls `each` with the source of each element of an array.
fn for_each_element<'a>(source: &'a str, each: EachElement<'_, 'a>) -> Result<(), JsonError> {
    let mut error = None;
    let visited =
        serde_json::Deserializer::from_str(source).deserialize_seq(Elements { each, error: &mut error });
    error.map_or_else(|| visited.map_err(|why| undecoded(source, &why)), Err)
}

/// Calls `each` with the name and the source of each member of an object.
fn for_each_member<'a>(source: &'a str, each: EachMember<'_, 'a>) -> Result<(), JsonError> {
    let mut error = None;
    let visited =
        serde_json::Deserializer::from_str(source).deserialize_map(Members { each, error: &mut error });
    error.map_or_else(|| visited.map_err(|why| undecoded(source, &why)), Err)
}

/// Returns the error of a text that was checked before: its names may have half of a surrogate
/// pair.
fn undecoded(source: &str, why: &serde_json::Error) -> JsonError {
    refused(format!("Could not decode JSON string '{}': {why}", shortened(source)))
}

struct Elements<'f, 'a> {
    each: EachElement<'f, 'a>,
    error: &'f mut Option<JsonError>,
}

impl<'de> Visitor<'de> for Elements<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            if let Err(error) = (self.each)(element.get()) {
                *self.error = Some(error);
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

struct Members<'f, 'a> {
    each: EachMember<'f, 'a>,
    error: &'f mut Option<JsonError>,
}

impl<'de> Visitor<'de> for Members<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key_seed(Name)? {
            let value = members.next_value::<&'de RawValue>()?;
            if let Err(error) = (self.each)(name, value.get()) {
                *self.error = Some(error);
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

/// Name of a member, borrowed if it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, name: D) -> Result<Cow<'de, str>, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
