//! `to_json` and `from_json`. Results have at most
//! [`JSON_BYTES_MAX`](schema::value::json::JSON_BYTES_MAX) bytes.

use schema::CqlType;
use schema::value::is_empty;
use schema::value::json::{self, JsonError};

use crate::{Function, FunctionError};

/// Returns a value as JSON text. A null becomes the text `null`, as does an empty value, which is
/// an empty string inside of others.
pub(crate) fn to_json(ty: &CqlType, value: Option<&[u8]>) -> Result<Option<Vec<u8>>, FunctionError> {
    let Some(value) = value.filter(|value| !is_empty(ty, value)) else {
        return Ok(Some(b"null".to_vec()));
    };
    let mut text = String::new();
    json::to_json(ty, value, &mut text).map_err(|error| FunctionError::invalid(error.to_string()))?;
    Ok(Some(text.into_bytes()))
}

/// Returns the value of a JSON text, with the type of the result.
pub(crate) fn from_json(function: &Function, text: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    json::from_json(&function.result, text).map_err(|error| {
        let message = match error {
            JsonError::Duration(message) => return FunctionError::Invalid(message),
            JsonError::Syntax(why) => format!("execution of 'system.{}[text]' failed: {why}", function.name),
            JsonError::Value(why) => format!("org.apache.cassandra.serializers.MarshalException: {why}"),
        };
        FunctionError::failed(&function.name, &function.arguments, message)
    })
}
