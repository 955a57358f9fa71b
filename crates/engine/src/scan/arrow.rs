//! Conversion between CQL values and Arrow columns (crate `columns`), and its errors as errors of
//! engines.

pub use columns::{
    ColumnBuilder, DIGITS, SCALE_DEFAULT, SCALE_MAX, arrow_type, decimal_column, keeps_order, serialized,
};

use crate::Error;

impl From<columns::Error> for Error {
    fn from(error: columns::Error) -> Error {
        match error {
            columns::Error::Damaged(message) => Error::Server(message),
            columns::Error::Unfit(message) => Error::Invalid(message),
        }
    }
}
