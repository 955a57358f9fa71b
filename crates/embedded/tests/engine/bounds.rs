//! Null bounds, tokens beside keys, casts, and aggregates as terms, as Cassandra 5.0.9 has them.

use std::sync::Arc;

use engine::{Engine, ParsedTree, Request, StatementOutcome, Value, Warnings};
use lanes::Group;
use testkit::Setup;

use crate::cassandra::answer;

const SETUP: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE r (k int, c int, d text, v int, PRIMARY KEY (k, c, d))",
    "CREATE TABLE e (k int, c int, v int, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
    "CREATE TABLE p (k int PRIMARY KEY, v int, x text, a ascii, s set<text>, f frozen<set<text>>, \
     b frozen<map<varint, int>>, m frozen<map<int, varint>>, l list<varint>, n list<blob>)",
    "INSERT INTO r (k, c, d, v) VALUES (1, 1, 'a', 1)",
    "INSERT INTO r (k, c, d, v) VALUES (1, 2, 'a', 2)",
    "INSERT INTO e (k, c, v) VALUES (1, 1, 1)",
    "INSERT INTO e (k, c, v) VALUES (1, 2, 2)",
    "INSERT INTO p (k, v, x, a) VALUES (1, 10, 'abc', 'asc')",
];

/// Runs statements over the rows above. Each has the expected answer.
fn check(statements: &[(&'static str, &'static str)]) {
    for cores in [1, 3] {
        let statements = statements.to_vec();
        let lanes = Setup::new(cores).start();
        lanes.block_on(0, Group::DEFAULT, move || async move {
            let engine = testkit::engine();
            for text in SETUP {
                assert_eq!(answer(&engine, text, &[]).await, "done", "{text}");
            }
            for (text, expected) in statements {
                assert_eq!(answer(&engine, text, &[]).await, expected, "{text}");
            }
        });
        lanes.shutdown();
    }
}

#[test]
fn null_is_before_all_clustering_keys() {
    check(&[
        ("SELECT v FROM r WHERE k = 1 AND c > null", "1 2"),
        ("SELECT v FROM r WHERE k = 1 AND c >= null AND c < 2", "1"),
        ("SELECT v FROM r WHERE k = 1 AND c < null", ""),
        ("SELECT v FROM r WHERE k = 1 AND c <= null", ""),
        ("SELECT v FROM r WHERE k = 1 AND c > 1 AND c < null", ""),
        ("SELECT v FROM r WHERE k = 1 AND c = 1 AND d > null", "1"),
        ("SELECT v FROM e WHERE k = 1 AND c > null", ""),
        ("SELECT v FROM e WHERE k = 1 AND c <= null", "2 1"),
        ("SELECT v FROM r WHERE c > null ALLOW FILTERING", "1 2"),
        (
            "SELECT v FROM r WHERE k = 1 AND (c) > (null)",
            "Invalid: Invalid null value in condition for column c",
        ),
        ("DELETE FROM r WHERE k = 1 AND c > null", "Invalid: Invalid null value in condition for column c"),
        (
            "SELECT v FROM r WHERE k = 1 AND d > null ALLOW FILTERING",
            "Invalid: Unsupported null value for column d",
        ),
    ]);
}

#[test]
fn tokens_beside_the_key_choose_among_partitions_to_write() {
    // The token of 1 is -4069959284402364209.
    check(&[
        ("DELETE FROM r WHERE k = 1 AND token(k) > 0", "done"),
        ("UPDATE r SET v = 9 WHERE token(k) = 7 AND k = 1 AND c = 1 AND d = 'a'", "done"),
        ("UPDATE p SET v = 9 WHERE k = 1 AND token(k) > 0", "done"),
        ("SELECT v FROM p WHERE k = 1", "10"),
        ("SELECT v FROM r WHERE k = 1", "1 2"),
        ("UPDATE r SET v = 6 WHERE k IN (1, 2) AND token(k) < 0 AND c = 1 AND d = 'a'", "done"),
        ("SELECT k, v FROM r WHERE k IN (1, 2)", "1,6 1,2 2,6"),
        ("DELETE FROM r WHERE k = 1 AND token(k) = -4069959284402364209", "done"),
        ("SELECT v FROM r WHERE k = 1", ""),
        (
            "DELETE FROM r WHERE token(k) = 1",
            "Invalid: The token function cannot be used in WHERE clauses for DELETE statements",
        ),
        (
            "UPDATE r SET v = 6 WHERE k = 1 AND token(k) = 7 AND c = 1 AND d = 'a' IF v = 5",
            "Invalid: The token function cannot be used in WHERE clauses of conditional updates",
        ),
    ]);
}

