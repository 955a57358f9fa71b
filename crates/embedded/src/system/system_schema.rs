//! `system_schema` and `system_virtual_schema`: the schema as tables. Drivers read them when they
//! connect.
//!
//! Columns, types and keys are those of Cassandra 5.0. As there, `system`, `system_schema` and
//! similar keyspaces count as real, with the replication class `LocalStrategy`, although their rows
//! are created on request. Only the keyspaces in [`VIRTUAL_KEYSPACES`](engine::VIRTUAL_KEYSPACES)
//! are shown as virtual. Features that this database lacks (functions, triggers, …)
//! have an empty table, because drivers query it.

mod layout;
mod options;
mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use engine::{Schema, StreamedRows, Subject, VirtualTable};
use schema::{CqlType, TableDef};

use rows::Snapshot;

/// Index of the column `keyspace_name`, in each of these tables.
const KEYSPACE_COLUMN: usize = 0;

/// Returns the tables of `system_schema` and `system_virtual_schema`. `schema` returns the
/// keyspaces of the engine. `registry_defs` returns the definitions of all virtual tables,
/// including these once they are registered.
pub(crate) fn tables(
    schema: impl Fn() -> Arc<Schema> + Clone + 'static,
    registry_defs: impl Fn() -> Vec<Arc<TableDef>> + Clone + 'static,
) -> Vec<VirtualTable> {
    let option_defaults: Arc<[Option<Bytes>]> = options::defaults().into();
    let snapshot = move || Snapshot {
        schema: schema(),
        registry_defs: registry_defs().into(),
        option_defaults: option_defaults.clone(),
    };
    layout::layouts()
        .into_iter()
        .map(|layout| {
            let columns: Vec<(&str, CqlType)> =
                layout.columns.iter().map(|(name, ty)| (*name, options::column_type(ty))).collect();
            let (snapshot, subject) = (snapshot.clone(), Subject::Keyspace(KEYSPACE_COLUMN));
            let rows = move || -> StreamedRows {
                let snapshot = snapshot();
                Arc::new(move || (layout.rows)(&snapshot))
            };
            VirtualTable::new(layout.keyspace, layout.name, 1, layout.clustering, &columns, Vec::new)
                .streamed(rows)
                .about(subject)
                .commented(comment(layout.keyspace, layout.name))
        })
        .collect()
}

/// Returns Cassandra's comment on a table.
fn comment(keyspace: &str, table: &str) -> &'static str {
    match (keyspace, table) {
        ("system_virtual_schema", "keyspaces") => "virtual keyspace definitions",
        ("system_virtual_schema", "tables") => "virtual table definitions",
        ("system_virtual_schema", "columns") => "virtual column definitions",
        _ => "",
    }
}
