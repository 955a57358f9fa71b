//! Selectors that are more than a column, and calls and operators as terms: names and types of the
//! columns, values, and errors as Cassandra 5.0.9 gives them.

use std::sync::Arc;

use embedded::Embedded;
use engine::{Engine, Error, ParsedTree, Request, StatementOutcome, Value};
use lanes::Group;
use testkit::{Setup, texts};

const SETUP: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE u (f1 int, f2 text)",
    "CREATE TABLE t (k int, c int, s int static, v int, b bigint, d double, n decimal, x text, a ascii, \
     ts timestamp, m map<text, int>, z set<int>, l list<int>, uu u, fu frozen<u>, fm frozen<map<text, int>>, \
     PRIMARY KEY (k, c))",
    "INSERT INTO t (k, c, s, v, b, d, n, x, a, ts, m, z, l, uu, fu, fm) VALUES (1, 1, 7, 10, 20, 1.5, 2.5, 'abc', \
     'asc', '2020-01-01', {'a': 1, 'b': 2, 'c': 3}, {1, 2, 3}, [1, 2], {f1: 1, f2: 'x'}, {f1: 2, f2: 'y'}, {'q': 9}) \
     USING TIMESTAMP 1000",
    "INSERT INTO t (k, c, v) VALUES (1, 2, 30) USING TIMESTAMP 2000",
];

async fn execute(engine: &Embedded, text: &str, values: &[Value<'_>]) -> Result<String, Error> {
    let statement = ParsedTree::parse(text).map_err(|error| Error::Syntax(error.to_string()))?;
    let plan = engine.prepare(Arc::new(statement), Some("ks"))?;
    match engine.execute(&plan, &Request { values, ..Request::EMPTY }).outcome(engine).await? {
        StatementOutcome::Rows(rows) => {
            let columns: Vec<String> =
                rows.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
            let rows: Vec<String> = texts(&rows).iter().map(|row| row.join(" | ")).collect();
            Ok(format!("{} = {}", columns.join(" | "), rows.join("; ")))
        }
        _ => Ok("done".to_owned()),
    }
}

/// Runs statements over the rows above. The answer is the names and types of the columns, and the
/// rows.
fn check(statements: &[(&'static str, &'static str)]) {
    let statements: Vec<_> = statements.iter().map(|(text, answer)| (*text, Vec::new(), *answer)).collect();
    check_values(statements);
}

/// Runs statements with values as [`check`] does.
fn check_values(statements: Vec<(&'static str, Vec<Vec<u8>>, &'static str)>) {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            execute(&engine, text, &[]).await.expect(text);
        }
        for (text, values, expected) in statements {
            let values: Vec<Value<'_>> = values.iter().map(|value| Value::Bytes(value)).collect();
            let answer = match execute(&engine, text, &values).await {
                Ok(answer) => answer,
                Err(Error::Function { function, message, .. }) => format!("! {function}: {message}"),
                Err(error) => format!("! {error}"),
            };
            assert_eq!(answer, expected, "{text}");
        }
    });
    lanes.shutdown();
}

#[test]
fn columns_of_expressions_have_the_names_of_cassandra() {
    check(&[
        (
            "SELECT v + 1, v + b, (v + 1) * 2, -v, v - (b - 1), -(v + 1), v % 3 FROM t WHERE k = 1 AND c = 1",
            "v + 1 int | v + b bigint | (v + 1) * 2 int | -v int | v - (b - 1) bigint | -(v + 1) int | v % 3 int = \
             11 | 30 | 22 | -10 | -9 | -11 | 1",
        ),
        (
            "SELECT v + 1.5, n + 1, ts + 1d, 1 + 1 FROM t WHERE k = 1 AND c = 1",
            "v + 1.5 double | n + 1 decimal | ts + 1d timestamp | 1 + 1 int = \
             11.5 | 3.5 | '2020-01-02 00:00:00.000Z' | 2",
        ),
        (
            "SELECT cast(v as text), CAST(v AS int), text_as_blob(x), blobAsText(textAsBlob(x)) AS y FROM t \
             WHERE k = 1 AND c = 1",
            "cast(v as text) text | v int | system.text_as_blob(x) blob | y text = '10' | 10 | 0x616263 | 'abc'",
        ),
        (
            "SELECT count(*), count(1), count(v), sum(v) + v, sum(v + 1), cast(sum(v) as text), max(x) FROM t",
            "count bigint | count bigint | system.count(v) bigint | system.sum(v) + v int | system.sum(v + 1) int | \
             cast(system.sum(v) as text) text | system.max(x) text = 2 | 2 | 2 | 50 | 42 | '40' | 'abc'",
        ),
        (
            "SELECT (int)1, (list<int>)[1], (u){f1: 1, f2: 'x'} FROM t WHERE k = 1 AND c = 1",
            "(int)1 int | (list<int>)[1] list<int> | (ks.u){f1: 1, f2: 'x'} u = 1 | [1] | {f1: 1, f2: 'x'}",
        ),
        (
            "SELECT token(k), token(1), token(c) FROM t WHERE k = 1 AND c = 2",
            "system.token(k) bigint | system.token(1) bigint | system.token(c) bigint = \
             -4069959284402364209 | -4069959284402364209 | -3248873570005575792",
        ),
    ]);
}

