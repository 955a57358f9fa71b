//! DESCRIBE: texts of Cassandra, dropped columns, pages.

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use wire::*;

const OPTIONS: &str = "additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}
    AND cdc = false
    AND comment = ''
    AND compaction = {'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', \
'max_threshold': '32', 'min_threshold': '4'}
    AND compression = {'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}
    AND memtable = 'default'
    AND crc_check_chance = 1.0
    AND default_time_to_live = 0
    AND extensions = {}
    AND gc_grace_seconds = 864000
    AND incremental_backups = true
    AND max_index_interval = 2048
    AND memtable_flush_period_in_ms = 0
    AND min_index_interval = 128
    AND read_repair = 'BLOCKING'
    AND speculative_retry = '99p';";

fn client() -> (TestServer, Client) {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V5, ADMIN);
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    (server, client)
}

fn statement(client: &mut Client, text: &str) -> String {
    client.run(text).texts()[0][3].clone()
}

#[test]
fn dropped_columns_are_internals() {
    let (_server, mut client) = client();
    let create = "CREATE TABLE ks.t (k text, c int, s decimal static, v1 text, l list<int>, v3 int, \
                  PRIMARY KEY (k, c)) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18";
    client.run(create);
    let text = |columns: &str, internals: &str| {
        let id =
            if internals.is_empty() { "" } else { "ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18\n    AND " };
        format!(
            "CREATE TABLE ks.t (\n    k text,\n    c int,\n    s decimal static,\n    v1 text,\n{columns}    \
             PRIMARY KEY (k, c)\n) WITH {id}CLUSTERING ORDER BY (c ASC)\n    AND {OPTIONS}{}",
            if internals == "none" { "" } else { internals }
        )
    };
    let (plain, internals) = ("DESCRIBE TABLE ks.t", "DESCRIBE TABLE ks.t WITH INTERNALS");
    assert_eq!(statement(&mut client, plain), text("    v3 int,\n    l list<int>,\n", ""));
    assert_eq!(statement(&mut client, internals), text("    v3 int,\n    l list<int>,\n", "none"));
    let drop = "ALTER TABLE ks.t DROP v3 USING TIMESTAMP 1589286942065000;";
    client.run(drop);
    assert_eq!(statement(&mut client, plain), text("    l list<int>,\n", ""));
    assert_eq!(
        statement(&mut client, internals),
        text("    l list<int>,\n    v3 int,\n", &format!("\n{drop}"))
    );
    // In memory, later cells cannot be kept.
    client.run("ALTER TABLE ks.t DROP l USING TIMESTAMP 5");
    let shown = statement(&mut client, internals);
    assert!(shown.ends_with(&format!("\nALTER TABLE ks.t DROP l USING TIMESTAMP 5;\n{drop}")), "{shown}");
}

#[test]
fn columns_added_again_are_internals() {
    let (_server, mut client) = client();
    client.run("CREATE TABLE ks.t (k text PRIMARY KEY, v int)");
    client.run("ALTER TABLE ks.t DROP v");
    client.run("ALTER TABLE ks.t ADD v int");
    let shown = statement(&mut client, "DESCRIBE ks.t WITH INTERNALS");
    assert!(shown.contains("(\n    k text PRIMARY KEY,\n    v int\n) WITH ID = "), "{shown}");
    assert!(shown.ends_with("\nALTER TABLE ks.t ADD v int;"), "{shown}");
    // The text without internals creates the same table.
    let plain = statement(&mut client, "DESCRIBE ks.t");
    client.run("DROP TABLE ks.t");
    client.run(&plain);
    assert_eq!(client.warnings, [""; 0], "defaults are no news");
    assert_eq!(statement(&mut client, "DESCRIBE ks.t"), plain);
}

#[test]
fn masks_are_described() {
    let (_server, mut client) = client();
    client.run(
        "CREATE TABLE ks.t (k int MASKED WITH DEFAULT, c int, s int static MASKED WITH mask_null(), \
         v text MASKED WITH mask_inner(1, null, 'x'), PRIMARY KEY (k, c))",
    );
    let shown = statement(&mut client, "DESCRIBE ks.t");
    let columns = "(\n    k int MASKED WITH system.mask_default(),\n    c int,\n    s int static MASKED WITH \
                   system.mask_null(),\n    v text MASKED WITH system.mask_inner(1, null, 'x'),\n";
    assert!(shown.contains(columns), "{shown}");
    client.run("DROP TABLE ks.t");
    client.run(&shown);
    assert_eq!(statement(&mut client, "DESCRIBE ks.t"), shown);
}

