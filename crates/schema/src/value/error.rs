//! Errors of values, in Cassandra's words where it has them.

use std::fmt;

use crate::CqlType;

/// Most characters of a rejected constant that a message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Error of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// Wrong number of bytes.
    Length {
        /// Cassandra's words before the number: `Expected 4 or 0 byte int`.
        expected: &'static str,
        /// Actual number.
        actual: usize,
    },
    /// Bytes that are invalid for the type.
    Malformed {
        /// Name of the type without parameters.
        ty: &'static str,
        /// Reason, as a clause.
        why: &'static str,
    },
    /// Constant of a kind that the type does not accept.
    Mismatch {
        /// Kind of the constant in Cassandra's words: `STRING`, `INTEGER`, …
        constant: &'static str,
        /// Text of the constant.
        text: String,
        /// The type in CQL.
        ty: String,
    },
    /// Text or bytes that are no value of the type.
    Text {
        /// Cassandra's message.
        message: String,
    },
    /// Bytes that are not an encoded key part.
    Key,
}

impl ValueError {
    pub(super) fn malformed(ty: &'static str, why: &'static str) -> ValueError {
        ValueError::Malformed { ty, why }
    }

    pub(super) fn mismatch(constant: &'static str, text: String, ty: &CqlType) -> ValueError {
        ValueError::Mismatch { constant, text: shortened(&text), ty: ty.to_string() }
    }

    /// Returns the error of a text that is no value of its type, in Cassandra's words.
    pub(super) fn unparsable(ty: &CqlType, text: &str) -> ValueError {
        let (before, after) = unparsable_words(ty.kind_name(), is_integer(text));
        ValueError::text(format!("{before}{}{after}", shortened(text)))
    }

    pub(super) fn text(message: String) -> ValueError {
        ValueError::Text { message }
    }

    /// Returns the message for the client. A mismatch names `column`, the column or bind marker of
    /// the value.
    pub fn for_column(&self, column: &str) -> String {
        match self {
            ValueError::Mismatch { constant, text, ty } => {
                format!("Invalid {constant} constant ({text}) for \"{column}\" of type {ty}")
            }
            other => other.to_string(),
        }
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns Cassandra's words before and after a text that is no value of a type.
fn unparsable_words(ty: &str, is_integer: bool) -> (&'static str, &'static str) {
    match ty {
        "date" if is_integer => ("Unable to make unsigned int (for date) from: '", "'"),
        "time" if is_integer => ("Unable to make long (for time) from: '", "'"),
        "timestamp" if is_integer => ("Unable to make long (for date) from: '", "'"),
        "ascii" => ("Invalid ASCII character in string literal: ", ""),
        "blob" => ("cannot parse '", "' as hex bytes"),
        "boolean" => ("Unable to make boolean from '", "'"),
        "tinyint" => ("Unable to make byte from '", "'"),
        "smallint" => ("Unable to make short from '", "'"),
        "int" => ("Unable to make int from '", "'"),
        "bigint" | "counter" => ("Unable to make long from '", "'"),
        "varint" => ("unable to make int from '", "'"),
        "decimal" => ("unable to make BigDecimal from '", "'"),
        "float" => ("Unable to make float from '", "'"),
        "double" => ("Unable to make double from '", "'"),
        "date" => ("Unable to coerce '", "' to a formatted date (long)"),
        "time" => ("(TimeType) Unable to coerce '", "' to a formatted time (long)"),
        "timestamp" => ("Unable to parse a date/time from '", "'"),
        "inet" => ("Unable to make inet address from '", "'"),
        "uuid" => ("Unable to make UUID from '", "'"),
        "timeuuid" => ("Unknown timeuuid representation: ", ""),
        _ => ("Unable to make a value from '", "'"),
    }
}

pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Length { expected, actual } => write!(f, "{expected} ({actual})"),
            ValueError::Malformed { ty, why } => write!(f, "Invalid {ty} value: {why}"),
            ValueError::Mismatch { constant, text, ty } => {
                write!(f, "Invalid {constant} constant ({text}) of type {ty}")
            }
            ValueError::Text { message } => f.write_str(message),
            ValueError::Key => f.write_str("Malformed key"),
        }
    }
}

impl std::error::Error for ValueError {}

/// Error of invalid encoded key bytes. It has no fields, so that decoding moves no large errors.
pub(super) struct InvalidKey;
