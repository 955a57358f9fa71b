//! Definition statements: from a schema and a statement to the next schema. This module neither
//! stores nor sends anything.

pub(crate) mod storage_options;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::{self, OptionValue};
use engine::{Error, Keyspace, Schema, SchemaChange, SchemaTarget};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, KeyspaceDef, TableDef, TableOptions};
use uuid::Uuid;

use crate::system::own_tables::is_server_keyspace;
use types::resolve;

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
    let mut schema = now.clone();
    schema.version = id;
    let step = |schema, change, target, keyspace: &str, name: &str, dropped: Vec<Arc<TableDef>>| {
        let table_id = match (target, change) {
            (SchemaTarget::Table, "CREATED") => Some(id),
            (SchemaTarget::Table, _) => dropped.first().map(|def| def.id),
            _ => None,
        };
        let change = SchemaChange { change, target, keyspace: keyspace.into(), name: name.into(), table_id };
        Ok(Some(DefinitionStep { schema, change: Some(change), dropped }))
    };
    match statement {
        ast::Statement::CreateKeyspace(create) => {
            if schema.keyspaces.contains_key(&create.name) {
                let error = Error::AlreadyExists { keyspace: create.name.clone(), table: String::new() };
                return if create.if_not_exists { Ok(None) } else { Err(error) };
            }
            let mut def =
                KeyspaceDef { name: create.name.clone(), replication: BTreeMap::new(), durable_writes: true };
            keyspace_options(&mut def, &create.options)?;
            if def.replication.is_empty() {
                return Err(Error::Config(
                    "Missing mandatory option 'replication'; write WITH replication \
                    = {'class': 'SimpleStrategy', 'replication_factor': 1}"
                        .into(),
                ));
            }
            def.validate().map_err(|e| Error::Invalid(e.to_string()))?;
            let keyspace = Keyspace { def, tables: BTreeMap::new(), types: BTreeMap::new() };
            schema.keyspaces.insert(create.name.clone(), Arc::new(keyspace));
            step(schema, "CREATED", SchemaTarget::Keyspace, &create.name, "", vec![])
        }
        ast::Statement::AlterKeyspace(alter) => {
            let Some(keyspace) = schema.keyspaces.get_mut(&alter.name) else {
                return if alter.if_exists { Ok(None) } else { Err(no_keyspace(&alter.name)) };
            };
            keyspace_options(&mut Arc::make_mut(keyspace).def, &alter.options)?;
            step(schema, "UPDATED", SchemaTarget::Keyspace, &alter.name, "", vec![])
        }
        ast::Statement::DropKeyspace(drop) => {
            let Some(keyspace) = schema.keyspaces.remove(&drop.name) else {
                return if drop.if_exists { Ok(None) } else { Err(no_keyspace(&drop.name)) };
            };
            let dropped = keyspace.tables.values().cloned().collect();
            step(schema, "DROPPED", SchemaTarget::Keyspace, &drop.name, "", dropped)
        }
        ast::Statement::CreateTable(create) => {
            let keyspace = keyspace_of(&create.table, used)?;
            let def = create_table(&schema, create, &keyspace, id)?;
            let tables = &mut tables_mut(&mut schema, &keyspace)?;
            if tables.contains_key(&def.name) {
                let error = Error::AlreadyExists { keyspace, table: def.name };
                return if create.if_not_exists { Ok(None) } else { Err(error) };
            }
            let name = def.name.clone();
            tables.insert(name.clone(), Arc::new(def));
            step(schema, "CREATED", SchemaTarget::Table, &keyspace, &name, vec![])
        }
        ast::Statement::AlterTable(alter) => {
            let keyspace = keyspace_of(&alter.table, used)?;
            let Some(table) = now.table(&keyspace, &alter.table.name) else {
                return if alter.if_exists { Ok(None) } else { Err(no_table(&keyspace, &alter.table.name)) };
            };
            let mut def = TableDef::clone(table);
            alter_table(now, &mut def, &alter.change)?;
            tables_mut(&mut schema, &keyspace)?.insert(def.name.clone(), Arc::new(def));
            step(schema, "UPDATED", SchemaTarget::Table, &keyspace, &alter.table.name, vec![])
        }
        ast::Statement::DropTable(drop) => {
            let keyspace = keyspace_of(&drop.name, used)?;
            let gone = match now.keyspaces.contains_key(&keyspace) {
                true => tables_mut(&mut schema, &keyspace)?.remove(&drop.name.name),
                false => None,
            };
            let Some(gone) = gone else {
                return if drop.if_exists { Ok(None) } else { Err(no_table(&keyspace, &drop.name.name)) };
            };
            step(schema, "DROPPED", SchemaTarget::Table, &keyspace, &drop.name.name, vec![gone])
        }
        ast::Statement::CreateType(create) => {
            let keyspace = keyspace_of(&create.name, used)?;
            match types::create(&mut schema, create, &keyspace)? {
                true => step(schema, "CREATED", SchemaTarget::Type, &keyspace, &create.name.name, vec![]),
                false => Ok(None),
            }
        }
        ast::Statement::AlterType(alter) => {
            let keyspace = keyspace_of(&alter.name, used)?;
            match types::alter(&mut schema, alter, &keyspace)? {
                true => step(schema, "UPDATED", SchemaTarget::Type, &keyspace, &alter.name.name, vec![]),
                false => Ok(None),
            }
        }
        ast::Statement::DropType(drop) => {
            let keyspace = keyspace_of(&drop.name, used)?;
            match types::drop(&mut schema, drop, &keyspace)? {
                true => step(schema, "DROPPED", SchemaTarget::Type, &keyspace, &drop.name.name, vec![]),
                false => Ok(None),
            }
        }
        _ => Err(Error::Invalid("Indexes, views, functions and triggers are not supported yet".into())),
    }
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

