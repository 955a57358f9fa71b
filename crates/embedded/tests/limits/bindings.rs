//! Binding: limits on the restrictions of one column, and a cost proportional to the length of the
//! statement.

use engine::{Action, Engine, Guardrail};

use crate::{Server, ints};

const TABLE: &str = "CREATE TABLE t (k int, c int, v int, l list<int>, PRIMARY KEY (k, c))";

#[test]
fn second_bound_on_a_column_is_rejected() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        for (relations, expected) in [
            ("c > 1 AND c > 2", "More than one restriction was found for the start bound on c"),
            ("c < 1 AND c <= 2", "More than one restriction was found for the end bound on c"),
            ("c >= 1 AND c < 9 AND c > 2", "More than one restriction was found for the start bound on c"),
            ("c = 1 AND c = 1", "c cannot be restricted by more than one relation if it includes an Equal"),
            ("c = 1 AND c > 0", "c cannot be restricted by more than one relation if it includes an Equal"),
            (
                "c IN (1, 3) AND c IN (2)",
                "c cannot be restricted by more than one relation if it includes a IN",
            ),
            (
                "c > 0 AND c = 1",
                "Column \"c\" cannot be restricted by both an equality and an inequality relation",
            ),
            ("v < 1 AND v < 2", "More than one restriction was found for the end bound on v"),
            ("token(k) > 1 AND token(k) > 2", "More than one restriction was found for the start bound on k"),
        ] {
            let of_key = if relations.starts_with("token") { "" } else { "k = 1 AND " };
            let text = format!("SELECT * FROM t WHERE {of_key}{relations} ALLOW FILTERING");
            assert_eq!(session.refused(&text, &[]).await, expected, "{text}");
        }
        let text = "SELECT * FROM system_schema.columns WHERE column_name > 'a' AND column_name > 'b'";
        let expected = "More than one restriction was found for the start bound on column_name";
        assert_eq!(session.refused(text, &[]).await, expected);
        let both = "SELECT * FROM t WHERE k = 1 AND c > 1 AND c <= 5";
        assert_eq!(session.refused(both, &[]).await, "0 rows");
    });
    server.end_with_bounded_polls();
}

#[test]
fn insert_rejects_a_repeated_column() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        let text = "INSERT INTO t (k, k, c) VALUES (1, 2, 3)";
        assert_eq!(session.refused(text, &[]).await, "The column names contains duplicates");
    });
    server.end_with_bounded_polls();
}

#[test]
fn relations_are_counted_before_they_are_bound() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        session.limit(Guardrail::StatementRelations, 100);
        let many = "AND v != 1 ".repeat(100);
        let expected = "Guardrail statement_relations violated: expected at most 100 relations or assignments \
                        in one statement, got 101: name each column once";
        let text = format!("SELECT * FROM t WHERE nope = 1 {many} ALLOW FILTERING");
        assert_eq!(session.refused(&text, &[]).await, expected);
        let sets = ["l[0] = 1"; 100].join(", ");
        let text = format!("UPDATE t SET {sets} WHERE nope = 1");
        assert_eq!(session.refused(&text, &[]).await, expected);
    });
    server.end_with_bounded_polls();
}

/// The number of values is the client's, ahead of the values, which may all be empty.
#[test]
fn every_in_counts_its_values_before_copying_them() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        session.limit(Guardrail::InValues, 100);
        let list = ints(101);
        let text = ["1"; 101].join(", ");
        let expected = "Guardrail in_values violated: expected at most 100 values in one IN, got 101: send \
                        several statements";
        for statement in [
            "SELECT * FROM t WHERE k IN # ALLOW FILTERING",
            "SELECT * FROM t WHERE k = 1 AND c IN #",
            "SELECT * FROM t WHERE v IN # ALLOW FILTERING",
            "SELECT * FROM system_schema.columns WHERE position IN #",
            "UPDATE t SET v = 1 WHERE k IN # AND c = 1",
            "DELETE FROM t WHERE k = 1 AND c IN #",
            "UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF v IN #",
        ] {
            let bound = statement.replace('#', "?");
            assert_eq!(session.refused(&bound, &[&list]).await, expected, "{bound}");
            let literal = statement.replace('#', &format!("({text})"));
            assert_eq!(session.refused(&literal, &[]).await, expected, "{statement}");
        }
        let (_, failed) = session.0.registry().guardrails().counts(Guardrail::InValues);
        assert_eq!(failed, 14);
    });
    server.end_with_bounded_polls();
}

#[test]
fn guardrail_limits_elements_of_collections() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        session.limit(Guardrail::CollectionElements, 100);
        let expected = "Guardrail collection_elements violated: expected at most 100 elements of one \
                        collection, got 101: use a clustering column instead";
        let bound = "UPDATE t SET l = ? WHERE k = 1 AND c = 1";
        assert_eq!(session.refused(bound, &[&ints(101)]).await, expected);
        let literal = format!("UPDATE t SET l = [{}] WHERE k = 1 AND c = 1", ["1"; 101].join(", "));
        assert_eq!(session.refused(&literal, &[]).await, expected);
        assert_eq!(session.refused(bound, &[&ints(100)]).await, "0 rows");
        // A count that the value has no room for is no number of elements.
        assert_eq!(session.refused(bound, &[b"test"]).await, "Not enough bytes to read a list");
    });
    server.end_with_bounded_polls();
}

/// The result of a failed condition shows stored data.
#[test]
fn conditions_require_the_select_permission() {
    let server = Server::with(&[TABLE]);
    server.run(async |session| {
        let actions = |text: &str| {
            let plan = session.prepare(text).expect("prepares");
            plan.targets().iter().map(|target| target.action).collect::<Vec<_>>()
        };
        let both = [Action::Modify, Action::Select];
        assert_eq!(actions("INSERT INTO t (k, c, v) VALUES (1, 1, 1)"), [Action::Modify]);
        assert_eq!(actions("INSERT INTO t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS"), both);
        assert_eq!(actions("UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF v = 7"), both);
        assert_eq!(actions("DELETE FROM t WHERE k = 1 AND c = 1 IF EXISTS"), both);
        let batch = "BEGIN BATCH INSERT INTO t (k, c) VALUES (1, 1); \
                     UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF v = 7; \
                     INSERT INTO t (k, c) VALUES (1, 2) APPLY BATCH";
        assert_eq!(actions(batch), both, "each target once");
    });
    server.end_with_bounded_polls();
}
