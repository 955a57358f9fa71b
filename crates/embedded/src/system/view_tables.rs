//! Virtual tables about the building of materialized views and indexes, as tools read them:
//! `system.built_views`, `system.view_builds_in_progress` and `system."IndexInfo"`.
//! `system_views.sstable_tasks` has the progress.

use std::sync::Arc;

use bytes::Bytes;
use engine::{Schema, Subject, VirtualRow, VirtualTable};
use schema::CqlType;

/// Returns the tables. `schema` returns the current schema.
pub(crate) fn tables(schema: impl Fn() -> Arc<Schema> + Clone + 'static) -> [VirtualTable; 3] {
    [built(schema.clone()), in_progress(schema.clone()), indexes(schema)]
}

/// Returns the table of built indexes. Its `table_name` is a keyspace, as in Cassandra.
fn indexes(schema: impl Fn() -> Arc<Schema> + 'static) -> VirtualTable {
    use CqlType::{Blob, Text};
    let columns = [("table_name", Text), ("index_name", Text), ("value", Blob)];
    let rows = move || -> Vec<VirtualRow> {
        let schema = schema();
        let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let all = tables.flat_map(|def| def.indexes.iter().map(move |index| (def, index)));
        let built = all.filter(|(_, index)| index.is_built);
        let mut names: Vec<_> = built.map(|(def, index)| (&*def.keyspace, &*index.name)).collect();
        names.sort_unstable();
        names.into_iter().map(|(keyspace, index)| vec![text(keyspace), text(index), None]).collect()
    };
    VirtualTable::new("system", "IndexInfo", 1, 1, &columns, rows).about(Subject::Keyspace(0))
}

/// Returns the keyspaces and names of views that are built, or of those that are not, in order.
fn views(schema: &Schema, are_built: bool) -> Vec<(String, String)> {
    let all = schema.keyspaces.values().flat_map(|keyspace| keyspace.views());
    let wanted = all.filter(|(_, view)| view.is_built == are_built);
    let mut views: Vec<_> = wanted.map(|(base, view)| (base.keyspace.clone(), view.name.clone())).collect();
    views.sort_unstable();
    views
}

fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn built(schema: impl Fn() -> Arc<Schema> + 'static) -> VirtualTable {
    use CqlType::{Boolean, Text};
    let columns = [("keyspace_name", Text), ("view_name", Text), ("status_replicated", Boolean)];
    let rows = move || -> Vec<VirtualRow> {
        let row = |(keyspace, view): (String, String)| {
            vec![text(&keyspace), text(&view), Some(Bytes::from_static(&[1]))]
        };
        views(&schema(), true).into_iter().map(row).collect()
    };
    VirtualTable::new("system", "built_views", 1, 1, &columns, rows).about(Subject::Keyspace(0))
}

fn in_progress(schema: impl Fn() -> Arc<Schema> + 'static) -> VirtualTable {
    use CqlType::{BigInt, Text};
    let columns = [
        ("keyspace_name", Text),
        ("view_name", Text),
        ("start_token", Text),
        ("end_token", Text),
        ("keys_built", BigInt),
        ("last_token", Text),
    ];
    let rows = move || -> Vec<VirtualRow> {
        let (start, end) = (i64::MIN.to_string(), i64::MAX.to_string());
        let row = |(keyspace, view): (String, String)| {
            vec![text(&keyspace), text(&view), text(&start), text(&end), None, None]
        };
        views(&schema(), false).into_iter().map(row).collect()
    };
    VirtualTable::new("system", "view_builds_in_progress", 1, 3, &columns, rows).about(Subject::Keyspace(0))
}
