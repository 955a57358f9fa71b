//! Effects of definitions of tables and indexes on the views of a table. Texts are Cassandra's.

use cql::ast::{Relation, Statement};
use engine::{Error, Keyspace};
use schema::{ColumnDef, ColumnKind, TableDef};

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

/// Returns an error with this text if the name is that of a view.
pub(super) fn check_no_view(keyspace: &Keyspace, name: &str, text: &str) -> Result<(), Error> {
    if keyspace.view(name).is_some() { invalid(text) } else { Ok(()) }
}

/// Returns relations as `system_schema.views` shows them.
pub(super) fn text_of(relations: &[Relation]) -> String {
    relations.iter().map(ToString::to_string).collect::<Vec<_>>().join(" AND ")
}

/// Checks that a column may be dropped. As in Cassandra, a table with views keeps all columns.
pub(super) fn check_drop(def: &TableDef, name: &str) -> Result<(), Error> {
    let is_other = |column: &ColumnDef| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular);
    match def.column(name) {
        Some((_, column)) if is_other(column) && !def.views.is_empty() => {
            invalid(format!("Cannot drop column {name} on base table {} with materialized views", def.name))
        }
        _ => Ok(()),
    }
}

/// Checks the options of a table with views.
pub(super) fn check_base(def: &TableDef) -> Result<(), Error> {
    match def.options.gc_grace_seconds == 0 && !def.views.is_empty() {
        true => invalid(
            "Cannot alter gc_grace_seconds of the base table of a materialized view to 0, since this value is used \
             to TTL undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire \
             before being replayed.",
        ),
        false => Ok(()),
    }
}

/// Renames columns in the WHERE of views, from old names to new ones.
pub(super) fn rename(def: &mut TableDef, renamed: &[(String, String)]) -> Result<(), Error> {
    for view in &mut def.views {
        let text = format!("SELECT * FROM t WHERE {}", view.where_clause);
        let Ok(Statement::Select(mut select)) = cql::parse(&text) else {
            return Err(Error::Server(format!("the WHERE of view {} cannot be read", view.name)));
        };
        for column in select.relations.iter_mut().flat_map(Relation::columns_mut) {
            if let Some((_, to)) = renamed.iter().find(|(from, _)| from == column) {
                column.clone_from(to);
            }
        }
        view.where_clause = text_of(&select.relations);
    }
    Ok(())
}
