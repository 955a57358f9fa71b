//! Errors of conversions.

use std::fmt;

/// Error of a conversion. Its text names the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The bytes are not a value of their type.
    Damaged(String),
    /// The Arrow type cannot hold the value.
    Unfit(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Damaged(message) | Error::Unfit(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