fn tables_mut<'a>(
    schema: &'a mut Schema,
    keyspace: &str,
) -> Result<&'a mut BTreeMap<String, Arc<TableDef>>, Error> {
    match schema.keyspaces.get_mut(keyspace) {
        Some(found) => Ok(&mut Arc::make_mut(found).tables),
        None => Err(no_keyspace(keyspace)),
    }
}

fn keyspace_options(def: &mut KeyspaceDef, options: &ast::Options) -> Result<(), Error> {
    for (name, option) in options {
        match (name.as_str(), option) {
            ("replication", OptionValue::Map(pairs)) => {
                def.replication = pairs.iter().map(|(k, v)| (k.clone(), plain(v))).collect();
                if !def.replication.contains_key("class") {
                    return Err(Error::Config("Missing replication strategy class".into()));
                }
            }
            ("durable_writes", OptionValue::Boolean(on)) => def.durable_writes = *on,
            ("tablets" | "storage", OptionValue::Map(_)) => {}
            ("replication" | "durable_writes", _) => {
                return Err(Error::Config(format!("Invalid value for property '{name}'")));
            }
            _ => {
                return Err(Error::Config(format!(
                    "Unknown property '{name}'; a keyspace has replication and durable_writes"
                )));
            }
        }
    }
    Ok(())
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

fn create_table(
    schema: &Schema,
    create: &ast::CreateTable,
    keyspace: &str,
    id: Uuid,
) -> Result<TableDef, Error> {
    if !schema.keyspaces.contains_key(keyspace) {
        return Err(no_keyspace(keyspace));
    }
    if create.partition_key.is_empty() {
        return Err(Error::Invalid(format!(
            "No PRIMARY KEY specified for table '{}' (exactly one required)",
            create.table.name
        )));
    }
    if create.properties.compact_storage {
        return Err(Error::Invalid("COMPACT STORAGE is not supported; leave it out".into()));
    }
    let order_of = |name: &String| {
        let order = create.properties.clustering_order.iter().find(|(n, _)| n == name);
        order.map_or(ClusteringOrder::Asc, |(_, order)| *order)
    };
    let mut columns = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        let name = &column.name;
        let kind = match (
            create.partition_key.iter().position(|n| n == name),
            create.clustering.iter().position(|n| n == name),
        ) {
            (Some(at), _) => ColumnKind::PartitionKey(at),
            (_, Some(at)) => ColumnKind::Clustering(at, order_of(name)),
            _ if column.is_static => ColumnKind::Static,
            _ => ColumnKind::Regular,
        };
        if column.is_static && kind != ColumnKind::Static {
            return Err(Error::Invalid(format!("Static column {name} cannot be part of the PRIMARY KEY")));
        }
        if column.is_static && create.clustering.is_empty() {
            return Err(Error::Invalid(
                "Static columns are only useful (and thus allowed) if the table has \
                at least one clustering column"
                    .into(),
            ));
        }
        let ty = resolve(schema, keyspace, &column.ty)?;
        columns.push(ColumnDef { id: 0, name: name.clone(), ty, kind });
    }
    for key in create.partition_key.iter().chain(&create.clustering) {
        if !columns.iter().any(|c| c.name == *key) {
            return Err(Error::Invalid(format!("Unknown definition {key} referenced in PRIMARY KEY")));
        }
    }
    for (name, _) in &create.properties.clustering_order {
        if !create.clustering.contains(name) {
            return Err(Error::Invalid(format!(
                "Only clustering key columns can be defined in CLUSTERING ORDER directive: {name} is none"
            )));
        }
    }
    let mut def = TableDef {
        id,
        keyspace: keyspace.to_owned(),
        name: create.table.name.clone(),
        next_column_id: columns.len() as u32,
        data: None,
        columns,
        options: TableOptions::default(),
    };
    table_options(&mut def, &create.properties.options)?;
    def.sort_columns();
    // Numbers follow the displayed order, so that the cells of a new table are at their number's
    // index in a row.
    let first = def.columns.iter().position(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let keys = first.unwrap_or(def.columns.len()) as u32;
    let count = def.columns.len() as u32;
    for (at, column) in def.columns.iter_mut().enumerate() {
        column.id = (at as u32 + count - keys) % count;
    }
    def.validate().map_err(|e| Error::Invalid(e.to_string()))?;
    Ok(def)
}

fn table_options(def: &mut TableDef, options: &ast::Options) -> Result<(), Error> {
    for (name, option) in options {
        let seconds = || match option {
            OptionValue::Integer(n) => u32::try_from(*n).ok().filter(|n| *n <= 630_720_000),
            OptionValue::String(text) => text.parse().ok(),
            _ => None,
        };
        let bad = || {
            Error::Config(format!(
                "Invalid value for '{name}': a whole number of seconds, at most 20 years, is expected"
            ))
        };
        match name.as_str() {
            "comment" => def.options.comment = plain(option),
            "default_time_to_live" => def.options.default_time_to_live = seconds().ok_or_else(bad)?,
            "gc_grace_seconds" => def.options.gc_grace_seconds = seconds().ok_or_else(bad)?,
            "id" => return Err(Error::Config("A table's id cannot be chosen; leave ID out".into())),
            "additional_write_policy"
            | "allow_auto_snapshot"
            | "bloom_filter_fp_chance"
            | "caching"
            | "cdc"
            | "compaction"
            | "compression"
            | "crc_check_chance"
            | "dclocal_read_repair_chance"
            | "extensions"
            | "incremental_backups"
            | "max_index_interval"
            | "memtable"
            | "memtable_flush_period_in_ms"
            | "min_index_interval"
            | "read_repair"
            | "read_repair_chance"
            | "speculative_retry"
            | "tombstone_gc" => {
                storage_options::check(name, option)?;
                def.options.other.insert(name.clone(), plain(option));
            }
            _ => return Err(Error::Config(format!("Unknown property '{name}'"))),
        }
    }
    Ok(())
}

fn alter_table(schema: &Schema, def: &mut TableDef, change: &ast::TableChange) -> Result<(), Error> {
    match change {
        ast::TableChange::Add { if_not_exists, columns } => {
            for column in columns {
                if def.column(&column.name).is_some() {
                    if *if_not_exists {
                        continue;
                    }
                    return Err(Error::Invalid(format!("Column with name '{}' already exists", column.name)));
                }
                let kind = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
                let ty = resolve(schema, &def.keyspace, &column.ty)?;
                def.columns.push(ColumnDef { id: def.next_column_id, name: column.name.clone(), ty, kind });
                def.next_column_id += 1;
            }
        }
        ast::TableChange::Drop { if_exists, columns, .. } => {
            for name in columns {
                match def.column(name) {
                    Some((at, c)) if matches!(c.kind, ColumnKind::Static | ColumnKind::Regular) => {
                        def.columns.remove(at);
                    }
                    Some(_) => return Err(Error::Invalid(format!("Cannot drop PRIMARY KEY column {name}"))),
                    None if *if_exists => {}
                    None => {
                        return Err(Error::Invalid(format!(
                            "Column {name} was not found in table {}.{}",
                            def.keyspace, def.name
                        )));
                    }
                }
            }
        }
        ast::TableChange::Rename { if_exists, columns } => {
            for (from, to) in columns {
                if def.column(to).is_some() {
                    return Err(Error::Invalid(format!(
                        "Cannot rename column {from} to {to}: another column of that name exists"
                    )));
                }
                match def.columns.iter_mut().find(|c| c.name == *from) {
                    Some(c) if matches!(c.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..)) => {
                        c.name.clone_from(to)
                    }
                    Some(_) => {
                        return Err(Error::Invalid(format!("Cannot rename non PRIMARY KEY column {from}")));
                    }
                    None if *if_exists => {}
                    None => {
                        return Err(Error::Invalid(format!(
                            "Column {from} was not found in table {}.{}",
                            def.keyspace, def.name
                        )));
                    }
                }
            }
        }
        ast::TableChange::With(properties) => table_options(def, &properties.options)?,
        ast::TableChange::Type { .. } => {
            return Err(Error::Invalid("Altering column types is no longer supported".into()));
        }
        ast::TableChange::DropCompactStorage => {
            return Err(Error::Invalid("Table has no COMPACT STORAGE to drop".into()));
        }
    }
    def.sort_columns();
    def.validate().map_err(|e| Error::Invalid(e.to_string()))
}
