//! `CAST(value AS type)`.

use schema::CqlType;

use crate::{Function, FunctionError};

/// Resolves `CAST(value AS to)` for a value of type `from`. Errors: there is no such cast.
pub fn cast(from: &CqlType, to: &CqlType) -> Result<Function, FunctionError> {
    Err(FunctionError::Invalid(format!("{from} cannot be cast to {to}")))
}
