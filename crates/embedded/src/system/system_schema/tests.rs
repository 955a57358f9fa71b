use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Keyspace, RowChunks, Schema, VirtualTable};
use schema::{ClusteringOrder, ColumnKind, CqlType, KeyspaceDef, TableDef, TableOptions, UdtType, value};
use uuid::Uuid;

use super::rows::{SchemaRow, Snapshot};
use super::{layout, options};

fn ty(text: &str) -> CqlType {
    CqlType::parse(text, &|_| None).unwrap()
}

/// Returns a schema of a keyspace `ks` with a user type `u` and a table `t`.
fn schema() -> Arc<Schema> {
    let column = |id, name: &str, text, kind| schema::ColumnDef { id, name: name.into(), ty: ty(text), kind };
    let other = [
        ("compaction", "{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 160}"),
        ("bloom_filter_fp_chance", "0.1"),
        ("speculative_retry", "99.5p"),
        ("caching", "nonsense {"),
    ];
    let table = TableDef {
        id: Uuid::from_u128(7),
        keyspace: "ks".into(),
        name: "t".into(),
        columns: vec![
            column(0, "k", "int", ColumnKind::PartitionKey(0)),
            column(1, "c", "text", ColumnKind::Clustering(0, ClusteringOrder::Desc)),
            column(2, "s", "map<int, tuple<int, text>>", ColumnKind::Static),
            column(3, "v", "frozen<tuple<int, frozen<list<text>>>>", ColumnKind::Regular),
        ],
        next_column_id: 4,
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        options: TableOptions {
            comment: "it's".into(),
            default_time_to_live: 60,
            other: other.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            ..TableOptions::default()
        },
    };
    let udt = UdtType::new("ks", "u", vec![("a".into(), ty("int")), ("b".into(), ty("frozen<set<text>>"))]);
    let replication = [("class", "SimpleStrategy"), ("replication_factor", "3")];
    let def = KeyspaceDef {
        name: "ks".into(),
        replication: replication.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        durable_writes: false,
    };
    let keyspace = Keyspace {
        def,
        tables: BTreeMap::from([("t".into(), Arc::new(table))]),
        types: BTreeMap::from([("u".into(), Arc::new(udt))]),
    };
    Arc::new(Schema { version: Uuid::nil(), keyspaces: BTreeMap::from([("ks".into(), Arc::new(keyspace))]) })
}

/// Returns the tables for `schema()`, with a registry of themselves, `system.local` and
/// `system_views.clients`.
fn tables() -> Vec<VirtualTable> {
    let other = |keyspace, name| {
        VirtualTable::new(keyspace, name, 1, 0, &[("key", CqlType::Text), ("n", CqlType::Int)], Vec::new).def
    };
    let mut defs = vec![other("system", "local"), other("system_views", "clients")];
    defs.extend(super::tables(schema, Vec::new).into_iter().map(|t| t.def));
    super::tables(schema, move || defs.clone())
}

fn created_rows(keyspace: &str, name: &str) -> Vec<SchemaRow> {
    chunks(keyspace, name, schema()).flatten().collect()
}

/// Returns the chunks of a table's rows, for a schema.
fn chunks(keyspace: &str, name: &str, schema: Arc<Schema>) -> RowChunks {
    let layout = layout::layouts().into_iter().find(|l| l.keyspace == keyspace && l.name == name).unwrap();
    let registry_defs = tables().into_iter().map(|table| table.def);
    let others = [("system", "local"), ("system_views", "clients")];
    let others = others.map(|(keyspace, name)| {
        VirtualTable::new(keyspace, name, 1, 0, &[("key", CqlType::Text), ("n", CqlType::Int)], Vec::new).def
    });
    let snapshot = Snapshot {
        schema,
        registry_defs: others.into_iter().chain(registry_defs).collect(),
        option_defaults: options::defaults().into(),
    };
    (layout.rows)(&snapshot)
}

/// Returns the rows of a table as CQL text, with `null` for a null.
fn rows(keyspace: &str, name: &str) -> Vec<BTreeMap<String, String>> {
    let tables = tables();
    let table = tables.iter().find(|t| t.def.keyspace == keyspace && t.def.name == name).unwrap();
    let mut rows = Vec::new();
    for row in created_rows(keyspace, name) {
        assert_eq!(row.len(), table.def.columns.len());
        let cells = table.def.columns.iter().zip(row).map(|(column, cell)| {
            let Some(bytes) = cell else { return (column.name.clone(), "null".to_owned()) };
            value::check(&column.ty, &bytes).unwrap();
            (column.name.clone(), value::to_text(&column.ty, &bytes))
        });
        rows.push(cells.collect());
    }
    rows
}

/// Checks that exactly one row has the cells `key`, and that it has the cells `expected`.
fn check(table: (&str, &str), key: &[(&str, &str)], expected: &[(&str, &str)]) {
    let rows = rows(table.0, table.1);
    let found: Vec<_> =
        rows.iter().filter(|row| key.iter().all(|(name, text)| row[*name] == *text)).collect();
    assert_eq!(found.len(), 1, "{table:?} {key:?}");
    for (name, text) in expected {
        assert_eq!(found[0][*name], *text, "{table:?} {key:?} {name}");
    }
}

#[test]
fn definitions_are_valid_and_columns_sorted() {
    let tables = tables();
    assert_eq!(tables.len(), 14);
    for table in tables {
        table.def.validate().unwrap();
        let mut sorted = (*table.def).clone();
        sorted.sort_columns();
        assert_eq!(sorted, *table.def);
    }
}

