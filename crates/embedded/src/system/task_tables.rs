//! Virtual tables about work on files: `system_views.sstable_tasks` and
//! `system.compaction_history`. They have the names and columns of Cassandra, and some additional
//! columns.
//!
//! A role sees only rows about tables that it has a permission on. Each core has its own rows.

use std::collections::HashMap;
use std::rc::Weak;
use std::sync::Arc;

use bytes::Bytes;
use engine::{About, LaterRows, Schema, Subject, Viewer, VirtualRow, VirtualTable};
use schema::{CqlType, TableDef};
use storage::{Compacted, Task, TaskKind};

use crate::Embedded;
use crate::system::own_tables::OWN_TABLES;
use crate::system::table_view;

/// Table definitions processed between two yields.
const TABLES_AT_ONCE: usize = 500;

/// Definitions by the identity of their data, to find the names of storage's tables.
pub(crate) struct VisibleTables {
    tables: HashMap<u128, Arc<TableDef>>,
    viewer: Option<Arc<dyn Viewer>>,
}

impl VisibleTables {
    /// Collects the definitions of a schema. The viewer decides which of them are visible.
    pub(crate) async fn of(schema: &Schema, viewer: Option<Arc<dyn Viewer>>) -> VisibleTables {
        let mut tables = HashMap::new();
        for def in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            tables.insert(def.data_id().as_u128(), def.clone());
            if tables.len() % TABLES_AT_ONCE == 0 && lanes::spend(TABLES_AT_ONCE as u32) {
                lanes::yield_now().await;
            }
        }
        VisibleTables { tables, viewer }
    }

    /// Returns the keyspace and name of a table that the viewer may see. `None` as the table stands
    /// for all tables together.
    pub(crate) fn name(&self, table: Option<u128>) -> Option<(&str, &str)> {
        let sees = |about| self.viewer.as_ref().is_none_or(|viewer| viewer.sees(about));
        let Some(table) = table else {
            return sees(About::AllKeyspaces).then_some(("system", "all"));
        };
        if let Some(def) = self.tables.get(&table) {
            return sees(About::Table(&def.keyspace, &def.name, def.id.as_u128()))
                .then_some((&*def.keyspace, &*def.name));
        }
        let (_, name) = OWN_TABLES.into_iter().find(|(id, _)| id.0 == table)?;
        sees(About::AllKeyspaces).then_some(("system", name))
    }

    /// Returns the definitions that the viewer may see, ordered by keyspace and name.
    pub(crate) fn visible(&self) -> Vec<Arc<TableDef>> {
        let is_shown = |def: &&Arc<TableDef>| self.name(Some(def.data_id().as_u128())).is_some();
        let mut visible: Vec<_> = self.tables.values().filter(is_shown).cloned().collect();
        visible.sort_unstable_by(|a, b| (&a.keyspace, &a.name).cmp(&(&b.keyspace, &b.name)));
        visible
    }

    /// Returns true if the viewer may see the data of a table.
    pub(crate) fn shows_data(&self, def: &TableDef) -> bool {
        let about = About::Data(&def.keyspace, &def.name, def.id.as_u128());
        // Keys may be masked.
        let clear = About::Unmasked(&def.keyspace, &def.name, def.id.as_u128());
        let is_clear = |viewer: &Arc<dyn Viewer>| def.masks.is_empty() || viewer.sees(clear);
        self.viewer.as_ref().is_none_or(|viewer| viewer.sees(about) && is_clear(viewer))
    }
}

pub(crate) fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

pub(crate) fn bigint(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes()))
}

pub(crate) fn int(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i32::try_from(number).unwrap_or(i32::MAX).to_be_bytes()))
}

pub(crate) fn double(number: f64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&number.to_be_bytes()))
}

/// Builds the identity of a task of this core from its time, its number and the core.
fn task_id(at_s: u32, number: u64) -> Option<Bytes> {
    let clock_and_node = (lanes::current_core() as u64) << 40 | number & ((1 << 40) - 1);
    let id = schema::value::timeuuid(i64::from(at_s) * 10_000_000, clock_and_node);
    Some(Bytes::copy_from_slice(&id))
}

/// Adds the tables to a core's registry.
pub(crate) fn register(engine: &Embedded) {
    engine.registry.add(tasks(engine.me.clone()));
    engine.registry.add(history(engine.me.clone()));
    table_view::register(engine);
}

