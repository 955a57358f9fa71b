//! Definitions as statements, for DESCRIBE: their layout, and that the statements parse.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::Statement;
use schema::{ClusteringOrder, ColumnDef, ColumnKind, CqlType, KeyspaceDef, TableDef, TableOptions, UdtType};

fn column(name: &str, ty: CqlType, kind: ColumnKind) -> ColumnDef {
    ColumnDef { id: 0, name: name.to_owned(), ty, kind }
}

fn table(columns: Vec<ColumnDef>, options: TableOptions) -> TableDef {
    TableDef {
        id: Default::default(),
        keyspace: "ks".to_owned(),
        name: "Order".to_owned(),
        columns,
        next_column_id: 9,
        data: None,
        dropped: Default::default(),
        masks: Default::default(),
        indexes: Vec::new(),
        views: Vec::new(),
        options,
    }
}

#[test]
fn create_table_prints_every_kind_of_column() {
    let address = UdtType::new("ks", "table", vec![]);
    let udt = CqlType::Frozen(Box::new(CqlType::Udt(Arc::new(address))));
    let mut options = TableOptions { comment: "it's".to_owned(), ..TableOptions::default() };
    options.other.insert("caching".to_owned(), "{'keys': 'ALL'}".to_owned());
    let def = table(
        vec![
            column("a", CqlType::Int, ColumnKind::PartitionKey(0)),
            column("b", CqlType::Text, ColumnKind::PartitionKey(1)),
            column("c", CqlType::TimeUuid, ColumnKind::Clustering(0, ClusteringOrder::Desc)),
            column("from", CqlType::Int, ColumnKind::Static),
            column("C0", udt, ColumnKind::Regular),
        ],
        options,
    );
    let expected = r#"CREATE TABLE ks."Order" (
    a int,
    b text,
    c timeuuid,
    "from" int static,
    "C0" frozen<"table">,
    PRIMARY KEY ((a, b), c)
) WITH CLUSTERING ORDER BY (c DESC)
    AND additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL'}
    AND cdc = false
    AND comment = 'it''s'
"#;
    let text = cql::create_table(&def);
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.ends_with("\n    AND read_repair = 'BLOCKING'\n    AND speculative_retry = '99p';"),
        "{text}"
    );
    let Ok(Statement::CreateTable(created)) = cql::parse(&text) else { panic!("{text} is a CREATE TABLE") };
    assert_eq!((created.partition_key.len(), created.clustering.len(), created.columns.len()), (2, 1, 5));
}

#[test]
fn create_table_prints_a_single_key_inline() {
    let def = table(
        vec![
            column("key", CqlType::Blob, ColumnKind::PartitionKey(0)),
            column("v", CqlType::List(Box::new(CqlType::Int)), ColumnKind::Regular),
        ],
        TableOptions::default(),
    );
    let text = cql::create_table(&def);
    let start = "CREATE TABLE ks.\"Order\" (\n    key blob PRIMARY KEY,\n    v list<int>\n) WITH additional_";
    assert!(text.starts_with(start), "{text}");
    assert!(matches!(cql::parse(&text), Ok(Statement::CreateTable(_))), "{text}");
}

#[test]
fn keyspaces_and_types_print_as_create_statements() {
    let replication = [("a", "1"), ("class", "NetworkTopologyStrategy")];
    let def = KeyspaceDef {
        name: "ks".to_owned(),
        replication: replication
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        durable_writes: true,
    };
    let expected = "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'a': '1'}  \
                     AND durable_writes = true;";
    assert_eq!(cql::create_keyspace(&def), expected);
    assert!(cql::parse(expected).is_ok());

    let fields = vec![("street".to_owned(), CqlType::Text), ("No".to_owned(), CqlType::Int)];
    let def = UdtType::new("ks", "address", fields);
    let expected = "CREATE TYPE ks.address (\n    street text,\n    \"No\" int\n);";
    assert_eq!(cql::create_type(&def), expected);
    assert!(cql::parse(expected).is_ok());
}
