//! CREATE, ALTER and DROP TABLE.

use std::collections::HashSet;
use std::sync::Arc;

use cql::ast;
use engine::{Error, Schema, SchemaTarget};
use schema::{ClusteringOrder, ColumnDef, ColumnKind, CqlType, TableDef, TableOptions};

use super::step::{DefinitionStep, changed, refused, tables_mut};
use super::types::{has_open_field, resolve};
use super::{dropped, indexes, masks, table_options, view_checks};

/// Creates a table. Its identity is the version of the schema.
pub(super) fn create(
    mut schema: Schema,
    create: &ast::CreateTable,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let name = create.table.name.clone();
    if create.partition_key.is_empty() {
        // Cassandra's text, letter by letter.
        return Err(Error::Invalid(format!(
            "No PRIMARY KEY specifed for table '{}' (exactly one required)",
            shown(&create.table)
        )));
    }
    if tables_mut(&mut schema, keyspace)?.contains_key(&name) {
        let error = Error::AlreadyExists { keyspace: keyspace.to_owned(), table: name };
        return if create.if_not_exists { Ok(None) } else { Err(error) };
    }
    if schema.view(keyspace, &name).is_some() {
        let error = Error::AlreadyExists { keyspace: keyspace.to_owned(), table: name };
        return if create.if_not_exists { Ok(None) } else { Err(error) };
    }
    let def = new_table(&schema, create, keyspace)?;
    tables_mut(&mut schema, keyspace)?.insert(name.clone(), Arc::new(def));
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
        let text = "Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead";
        schema
            .keyspaces
            .get(keyspace)
            .map_or(Ok(()), |k| view_checks::check_no_view(k, &alter.table.name, text))?;
        return if alter.if_exists { Ok(None) } else { missing(keyspace, &alter.table.name) };
    };
    let mut def = TableDef::clone(table);
    alter_table(&schema, &mut def, &alter.change, now_us)?;
    if def == **table {
        return Ok(None);
    }
    tables_mut(&mut schema, keyspace)?.insert(def.name.clone(), Arc::new(def));
    changed(schema, "UPDATED", SchemaTarget::Table, keyspace, &alter.table.name)
}

/// Drops a table.
pub(super) fn drop(
    mut schema: Schema,
    drop: &ast::DropObject,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let text = "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead.";
    schema
        .keyspaces
        .get(keyspace)
        .map_or(Ok(()), |k| view_checks::check_no_view(k, &drop.name.name, text))?;
    if schema.table(keyspace, &drop.name.name).is_some_and(|def| !def.views.is_empty()) {
        // As in Cassandra, the text names the keyspace.
        return Err(Error::Invalid(format!(
            "Cannot drop a table when materialized views still depend on it ({keyspace})"
        )));
    }
    let gone = match schema.keyspaces.contains_key(keyspace) {
        true => tables_mut(&mut schema, keyspace)?.remove(&drop.name.name),
        false => None,
    };
    let Some(gone) = gone else {
        return if drop.if_exists { Ok(None) } else { missing(keyspace, &drop.name.name) };
    };
    let mut step = changed(schema, "DROPPED", SchemaTarget::Table, keyspace, &drop.name.name)?;
    if let Some(step) = &mut step {
        step.change.iter_mut().for_each(|change| change.table_id = Some(gone.id));
        step.dropped = vec![gone];
    }
    Ok(step)
}

/// Returns a name as errors of CREATE TABLE show it: with the keyspace if the statement has it.
fn shown(name: &ast::QualifiedName) -> String {
    match &name.keyspace {
        Some(keyspace) => format!("{keyspace}.{}", name.name),
        None => name.name.clone(),
    }
}

/// Returns the error of definitions for a missing table. Statements about data have another one.
fn missing<T>(keyspace: &str, table: &str) -> Result<T, Error> {
    Err(Error::Invalid(format!("Table '{keyspace}.{table}' doesn't exist")))
}

