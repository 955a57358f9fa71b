//! Virtual tables about the building of materialized views, as tools read them:
//! `system.built_views` and `system.view_builds_in_progress`. `system_views.sstable_tasks` has the
//! progress.

use std::sync::Arc;

use bytes::Bytes;
use engine::{Schema, Subject, VirtualRow, VirtualTable};
use schema::CqlType;

/// Returns the tables. `schema` returns the current schema.
pub(crate) fn tables(schema: impl Fn() -> Arc<Schema> + Clone + 'static) -> [VirtualTable; 2] {
    [built(schema.clone()), in_progress(schema)]
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
