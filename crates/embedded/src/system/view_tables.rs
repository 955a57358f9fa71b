//! Virtual tables about the building of materialized views and indexes, as tools read them:
//! `system.built_views`, `system.view_builds_in_progress` and `system."IndexInfo"`.
//! `system_views.sstable_tasks` has the progress.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::{LaterRows, Schema, Subject, VirtualRow, VirtualTable};
use schema::{CqlType, TableDef, ViewDef};
use uuid::Uuid;

/// Progress of a build since the server has started.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BuildProgress {
    /// Partitions that were read.
    pub(crate) partitions: u64,
    /// The least token that a core has reached.
    pub(crate) token: i64,
}

/// Progress of the builds in flight, by the data of the index or view.
pub(crate) type Progress = lanes::LocalBoxFuture<'static, HashMap<Uuid, BuildProgress>>;

/// Returns the tables. `schema` returns the current schema, and `progress` that of builds.
pub(crate) fn tables(
    schema: impl Fn() -> Arc<Schema> + Clone + 'static,
    progress: impl Fn() -> Progress + 'static,
) -> [VirtualTable; 3] {
    [built(schema.clone()), in_progress(schema.clone(), progress), indexes(schema)]
}

fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
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

/// Name of a view, in the order of names, and its data.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Built {
    keyspace: String,
    name: String,
    data: Uuid,
}

/// Returns the views that are built, or those that are not, in order.
fn views(schema: &Schema, are_built: bool) -> Vec<Built> {
    let all = schema.keyspaces.values().flat_map(|keyspace| keyspace.views());
    let wanted = all.filter(|(_, view)| view.is_built == are_built);
    let own = |(base, view): (&Arc<TableDef>, &ViewDef)| Built {
        keyspace: base.keyspace.clone(),
        name: view.name.clone(),
        data: view.data,
    };
    let mut views: Vec<Built> = wanted.map(own).collect();
    views.sort_unstable();
    views
}

fn built(schema: impl Fn() -> Arc<Schema> + 'static) -> VirtualTable {
    use CqlType::{Boolean, Text};
    let columns = [("keyspace_name", Text), ("view_name", Text), ("status_replicated", Boolean)];
    let rows = move || -> Vec<VirtualRow> {
        let row = |view: Built| vec![text(&view.keyspace), text(&view.name), Some(Bytes::from_static(&[1]))];
        views(&schema(), true).into_iter().map(row).collect()
    };
    VirtualTable::new("system", "built_views", 1, 1, &columns, rows).about(Subject::Keyspace(0))
}

fn in_progress(
    schema: impl Fn() -> Arc<Schema> + 'static,
    progress: impl Fn() -> Progress + 'static,
) -> VirtualTable {
    use CqlType::{BigInt, Text};
    let columns = [
        ("keyspace_name", Text),
        ("view_name", Text),
        ("start_token", Text),
        ("end_token", Text),
        ("keys_built", BigInt),
        ("last_token", Text),
    ];
    let rows = move |_| -> LaterRows {
        let (schema, progress) = (schema(), progress());
        Box::pin(async move {
            let progress = progress.await;
            let (start, end) = (i64::MIN.to_string(), i64::MAX.to_string());
            let row = |view: Built| {
                let reached = progress.get(&view.data);
                let partitions = reached.map(|own| Bytes::copy_from_slice(&own.partitions.to_be_bytes()));
                let token = reached.and_then(|own| text(&own.token.to_string()));
                let ends = [text(&start), text(&end), partitions, token];
                [text(&view.keyspace), text(&view.name)].into_iter().chain(ends).collect()
            };
            views(&schema, false).into_iter().map(row).collect()
        })
    };
    VirtualTable::new("system", "view_builds_in_progress", 1, 3, &columns, Vec::new)
        .in_chunks(rows)
        .about(Subject::Keyspace(0))
}