#[test]
fn keyspaces_are_real_or_virtual() {
    let at = ("system_schema", "keyspaces");
    let simple = "{'class': 'org.apache.cassandra.locator.SimpleStrategy', 'replication_factor': '3'}";
    let local = "{'class': 'org.apache.cassandra.locator.LocalStrategy'}";
    check(at, &[("keyspace_name", "'ks'")], &[("durable_writes", "false"), ("replication", simple)]);
    check(at, &[("keyspace_name", "'system'")], &[("durable_writes", "true"), ("replication", local)]);
    check(at, &[("keyspace_name", "'system_schema'")], &[("replication", local)]);
    assert_eq!(rows(at.0, at.1).len(), 3);
    let names: Vec<_> =
        rows("system_virtual_schema", "keyspaces").into_iter().flatten().map(|c| c.1).collect();
    assert_eq!(names, ["'system_views'", "'system_virtual_schema'"]);
}

#[test]
fn tables_show_their_options() {
    let at = ("system_schema", "tables");
    let leveled = "{'class': 'org.apache.cassandra.db.compaction.LeveledCompactionStrategy', \
        'max_threshold': '32', 'min_threshold': '4', 'sstable_size_in_mb': '160'}";
    check(
        at,
        &[("keyspace_name", "'ks'"), ("table_name", "'t'")],
        &[
            ("id", "00000000-0000-0000-0000-000000000007"),
            ("comment", "'it''s'"),
            ("compaction", leveled),
            ("bloom_filter_fp_chance", "0.1"),
            ("caching", "{'keys': 'ALL', 'rows_per_partition': 'NONE'}"),
            ("default_time_to_live", "60"),
            ("gc_grace_seconds", "864000"),
            ("speculative_retry", "'99.5p'"),
            ("flags", "{'compound'}"),
            ("extensions", "{}"),
            ("cdc", "null"),
            ("max_index_interval", "2048"),
            ("read_repair", "'BLOCKING'"),
        ],
    );
    let lz4 = "{'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}";
    check(at, &[("table_name", "'local'")], &[("keyspace_name", "'system'"), ("compression", lz4)]);
    check(at, &[("table_name", "'dropped_columns'")], &[("keyspace_name", "'system_schema'")]);
    assert!(rows(at.0, at.1).iter().all(|row| row["keyspace_name"] != "'system_views'"));
    check(
        ("system_virtual_schema", "tables"),
        &[("table_name", "'clients'")],
        &[("keyspace_name", "'system_views'"), ("comment", "''")],
    );
}

#[test]
fn columns_show_kind_position_and_order() {
    let at = ("system_schema", "columns");
    let column = |name, kind, position, order, ty| {
        check(
            at,
            &[("keyspace_name", "'ks'"), ("table_name", "'t'"), ("column_name", name)],
            &[("kind", kind), ("position", position), ("clustering_order", order), ("type", ty)],
        );
    };
    column("'k'", "'partition_key'", "0", "'none'", "'int'");
    column("'c'", "'clustering'", "0", "'desc'", "'text'");
    column("'s'", "'static'", "-1", "'none'", "'map<int, frozen<tuple<int, text>>>'");
    column("'v'", "'regular'", "-1", "'none'", "'frozen<tuple<int, frozen<list<text>>>>'");
    check(
        at,
        &[
            ("keyspace_name", "'system_schema'"),
            ("table_name", "'functions'"),
            ("column_name", "'argument_types'"),
        ],
        &[("kind", "'clustering'"), ("position", "1"), ("type", "'frozen<list<text>>'")],
    );
    check(
        ("system_virtual_schema", "columns"),
        &[("table_name", "'clients'"), ("column_name", "'n'")],
        &[("kind", "'regular'"), ("column_name_bytes", "0x6e"), ("type", "'int'")],
    );
}

/// A reader goes on to a heavy lane at an empty chunk.
#[test]
fn rows_of_long_definitions_follow_an_empty_chunk() {
    let mut long = Arc::unwrap_or_clone(schema());
    let keyspace = Arc::make_mut(long.keyspaces.get_mut("ks").expect("of the schema"));
    Arc::make_mut(keyspace.types.get_mut("u").expect("of the keyspace")).fields[0].0 = "a".repeat(100_000);
    Arc::make_mut(keyspace.tables.get_mut("t").expect("of the keyspace")).options.comment =
        "c".repeat(100_000);
    let long = Arc::new(long);
    for table in ["types", "tables"] {
        let empty = |schema| chunks("system_schema", table, schema).filter(Vec::is_empty).count();
        assert_eq!((empty(schema()), empty(long.clone())), (0, 1), "{table}");
        let rows: Vec<Vec<SchemaRow>> = chunks("system_schema", table, long.clone()).collect();
        let at = rows.iter().position(Vec::is_empty).expect("found above");
        assert!(rows[at + 1][0].iter().flatten().any(|cell| cell.len() >= 100_000), "{table}");
    }
}

#[test]
fn types_show_their_fields() {
    check(
        ("system_schema", "types"),
        &[("keyspace_name", "'ks'"), ("type_name", "'u'")],
        &[("field_names", "['a', 'b']"), ("field_types", "['int', 'frozen<set<text>>']")],
    );
}

#[test]
fn first_column_of_each_table_is_the_keyspace() {
    for table in super::tables(Arc::default, Vec::new) {
        assert_eq!(table.subject, engine::Subject::Keyspace(0));
        assert_eq!(table.def.columns[0].name, "keyspace_name", "{}", table.def.name);
    }
}
