//! Reads that find little: absent partitions and dead rows cost work too.

use engine::{Engine, Guardrail, Request};

use crate::{Server, Session, ints};

#[test]
fn absent_partitions_are_read_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    server.run(async |session| {
        session.run("INSERT INTO t (k, v) VALUES (9999, 1)", &[]).await.expect("written");
        assert_eq!(session.run("SELECT v FROM t WHERE k IN ?", &[&ints(10_000)]).await, Ok(1));
    });
    server.end_with_bounded_polls();
}

#[test]
fn filters_search_the_values_of_an_in() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let rows = ints(1_000);
        session.run("UPDATE t SET v = 7 WHERE k = 1 AND c IN ?", &[&rows]).await.expect("written");
        let text = "SELECT v FROM t WHERE v IN ? ALLOW FILTERING";
        assert_eq!(session.run(text, &[&ints(5_000)]).await, Ok(1_000));
        assert_eq!(session.run(text, &[&ints(7)]).await, Ok(0));
        let text = "SELECT column_name FROM system_schema.columns WHERE position IN ?";
        assert!(session.run(text, &[&ints(5_000)]).await.expect("runs") > 10);
    });
    server.end_with_bounded_polls();
}

async fn with_dead_rows(session: &Session, rows: u32) {
    let list = ints(rows);
    session.run("UPDATE t SET v = 1 WHERE k = 1 AND c IN ?", &[&list]).await.expect("written");
    session.run("DELETE FROM t WHERE k = 1 AND c IN ?", &[&list]).await.expect("deleted");
    let last = (rows as i32).to_be_bytes();
    session.run("UPDATE t SET v = 2 WHERE k = 1 AND c = ?", &[&last]).await.expect("written");
}

const TABLE: &str = "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))";

#[test]
fn dead_rows_are_skipped_in_bounded_polls() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        with_dead_rows(&session, 8_000).await;
        for text in [
            "SELECT v FROM t WHERE k = 1 LIMIT 1",
            "SELECT v FROM t WHERE k = 1 ORDER BY c DESC",
            "SELECT v FROM t LIMIT 1",
            "SELECT v FROM t WHERE v = 2 ALLOW FILTERING",
        ] {
            assert_eq!(session.run(text, &[]).await, Ok(1), "{text}");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn guardrail_limits_dead_rows_per_page() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        with_dead_rows(&session, 1_000).await;
        session.limit(Guardrail::Tombstones, 999);
        let expected = "Guardrail tombstones violated: expected at most 999 tombstones and dead rows read for one \
                        page, got 1000: delete whole partitions, or read a smaller range";
        for text in ["SELECT v FROM t WHERE k = 1 LIMIT 1", "SELECT v FROM t LIMIT 1"] {
            assert_eq!(session.refused(text, &[]).await, expected, "{text}");
        }
        assert_eq!(session.0.registry().guardrails().counts(Guardrail::Tombstones).1, 2);
        assert_eq!(session.run("SELECT v FROM t WHERE k = 1 AND c > 100", &[]).await, Ok(1));
    });
    server.end_with_bounded_polls();
}

#[test]
fn page_ends_at_its_bytes_after_at_least_one_row() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        session.run("UPDATE t SET v = 1 WHERE k = 1 AND c IN ?", &[&ints(100)]).await.expect("written");
        // A row of three ints takes 24 bytes.
        for (bytes, rows) in [(0, 1), (24, 1), (25, 2), (240, 10), (1 << 20, 100)] {
            for text in ["SELECT * FROM t WHERE k = 1", "SELECT * FROM t"] {
                let plan = session.prepare(text).expect("prepares");
                let request = Request { page_size: Some(1_000), page_bytes_max: bytes, ..Request::EMPTY };
                let count = session.counted(session.0.execute(&plan, &request)).await;
                assert_eq!(count, Ok(rows), "{text}, {bytes} bytes");
            }
        }
        let text = "SELECT * FROM system_schema.columns";
        let plan = session.prepare(text).expect("prepares");
        let request = Request { page_size: Some(1_000), page_bytes_max: 1, ..Request::EMPTY };
        assert_eq!(session.counted(session.0.execute(&plan, &request)).await, Ok(1));
    });
    server.end_with_bounded_polls();
}

/// The server reads them when it starts.
#[test]
fn tombstone_guardrail_exempts_server_tables() {
    let server = Server::with(&[
        "CREATE KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE system_auth.t (k int, c int, v int, PRIMARY KEY (k, c))",
    ]);
    server.run(async |session| {
        session.limit(Guardrail::Tombstones, 10);
        let rows = ints(100);
        session.run("DELETE FROM system_auth.t WHERE k = 1 AND c IN ?", &[&rows]).await.expect("deleted");
        for text in ["SELECT * FROM system_auth.t", "SELECT * FROM system_auth.t WHERE k = 1"] {
            assert_eq!(session.run(text, &[]).await, Ok(0));
        }
    });
    server.end_with_bounded_polls();
}

/// Each condition walks all elements of the map.
#[test]
fn conditions_on_one_map_are_checked_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v int, m map<int, int>)"]);
    server.run(async |session| {
        let elements: Vec<[u8; 4]> = (0..2_000u32).map(u32::to_be_bytes).collect();
        let map = schema::value::encode_map(elements.iter().map(|n| (&n[..], &n[..])));
        session.run("UPDATE t SET m = ? WHERE k = 1", &[&map]).await.expect("written");
        let tests: Vec<String> = (0..200).map(|n| format!("m[{n}] = {n}")).collect();
        let text = format!("UPDATE t SET v = 1 WHERE k = 1 IF {}", tests.join(" AND "));
        assert_eq!(session.run(&text, &[]).await, Ok(1));
        assert_eq!(session.run("SELECT k FROM t WHERE v = 1 ALLOW FILTERING", &[]).await, Ok(1));
        let shown: Vec<String> = (0..200).map(|n| format!("m[{n}]")).collect();
        assert_eq!(session.run(&format!("SELECT {} FROM t", shown.join(", ")), &[]).await, Ok(1));
    });
    server.end_with_bounded_polls();
}
