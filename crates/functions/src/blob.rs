//! Conversions from and to blobs: `int_as_blob`, `blob_as_int`, `intasblob`, `blobasint`, for all
//! scalar types but `blob`. They keep the bytes: an empty blob is the empty
//! value of most types.

use schema::CqlType;
use schema::value::check;

use crate::function::Body;
use crate::{Function, FunctionError};

/// Returns the conversion with this name.
pub(crate) fn function(name: &str) -> Option<Function> {
    let from = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob"));
    let to = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas"));
    let scalar = |name: &str| CqlType::scalar(name).filter(|ty| *ty != CqlType::Blob);
    if let Some(ty) = from.and_then(scalar) {
        return Some(Function::new(name, vec![ty], CqlType::Blob, Body::Same));
    }
    let ty = to.and_then(scalar)?;
    Some(Function::new(name, vec![CqlType::Blob], ty, Body::FromBlob))
}

/// Returns the bytes if they are a value of the type of the result.
pub(crate) fn checked(function: &Function, value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let ty = &function.result;
    if check(ty, value).is_ok() {
        return Ok(Some(value.to_vec()));
    }
    // The text has twice the length of the argument.
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    Err(FunctionError::invalid(format!(
        "In call to function system.{}, value 0x{hex} is not a valid binary representation for type {ty}",
        function.name
    )))
}
