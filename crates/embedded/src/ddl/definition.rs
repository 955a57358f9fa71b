//! Definition statements: from a schema and a statement to the next schema. This module neither
//! stores nor sends anything.

mod keyspaces;
pub(crate) mod storage_options;
mod tables;
mod types;

use std::sync::Arc;

use cql::ast::{self, OptionValue};
use engine::{Error, Schema, SchemaChange, SchemaTarget};
use schema::TableDef;
use uuid::Uuid;

use crate::system::own_tables::is_server_keyspace;

/// Effect of a definition statement.
pub(crate) struct DefinitionStep {
    /// Schema after the statement.
    pub(crate) schema: Schema,
    /// Change reported to the client and to listeners. `None`: no visible change.
    pub(crate) change: Option<SchemaChange>,
    /// Tables whose data is dropped, with their old definitions.
    pub(crate) dropped: Vec<Arc<TableDef>>,
}

/// Applies a statement. `None`: there is nothing to do (`IF EXISTS`, `IF NOT EXISTS`). `id` becomes
/// the version of the new schema and the identity of a new table.
pub(crate) fn apply(
    now: &Schema,
    statement: &ast::Statement,
    used: Option<&str>,
    id: Uuid,
) -> Result<Option<DefinitionStep>, Error> {
    use ast::Statement as S;
    let schema = Schema { version: id, ..now.clone() };
    match statement {
        S::CreateKeyspace(create) => keyspaces::create(schema, create),
        S::AlterKeyspace(alter) => keyspaces::alter(schema, alter),
        S::DropKeyspace(drop) => keyspaces::drop(schema, drop),
        S::CreateTable(create) => tables::create(schema, create, &keyspace_of(&create.table, used)?),
        S::AlterTable(alter) => tables::alter(schema, alter, &keyspace_of(&alter.table, used)?),
        S::DropTable(drop) => tables::drop(schema, drop, &keyspace_of(&drop.name, used)?),
        S::CreateType(create) => types::create(schema, create, &keyspace_of(&create.name, used)?),
        S::AlterType(alter) => types::alter(schema, alter, &keyspace_of(&alter.name, used)?),
        S::DropType(drop) => types::drop(schema, drop, &keyspace_of(&drop.name, used)?),
        _ => Err(Error::Invalid("Indexes, views, functions and triggers are not supported yet".into())),
    }
}

/// Result of a statement that changes `name` of a keyspace.
fn changed(
    schema: Schema,
    change: &'static str,
    target: SchemaTarget,
    keyspace: &str,
    name: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let table_id = match (target, change) {
        (SchemaTarget::Table, "CREATED") => Some(schema.version),
        _ => None,
    };
    let change = SchemaChange { change, target, keyspace: keyspace.into(), name: name.into(), table_id };
    Ok(Some(DefinitionStep { schema, change: Some(change), dropped: Vec::new() }))
}

/// Checks that clients may create a keyspace with this name. The server's own keyspaces are exempt
/// from limits, and known to tools.
///
/// # Errors
/// Returns an error if the name is reserved.
pub(crate) fn check_reserved(name: &str) -> Result<(), Error> {
    match engine::is_of_server(name) && !is_server_keyspace(name) {
        true => Err(Error::Invalid(format!(
            "Keyspace name '{name}' is reserved: expected one that is not `fairlane`, `system` or `system_...`"
        ))),
        false => Ok(()),
    }
}

/// Returns the keyspace of a name, or the keyspace in use if it has none.
pub(crate) fn keyspace_of(name: &ast::QualifiedName, used: Option<&str>) -> Result<String, Error> {
    name.keyspace.as_deref().or(used).map(str::to_owned).ok_or_else(|| {
        Error::Invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename".into(),
        )
    })
}

/// Returns the error for a missing keyspace.
pub(crate) fn no_keyspace(name: &str) -> Error {
    Error::Invalid(format!("Keyspace '{name}' doesn't exist"))
}

/// Returns the error for a missing table.
pub(crate) fn no_table(keyspace: &str, name: &str) -> Error {
    Error::Invalid(format!("table {keyspace}.{name} does not exist"))
}

/// Formats an option's value as in the schema tables.
fn plain(value: &OptionValue) -> String {
    match value {
        OptionValue::Null => "null".into(),
        OptionValue::Integer(n) => n.to_string(),
        OptionValue::Float(x) => x.to_string(),
        OptionValue::Boolean(b) => b.to_string(),
        OptionValue::String(text) => text.clone(),
        OptionValue::Duration(d) => format!("{}mo{}d{}ns", d.months, d.days, d.nanoseconds),
        OptionValue::Map(pairs) => {
            let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
            let pair =
                |(key, value): &(String, OptionValue)| format!("{}: {}", quoted(key), quoted(&plain(value)));
            let pairs: Vec<String> = pairs.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}
