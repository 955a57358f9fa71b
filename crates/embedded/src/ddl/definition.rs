//! Definition statements: from a schema and a statement to the next schema. This module neither
//! stores nor sends anything.

mod dropped;
mod functions;
pub(crate) mod indexes;
mod keyspaces;
mod masks;
mod replication;
mod step;
pub(crate) mod storage_options;
mod table_options;
mod tables;
mod types;
mod vector_index;
mod view_checks;
pub(crate) mod views;

use cql::ast;
use engine::{Error, Schema};
use schema::DroppedColumn;
use uuid::Uuid;

use crate::system::own_tables::is_server_keyspace;

pub(crate) use step::{DefinitionStep, no_table};

/// Applies a statement. `None`: there is nothing to do (`IF EXISTS`, `IF NOT EXISTS`). `id` becomes
/// the version of the new schema and the identity of a new table. `now_us` is the time of the
/// statement, in microseconds.
pub(crate) fn apply(
    now: &Schema,
    statement: &ast::Statement,
    used: Option<&str>,
    id: Uuid,
    now_us: i64,
) -> Result<Option<DefinitionStep>, Error> {
    use ast::Statement as S;
    let schema = Schema { version: id, ..now.clone() };
    match statement {
        S::CreateKeyspace(create) => keyspaces::create(schema, create),
        S::AlterKeyspace(alter) => keyspaces::alter(schema, alter),
        S::DropKeyspace(drop) => keyspaces::drop(schema, drop),
        S::CreateTable(create) => tables::create(schema, create, &keyspace_of(&create.table, used)?),
        S::AlterTable(alter) => tables::alter(schema, alter, &keyspace_of(&alter.table, used)?, now_us),
        S::DropTable(drop) => tables::drop(schema, drop, &keyspace_of(&drop.name, used)?),
        S::CreateType(create) => types::create(schema, create, &keyspace_of(&create.name, used)?),
        S::AlterType(alter) => types::alter(schema, alter, &keyspace_of(&alter.name, used)?),
        S::DropType(drop) => types::drop(schema, drop, &keyspace_of(&drop.name, used)?),
        S::CreateIndex(create) => indexes::create(schema, create, used),
        S::DropIndex(drop) => indexes::drop(schema, drop, &keyspace_of(&drop.name, used)?),
        S::CreateMaterializedView(create) => views::create(schema, create, &keyspace_of(&create.name, used)?),
        S::AlterMaterializedView(alter) => views::alter(schema, alter, &keyspace_of(&alter.name, used)?),
        S::DropMaterializedView(drop) => views::drop(schema, drop, &keyspace_of(&drop.name, used)?),
        S::DropFunction(drop) => functions::drop("Function", drop, &keyspace_of(&drop.name, used)?),
        S::DropAggregate(drop) => functions::drop("Aggregate", drop, &keyspace_of(&drop.name, used)?),
        S::DropTrigger(drop) => functions::drop_trigger(drop, &keyspace_of(&drop.table, used)?),
        other => Err(unsupported(other)),
    }
}

/// Returns the error for a definition that this engine does not have.
pub(crate) fn unsupported(statement: &ast::Statement) -> Error {
    use ast::Statement as S;
    Error::Invalid(
        match statement {
            S::CreateFunction(_) => {
                "User-defined functions are not supported: their bodies are programs in Java or another language, \
                 which this server does not run. Compute in the client, or use the built-in functions"
            }
            S::CreateAggregate(_) => {
                "User-defined aggregates are not supported: they consist of user-defined functions, which this server \
                 does not run. Use the built-in aggregates, or aggregate with SQL"
            }
            S::CreateTrigger(_) => {
                "Triggers are not supported: a trigger is a Java class, which this server does not run. Write both \
                 tables in one batch"
            }
            _ => "This statement is not supported",
        }
        .into(),
    )
}

/// Columns that a statement adds again with the cells that their DROP has kept, and their table.
/// The cells that it dropped must be removed first.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Revived {
    /// Identity of the table's data.
    pub(crate) data: Uuid,
    /// The columns; none for most statements.
    pub(crate) columns: Vec<DroppedColumn>,
}

/// Returns the columns that a statement revives.
pub(crate) fn revived(now: &Schema, statement: &ast::Statement, used: Option<&str>) -> Revived {
    let ast::Statement::AlterTable(alter) = statement else { return Revived::default() };
    let ast::TableChange::Add { columns, .. } = &alter.change else { return Revived::default() };
    let table =
        keyspace_of(&alter.table, used).ok().and_then(|keyspace| now.table(&keyspace, &alter.table.name));
    let Some(def) = table else { return Revived::default() };
    let dropped = columns.iter().filter(|column| def.column(&column.name).is_none());
    let kept =
        dropped.filter_map(|column| def.dropped.get(&column.name)).filter(|dropped| dropped.keeps_later);
    Revived { data: def.data_id(), columns: kept.cloned().collect() }
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