fn tasks(me: Weak<Embedded>) -> VirtualTable {
    use CqlType::{BigInt, Double, Int, Text, TimeUuid};
    let columns = [
        ("keyspace_name", Text),
        ("table_name", Text),
        ("task_id", TimeUuid),
        ("completion_ratio", Double),
        ("core", Int),
        ("kind", Text),
        ("progress", BigInt),
        ("sstables", Int),
        ("total", BigInt),
        ("unit", Text),
    ];
    let rows = move |viewer: Option<Arc<dyn Viewer>>| -> LaterRows {
        let me = me.clone();
        Box::pin(async move {
            let Some(engine) = me.upgrade() else { return Vec::new() };
            let names = VisibleTables::of(&engine.current.schema(), viewer).await;
            engine.shard.running_tasks().iter().filter_map(|task| task_row(task, &names)).collect()
        })
    };
    VirtualTable::new("system_views", "sstable_tasks", 1, 2, &columns, Vec::new)
        .in_chunks(rows)
        .of_every_core()
        .about(Subject::Keyspace(0))
}

fn task_row(task: &Task, names: &VisibleTables) -> Option<VirtualRow> {
    let (keyspace, table) = names.name(task.table.map(|table| table.0))?;
    let (done, total) = (task.progress.bytes_done(), task.progress.bytes_total());
    let ratio = if total == 0 { 0.0 } else { done as f64 / total as f64 };
    Some(vec![
        text(keyspace),
        text(table),
        task_id(task.began_s, task.number),
        double(ratio),
        int(lanes::current_core() as u64),
        text(task.kind.name()),
        bigint(done),
        int(task.files),
        bigint(total),
        text(match task.kind {
            TaskKind::Snapshot => "files",
            TaskKind::IndexBuild => "parts",
            _ => "bytes",
        }),
    ])
}

/// Index of `keyspace_name` in `system.compaction_history`.
const HISTORY_KEYSPACE: usize = 6;

fn history(me: Weak<Embedded>) -> VirtualTable {
    use CqlType::{BigInt, Int, Map, Text, TimeUuid, Timestamp};
    let columns = [
        ("id", TimeUuid),
        ("bytes_in", BigInt),
        ("bytes_out", BigInt),
        ("columnfamily_name", Text),
        ("compacted_at", Timestamp),
        ("compaction_properties", Map(Box::new(Text), Box::new(Text))),
        ("keyspace_name", Text),
        ("rows_merged", Map(Box::new(Int), Box::new(BigInt))),
        ("core", Int),
        ("duration_ms", BigInt),
        ("tombstones_dropped", BigInt),
    ];
    assert_eq!(columns[HISTORY_KEYSPACE].0, "keyspace_name", "visibility of rows depends on this column");
    let rows = move |viewer: Option<Arc<dyn Viewer>>| -> LaterRows {
        let me = me.clone();
        Box::pin(async move {
            let Some(engine) = me.upgrade() else { return Vec::new() };
            let names = VisibleTables::of(&engine.current.schema(), viewer).await;
            let mut rows = Vec::new();
            for compaction in engine.shard.compaction_history() {
                rows.extend(history_row(&compaction, &names));
                if lanes::spend(10) {
                    lanes::yield_now().await;
                }
            }
            rows
        })
    };
    VirtualTable::new("system", "compaction_history", 1, 0, &columns, Vec::new)
        .in_chunks(rows)
        .of_every_core()
        .about(Subject::Keyspace(HISTORY_KEYSPACE))
}

fn history_row(compaction: &Compacted, names: &VisibleTables) -> Option<VirtualRow> {
    let (keyspace, table) = names.name(Some(compaction.table.0))?;
    let tally = &compaction.tally;
    let kind = compaction.kind.name();
    let properties = schema::value::encode_map([(&b"compaction_type"[..], kind.as_bytes())].into_iter());
    let merged: Vec<([u8; 4], [u8; 8])> = (1..)
        .zip(tally.partitions)
        .filter(|(_, count)| *count > 0)
        .map(|(runs, count): (i32, u64)| (runs.to_be_bytes(), count.to_be_bytes()))
        .collect();
    let merged = schema::value::encode_map(merged.iter().map(|(runs, count)| (&runs[..], &count[..])));
    Some(vec![
        task_id(compaction.ended_s, compaction.number),
        bigint(tally.bytes_in),
        bigint(tally.bytes_out),
        text(table),
        bigint(u64::from(compaction.ended_s) * 1000),
        Some(properties.into()),
        text(keyspace),
        Some(merged.into()),
        int(lanes::current_core() as u64),
        bigint(compaction.duration_ms),
        bigint(tally.tombstones_in.saturating_sub(tally.tombstones_out)),
    ])
}
