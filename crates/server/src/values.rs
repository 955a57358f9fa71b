//! The bound values of a request, in the order of the bind markers and of the same number.

use std::collections::HashMap;
use std::time::Duration;

use engine::{Error, Value};
use smallvec::SmallVec;
use wire::QueryParams;

use crate::statement::{Statement, timeout_of};

/// Bound values of a request. More than 16 cost an allocation.
pub(crate) type BoundValues<'a> = SmallVec<[Value<'a>; 16]>;

/// Maximum number of markers for which named values are found by comparing names, which is faster
/// than a map.
const FEW_NAMES: usize = 16;

/// Converts a value to the engine's type.
pub(crate) fn value(value: wire::Value<'_>) -> Value<'_> {
    match value {
        wire::Value::Null => Value::Null,
        wire::Value::Unset => Value::Unset,
        wire::Value::Bytes(bytes) => Value::Bytes(bytes),
    }
}

/// Returns the values of a request in the order of the bind markers.
pub(crate) fn bound_values<'a>(
    statement: &Statement,
    params: &QueryParams<'a>,
) -> Result<BoundValues<'a>, Error> {
    let binds = statement.binds();
    if !params.values.is_named() {
        check_count(binds.len(), params.values.len())?;
        return Ok(params.values.iter().map(value).collect());
    }
    if params.values.len() > binds.len() {
        check_count(binds.len(), params.values.len())?;
    }
    // The last value of a name counts, and a name may have several markers.
    if binds.len() <= FEW_NAMES {
        let last = |name: &str| params.values.iter_named().filter(|(given, _)| *given == name).last();
        return Ok(binds
            .iter()
            .map(|bind| last(&bind.name).map_or(Value::Unset, |(_, given)| value(given)))
            .collect());
    }
    let given: HashMap<&str, Value<'a>> =
        params.values.iter_named().map(|(name, given)| (name, value(given))).collect();
    Ok(binds.iter().map(|bind| given.get(&*bind.name).copied().unwrap_or(Value::Unset)).collect())
}

/// Returns an error unless the numbers of markers and values are equal.
pub(crate) fn check_count(expected: usize, given: usize) -> Result<(), Error> {
    if expected == given {
        return Ok(());
    }
    Err(Error::Invalid("Invalid amount of bind variables".into()))
}

/// Returns the timeout bound to a marker, or `None` for null and unset.
pub(crate) fn bound_timeout(
    params: &QueryParams<'_>,
    statement: &Statement,
    marker: u16,
) -> Result<Option<Duration>, Error> {
    let values = bound_values(statement, params)?;
    let Some(Value::Bytes(bytes)) = values.get(usize::from(marker)) else { return Ok(None) };
    let duration = schema::value::Duration::from_bytes(bytes)
        .map_err(|error| Error::Invalid(format!("USING TIMEOUT: {error}")))?;
    timeout_of(duration.months, duration.days, duration.nanoseconds).map(Some)
}
