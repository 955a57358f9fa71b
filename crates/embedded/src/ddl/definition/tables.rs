//! CREATE, ALTER and DROP TABLE.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cql::ast;
use engine::{Error, Schema, SchemaTarget};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, TableDef, TableOptions};

use super::step::{DefinitionStep, changed, no_keyspace, no_table};
use super::types::column_type;
use super::{dropped, table_options};

/// Creates a table. Its identity is the version of the schema.
pub(super) fn create(
    mut schema: Schema,
    create: &ast::CreateTable,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let def = new_table(&schema, create, keyspace)?;
    let tables = tables_mut(&mut schema, keyspace)?;
    if tables.contains_key(&def.name) {
        let error = Error::AlreadyExists { keyspace: keyspace.to_owned(), table: def.name };
        return if create.if_not_exists { Ok(None) } else { Err(error) };
    }
    let name = def.name.clone();
    tables.insert(name.clone(), Arc::new(def));
    changed(schema, "CREATED", SchemaTarget::Table, keyspace, &name)
}

/// Changes the columns or options of a table.
pub(super) fn alter(
    mut schema: Schema,
    alter: &ast::AlterTable,
    keyspace: &str,
    now_us: i64,
) -> Result<Option<DefinitionStep>, Error> {
    let Some(table) = schema.table(keyspace, &alter.table.name) else {
        return if alter.if_exists { Ok(None) } else { Err(no_table(keyspace, &alter.table.name)) };
    };
    let mut def = TableDef::clone(table);
    alter_table(&schema, &mut def, &alter.change, now_us)?;
    tables_mut(&mut schema, keyspace)?.insert(def.name.clone(), Arc::new(def));
    changed(schema, "UPDATED", SchemaTarget::Table, keyspace, &alter.table.name)
}

/// Drops a table.
pub(super) fn drop(
    mut schema: Schema,
    drop: &ast::DropObject,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let gone = match schema.keyspaces.contains_key(keyspace) {
        true => tables_mut(&mut schema, keyspace)?.remove(&drop.name.name),
        false => None,
    };
    let Some(gone) = gone else {
        return if drop.if_exists { Ok(None) } else { Err(no_table(keyspace, &drop.name.name)) };
    };
    let mut step = changed(schema, "DROPPED", SchemaTarget::Table, keyspace, &drop.name.name)?;
    if let Some(step) = &mut step {
        step.change.iter_mut().for_each(|change| change.table_id = Some(gone.id));
        step.dropped = vec![gone];
    }
    Ok(step)
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

fn new_table(schema: &Schema, create: &ast::CreateTable, keyspace: &str) -> Result<TableDef, Error> {
    if !schema.keyspaces.contains_key(keyspace) {
        return Err(no_keyspace(keyspace));
    }
    if create.partition_key.is_empty() {
        // Cassandra's text, letter by letter.
        return Err(Error::Invalid(format!(
            "No PRIMARY KEY specifed for table '{keyspace}.{}' (exactly one required)",
            create.table.name
        )));
    }
    if create.properties.compact_storage {
        return Err(Error::Invalid("COMPACT STORAGE is not supported; leave it out".into()));
    }
    let columns = columns_of(schema, create, keyspace)?;
    let mut def = TableDef {
        id: schema.version,
        keyspace: keyspace.to_owned(),
        name: create.table.name.clone(),
        next_column_id: columns.len() as u32,
        data: None,
        dropped: Default::default(),
        columns,
        options: TableOptions::default(),
    };
    table_options::set(&mut def, &create.properties.options)?;
    def.sort_columns();
    number_columns(&mut def);
    def.validate().map_err(|e| Error::Invalid(e.to_string()))?;
    Ok(def)
}

fn number_columns(def: &mut TableDef) {
    // Numbers follow the displayed order, so that the cells of a new table are at their number's
    // index in a row.
    let first = def.columns.iter().position(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let keys = first.unwrap_or(def.columns.len()) as u32;
    let count = def.columns.len() as u32;
    for (at, column) in def.columns.iter_mut().enumerate() {
        column.id = (at as u32 + count - keys) % count;
    }
}

/// Checks that CLUSTERING ORDER names the first clustering columns in their order.
fn check_order(create: &ast::CreateTable, keyspace: &str) -> Result<(), Error> {
    let order = &create.properties.clustering_order;
    let mut seen = HashSet::new();
    if let Some((twice, _)) = order.iter().find(|(name, _)| !seen.insert(name)) {
        return Err(Error::Invalid(format!(
            "Duplicate column '{twice}' in CLUSTERING ORDER BY clause for table '{keyspace}.{}'",
            create.table.name
        )));
    }
    let others = order.iter().map(|(name, _)| name.as_str());
    let others: Vec<&str> = others.filter(|name| !create.clustering.iter().any(|c| c == name)).collect();
    if !others.is_empty() {
        return Err(Error::Invalid(format!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are not clustering \
             columns",
            others.join(", ")
        )));
    }
    let differs = order.iter().zip(&create.clustering).find(|((named, _), column)| named != *column);
    let Some(((named, _), column)) = differs else { return Ok(()) };
    Err(Error::Invalid(match order.iter().any(|(name, _)| name == column) {
        true => format!(
            "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns \
             ({column} must appear before {named})"
        ),
        false => format!("Missing CLUSTERING ORDER for column {column}"),
    }))
}

/// Returns the columns of a new table, in the order of the statement.
fn columns_of(schema: &Schema, create: &ast::CreateTable, keyspace: &str) -> Result<Vec<ColumnDef>, Error> {
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
        let ty = column_type(schema, keyspace, &column.ty)?;
        columns.push(ColumnDef { id: 0, name: name.clone(), ty, kind });
    }
    let table = &create.table.name;
    let mut seen = HashSet::new();
    for key in create.partition_key.iter().chain(&create.clustering) {
        if !columns.iter().any(|c| c.name == *key) {
            return Err(Error::Invalid(format!(
                "Unknown column '{key}' referenced in PRIMARY KEY for table '{table}'"
            )));
        }
        if !seen.insert(key) {
            return Err(Error::Invalid(format!(
                "Duplicate column '{key}' in PRIMARY KEY clause for table '{table}'"
            )));
        }
    }
    check_order(create, keyspace)?;
    Ok(columns)
}

fn alter_table(
    schema: &Schema,
    def: &mut TableDef,
    change: &ast::TableChange,
    now_us: i64,
) -> Result<(), Error> {
    match change {
        ast::TableChange::Add { if_not_exists, columns } => {
            for column in columns {
                if def.column(&column.name).is_some() {
                    if *if_not_exists {
                        continue;
                    }
                    return Err(Error::Invalid(format!("Column with name '{}' already exists", column.name)));
                }
                let ty = column_type(schema, &def.keyspace, &column.ty)?;
                dropped::add(def, column, ty)?;
            }
        }
        ast::TableChange::Drop { if_exists, columns, timestamp } => {
            let timestamp = timestamp.as_ref().map(dropped::timestamp).transpose()?;
            for name in columns {
                dropped::drop(def, name, *if_exists, timestamp, now_us)?;
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
        ast::TableChange::With(properties) => table_options::set(def, &properties.options)?,
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
