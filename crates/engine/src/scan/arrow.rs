//! Conversion between CQL values and Arrow columns (crate `columns`), with this crate's errors.

use arrow_array::{ArrayRef, BinaryArray};
use schema::CqlType;

use crate::Error;

pub use columns::{DIGITS, SCALE_DEFAULT, SCALE_MAX, arrow_type, keeps_order, serialized};

/// Builder of a column, as [`columns::ColumnBuilder`].
#[derive(Debug)]
pub struct ColumnBuilder(columns::ColumnBuilder);

impl ColumnBuilder {
    /// Creates a column of [`arrow_type`]`(ty, scale)` with capacity for `rows` rows.
    pub fn new(ty: &CqlType, scale: i8, rows: usize) -> ColumnBuilder {
        ColumnBuilder(columns::ColumnBuilder::new(ty, scale, rows))
    }

    /// Appends a serialized value, or null.
    ///
    /// # Errors
    /// Returned if the bytes are not a value of the type, or the Arrow type cannot hold it. The
    /// builder must not be used any more then.
    pub fn push(&mut self, value: Option<&[u8]>) -> Result<(), Error> {
        self.0.push(value).map_err(convert)
    }

    /// Returns the column and clears the builder.
    pub fn finish(&mut self) -> ArrayRef {
        self.0.finish()
    }
}

/// Converts a column of serialized decimals, with the result of [`ColumnBuilder`].
///
/// # Errors
/// Those of [`ColumnBuilder::push`].
pub fn decimal_column(from: &BinaryArray, scale: i8) -> Result<ArrayRef, Error> {
    columns::decimal_column(from, scale).map_err(convert)
}

fn convert(error: columns::Error) -> Error {
    match error {
        columns::Error::Damaged(message) => Error::Server(message),
        columns::Error::Unfit(message) => Error::Invalid(message),
    }
}
