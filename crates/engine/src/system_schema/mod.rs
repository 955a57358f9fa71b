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

use std::sync::Arc;

use ::schema::{CqlType, TableDef};
use bytes::Bytes;

use crate::{LaterRows, Schema, Subject, Viewer, VirtualTable};

/// The keyspaces that clients are told are virtual; every other one is real to them.
pub const VIRTUAL_KEYSPACES: [&str; 3] = ["fairlane", "system_views", "system_virtual_schema"];

/// The place of `keyspace_name`, in every one of these tables.
const KEYSPACE_COLUMN: usize = 0;

/// A row: a cell a column.
type Row = Vec<Option<Bytes>>;

/// Rows of one definition after the other, each made when it is asked for.
type Chunks = Box<dyn Iterator<Item = Vec<Row>> + Send>;

/// The definitions that rows are made of, taken anew for every query.
#[derive(Clone)]
struct Snapshot {
    schema: Arc<Schema>,
    registry_defs: Arc<[Arc<TableDef>]>,
    /// What the options of `system_schema.tables` are where a table says nothing, in the order of [`options::ALL`].
    option_defaults: Arc<[Option<Bytes>]>,
}

/// Rows that are made on the fast lane; a heavy lane makes the rest. So clients read the schema of few tables without a lane switch.
const ROWS_INLINE: usize = 100;

/// Work units of making a row: eight cells, each with memory of its own.
const ROW_UNITS: u32 = 5;

/// Makes the rows that the viewer is shown.
async fn make(mut chunks: Chunks, subject: Subject, viewer: Option<Arc<dyn Viewer>>) -> Vec<Row> {
    let mut rows = Vec::new();
    while rows.len() < ROWS_INLINE {
        let Some(chunk) = chunks.next() else { return rows };
        let _ = lanes::spend(ROW_UNITS.saturating_mul(chunk.len() as u32));
        rows.extend(chunk);
    }
    let rest = async move {
        for mut chunk in chunks {
            subject.show(viewer.as_deref(), &mut chunk);
            rows.extend(chunk);
            lanes::heavy_yield().await;
        }
        rows
    };
    lanes::heavy(lanes::current_group(), rest).await
}

/// The tables of `system_schema` and `system_virtual_schema`. `schema` gives the engine's keyspaces,
/// `registry_defs` the definitions of all virtual tables, these ones included once they are registered.
pub fn tables(
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
                layout.columns.iter().map(|(name, ty)| (*name, layout::column_type(ty))).collect();
            let (snapshot, subject) = (snapshot.clone(), Subject::Keyspace(KEYSPACE_COLUMN));
            let rows =
                move |viewer| -> LaterRows { Box::pin(make((layout.rows)(&snapshot()), subject, viewer)) };
            VirtualTable::new(layout.keyspace, layout.name, 1, layout.clustering, &columns, Vec::new)
                .in_chunks(rows)
                .about(subject)
        })
        .collect()
}
