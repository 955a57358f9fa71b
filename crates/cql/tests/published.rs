//! Published statements, character for character, and their trees.

use cql::Statement;
use cql::ast::{AttachServiceLevel, CreateServiceLevel, Duration, OptionValue};

fn parse(text: &str) -> Statement {
    cql::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Parses a script of several statements, each ended by `;`.
fn parse_script(script: &str) -> Vec<Statement> {
    script.split_inclusive(';').map(|text| parse(text.trim())).collect()
}

#[test]
fn older_spelling_creates_and_attaches_a_level() {
    let script =
        "CREATE SERVICE_LEVEL 'load1' WITH SHARES=200; ATTACH SERVICE_LEVEL 'load1' TO 'load1_user';";
    let expected = [
        Statement::CreateServiceLevel(CreateServiceLevel {
            if_not_exists: false,
            name: "load1".to_owned(),
            options: vec![("shares".to_owned(), OptionValue::Integer(200))],
        }),
        Statement::AttachServiceLevel(AttachServiceLevel {
            level: "load1".to_owned(),
            role: "load1_user".to_owned(),
        }),
    ];
    assert_eq!(parse_script(script), expected);
}

#[test]
fn level_options_keep_their_types() {
    let text = "CREATE SERVICE LEVEL olap WITH shares = 100 AND cpu_limit = '50%' AND memory_limit = '30%'
  AND max_concurrency = 8 AND max_queue_size = 64 AND queue_timeout = 5s;";
    let string = |text: &str| OptionValue::String(text.to_owned());
    let five_seconds = Duration { months: 0, days: 0, nanoseconds: 5_000_000_000 };
    let expected = [
        ("shares", OptionValue::Integer(100)),
        ("cpu_limit", string("50%")),
        ("memory_limit", string("30%")),
        ("max_concurrency", OptionValue::Integer(8)),
        ("max_queue_size", OptionValue::Integer(64)),
        ("queue_timeout", OptionValue::Duration(five_seconds)),
    ];
    let Statement::CreateServiceLevel(created) = parse(text) else {
        panic!("expected a CREATE SERVICE LEVEL")
    };
    assert_eq!(created.name, "olap");
    assert_eq!(created.options, expected.map(|(name, value)| (name.to_owned(), value)));
    assert!(matches!(parse("ATTACH SERVICE LEVEL olap TO analysts;"), Statement::AttachServiceLevel(_)));
}

#[test]
fn unquoted_names_fold_to_lower_case() {
    for (text, expected) in [("OLAP", "olap"), ("\"OLAP\"", "OLAP"), ("'OLAP'", "OLAP")] {
        let Statement::DropServiceLevel(dropped) = parse(&format!("DROP SERVICE LEVEL IF EXISTS {text}"))
        else {
            panic!("expected a DROP SERVICE LEVEL")
        };
        assert_eq!((dropped.name.as_str(), dropped.if_exists), (expected, true));
    }
}

/// Statements that drivers send on connecting, and the row of cassandra-stress.
#[test]
fn statements_of_drivers_parse() {
    for text in [
        "SELECT * FROM system.local WHERE key='local'",
        "SELECT * FROM system.peers_v2",
        "SELECT cluster_name FROM system.local",
        "SELECT keyspace_name, table_name, column_name, kind, position, type FROM system_schema.columns",
        "select initial_tablets, keyspace_name from system_schema.scylla_keyspaces",
        "CREATE KEYSPACE keyspace1 WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '1'} \
         AND durable_writes = true;",
        "CREATE TABLE IF NOT EXISTS standard1 (key blob PRIMARY KEY, \"C0\" blob, \"C1\" blob) \
         WITH compression = {} AND compaction = {'class': 'SizeTieredCompactionStrategy'}",
        r#"INSERT INTO "standard1" (key,"C0","C1") VALUES (?,?,?)"#,
        r#"UPDATE "standard1" SET "C0" = ?,"C1" = ? WHERE KEY=?"#,
        "SELECT count(*) FROM ks.t WHERE token(k) > :low AND token(k) <= :high ALLOW FILTERING",
        "USE \"keyspace1\"",
        "DESCRIBE FULL SCHEMA",
        "LIST ROLES OF cassandra NORECURSIVE",
        "GRANT SELECT ON ALL KEYSPACES TO analysts",
    ] {
        parse(text);
    }
}
