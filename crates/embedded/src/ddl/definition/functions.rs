//! DROP of objects that a keyspace never has, because no statement creates them: user functions,
//! aggregates and triggers. Scripts that drop them IF EXISTS succeed.

use cql::ast;
use engine::Error;

use super::step::DefinitionStep;

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Drops a function or an aggregate. `what` is its kind in Cassandra's error.
pub(super) fn drop(
    what: &str,
    drop: &ast::DropFunction,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    if drop.if_exists {
        return Ok(None);
    }
    let arguments = drop.arguments.as_ref().map(|types| {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        format!("({})", types.join(", "))
    });
    let arguments = arguments.unwrap_or_default();
    invalid(format!("{what} '{keyspace}.{}{arguments}' doesn't exist", drop.name.name))
}

/// Drops a trigger.
pub(super) fn drop_trigger(drop: &ast::DropTrigger, keyspace: &str) -> Result<Option<DefinitionStep>, Error> {
    let table = &drop.table.name;
    match drop.if_exists {
        true => Ok(None),
        false => invalid(format!("Trigger '{}' on '{keyspace}.{table}' doesn't exist", drop.name)),
    }
}
