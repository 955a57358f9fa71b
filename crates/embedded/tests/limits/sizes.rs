//! Short statements with large effects: rejected by arithmetic, before anything is built.

use engine::Guardrail;

use crate::{Server, ints};

#[test]
fn combinations_are_counted_over_all_columns() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let list = ints(10_000);
        let expected = "Guardrail in_product violated: expected at most 10000 combinations of IN values, got \
                        100000000: send several statements";
        for text in [
            "DELETE FROM t WHERE k IN ? AND c IN ?",
            "UPDATE t SET v = 1 WHERE k IN ? AND c IN ?",
            "SELECT * FROM t WHERE k IN ? AND c IN ?",
        ] {
            assert_eq!(session.refused(text, &[&list, &list]).await, expected, "{text}");
        }
        session.limit(Guardrail::InProduct, 0);
        session.limit(Guardrail::InValues, 0);
        // A count that exceeds the list, so that the product overflows.
        let liar = [0x7f; 4];
        let ten = ints(10);
        let text = "DELETE FROM t WHERE k IN ? AND c IN ?";
        let expected = "expected IN relations with fewer than 2^64 combinations and bytes";
        assert_eq!(session.refused(text, &[&liar, &liar]).await, expected);
        assert_eq!(session.refused(text, &[&ten, &ten]).await, "0 rows");
    });
    server.end_with_bounded_polls();
}

#[test]
fn bytes_of_combinations_are_counted() {
    let server = Server::with(&["CREATE TABLE t (a text, b text, v int, PRIMARY KEY ((a, b)))"]);
    server.run(async |session| {
        let values = vec![vec![b'x'; 60_000]; 40];
        let list = schema::value::encode_list(values.iter().map(|value| &value[..]));
        // 40 x 40 keys of 120,000 bytes, and the lengths of values.
        let text = "SELECT * FROM t WHERE a IN ? AND b IN ?";
        let error = session.refused(text, &[&list, &list]).await;
        let expected = "Guardrail in_product_bytes violated: expected at most 16777216 bytes of combinations of \
                        IN values, got 192013120: send several statements";
        assert_eq!(error, expected);
    });
    server.end_with_bounded_polls();
}

/// Short lists of several columns name thousands of rows.
#[test]
fn products_of_short_lists_are_read_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, d int, PRIMARY KEY (k, c, d))"]);
    server.run(async |session| {
        let list = ints(100);
        for text in [
            "SELECT d FROM t WHERE k = 1 AND c IN ? AND d IN ?",
            "SELECT d FROM t WHERE k IN ? AND c = 1 AND d IN ?",
            "SELECT count(*) FROM t WHERE k = 1 AND c IN ? AND d IN ?",
        ] {
            session.run(text, &[&list, &list]).await.expect("is read");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn rows_of_very_many_columns_are_shown_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        session.limit(Guardrail::StatementTerms, 0);
        session.run("INSERT INTO t (k, s) VALUES (1, 1)", &[]).await.expect("is written");
        session.run("INSERT INTO t (k, c, v) VALUES (2, 1, 1)", &[]).await.expect("is written");
        let shown = vec!["v"; 60_000].join(", ");
        for rest in ["k IN (1, 2)", "k = 2", "k = 2 AND c = 1", "k = 2 ORDER BY c DESC"] {
            session.run(&format!("SELECT {shown} FROM t WHERE {rest}"), &[]).await.expect("is read");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn value_for_many_rows_is_counted_for_each() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, v blob, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let (value, list) = (vec![7; 1 << 20], ints(10_000));
        let text = "UPDATE t SET v = ? WHERE k IN ? AND c = 1";
        let error = session.refused(text, &[&value, &list]).await;
        assert!(
            error.starts_with(
                "Guardrail write_bytes violated: expected at most 16777216 bytes written by one statement, got 10486"
            ),
            "{error}"
        );
        session.limit(Guardrail::WriteBytes, 0);
        let error = session.refused(text, &[&value, &list]).await;
        let expected = "expected at most 67108864 bytes written by one statement or batch, got 10486";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(session.refused("SELECT * FROM t", &[]).await, "0 rows");
    });
    server.end_with_bounded_polls();
}

#[test]
fn rows_of_one_statement_are_written_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let (keys, rows) = (ints(2), ints(4_000));
        let text = "UPDATE t SET v = 1 WHERE k IN ? AND c IN ?";
        assert_eq!(session.refused(text, &[&keys, &rows]).await, "0 rows");
        assert_eq!(session.run("SELECT * FROM t", &[]).await, Ok(8_000));
        assert_eq!(session.refused("DELETE FROM t WHERE k IN ? AND c IN ?", &[&keys, &rows]).await, "0 rows");
        assert_eq!(session.run("SELECT * FROM t", &[]).await, Ok(0));
    });
    server.end_with_bounded_polls();
}

#[test]
fn counters_are_changed_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE n (k int PRIMARY KEY, n counter)"]);
    server.run(async |session| {
        let text = "UPDATE n SET n = n + 1 WHERE k IN ?";
        assert_eq!(session.refused(text, &[&ints(4_000)]).await, "0 rows");
        assert_eq!(session.run("SELECT n FROM n WHERE n = 1 ALLOW FILTERING", &[]).await, Ok(4_000));
    });
    server.end_with_bounded_polls();
}
