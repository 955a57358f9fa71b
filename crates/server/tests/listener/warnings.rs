//! Warnings of guardrails in CQL responses.

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use engine::Guardrail;
use wire::*;

/// Starts a server of two cores with low warn thresholds, and a table with rows on both cores.
fn start(version: Version) -> (TestServer, Client) {
    let server = TestServer::start(2, settings());
    let mut admin = server.client(version, ADMIN);
    admin.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))");
    server.limit(Guardrail::InValues, 2);
    server.limit(Guardrail::WriteBytes, 5000);
    server.limit(Guardrail::PageRows, 100);
    server.limit(Guardrail::Columns, 3);
    (server, admin)
}

const IN_VALUES: &str =
    "Guardrail in_values warning: expected at most 2 values in one IN, got 3: send several statements";

#[track_caller]
fn check(client: &mut Client, text: &str, expected: &[&str]) {
    let answer = client.query(text);
    assert!(!matches!(answer, Answer::Error(_)), "{text}: {answer:?}");
    assert_eq!(client.warnings, expected, "{text}");
}

#[test]
fn answer_has_only_its_own_warnings() {
    for version in [Version::V4, Version::V5] {
        let (server, mut admin) = start(version);
        check(&mut admin, "SELECT c FROM ks.t WHERE k IN (1, 2)", &[]);
        check(&mut admin, "SELECT c FROM ks.t WHERE k IN (1, 2, 3)", &[IN_VALUES]);
        // The next answer has no warnings of the one before, nor of a failed statement.
        check(&mut admin, "SELECT c FROM ks.t WHERE k = 1", &[]);
        assert_eq!(admin.query("SELECT nothing FROM ks.t WHERE k IN (1, 2, 4)").code(), 0x2200);
        check(&mut admin, "SELECT c FROM ks.t WHERE k = 2", &[]);
        let value = "x".repeat(6000);
        admin.run(&format!("INSERT INTO ks.t (k, c, v) VALUES (1, 1, '{value}')"));
        let expected =
            "Guardrail write_bytes warning: expected at most 5000 bytes written by one statement, got 60";
        assert!(matches!(&admin.warnings[..], [one] if one.starts_with(expected)), "{:?}", admin.warnings);
        check(
            &mut admin,
            "CREATE TABLE ks.wide (a int PRIMARY KEY, b int, c int, d int)",
            &["Guardrail columns warning: expected at most 3 columns of one table, got 4: \
                 use several tables, or a map"],
        );
        // A batch has Cassandra's text, and the size of the whole batch.
        server.limit(Guardrail::BatchBytes, 10);
        let batch = "BEGIN UNLOGGED BATCH INSERT INTO ks.t (k, c, v) VALUES (1, 1, '123456'); \
                     INSERT INTO ks.t (k, c, v) VALUES (1, 2, '123456'); APPLY BATCH";
        check(&mut admin, batch, &["Batch is of size 92, exceeding specified threshold of 10 by 82."]);
        // A statement that is bound on the heavy lane, and one that is only prepared.
        let long = format!("SELECT c FROM ks.t WHERE k IN (1, 2, 3) /* {} */", "x".repeat(4000));
        check(&mut admin, &long, &[IN_VALUES]);
        admin.prepare("SELECT v FROM ks.t WHERE k IN (1, 2, 3)");
        assert_eq!(admin.warnings, [IN_VALUES]);
        admin.prepare("SELECT v FROM ks.t WHERE k = 1");
        assert_eq!(admin.warnings, [""; 0]);
    }
}

#[test]
fn each_page_has_its_warnings() {
    let (_server, mut admin) = start(Version::V4);
    let params = QueryParams { page_size: Some(101), ..QueryParams::default() };
    for _ in 0..2 {
        let query = Query { text: "SELECT c FROM ks.t", params: params.clone() };
        assert!(matches!(admin.ask(&Request::Query(query)), Answer::Rows { .. }));
        let expected = "Guardrail page_rows warning: expected at most 100 rows of one page, got 101: \
                        ask for smaller pages";
        assert_eq!(admin.warnings, [expected]);
    }
}
