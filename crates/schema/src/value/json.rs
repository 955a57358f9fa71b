//! Values as JSON, as Cassandra 5.0 writes and reads them: `SELECT JSON`, `INSERT JSON`, `to_json`
//! and `from_json`.
//!
//! ```text
//! integers, varint, decimal    number          text, ascii, uuid, inet, date,
//! float, double                number          time, timestamp, duration        string
//! NaN and the infinities       null            blob                             "0x…"
//! list, set, tuple             [a, b]          user type                        {"field": a}
//! map                          {"key": a}      a key that is no string: its JSON as a string
//! ```
//!
//! Numbers may also be read from strings, and collections from strings of JSON. An upper-case name
//! of a field or a column is `"\"Name\""`; other names are read in any case.
//!
//! Differences to Cassandra: decimals keep all digits, where Cassandra reads a JSON number with a
//! point as `double`. A timestamp may be a number of any size. 16 bytes that are an IPv4 address in
//! IPv6 stay 16 bytes. An empty string is no number, because such empty values are not supported.
//!
//! **Bounds.** The recursion follows the type, whose depth is bounded. Time is proportional to the
//! text times that depth. A value has at most [`JSON_BYTES_MAX`] bytes as text, and in serialized
//! form: a JSON key inside a JSON key doubles its backslashes, and a user type of thousands of
//! fields is read from `{}`.

mod read;
mod write;

pub use read::{JsonColumn, from_json, from_json_row};
pub use write::{float_text, push_name, to_json};

use std::fmt;

use super::ValueError;

/// Most bytes of a JSON text, and of the values read from one: as many as one row of an answer, and
/// as one statement may write.
pub const JSON_BYTES_MAX: usize = 64 << 20;

/// Error of JSON, with Cassandra's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonError {
    /// The text is no JSON.
    Syntax(String),
    /// It is no value of the type.
    Value(String),
    /// It has a malformed duration. Cassandra reports it as an error of the statement, without the
    /// function or the column.
    Duration(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (JsonError::Syntax(message) | JsonError::Value(message) | JsonError::Duration(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for JsonError {}

impl From<ValueError> for JsonError {
    fn from(error: ValueError) -> JsonError {
        JsonError::Value(error.to_string())
    }
}

fn refused(message: String) -> JsonError {
    JsonError::Value(message)
}

/// Checks a length in bytes against [`JSON_BYTES_MAX`].
fn bounded(bytes: usize) -> Result<(), JsonError> {
    if bytes <= JSON_BYTES_MAX {
        return Ok(());
    }
    Err(refused(format!(
        "expected at most {JSON_BYTES_MAX} bytes of JSON and its values, got {bytes} or more"
    )))
}
