//! The rows of each table, made from the schema and the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::schema::{ClusteringOrder, ColumnDef, ColumnKind, CqlType, TableDef, value};
use bytes::Bytes;

use super::{Row, Source, VIRTUAL_KEYSPACES, options};

const LOCATOR: &str = "org.apache.cassandra.locator";

pub(super) fn keyspaces(source: &Source) -> Vec<Row> {
    let schema = (source.schema)();
    let row = |name: &str, durable_writes: bool, replication: &BTreeMap<String, String>| -> Row {
        vec![
            text(name),
            Some(Bytes::copy_from_slice(&[u8::from(durable_writes)])),
            Some(text_map(replication)),
        ]
    };
    let mut rows: Vec<Row> = schema
        .keyspaces
        .values()
        .map(|k| row(&k.def.name, k.def.durable_writes, &replication(&k.def.replication)))
        .collect();
    let local = BTreeMap::from([("class".to_owned(), format!("{LOCATOR}.LocalStrategy"))]);
    let defs = (source.registry_defs)();
    let names: BTreeSet<&str> = defs.iter().map(|def| def.keyspace.as_str()).collect();
    let unseen = |name: &&str| !is_virtual(name) && !schema.keyspaces.contains_key(*name);
    rows.extend(names.into_iter().filter(unseen).map(|name| row(name, true, &local)));
    rows
}

/// The options with the class in full; one copy where no class is known.
fn replication(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut options = options.clone();
    if options.is_empty() {
        options.insert("replication_factor".to_owned(), "1".to_owned());
    }
    let class = options.entry("class".to_owned()).or_insert_with(|| "SimpleStrategy".to_owned());
    *class = options::full_class(LOCATOR, class);
    options
}

pub(super) fn tables(source: &Source) -> Vec<Row> {
    let row = |def: Arc<TableDef>| {
        let mut row = vec![text(&def.keyspace), text(&def.name)];
        row.extend(options::cells(&def, &source.option_defaults));
        row
    };
    real_defs(source).into_iter().map(row).collect()
}

pub(super) fn columns(source: &Source) -> Vec<Row> {
    column_rows(&real_defs(source))
}

pub(super) fn types(source: &Source) -> Vec<Row> {
    let schema = (source.schema)();
    let types = schema.keyspaces.values().flat_map(|k| k.types.values());
    types
        .map(|udt| {
            let names: Vec<&[u8]> = udt.fields.iter().map(|(name, _)| name.as_bytes()).collect();
            let types: Vec<String> = udt.fields.iter().map(|(_, ty)| type_text(ty)).collect();
            vec![
                text(&udt.keyspace),
                text(&udt.name),
                Some(value::encode_list(names.into_iter()).into()),
                Some(value::encode_list(types.iter().map(String::as_bytes)).into()),
            ]
        })
        .collect()
}

pub(super) fn virtual_keyspaces(source: &Source) -> Vec<Row> {
    let defs = virtual_defs(source);
    let names: BTreeSet<&str> = defs.iter().map(|def| def.keyspace.as_str()).collect();
    names.into_iter().map(|name| vec![text(name)]).collect()
}

pub(super) fn virtual_tables(source: &Source) -> Vec<Row> {
    let row = |def: &Arc<TableDef>| vec![text(&def.keyspace), text(&def.name), text(&def.options.comment)];
    virtual_defs(source).iter().map(row).collect()
}

pub(super) fn virtual_columns(source: &Source) -> Vec<Row> {
    column_rows(&virtual_defs(source))
}

fn is_virtual(keyspace: &str) -> bool {
    VIRTUAL_KEYSPACES.contains(&keyspace)
}

fn virtual_defs(source: &Source) -> Vec<Arc<TableDef>> {
    let mut defs = (source.registry_defs)();
    defs.retain(|def| is_virtual(&def.keyspace));
    defs
}

/// The engine's tables, and those of the registry that count as real. A name in both is the engine's.
fn real_defs(source: &Source) -> Vec<Arc<TableDef>> {
    let schema = (source.schema)();
    let mut defs: Vec<_> = schema.keyspaces.values().flat_map(|k| k.tables.values().cloned()).collect();
    let unseen =
        |def: &Arc<TableDef>| !is_virtual(&def.keyspace) && schema.table(&def.keyspace, &def.name).is_none();
    defs.extend((source.registry_defs)().into_iter().filter(unseen));
    defs
}

fn column_rows(defs: &[Arc<TableDef>]) -> Vec<Row> {
    defs.iter().flat_map(|def| def.columns.iter().map(|column| column_row(def, column))).collect()
}

fn column_row(def: &TableDef, column: &ColumnDef) -> Row {
    let (kind, position, order) = match column.kind {
        ColumnKind::PartitionKey(at) => ("partition_key", Some(at), "none"),
        ColumnKind::Clustering(at, ClusteringOrder::Asc) => ("clustering", Some(at), "asc"),
        ColumnKind::Clustering(at, ClusteringOrder::Desc) => ("clustering", Some(at), "desc"),
        ColumnKind::Static => ("static", None, "none"),
        ColumnKind::Regular => ("regular", None, "none"),
    };
    // Columns outside the key have no position, which Cassandra writes as -1.
    let position = position.map_or(-1, |at| i32::try_from(at).expect("a key has few columns"));
    vec![
        text(&def.keyspace),
        text(&def.name),
        text(&column.name),
        text(order),
        text(&column.name),
        text(kind),
        Some(Bytes::copy_from_slice(&position.to_be_bytes())),
        text(&type_text(&column.ty)),
    ]
}

/// The type as Cassandra shows it: a tuple, which is always one cell, as frozen.
fn type_text(ty: &CqlType) -> String {
    match ty {
        CqlType::List(e) => format!("list<{}>", type_text(e)),
        CqlType::Set(e) => format!("set<{}>", type_text(e)),
        CqlType::Map(k, v) => format!("map<{}, {}>", type_text(k), type_text(v)),
        CqlType::Tuple(fields) => {
            let fields: Vec<String> = fields.iter().map(type_text).collect();
            format!("frozen<tuple<{}>>", fields.join(", "))
        }
        CqlType::Frozen(inner) => match inner.thawed() {
            tuple @ CqlType::Tuple(_) => type_text(tuple),
            inner => format!("frozen<{}>", type_text(inner)),
        },
        other => other.to_string(),
    }
}

fn text(value: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value.as_bytes()))
}

/// A `map<text, text>`.
pub(super) fn text_map(map: &BTreeMap<String, String>) -> Bytes {
    value::encode_map(map.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))).into()
}
