//! Tables that tools of Cassandra read.

use crate::common::{ADMIN, TestServer, settings};
use server::ServerConfig;
use wire::Version;

#[test]
fn sizes_of_tables_are_estimated() {
    let server = TestServer::start(2, settings());
    let mut client = server.client(Version::V5, ADMIN);
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    client.run("CREATE TABLE ks.t (k int, c int, v blob, PRIMARY KEY (k, c))");
    for k in 0..100 {
        let value = "ff".repeat(100);
        client.run(&format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, 0, 0x{value})"));
    }
    let number =
        |cell: &str| u64::from_be_bytes(cell.as_bytes().try_into().expect("a bigint of ASCII bytes"));
    let rows = client.run(
        "SELECT range_start, range_end, partitions_count FROM system.size_estimates WHERE keyspace_name = 'ks' AND \
         table_name = 't'",
    );
    let rows = rows.texts();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][..2], [i64::MIN.to_string(), i64::MIN.to_string()]);
    assert_eq!(number(&rows[0][2]), 100);
    let estimates =
        client.run("SELECT range_type FROM system.table_estimates WHERE keyspace_name = 'ks'").texts();
    assert_eq!(estimates, [["local_primary"], ["primary"]]);
    let usage =
        "SELECT mebibytes FROM system_views.disk_usage WHERE keyspace_name = 'ks' AND table_name = 't'";
    assert_eq!(client.run(usage).texts().len(), 1);
}

#[test]
fn figures_of_the_server_are_shown() {
    let config = ServerConfig { settings: vec![("listen", "127.0.0.1:0".to_owned())], ..settings() };
    let server = TestServer::start(2, config);
    let mut client = server.client(Version::V5, ADMIN);
    let listen = client.run("SELECT value FROM system_views.settings WHERE name = 'listen'").texts();
    assert_eq!(listen, [["127.0.0.1:0"]]);
    let names = |client: &mut crate::common::Client, table: &str| -> Vec<String> {
        let rows = client.run(&format!("SELECT name FROM system_views.{table}")).texts();
        rows.into_iter().map(|mut row| row.swap_remove(0)).collect()
    };
    assert_eq!(names(&mut client, "caches"), ["chunks", "rows"]);
    let pools = ["CompactionExecutor", "MemtableFlushWriter", "Native-Transport-Requests"];
    assert_eq!(names(&mut client, "thread_pools"), pools);
    assert_eq!(names(&mut client, "cql_metrics").len(), 5);
    client.run("SELECT * FROM system_views.queries");
    let clients = client.run(
        "SELECT connection_stage, driver_name, username FROM system_views.clients WHERE address = '127.0.0.1'",
    );
    assert_eq!(clients.texts(), [["ready", "test", "admin"]]);
}

#[test]
fn keyspace_of_several_copies_warns_as_in_cassandra() {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V5, ADMIN);
    client.run("CREATE KEYSPACE a WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    let simple = "Your replication factor 3 for keyspace a is higher than the number of nodes 1";
    assert_eq!(client.warnings, [simple]);
    client.run("CREATE KEYSPACE b WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 2}");
    let topology = "Your replication factor 2 for keyspace b is higher than the number of nodes 1 for datacenter \
                    datacenter1";
    assert_eq!(client.warnings, [topology]);
    client.run("ALTER KEYSPACE b WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}");
    assert_eq!(client.warnings, [""; 0]);
}
