//! `system_schema` and `system_virtual_schema`: the schema as tables, as drivers read it when they connect.
//!
//! Columns, types and keys are Cassandra 5.0's. As there, `system`, `system_schema` and their like count as real
//! keyspaces with the replication class `LocalStrategy`, although their tables are made when asked for; only the
//! keyspaces in [`VIRTUAL_KEYSPACES`] are shown as virtual. What this database does not have (functions, triggers,
//! indexes, views, …) is an empty table, because drivers ask for it all the same.

mod layout;
mod options;
mod rows;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use ::schema::{CqlType, TableDef};
use bytes::Bytes;

use crate::{Schema, Subject, VirtualTable};

/// The keyspaces that clients are told are virtual; every other one is real to them.
pub const VIRTUAL_KEYSPACES: [&str; 3] = ["fairlane", "system_views", "system_virtual_schema"];

/// The place of `keyspace_name`, in every one of these tables.
const KEYSPACE_COLUMN: usize = 0;

/// A row: a cell a column.
type Row = Vec<Option<Bytes>>;

/// Where the rows come from, looked at anew for every query.
#[derive(Clone)]
struct Source {
    schema: Rc<dyn Fn() -> Arc<Schema>>,
    registry_defs: Rc<dyn Fn() -> Vec<Arc<TableDef>>>,
    /// What the options of `system_schema.tables` are where a table says nothing, in the order of [`options::ALL`].
    option_defaults: Rc<[Option<Bytes>]>,
}

/// The tables of `system_schema` and `system_virtual_schema`. `schema` gives the engine's keyspaces,
/// `registry_defs` the definitions of all virtual tables, these ones included once they are registered.
pub fn tables(
    schema: impl Fn() -> Arc<Schema> + Clone + 'static,
    registry_defs: impl Fn() -> Vec<Arc<TableDef>> + Clone + 'static,
) -> Vec<VirtualTable> {
    let source = Source {
        schema: Rc::new(schema),
        registry_defs: Rc::new(registry_defs),
        option_defaults: options::defaults().into(),
    };
    layout::layouts()
        .into_iter()
        .map(|layout| {
            let columns: Vec<(&str, CqlType)> =
                layout.columns.iter().map(|(name, ty)| (*name, layout::column_type(ty))).collect();
            let source = source.clone();
            VirtualTable::new(layout.keyspace, layout.name, 1, layout.clustering, &columns, move || {
                (layout.rows)(&source)
            })
            .about(Subject::Keyspace(KEYSPACE_COLUMN))
        })
        .collect()
}
