//! Functions of collections. Each reads its argument once.

use schema::CqlType;
use schema::value::{elements, encode_list, pairs};

use crate::{Aggregate, FunctionError};

/// Returns the keys of a map as a set.
pub(crate) fn map_keys(value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let keys: Result<Vec<_>, _> = pairs(value).map(|pair| pair.map(|(key, _)| key)).collect();
    let keys = keys.map_err(|error| FunctionError::invalid(error.to_string()))?;
    Ok(Some(encode_list(keys.into_iter())))
}

/// Returns the values of a map as a list.
pub(crate) fn map_values(value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let values: Result<Vec<_>, _> = pairs(value).map(|pair| pair.map(|(_, value)| value)).collect();
    let values = values.map_err(|error| FunctionError::invalid(error.to_string()))?;
    Ok(Some(encode_list(values.into_iter())))
}

/// Returns the number of elements or pairs. `None`: no collection.
pub(crate) fn count(value: &[u8]) -> Option<Vec<u8>> {
    value.first_chunk::<4>().map(|count| count.to_vec())
}

/// Returns an aggregate of the elements of a list or set.
pub(crate) fn aggregate(name: &str, ty: &CqlType, value: &[u8]) -> Result<Option<Vec<u8>>, FunctionError> {
    let (CqlType::List(element) | CqlType::Set(element)) = ty.thawed() else { return Ok(None) };
    let mut state = Aggregate::named(name, element).start();
    for element in elements(value) {
        let element = element.map_err(|error| FunctionError::invalid(error.to_string()))?;
        state.add(&[Some(element)]);
    }
    state.finish()
}