#[test]
fn parts_of_columns_are_selected() {
    check(&[
        (
            "SELECT m['a'..'b'], m['b'..], m[..'a'], m['x'..'z'], z[2..3], fm['x'..], uu.f1, fu.f2 FROM t \
             WHERE k = 1 AND c = 1",
            "m['a'..'b'] map<text, int> | m['b'..] map<text, int> | m[..'a'] map<text, int> | \
             m['x'..'z'] map<text, int> | z[2..3] set<int> | fm['x'..] frozen<map<text, int>> | uu.f1 int | \
             fu.f2 text = {'a': 1, 'b': 2} | {'b': 2, 'c': 3} | {'a': 1} | null | {2, 3} | {} | 1 | 'y'",
        ),
        (
            "SELECT writetime(m), maxwritetime(m), writetime(m['a']), writetime(m['b'..]), writetime(m['z']), \
             writetime(uu), writetime(uu.f1), writetime(fu), writetime(fu.f1), writetime(fm['x'..]) FROM t \
             WHERE k = 1 AND c = 1",
            "writetime(m) list<bigint> | maxwritetime(m) bigint | writetime(m['a']) bigint | \
             writetime(m['b'..]) list<bigint> | writetime(m['z']) bigint | writetime(uu) list<bigint> | \
             writetime(uu.f1) bigint | writetime(fu) bigint | writetime(fu.f1) bigint | writetime(fm['x'..]) bigint = \
             [1000, 1000, 1000] | 1000 | 1000 | [1000, 1000] | null | [1000, 1000] | 1000 | 1000 | 1000 | null",
        ),
        (
            "SELECT [v, c], {v, c}, (v, x), (u){f1: v, f2: x}, (map<text, int>){x: v} FROM t WHERE k = 1 AND c = 1",
            "[v, c] list<int> | {v, c} set<int> | (v, x) frozen<tuple<int, text>> | (ks.u){f1: v, f2: x} u | \
             (map<text, int>){x: v} map<text, int> = \
             [10, 1] | {1, 10} | (10, 'abc') | {f1: 10, f2: 'abc'} | {'abc': 10}",
        ),
    ]);
}

#[test]
fn wrong_selectors_are_refused() {
    check(&[
        (
            "SELECT 1 FROM t",
            "! Cannot infer type for term 1 in selection clause (try using a cast to force a type)",
        ),
        ("SELECT l[0..1] FROM t", "! Slice selection is only allowed on sets and maps, but l is a list"),
        ("SELECT v['a'..'b'] FROM t", "! Invalid slice selection: v of type int is not a collection"),
        (
            "SELECT maxwritetime(c) FROM t",
            "! Cannot use selection function maxwritetime on PRIMARY KEY part c",
        ),
        ("SELECT nofunc(v) FROM t", "! Unknown function 'nofunc'"),
        ("SELECT \"MIN\"(v) FROM t", "! Unknown function 'MIN'"),
        ("SELECT (text)v FROM t", "! Cannot assign value (text)v to (text)v of type text"),
        (
            "SELECT textasblob(v) FROM t",
            "! Type error: v cannot be passed as argument 0 of function system.textasblob of type text",
        ),
        ("SELECT v / 0 FROM t WHERE k = 1", "! _divide: the operation 'int / int' failed: / by zero"),
        (
            "SELECT k FROM t GROUP BY k, c + 1",
            "! Only monotonic functions are supported in the GROUP BY clause. Got: system.\"_add\" : \
             (int, int(constant)) -> int ",
        ),
    ]);
}

#[test]
fn terms_are_computed() {
    check(&[
        ("INSERT INTO t (k, c, v, x) VALUES (2, 1 + 1, 3 * 4, blobastext(0x6162))", "done"),
        (
            "UPDATE t SET b = 10 % 4, d = 1 / 2, n = 1.5 * 2, l = [1 + 1, 2 * 3] WHERE k = -(-2) AND c = 2",
            "done",
        ),
        (
            "SELECT v, b, d, n, x, l FROM t WHERE k = 1 + 1 AND token(k) = token(2) AND c = blobasint(0x00000002)",
            "v int | b bigint | d double | n decimal | x text | l list<int> = 12 | 2 | 0.5 | 3.0 | 'ab' | [2, 6]",
        ),
        (
            "INSERT INTO t (k, c, v) VALUES (2, 2, 'a' + 1)",
            "! the '+' operation is not supported between 'a' and 1",
        ),
        ("INSERT INTO t (k, c, v) VALUES (2, 2, nofunc(1))", "! Unknown function nofunc called"),
        (
            "INSERT INTO t (k, c, v) VALUES (2, 2, now())",
            "! Type error: cannot assign result of function system.now (type timeuuid) to v (type int)",
        ),
        (
            "INSERT INTO t (k, c, v) VALUES (2, 2, (bigint)3)",
            "! Cannot assign value (bigint)3 to v of type int",
        ),
        (
            "INSERT INTO t (k, c, v) VALUES (2, 2, 1 / 0)",
            "! _divide: the operation 'int / int' failed: / by zero",
        ),
    ]);
}

#[test]
fn markers_are_arguments() {
    let int = |number: i32| number.to_be_bytes().to_vec();
    check_values(vec![
        (
            "SELECT v + (int)?, (int)?, intasblob(?), m[?] FROM t WHERE k = ? AND c = (int)? / 2",
            vec![int(5), int(6), int(7), b"b".to_vec(), int(1), int(2)],
            "v + (int)? int | (int)? int | system.intasblob(?) blob | m[?] int = 15 | 6 | 0x00000007 | 2",
        ),
        ("UPDATE t SET v = (int)? * 2 WHERE k = 1 AND c = 1", vec![int(4)], "done"),
        ("SELECT v FROM t WHERE k = 1 AND c = 1", Vec::new(), "v int = 8"),
    ]);
}
