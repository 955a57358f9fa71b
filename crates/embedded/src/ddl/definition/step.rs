//! Effect of a definition statement, and what the statements on keyspaces, tables and types share.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::OptionValue;
use engine::{Error, Schema, SchemaChange, SchemaTarget};
use schema::{DefinitionError, TableDef};
use uuid::Uuid;

/// Effect of a definition statement.
pub(crate) struct DefinitionStep {
    /// Schema after the statement.
    pub(crate) schema: Schema,
    /// Change reported to the client and to listeners. `None`: no visible change.
    pub(crate) change: Option<SchemaChange>,
    /// Tables whose data is dropped, with their old definitions.
    pub(crate) dropped: Vec<Arc<TableDef>>,
    /// Identities of the data of dropped indexes, whose tables stay.
    pub(crate) dropped_indexes: Vec<Uuid>,
}

impl DefinitionStep {
    /// Returns the identities of all data that it drops.
    pub(crate) fn dropped_data(&self) -> impl Iterator<Item = Uuid> {
        let of_tables = self.dropped.iter().flat_map(|def| def.all_data());
        of_tables.chain(self.dropped_indexes.iter().copied())
    }
}

/// Result of a statement that changes `name` of a keyspace.
pub(super) fn changed(
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
    Ok(Some(DefinitionStep {
        schema,
        change: Some(change),
        dropped: Vec::new(),
        dropped_indexes: Vec::new(),
    }))
}

/// Returns the error for a missing keyspace.
pub(crate) fn no_keyspace(name: &str) -> Error {
    Error::Invalid(format!("Keyspace '{name}' doesn't exist"))
}

/// Returns the error for a missing table of a keyspace that exists.
pub(crate) fn no_table(name: &str) -> Error {
    Error::Invalid(format!("table {name} does not exist"))
}

/// Returns the error for a definition that is not valid.
pub(super) fn refused(error: DefinitionError) -> Error {
    match error {
        DefinitionError::BadTableName { .. } => Error::Config(error.to_string()),
        error => Error::Invalid(error.to_string()),
    }
}

/// Returns the tables of a keyspace, to change them.
pub(super) fn tables_mut<'a>(
    schema: &'a mut Schema,
    keyspace: &str,
) -> Result<&'a mut BTreeMap<String, Arc<TableDef>>, Error> {
    match schema.keyspaces.get_mut(keyspace) {
        Some(found) => Ok(&mut Arc::make_mut(found).tables),
        None => Err(no_keyspace(keyspace)),
    }
}

/// Replaces a table of the schema.
pub(super) fn put_table(schema: &mut Schema, def: TableDef) -> Result<(), Error> {
    let keyspace = def.keyspace.clone();
    tables_mut(schema, &keyspace)?.insert(def.name.clone(), Arc::new(def));
    Ok(())
}

/// Formats an option's value as in the schema tables.
pub(super) fn plain(value: &OptionValue) -> String {
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