#[test]
fn casts_are_those_of_cassandra() {
    check(&[
        ("SELECT cast(v as text), cast(v as ascii), cast(x as varchar) FROM p", "'10','10','abc'"),
        ("SELECT cast((int)1 as text), cast(count(*) as text) FROM p", "'1','1'"),
        ("SELECT cast(v as varchar) FROM p", "Invalid: v cannot be cast to varchar"),
        ("SELECT cast(a as varchar) FROM p", "Invalid: a cannot be cast to varchar"),
        ("SELECT cast(v as blob) FROM p", "Invalid: v cannot be cast to blob"),
        ("SELECT cast(v as counter) FROM p", "Invalid: v cannot be cast to counter"),
        (
            "SELECT cast(1 as text) FROM p",
            "Invalid: Cannot infer type for term 1 in selection clause (try using a cast to force a type)",
        ),
        (
            "SELECT cast(null as int) FROM p",
            "Invalid: Cannot infer type for term NULL in selection clause (try using a cast to force a type)",
        ),
        ("SELECT cast(v as list<int>) FROM p", "Syntax: line 1:17 no viable alternative at input 'list'"),
        ("SELECT cast(v as u) FROM p", "Syntax: line 1:17 no viable alternative at input 'u'"),
        ("SELECT v FROM p WHERE k = cast((bigint) 1 as int)", "10"),
    ]);
}

#[test]
fn properties_are_of_columns_and_aggregates_are_no_terms() {
    check(&[
        ("SELECT writetime(1) FROM p", "Syntax: line 1:17 no viable alternative at input '1'"),
        ("SELECT writetime(v + 1) FROM p", "Syntax: line 1:19 mismatched input '+' expecting ')'"),
        ("SELECT \"writetime\"(1) FROM p", "Invalid: Unknown function 'writetime'"),
        (
            "INSERT INTO p (k, v) VALUES (1, max(1))",
            "Invalid: Aggregation function are not supported in the where clause",
        ),
        (
            "SELECT v FROM p WHERE k = sum((int) 1)",
            "Invalid: Aggregation function are not supported in the where clause",
        ),
        (
            "INSERT INTO p (k, v) VALUES (1, count(1))",
            "Invalid: Type error: 1 cannot be passed as argument 0 of function system.count of type blob",
        ),
    ]);
    for text in ["SELECT system.writetime(v) FROM p", "INSERT INTO p (k, v) VALUES (1, ttl(1))"] {
        assert!(ParsedTree::parse(text).is_err_and(|error| !error.is_invalid), "{text}");
    }
}

#[test]
fn hints_are_assigned_as_in_cassandra() {
    check(&[
        ("INSERT INTO p (k, m) VALUES (1, (frozen<map<int, int>>) null)", "done"),
        ("INSERT INTO p (k, s) VALUES (1, (set<ascii>) null)", "done"),
        ("INSERT INTO p (k, n) VALUES (1, (list<text>) null)", "done"),
        (
            "INSERT INTO p (k, b) VALUES (1, (frozen<map<int, int>>) null)",
            "Invalid: Cannot assign value (frozen<map<int, int>>)NULL to b of type frozen<map<varint, int>>",
        ),
        (
            "INSERT INTO p (k, l) VALUES (1, (list<int>) null)",
            "Invalid: Cannot assign value (list<int>)NULL to l of type list<varint>",
        ),
        (
            "INSERT INTO p (k, s) VALUES (1, (frozen<set<text>>) {'a'})",
            "Invalid: Cannot assign value (frozen<set<text>>){'a'} to s of type set<text>",
        ),
        (
            "INSERT INTO p (k, f) VALUES (1, (set<text>) {'a'})",
            "Invalid: Cannot assign value (set<text>){'a'} to f of type frozen<set<text>>",
        ),
    ]);
}

