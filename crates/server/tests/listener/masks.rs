//! Masked columns: which roles read their table.

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use wire::{Execute, QueryParams, Request, Version};

const UNAUTHORIZED: i32 = 0x2100;

/// Starts a server with a table, the role `ann` that may read and write it, and an unmasked row.
fn start() -> (TestServer, Client) {
    let server = TestServer::start(2, settings());
    let mut admin = server.client(Version::V5, ADMIN);
    for text in [
        "CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true",
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE ks.t (k text PRIMARY KEY, v text)",
        "INSERT INTO ks.t (k, v) VALUES ('a', 'secret')",
        "GRANT SELECT ON ks.t TO ann",
        "GRANT MODIFY ON ks.t TO ann",
    ] {
        admin.run(text);
    }
    (server, admin)
}

#[test]
fn role_without_unmask_does_not_see_stored_values() {
    let (server, mut admin) = start();
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    let read = "SELECT v FROM ks.t WHERE k = 'a'";
    let (id, result_metadata_id) = ann.prepare(read);
    let params = QueryParams::default();
    let execute = Request::Execute(Execute { id: &id, result_metadata_id: &result_metadata_id, params });
    assert_eq!(ann.run(read).texts(), [["secret"]]);
    admin.run("ALTER TABLE ks.t ALTER v MASKED WITH mask_default()");
    let refused = [
        read,
        "SELECT * FROM ks.t",
        "SELECT k FROM ks.t WHERE v = 'secret' ALLOW FILTERING",
        "UPDATE ks.t SET v = 'x' WHERE k = 'a' IF v = 'secret'",
        "BEGIN BATCH UPDATE ks.t SET v = 'x' WHERE k = 'a' IF v = 'secret'; APPLY BATCH",
    ];
    for text in refused {
        assert_eq!(ann.query(text).code(), UNAUTHORIZED, "{text}");
    }
    assert!(!matches!(ann.ask(&execute), Answer::Rows { .. }), "the plan was bound before the mask");
    // Writes without conditions show nothing.
    ann.run("INSERT INTO ks.t (k, v) VALUES ('b', 'other')");
    assert_eq!(admin.run(read).texts(), [["secret"]]);
    admin.run("GRANT UNMASK ON ks.t TO ann");
    assert_eq!(ann.run(read).texts(), [["secret"]]);
    admin.run("REVOKE UNMASK ON ks.t FROM ann");
    assert_eq!(ann.query(read).code(), UNAUTHORIZED);
    admin.run("ALTER TABLE ks.t ALTER v DROP MASKED");
    assert_eq!(ann.run(read).texts(), [["secret"]]);
}
