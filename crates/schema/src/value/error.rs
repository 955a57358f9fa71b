//! What can be wrong with a value, in Cassandra's words where it has them.

use std::fmt;

use crate::CqlType;

/// The most characters of a refused constant that a message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// What is wrong with a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// A value has the wrong number of bytes.
    Length {
        /// The type's bare name.
        ty: &'static str,
        /// How many there should be, in words: `4`, `4 or 16`.
        expected: &'static str,
        /// How many there are.
        actual: usize,
    },
    /// A value's bytes are not what its type asks for.
    Malformed {
        /// The type's bare name.
        ty: &'static str,
        /// What is wrong, as a clause.
        why: &'static str,
    },
    /// A constant of a kind that its type does not take.
    Mismatch {
        /// The kind of constant, as Cassandra calls it: `STRING`, `INTEGER`, …
        constant: &'static str,
        /// The constant as it was written.
        text: String,
        /// The type, in CQL.
        ty: String,
    },
    /// A constant of the right kind that its type cannot hold.
    Unparsable {
        /// The type's bare name.
        ty: &'static str,
        /// The constant.
        text: String,
    },
    /// Bytes that should be an encoded key part are not.
    Key,
}

impl ValueError {
    pub(super) fn malformed(ty: &'static str, why: &'static str) -> ValueError {
        ValueError::Malformed { ty, why }
    }

    pub(super) fn mismatch(constant: &'static str, text: String, ty: &CqlType) -> ValueError {
        ValueError::Mismatch { constant, text: shortened(&text), ty: ty.to_string() }
    }

    pub(super) fn unparsable(ty: &'static str, text: &str) -> ValueError {
        ValueError::Unparsable { ty, text: shortened(text) }
    }

    /// The message for the user, naming the column (or marker) the value was meant for where that helps.
    pub fn for_column(&self, column: &str) -> String {
        match self {
            ValueError::Mismatch { constant, text, ty } => {
                format!("Invalid {constant} constant ({text}) for \"{column}\" of type {ty}")
            }
            other => other.to_string(),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Length { ty, expected, actual } => {
                write!(f, "Expected {expected} byte {ty} ({actual})")
            }
            ValueError::Malformed { ty, why } => write!(f, "Invalid {ty} value: {why}"),
            ValueError::Mismatch { constant, text, ty } => {
                write!(f, "Invalid {constant} constant ({text}) of type {ty}")
            }
            ValueError::Unparsable { ty, text } => write!(f, "Unable to make {ty} from '{text}'"),
            ValueError::Key => f.write_str("Malformed key"),
        }
    }
}

impl std::error::Error for ValueError {}
