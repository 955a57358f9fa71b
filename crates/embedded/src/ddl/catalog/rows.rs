//! The schema as rows, one per keyspace, table and user type. The cost of a change is proportional
//! to its edits.
//!
//! ```text
//! clustering                 value (cell 0)
//! v                          version, 16 bytes; without it the rows are ignored
//! f                          format of the rows, one byte; missing in those of the first one
//! k keyspace                 keyspace definition, JSON
//! t keyspace 00 table        table definition, JSON, including the user types that it uses
//! y keyspace 00 type         type definition, JSON
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Error, Keyspace, Schema};
use schema::{KeyspaceDef, TableDef, UdtType, Weight};
use serde::Serialize;
use serde::de::DeserializeOwned;
use storage::{CellRef, Change, Deletion, Liveness, PartitionView, RowBuilder};
use uuid::Uuid;

/// Row of the version.
pub(super) const VERSION: &[u8] = b"v";

/// Row of the format.
pub(super) const FORMAT: &[u8] = b"f";

/// Format of the rows that are written. Programs without formats refuse rows of kinds that they do
/// not know. They would not see that a user type is extensible.
pub(super) const FORMAT_VERSION: u8 = 1;

/// Format of the rows of a schema with indexes or masks. Programs that do not know it refuse to
/// start: they would write rows without entries, or show masked values.
const FORMAT_WITH_PARTS: u8 = 2;

/// The same for a schema with materialized views.
const FORMAT_WITH_VIEWS: u8 = 3;

/// Returns the format of the rows of a schema.
pub(super) fn format_of(schema: &Schema) -> u8 {
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let needed =
        tables.map(|def| match (def.indexes.is_empty() && def.masks.is_empty(), def.views.is_empty()) {
            (_, false) => FORMAT_WITH_VIEWS,
            (false, true) => FORMAT_WITH_PARTS,
            (true, true) => FORMAT_VERSION,
        });
    needed.max().unwrap_or(FORMAT_VERSION)
}

/// Row to write: its clustering key, and its value or `None` to delete it.
pub(super) type Edit = (Vec<u8>, Option<Vec<u8>>);

fn place(kind: u8, keyspace: &str, name: &str) -> Vec<u8> {
    let mut place = vec![kind];
    place.extend_from_slice(keyspace.as_bytes());
    if kind != b'k' {
        place.push(0);
        place.extend_from_slice(name.as_bytes());
    }
    place
}

fn json(definition: &impl Serialize) -> Option<Vec<u8>> {
    Some(serde_json::to_vec(definition).expect("definitions have no maps with keys other than text"))
}

fn same<T>(one: Option<&Arc<T>>, other: &Arc<T>) -> bool {
    one.is_some_and(|one| Arc::ptr_eq(one, other))
}

/// Returns the rows that differ between two schemas, without that of the version. Skips definitions
/// that both share.
pub(super) fn edits(before: &Schema, after: &Schema) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (name, keyspace) in &after.keyspaces {
        let old = before.keyspaces.get(name);
        if same(old, keyspace) {
            continue;
        }
        if old.is_none_or(|old| old.def != keyspace.def) {
            edits.push((place(b'k', name, ""), json(&keyspace.def)));
        }
        for (table, def) in &keyspace.tables {
            if !same(old.and_then(|old| old.tables.get(table)), def) {
                edits.push((place(b't', name, table), json(&**def)));
            }
        }
        for (udt, def) in &keyspace.types {
            if !same(old.and_then(|old| old.types.get(udt)), def) {
                edits.push((place(b'y', name, udt), json(&**def)));
            }
        }
    }
    for (name, old) in &before.keyspaces {
        let keyspace = after.keyspaces.get(name);
        if same(keyspace, old) {
            continue;
        }
        if keyspace.is_none() {
            edits.push((place(b'k', name, ""), None));
        }
        let gone = |exists: bool, kind, of: &String| (!exists).then(|| (place(kind, name, of), None));
        edits.extend(old.tables.keys().filter_map(|table| {
            gone(keyspace.is_some_and(|keyspace| keyspace.tables.contains_key(table)), b't', table)
        }));
        edits.extend(old.types.keys().filter_map(|udt| {
            gone(keyspace.is_some_and(|keyspace| keyspace.types.contains_key(udt)), b'y', udt)
        }));
    }
    edits
}

/// Returns the tables that are new or changed.
pub(super) fn changed_tables(before: &Schema, after: &Schema) -> Vec<Arc<TableDef>> {
    let mut changed = Vec::new();
    for (name, keyspace) in &after.keyspaces {
        let old = before.keyspaces.get(name);
        if !same(old, keyspace) {
            let is_new = |def: &&Arc<TableDef>| !same(old.and_then(|old| old.tables.get(&def.name)), def);
            changed.extend(keyspace.tables.values().filter(is_new).cloned());
        }
    }
    changed
}