#[test]
fn aggregates_over_several_partitions_are_noted() {
    const ALL: &str = "Aggregation query used without partition key";
    const SEVERAL: &str = "Aggregation query used on multiple partition keys (IN restriction)";
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            assert_eq!(answer(&engine, text, &[]).await, "done", "{text}");
        }
        for (text, expected) in [
            ("SELECT count(*) FROM r", &[ALL][..]),
            ("SELECT k, c FROM r GROUP BY k", &[ALL]),
            ("SELECT count(*) FROM r WHERE c = 1 ALLOW FILTERING", &[ALL]),
            ("SELECT count(*) FROM r WHERE k IN (1, 2)", &[SEVERAL]),
            ("SELECT count(*) FROM system_schema.tables WHERE keyspace_name IN ('a', 'b')", &[SEVERAL]),
            ("SELECT count(*) FROM r WHERE k IN (1)", &[]),
            ("SELECT count(*) FROM r WHERE k = 1", &[]),
            ("SELECT count(*) FROM r WHERE token(k) > 0", &[]),
            ("SELECT v FROM r WHERE k IN (1, 2)", &[]),
        ] {
            Warnings::begin();
            answer(&engine, text, &[]).await;
            assert_eq!(Warnings::take().texts(engine.registry().guardrails()), expected, "{text}");
        }
    });
    lanes.shutdown();
}

#[test]
fn aggregates_of_virtual_tables_are_those_of_their_rows() {
    let tables = "FROM system_schema.tables WHERE keyspace_name = 'ks'";
    check(&[
        (format!("SELECT count(*), max(table_name), min(table_name) {tables}").leak(), "3,'r','e'"),
        (format!("SELECT keyspace_name, count(*) {tables} GROUP BY keyspace_name").leak(), "'ks',3"),
        (format!("SELECT count(*) {tables} AND table_name = 'nope'").leak(), "0"),
    ]);
}

#[test]
fn statement_calls_now_once_for_each_name() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            answer(&engine, text, &[]).await;
        }
        answer(&engine, "CREATE TABLE u (k int, c uuid, d uuid, PRIMARY KEY (k, c))", &[]).await;
        // Both rows have the same key, because the call is one value of the statement.
        for text in [
            "UPDATE u SET d = uuid() WHERE k IN (1, 2) AND c = now()",
            "BEGIN BATCH INSERT INTO u (k, c) VALUES (3, uuid()) APPLY BATCH",
        ] {
            assert_eq!(answer(&engine, text, &[]).await, "done");
        }
        let rows = answer(&engine, "SELECT c, d FROM u WHERE k IN (1, 2)", &[]).await;
        let rows: Vec<&str> = rows.split(' ').collect();
        assert!(rows.len() == 2 && rows[0] == rows[1], "{rows:?}");
        // A client's values come first.
        let insert =
            Arc::new(ParsedTree::parse("INSERT INTO u (k, c, d) VALUES (?, now(), ?)").expect("CQL"));
        let plan = engine.prepare(insert, Some("ks")).expect("it is bound");
        let values = [Value::Bytes(&[0, 0, 0, 9]), Value::Bytes(&[7; 16])];
        let request = Request { values: &values, ..Request::EMPTY };
        let outcome = engine.execute(&plan, &request).outcome(&*engine).await;
        assert_eq!(outcome.expect("written"), StatementOutcome::Void);
        let one = &values[..1];
        let outcome =
            engine.execute(&plan, &Request { values: one, ..Request::EMPTY }).outcome(&*engine).await;
        assert!(outcome.is_err(), "a value is missing");
        assert_eq!(
            answer(&engine, "SELECT d FROM u WHERE k = 9", &[]).await,
            "07070707-0707-0707-0707-070707070707"
        );
    });
    lanes.shutdown();
}

#[test]
fn part_of_a_composite_key_may_be_null_in_sql() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in [
            SETUP[0],
            "CREATE TABLE w (a int, b int, s text, c int, PRIMARY KEY ((a, b, s), c))",
            "CREATE TABLE o (a int PRIMARY KEY, v int)",
        ] {
            assert_eq!(answer(&engine, text, &[]).await, "done", "{text}");
        }
        let schema = engine.schema();
        let nullable = |table: &str| {
            let def = schema.table("ks", table).expect("it exists");
            let fields = engine::scan::schema_of(def, 0);
            fields.fields().iter().map(|field| field.is_nullable()).collect::<Vec<_>>()
        };
        assert_eq!(nullable("w"), [true, true, false, true]);
        assert_eq!(nullable("o"), [false, true]);
    });
    lanes.shutdown();
}
