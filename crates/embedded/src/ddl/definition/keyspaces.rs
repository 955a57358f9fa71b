//! CREATE, ALTER and DROP KEYSPACE.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::{self, OptionValue};
use engine::{Error, Keyspace, Schema, SchemaTarget};
use schema::KeyspaceDef;

use super::replication;
use super::step::{DefinitionStep, changed, no_keyspace, plain};
use super::table_options::boolean;

/// Creates a keyspace.
pub(super) fn create(
    mut schema: Schema,
    create: &ast::CreateKeyspace,
) -> Result<Option<DefinitionStep>, Error> {
    if schema.keyspaces.contains_key(&create.name) {
        let error = Error::AlreadyExists { keyspace: create.name.clone(), table: String::new() };
        return if create.if_not_exists { Ok(None) } else { Err(error) };
    }
    let mut def =
        KeyspaceDef { name: create.name.clone(), replication: BTreeMap::new(), durable_writes: true };
    keyspace_options(&mut def, &create.options)?;
    if def.replication.is_empty() {
        return Err(Error::Invalid("Missing mandatory option 'replication'".into()));
    }
    def.validate().map_err(|e| Error::Invalid(e.to_string()))?;
    let keyspace = Keyspace { def, tables: BTreeMap::new(), types: BTreeMap::new() };
    schema.keyspaces.insert(create.name.clone(), Arc::new(keyspace));
    changed(schema, "CREATED", SchemaTarget::Keyspace, &create.name, "")
}

/// Changes the options of a keyspace.
pub(super) fn alter(mut schema: Schema, alter: &ast::AlterKeyspace) -> Result<Option<DefinitionStep>, Error> {
    let Some(keyspace) = schema.keyspaces.get_mut(&alter.name) else {
        return if alter.if_exists { Ok(None) } else { Err(no_keyspace(&alter.name)) };
    };
    keyspace_options(&mut Arc::make_mut(keyspace).def, &alter.options)?;
    changed(schema, "UPDATED", SchemaTarget::Keyspace, &alter.name, "")
}

/// Drops a keyspace with its tables and types.
pub(super) fn drop(mut schema: Schema, drop: &ast::DropKeyspace) -> Result<Option<DefinitionStep>, Error> {
    let Some(keyspace) = schema.keyspaces.remove(&drop.name) else {
        return if drop.if_exists { Ok(None) } else { Err(no_keyspace(&drop.name)) };
    };
    let dropped = keyspace.tables.values().cloned().collect();
    let step = changed(schema, "DROPPED", SchemaTarget::Keyspace, &drop.name, "")?;
    Ok(step.map(|step| DefinitionStep { dropped, ..step }))
}

fn keyspace_options(def: &mut KeyspaceDef, options: &ast::OptionList) -> Result<(), Error> {
    for (name, option) in options {
        match (name.as_str(), option) {
            ("replication", OptionValue::Map(pairs)) => {
                let given = pairs.iter().map(|(k, v)| (k.clone(), plain(v))).collect();
                def.replication = replication::checked(&def.name, given, &def.replication)?;
            }
            ("durable_writes", value) => def.durable_writes = boolean(name, value)?,
            ("tablets" | "storage", OptionValue::Map(_)) => {}
            ("replication", _) => {
                return Err(Error::Syntax(format!(
                    "Invalid value for property '{name}'. It should be a map."
                )));
            }
            _ => return Err(Error::Syntax(format!("Unknown property '{name}'"))),
        }
    }
    Ok(())
}