/// Bytes of a table on each core without its definition: its statistics, and its place in storage.
const TABLE_CORE_BYTES: u64 = 2 << 10;
/// Bytes of a column on each core: its layout in storage.
const COLUMN_CORE_BYTES: u64 = 32;

/// Returns the weight of a whole schema. Stops counting above `limit` bytes.
pub(super) fn weight(schema: &Schema, limit: u64) -> u64 {
    difference(&Schema::default(), schema, limit).1
}

/// Returns the weights of the definitions that differ between two schemas: those that only `before`
/// has, and those that only `after` has. Stops counting above `limit` bytes.
pub(super) fn difference(before: &Schema, after: &Schema, limit: u64) -> (u64, u64) {
    (weight_of_others(before, after, limit), weight_of_others(after, before, limit))
}

/// Returns the weight of the definitions of a schema that another one does not share.
fn weight_of_others(schema: &Schema, other: &Schema, limit: u64) -> u64 {
    let (mut weight, mut on_cores) = (Weight::up_to(limit), 0);
    for (name, keyspace) in &schema.keyspaces {
        let shared = other.keyspaces.get(name);
        if same(shared, keyspace) {
            continue;
        }
        if shared.is_none_or(|shared| shared.def != keyspace.def) {
            weight.keyspace(&keyspace.def);
        }
        for (table, def) in &keyspace.tables {
            if !same(shared.and_then(|shared| shared.tables.get(table)), def) {
                weight.table(def);
                on_cores += TABLE_CORE_BYTES + COLUMN_CORE_BYTES * def.columns.len() as u64;
            }
        }
        for (udt, def) in &keyspace.types {
            if !same(shared.and_then(|shared| shared.types.get(udt)), def) {
                weight.user_type(def);
            }
        }
        if weight.is_over() {
            break;
        }
    }
    weight.bytes().saturating_add(on_cores * lanes::cores() as u64)
}

/// Returns the change that writes a row.
pub(super) fn change((place, value): &Edit, timestamp: i64, now_s: u32) -> Change {
    let mut row = RowBuilder::new(&[], place, timestamp);
    match value {
        Some(value) => {
            row.marker(Some(Liveness { timestamp, expiry: None }));
            row.push(CellRef::live(0, timestamp, value));
        }
        None => row.deletion(Some(Deletion { timestamp, deleted_at_s: now_s })),
    }
    Change::Row(row.finish())
}

/// Parses the schema from its rows. Returns it with the greatest timestamp among them; `None`
/// without a version.
pub(super) fn parse(view: &PartitionView) -> Result<Option<(Schema, i64)>, Error> {
    let mut schema = Schema::default();
    let (mut versioned, mut last_us) = (false, i64::MIN);
    let mut inside: Vec<(TableOrType, String)> = Vec::new();
    for row in view.rows() {
        let Some(cell) = row.cell(0) else { continue };
        last_us = last_us.max(cell.timestamp);
        let Some((value, (kind, name))) = cell.value().zip(row.clustering().split_first()) else { continue };
        let keyspace = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let keyspace = String::from_utf8_lossy(keyspace).into_owned();
        match kind {
            b'v' => {
                schema.version = Uuid::from_slice(value).map_err(|error| damaged(&error))?;
                versioned = true;
            }
            b'f' if matches!(value, [f] if (FORMAT_VERSION..=FORMAT_WITH_VIEWS).contains(f)) => {}
            b'f' => {
                return Err(Error::Server(format!(
                    "the stored schema has format version {}, expected at most {FORMAT_WITH_VIEWS}; start the \
                     version of the server that wrote it",
                    value.first().unwrap_or(&0)
                )));
            }
            b'k' => {
                let def: KeyspaceDef = parsed(value)?;
                let keyspace = Keyspace { def, tables: BTreeMap::new(), types: BTreeMap::new() };
                schema.keyspaces.insert(keyspace.def.name.clone(), Arc::new(keyspace));
            }
            b't' => inside.push((TableOrType::Table(parsed(value)?), keyspace)),
            b'y' => inside.push((TableOrType::Type(parsed(value)?), keyspace)),
            _ => return Err(damaged(&"a row of an unknown kind")),
        }
    }
    for (definition, keyspace) in inside {
        let Some(keyspace) = schema.keyspaces.get_mut(&keyspace) else {
            return Err(damaged(&format!("keyspace {keyspace} is missing")));
        };
        let keyspace = Arc::make_mut(keyspace);
        match definition {
            TableOrType::Table(def) => _ = keyspace.tables.insert(def.name.clone(), Arc::new(def)),
            TableOrType::Type(udt) => _ = keyspace.types.insert(udt.name.clone(), Arc::new(udt)),
        }
    }
    Ok(versioned.then_some((schema, last_us)))
}

enum TableOrType {
    Table(TableDef),
    Type(UdtType),
}

fn parsed<T: DeserializeOwned>(value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value).map_err(|error| damaged(&error))
}

pub(super) fn damaged(error: &dyn std::fmt::Display) -> Error {
    Error::Server(format!("the stored schema is damaged: {error}"))
}