fn new_table(schema: &Schema, create: &ast::CreateTable, keyspace: &str) -> Result<TableDef, Error> {
    if create.properties.compact_storage {
        return Err(Error::Invalid(
            "COMPACT STORAGE is not supported: the storage has one format for all tables; leave it out"
                .into(),
        ));
    }
    let columns = columns_of(schema, create, keyspace)?;
    let chosen = table_options::id(schema, &create.properties.options)?;
    let mut def = TableDef {
        id: chosen.unwrap_or(schema.version),
        keyspace: keyspace.to_owned(),
        name: create.table.name.clone(),
        next_column_id: columns.len() as u32,
        // An earlier table may have had the same identity: storage keeps the data under another.
        data: chosen.map(|_| schema.version),
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        columns,
        options: TableOptions::default(),
    };
    table_options::set(&mut def, &create.properties.options)?;
    def.sort_columns();
    number_columns(&mut def);
    for column in &create.columns {
        if let Some(mask) = &column.mask {
            set_mask(&mut def, &column.name, mask)?;
        }
    }
    def.validate().map_err(refused)?;
    Ok(def)
}

/// Sets the mask of an existing column.
fn set_mask(def: &mut TableDef, name: &str, mask: &ast::FunctionCall) -> Result<(), Error> {
    let Some((_, column)) = def.column(name) else { return Ok(()) };
    let (id, mask) = (column.id, masks::resolve(name, &column.ty, mask)?);
    def.masks.insert(id, mask);
    Ok(())
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
fn check_order(create: &ast::CreateTable) -> Result<(), Error> {
    let order = &create.properties.clustering_order;
    let mut seen = HashSet::new();
    if let Some((twice, _)) = order.iter().find(|(name, _)| !seen.insert(name)) {
        return Err(Error::Invalid(format!(
            "Duplicate column '{twice}' in CLUSTERING ORDER BY clause for table '{}'",
            shown(&create.table)
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
            return Err(Error::Invalid(format!("Static column '{name}' cannot be part of the PRIMARY KEY")));
        }
        if column.is_static && create.clustering.is_empty() {
            return Err(Error::Invalid(
                "Static columns are only useful (and thus allowed) if the table has \
                at least one clustering column"
                    .into(),
            ));
        }
        let ty = resolve(schema, keyspace, &column.ty)?;
        if has_open_field(&ty) {
            return Err(Error::Invalid(
                "Non-frozen UDTs with nested non-frozen collections are not supported".into(),
            ));
        }
        columns.push(ColumnDef { id: 0, name: name.clone(), ty, kind });
    }
    let table = shown(&create.table);
    let mut seen = HashSet::new();
    if let Some(twice) = columns.iter().find(|column| !seen.insert(&column.name)) {
        return Err(Error::Invalid(format!(
            "Duplicate column '{}' declaration for table '{table}'",
            twice.name
        )));
    }
    let mut seen = HashSet::new();
    for key in create.partition_key.iter().chain(&create.clustering) {
        if !columns.iter().any(|c| c.name == *key) {
            return Err(Error::Invalid(format!(
                "Unknown column '{key}' referenced in PRIMARY KEY for table '{}'",
                create.table.name
            )));
        }
        if !seen.insert(key) {
            return Err(Error::Invalid(format!(
                "Duplicate column '{key}' in PRIMARY KEY clause for table '{}'",
                create.table.name
            )));
        }
    }
    check_order(create)?;
    Ok(columns)
}

fn alter_table(
    schema: &Schema,
    def: &mut TableDef,
    change: &ast::TableChange,
    now_us: i64,
) -> Result<(), Error> {
    match change {
        ast::TableChange::Add { if_not_exists, columns } => add(schema, def, *if_not_exists, columns)?,
        ast::TableChange::Drop { if_exists, columns, timestamp } => {
            let timestamp = timestamp.as_ref().map(dropped::timestamp).transpose()?;
            for name in columns {
                indexes::check_free(def, name, "drop")?;
                view_checks::check_drop(def, name)?;
                dropped::drop(def, name, *if_exists, timestamp, now_us)?;
            }
        }
        ast::TableChange::Rename { columns, .. } => {
            rename(def, columns)?;
            view_checks::rename(def, columns)?;
        }
        ast::TableChange::Mask { if_exists, column, mask } => match (def.column(column), mask) {
            (Some(_), Some(mask)) => set_mask(def, column, mask)?,
            (Some((_, column)), None) => {
                let id = column.id;
                def.masks.remove(&id);
            }
            (None, _) if *if_exists => {}
            (None, _) => {
                return Err(Error::Invalid(format!(
                    "Column with name '{column}' doesn't exist on table '{}'",
                    def.name
                )));
            }
        },
        ast::TableChange::With(properties) => {
            table_options::check_altered(properties)?;
            table_options::set(def, &properties.options)?;
            view_checks::check_base(def)?;
        }
        ast::TableChange::Type { .. } => {
            return Err(Error::Invalid("Altering column types is no longer supported".into()));
        }
        ast::TableChange::DropCompactStorage => {
            return Err(Error::Invalid(
                "DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use.".into(),
            ));
        }
    }
    def.sort_columns();
    def.validate().map_err(refused)
}

/// Adds columns.
fn add(
    schema: &Schema,
    def: &mut TableDef,
    if_not_exists: bool,
    columns: &[ast::ColumnDefinition],
) -> Result<(), Error> {
    for column in columns {
        if def.column(&column.name).is_some() {
            if if_not_exists {
                continue;
            }
            return Err(Error::Invalid(format!("Column with name '{}' already exists", column.name)));
        }
        let ty = resolve(schema, &def.keyspace, &column.ty)?;
        check_counter(def, &column.name, &ty)?;
        if has_open_field(&ty) {
            return Err(Error::Invalid(format!(
                "Non-frozen UDTs with nested non-frozen collections are not supported for column {}",
                column.name
            )));
        }
        dropped::add(def, column, ty)?;
        if let Some(mask) = &column.mask {
            set_mask(def, &column.name, mask)?;
        }
    }
    Ok(())
}

/// Checks that a counter is added only to a table of counters, and nothing else to such a table.
fn check_counter(def: &TableDef, name: &str, ty: &CqlType) -> Result<(), Error> {
    let was_counter = def.dropped.values().any(|dropped| dropped.column.ty == CqlType::Counter);
    let is_empty = !def.columns.iter().any(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular));
    let (keyspace, table) = (&def.keyspace, &def.name);
    match (def.is_counter() || is_empty && was_counter, *ty == CqlType::Counter) {
        (true, false) => Err(Error::Config(format!(
            "{keyspace}.{table}: Cannot have a non counter column (\"{name}\") in a counter table"
        ))),
        (false, true) => Err(Error::Config(format!(
            "{keyspace}.{table}: Cannot have a counter column (\"{name}\") in a non counter table"
        ))),
        _ => Ok(()),
    }
}

/// Renames columns of the primary key. As in Cassandra, each new name must be free before any
/// column is renamed, and a missing column is an error even in a statement with `IF EXISTS`.
fn rename(def: &mut TableDef, columns: &[(String, String)]) -> Result<(), Error> {
    let before = def.clone();
    let table = format!("{}.{}", def.keyspace, def.name);
    for (from, to) in columns {
        let Some((at, column)) = before.column(from) else {
            return Err(Error::Invalid(format!("Undefined column name {from} in table {table}")));
        };
        if !matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..)) {
            return Err(Error::Invalid(format!("Cannot rename non PRIMARY KEY column {from}")));
        }
        indexes::check_free(&before, from, "rename")?;
        if before.column(to).is_some() {
            return Err(Error::Invalid(format!(
                "Cannot rename column {from} to {to} in table '{table}'; another column with that name already exists"
            )));
        }
        def.columns[at].name.clone_from(to);
        if columns.iter().filter(|(_, other)| other == to).count() > 1 {
            return Err(Error::Invalid(format!("expected new names that differ, got {to} twice")));
        }
    }
    Ok(())
}
