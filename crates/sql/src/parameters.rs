//! Values of a statement's parameters, as a client binds them.

use std::sync::Arc;

use arrow_pg::datatypes::df::deserialize_parameters;
use arrow_pg::datatypes::into_pg_type;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ParamValues;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::api::stmt::StoredStatement;
use pgwire::messages::extendedquery::Bind;

use crate::failure::{Failure, state};

/// The types that a client is told its parameters have: what it said itself, else what the plan says.
pub(crate) fn types(inferred: &[Option<DataType>], said: &[u32]) -> Vec<Type> {
    let one = |place: usize, ty: &Option<DataType>| {
        let said = said.get(place).copied().filter(|oid| *oid != 0).and_then(Type::from_oid);
        let own = || ty.as_ref().and_then(|ty| into_pg_type(ty).ok());
        said.or_else(own).unwrap_or(Type::TEXT)
    };
    inferred.iter().enumerate().map(|(place, ty)| one(place, ty)).collect()
}

/// The values that a Bind message gives to parameters of these types.
///
/// # Errors
/// There are too many or too few, or one is no value of its type.
pub(crate) fn values(
    bind: &Bind,
    inferred: &[Option<DataType>],
    types: &[Type],
) -> Result<Option<ParamValues>, Failure> {
    if bind.parameters.len() != inferred.len() {
        let (given, wanted) = (bind.parameters.len(), inferred.len());
        return Err(Failure::new(
            state::PROTOCOL,
            format!("bind message supplies {given} parameters, but the statement requires {wanted}"),
        ));
    }
    let formats = bind.parameter_format_codes.len();
    if formats > 1 && formats != inferred.len() {
        return Err(Failure::new(
            state::PROTOCOL,
            format!("bind message has {formats} parameter formats but {} parameters", inferred.len()),
        ));
    }
    if inferred.is_empty() {
        return Ok(None);
    }
    let types = types.iter().cloned().map(Some).collect();
    let stored = Arc::new(StoredStatement::new(String::new(), (), types));
    let portal = Portal::try_new(bind, stored)?;
    let inferred: Vec<Option<&DataType>> = inferred.iter().map(Option::as_ref).collect();
    let invalid = |error| Failure::new("22P02", Failure::from(error).message);
    Ok(Some(deserialize_parameters(&portal, &inferred).map_err(invalid)?))
}
