//! Types and values of a statement's parameters.

use std::sync::Arc;

use arrow_pg::datatypes::df::deserialize_parameters;
use arrow_pg::datatypes::into_pg_type;
use bytes::Bytes;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ParamValues;
use datafusion::scalar::ScalarValue;
use engine::scan::arrow::DIGITS;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::api::results::FieldFormat;
use pgwire::api::stmt::StoredStatement;
use pgwire::messages::extendedquery::Bind;

use crate::failure::{Failure, state};
use crate::postgres::numeric;

/// Returns the parameter types to report to the client. A type specified by the client takes
/// precedence over the plan's. The default is text.
pub(crate) fn types(inferred: &[Option<DataType>], specified: &[u32]) -> Vec<Type> {
    let one = |place: usize, ty: &Option<DataType>| {
        let specified = specified.get(place).copied().filter(|oid| *oid != 0).and_then(Type::from_oid);
        let own = || ty.as_ref().and_then(|ty| into_pg_type(ty).ok());
        specified.or_else(own).unwrap_or(Type::TEXT)
    };
    inferred.iter().enumerate().map(|(place, ty)| one(place, ty)).collect()
}

/// Returns the values of a Bind message. `None` if the statement has no parameters.
///
/// # Errors
/// The number of values or of formats is wrong, or a value does not fit its type.
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
    // An object id is a number here.
    let known = |ty: &Type| if *ty == Type::OID_ARRAY { Type::INT4_ARRAY } else { ty.clone() };
    let known = types.iter().map(|ty| Some(known(ty))).collect();
    let stored = Arc::new(StoredStatement::new(String::new(), (), known));
    // The library reads numerics of at most 96 bits, so they are parsed here.
    let mut rest = Bind::new(
        bind.portal_name.clone(),
        bind.statement_name.clone(),
        bind.parameter_format_codes.clone(),
        bind.parameters.clone(),
        Vec::new(),
    );
    let numerics: Vec<(usize, Option<Bytes>)> = types
        .iter()
        .enumerate()
        .filter(|(_, ty)| **ty == Type::NUMERIC)
        .map(|(place, _)| (place, rest.parameters[place].take()))
        .collect();
    let portal = Portal::try_new(&rest, stored)?;
    let types: Vec<Option<&DataType>> = inferred.iter().map(Option::as_ref).collect();
    let invalid = |error| Failure::new("22P02", Failure::from(error).message);
    let mut values = deserialize_parameters(&portal, &types).map_err(invalid)?;
    if let ParamValues::List(values) = &mut values {
        for (place, sent) in numerics {
            values[place] =
                numeric(place, sent.as_deref(), portal.parameter_format.format_for(place))?.into();
        }
    }
    Ok(Some(values))
}

fn numeric(place: usize, sent: Option<&[u8]>, format: FieldFormat) -> Result<ScalarValue, Failure> {
    let Some(sent) = sent else { return Ok(ScalarValue::Decimal128(None, DIGITS, 0)) };
    let (number, decimals) = numeric::parsed(sent, format).ok_or_else(|| {
        Failure::new("22P02", format!("parameter ${} is no number of up to {DIGITS} digits", place + 1))
    })?;
    Ok(ScalarValue::Decimal128(Some(number), DIGITS, decimals))
}
