//! Masked columns: what each role reads, by its rights at the time of the statement.

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use wire::{
    Batch, BatchBuf, BatchEntry, BatchKind, BatchParams, Execute, QueryParams, Request, Statement, Values,
    Version,
};

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

/// Runs a text, and then the same statement prepared before. Both return these rows.
#[track_caller]
fn check(client: &mut Client, text: &str, prepared: &(Vec<u8>, Vec<u8>), expected: &[[&str; 1]]) {
    assert_eq!(client.run(text).texts(), expected, "{text}");
    let params = QueryParams::default();
    let (id, result_metadata_id) = prepared;
    let execute = Request::Execute(Execute { id, result_metadata_id, params });
    assert_eq!(client.ask(&execute).texts(), expected, "prepared {text}");
}

#[test]
fn plans_follow_masks_and_rights() {
    let (server, mut admin) = start();
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    let read = "SELECT v FROM ks.t WHERE k = 'a'";
    let of_ann = ann.prepare(read);
    let of_admin = admin.prepare(read);
    check(&mut ann, read, &of_ann, &[["secret"]]);
    admin.run("ALTER TABLE ks.t ALTER v MASKED WITH mask_default()");
    check(&mut ann, read, &of_ann, &[["****"]]);
    check(&mut admin, read, &of_admin, &[["secret"]]);
    for resource in ["ks.t", "KEYSPACE ks", "ALL KEYSPACES"] {
        admin.run(&format!("GRANT UNMASK ON {resource} TO ann"));
        check(&mut ann, read, &of_ann, &[["secret"]]);
        admin.run(&format!("REVOKE UNMASK ON {resource} FROM ann"));
        check(&mut ann, read, &of_ann, &[["****"]]);
    }
    admin.run("ALTER TABLE ks.t ALTER v MASKED WITH mask_replace('redacted')");
    check(&mut ann, read, &of_ann, &[["redacted"]]);
    admin.run("ALTER TABLE ks.t ALTER v DROP MASKED");
    check(&mut ann, read, &of_ann, &[["secret"]]);
}

#[test]
fn conditions_on_masked_columns_need_select_masked() {
    let (server, mut admin) = start();
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    admin.run("ALTER TABLE ks.t ALTER v MASKED WITH mask_default()");
    let queries = [
        "SELECT k FROM ks.t WHERE v = 'secret' ALLOW FILTERING",
        "UPDATE ks.t SET v = 'x' WHERE k = 'a' IF v = 'other'",
        "BEGIN BATCH UPDATE ks.t SET v = 'x' WHERE k = 'a' IF v = 'other'; APPLY BATCH",
    ];
    for text in queries {
        let Answer::Error(failure) = ann.query(text) else { panic!("{text} is refused") };
        assert_eq!(failure.kind.code(), UNAUTHORIZED, "{text}");
        let expected = "User ann has no UNMASK nor SELECT_MASKED permission on table ks.t, cannot query masked \
                        columns [v]";
        assert_eq!(failure.message, expected, "{text}");
    }
    // Writes without conditions show nothing.
    ann.run("INSERT INTO ks.t (k, v) VALUES ('b', 'other')");
    let (id, _) = ann.prepare(queries[1]);
    let mut entries = BatchBuf::new();
    let entry = BatchEntry { statement: Statement::Prepared(&id), values: Values::default() };
    entries.push(entry).expect("it is short");
    let batch = Request::Batch(Batch::new(BatchKind::Logged, &entries, BatchParams::default()));
    assert_eq!(ann.ask(&batch).code(), UNAUTHORIZED, "a prepared batch");
    for right in ["SELECT_MASKED", "UNMASK"] {
        admin.run(&format!("GRANT {right} ON ks.t TO ann"));
        queries.iter().for_each(|text| drop(ann.run(text)));
        admin.run(&format!("REVOKE {right} ON ks.t FROM ann"));
    }
}