#[test]
fn missing_objects_have_the_errors_of_cassandra() {
    let (_server, mut client) = client();
    let mut check = |text: &str, expected: &str| {
        let Answer::Error(failure) = client.query(text) else { panic!("{text} fails") };
        assert_eq!((failure.kind.code(), &*failure.message), (0x2200, expected), "{text}");
    };
    check("DESCRIBE TABLE t", "No keyspace specified and no current keyspace");
    check("DESCRIBE nope", "'nope' not found in keyspaces");
    check("DESCRIBE ks.nope", "'nope' not found in keyspace 'ks'");
    check("DESCRIBE nope.nope", "'nope' not found in keyspaces");
    check("DESCRIBE KEYSPACE nope", "'nope' not found in keyspaces");
    check("DESCRIBE TABLE ks.nope", "Table 'nope' not found in keyspace 'ks'");
    check("DESCRIBE TABLE nope.t", "'nope' not found in keyspaces");
    check("DESCRIBE TYPE ks.nope", "User defined type 'nope' not found in 'ks'");
    check("DESCRIBE FUNCTION ks.nope", "User defined function 'nope' not found in 'ks'");
    check("DESCRIBE AGGREGATE ks.nope", "User defined aggregate 'nope' not found in 'ks'");
    check("DESCRIBE INDEX ks.nope", "Table for existing index 'nope' not found in 'ks'");
    check("DESCRIBE MATERIALIZED VIEW ks.nope", "Materialized view 'nope' not found in 'ks'");
}

#[test]
fn pages_of_one_answer_show_one_schema() {
    let (_server, mut client) = client();
    client.run("CREATE TABLE ks.a (k int PRIMARY KEY)");
    client.run("CREATE TABLE ks.b (k int PRIMARY KEY)");
    let page = |client: &mut Client, paging_state: Option<&[u8]>| {
        let params = QueryParams { page_size: Some(1), paging_state, ..QueryParams::default() };
        client.ask(&Request::Query(Query { text: "DESCRIBE KEYSPACE ks", params }))
    };
    let Answer::Rows { paging: Some(next), .. } = page(&mut client, None) else { panic!("a page follows") };
    assert!(matches!(page(&mut client, Some(&next)), Answer::Rows { .. }));
    client.run("CREATE TABLE ks.c (k int PRIMARY KEY)");
    let Answer::Error(failure) = page(&mut client, Some(&next)) else { panic!("the schema has changed") };
    assert!(failure.message.starts_with("The schema has changed since the previous page"), "{failure:?}");
}

#[test]
fn keyspaces_of_the_server_are_described() {
    let (_server, mut client) = client();
    let virtual_keyspace = "/*\nWarning: Keyspace system_virtual_schema is a virtual keyspace and cannot be recreated \
                            with CQL.\nStructure, for reference:\nVIRTUAL KEYSPACE system_virtual_schema;\n*/";
    let rows = client.run("DESCRIBE ONLY KEYSPACE system_virtual_schema").texts();
    assert_eq!(rows, [["system_virtual_schema", "keyspace", "system_virtual_schema", virtual_keyspace]]);
    let keyspaces = "/*\nWarning: Table system_virtual_schema.keyspaces is a virtual table and cannot be recreated \
                     with CQL.\nStructure, for reference:\nVIRTUAL TABLE system_virtual_schema.keyspaces (\n    \
                     keyspace_name text PRIMARY KEY\n) WITH comment = 'virtual keyspace definitions';\n*/";
    assert_eq!(statement(&mut client, "DESCRIBE TABLE system_virtual_schema.keyspaces"), keyspaces);
    assert!(statement(&mut client, "DESCRIBE system.local").starts_with("CREATE TABLE system.local ("));
    assert_eq!(client.run("DESCRIBE CLUSTER").texts()[0].len(), 3);
    client.run("USE ks");
    assert_eq!(client.run("DESCRIBE CLUSTER").texts()[0].len(), 4);
}
