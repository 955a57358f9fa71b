//! Calls with unusual arguments: none, nulls, extremes, and ones that do not fit. A statement has
//! an answer or an error of its own, and never fails inside the server.

use datafusion::execution::SessionStateDefaults;
use tokio_postgres::Client;

use crate::common::{TestListener, refused, rows};

/// Values of the types that functions take, at their limits.
const EXTREMES: [&str; 30] = [
    "0",
    "-1",
    "2147483647",
    "(-2147483647 - 1)",
    "9223372036854775807",
    "(-9223372036854775807 - 1)",
    "1.5",
    "-99999999999999999999.9999999999",
    "'NaN'::float8",
    "'-Infinity'::float8",
    "1e308::float8",
    "''",
    "'a'::text",
    "'\u{1F600}äöü'",
    "'%[(\\'",
    "repeat('x', 10000)",
    "true",
    "DATE '1970-01-01'",
    "DATE '5874897-12-31'",
    "DATE '-4712-01-01'",
    "TIMESTAMP '2262-04-11 23:47:16.854775'",
    "TIMESTAMPTZ '2000-02-29 00:00:00+00'",
    "INTERVAL '178000000 years'",
    "INTERVAL '-1 month 1 day'",
    "TIME '23:59:59.999999'",
    "'\\x00ff'::bytea",
    "ARRAY[1, NULL, 3]",
    "ARRAY[]::int[]",
    "ARRAY['a', NULL]",
    "ARRAY[ARRAY[1], ARRAY[2]]",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FunctionKind {
    Scalar,
    Aggregate,
    Window,
}

/// Returns all functions by name, with their other names.
fn functions() -> Vec<(String, FunctionKind)> {
    let mut all = Vec::new();
    let mut add = |name: &str, aliases: &[String], kind| {
        all.push((name.to_owned(), kind));
        all.extend(aliases.iter().map(|alias| (alias.clone(), kind)));
    };
    for function in SessionStateDefaults::default_scalar_functions() {
        add(function.name(), function.aliases(), FunctionKind::Scalar);
    }
    for function in SessionStateDefaults::default_aggregate_functions() {
        add(function.name(), function.aliases(), FunctionKind::Aggregate);
    }
    for function in SessionStateDefaults::default_window_functions() {
        add(function.name(), function.aliases(), FunctionKind::Window);
    }
    for name in
        ["timezone", "to_char", "quote_ident", "quote_literal", "current_setting", "set_config", "version"]
    {
        add(name, &[], FunctionKind::Scalar);
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all.dedup();
    all
}

/// Returns calls of a function: with no argument, nulls, each extreme value alone, and some
/// combinations, which differ from function to function.
fn calls(name: &str, kind: FunctionKind) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["", "NULL", "NULL, NULL", "NULL, NULL, NULL", "NULL::text", "NULL::int", "NULL::float8, 1"]
            .map(str::to_owned)
            .into();
    arguments.extend(EXTREMES.map(str::to_owned));
    let mut seed = name.bytes().fold(7_usize, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        EXTREMES[(seed >> 33) % EXTREMES.len()]
    };
    arguments.extend((0..10).map(|_| format!("{}, {}", next(), next())));
    arguments.extend((0..6).map(|_| format!("{}, {}, {}", next(), next(), next())));
    arguments.extend((0..2).map(|_| format!("{}, {}, {}, {}", next(), next(), next(), next())));
    let call = |arguments: &String| {
        let call = format!("{name}({arguments})");
        match kind {
            FunctionKind::Scalar => format!("SELECT {call}"),
            FunctionKind::Aggregate => {
                format!("SELECT {call}, count(*) FROM (VALUES (1), (2)) t(c) WHERE c > 0")
            }
            FunctionKind::Window => format!("SELECT {call} OVER (ORDER BY c) FROM (VALUES (1), (2)) t(c)"),
        }
    };
    arguments.iter().map(call).collect()
}

/// Runs statements. Returns those that failed inside the server, or broke the connection.
async fn faults(client: &Client, statements: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for statement in statements {
        let Err(error) = client.simple_query(statement).await else { continue };
        match error.as_db_error() {
            Some(db) if db.code().code() != "XX000" && !db.message().contains("Internal error") => {}
            Some(db) => faults.push(format!("{statement}: {}", db.message())),
            None => panic!("{statement}: {error}"),
        }
    }
    faults
}

/// Tests of functions, each with a part of them: a test's client has 60 s.
const PARTS: usize = 8;

fn check_part(part: usize) {
    let listener = TestListener::start(1);
    listener.client(async {
        let client = listener.admin().await;
        let mut found = Vec::new();
        for (name, kind) in functions().into_iter().skip(part).step_by(PARTS) {
            found.extend(faults(&client, &calls(&name, kind)).await);
        }
        assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
    });
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_1() {
    check_part(0);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_2() {
    check_part(1);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_3() {
    check_part(2);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_4() {
    check_part(3);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_5() {
    check_part(4);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_6() {
    check_part(5);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_7() {
    check_part(6);
}

#[test]
fn functions_with_unusual_arguments_answer_or_refuse_8() {
    check_part(7);
}

#[test]
fn calls_that_do_not_fit_are_refused_as_by_postgres() {
    let listener = TestListener::start(1);
    listener.client(async {
        let client = listener.admin().await;
        for (statement, code, text) in [
            ("SELECT ln()", "42883", "function ln() does not exist"),
            ("SELECT abs()", "42883", "function abs() does not exist"),
            ("SELECT abs(true)", "42883", "function abs(boolean) does not exist"),
            ("SELECT sqrt('abc'::text)", "42883", "function sqrt(text) does not exist"),
            ("SELECT sum()", "42883", "function sum() does not exist"),
            ("SELECT sum('a'::text)", "42883", "function sum(text) does not exist"),
            ("SELECT avg(true)", "42883", "function avg(boolean) does not exist"),
            ("SELECT lag() OVER ()", "42883", "function lag() does not exist"),
            ("SELECT ntile() OVER ()", "42883", "function ntile() does not exist"),
            ("SELECT foo()", "42883", "function foo does not exist"),
            ("SELECT * FROM foo(1)", "42883", "function foo() does not exist"),
            ("SELECT 'a'::text + true", "42883", "operator does not exist: text + boolean"),
            ("SELECT true < 1", "42883", "operator does not exist: boolean < bigint"),
            ("SELECT NOT 1", "42804", "argument of NOT must be type boolean, not type bigint"),
            ("SELECT * FROM generate_series(1, 2, 0)", "22023", "step size cannot equal zero"),
        ] {
            assert_eq!(refused(&client, statement).await, (code.to_owned(), text.to_owned()), "{statement}");
        }
        let error = client.simple_query("SELECT abs()").await.expect_err("refused");
        let hint = error.as_db_error().and_then(|db| db.hint()).unwrap_or_default();
        assert!(hint.starts_with("No function matches the given name"), "{hint}");
    });
}

const T: &str = "(VALUES (1), (2), (3)) t(a)";

#[test]
fn frame_bounds_match_postgres_or_are_refused() {
    let listener = TestListener::start(1);
    listener.client(async {
        let client = listener.admin().await;
        let sums = |units: &str, start: &str, end: &str| {
            format!("SELECT sum(a) OVER (ORDER BY a {units} BETWEEN {start} AND {end}) FROM {T} ORDER BY a")
        };
        for units in ["ROWS", "RANGE", "GROUPS"] {
            for (start, end, expected) in [
                ("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING", "6 6 6"),
                ("UNBOUNDED PRECEDING", "CURRENT ROW", "1 3 6"),
                ("1 PRECEDING", "1 FOLLOWING", "3 6 5"),
                ("0 PRECEDING", "0 FOLLOWING", "1 2 3"),
                ("1 PRECEDING", "2147483648 FOLLOWING", "6 6 5"),
                ("1 PRECEDING", "9223372036854775807 FOLLOWING", "6 6 5"),
                ("9223372036854775807 PRECEDING", "CURRENT ROW", "1 3 6"),
                ("9223372036854775807 PRECEDING", "9223372036854775807 PRECEDING", "- - -"),
                ("9223372036854775807 FOLLOWING", "9223372036854775807 FOLLOWING", "- - -"),
                ("2 PRECEDING", "1 PRECEDING", "- 1 3"),
                ("1 FOLLOWING", "2 FOLLOWING", "5 3 -"),
                ("1 FOLLOWING", "UNBOUNDED FOLLOWING", "5 3 -"),
            ] {
                let statement = sums(units, start, end);
                if units == "RANGE" && start == end && start.starts_with('9') {
                    // An offset beyond the column's type.
                    assert_eq!(refused(&client, &statement).await.0, "42P20", "{statement}");
                    continue;
                }
                assert_eq!(rows(&client, &statement).await.join(" "), expected, "{statement}");
            }
            for (bound, code) in [
                ("-1", "22013"),
                ("NULL", "22004"),
                ("1 + 1", "0A000"),
                ("9223372036854775808", if units == "RANGE" { "0A000" } else { "22003" }),
                ("18446744073709551615", if units == "RANGE" { "0A000" } else { "22003" }),
                ("99999999999999999999999", if units == "RANGE" { "0A000" } else { "22003" }),
            ] {
                for (start, end) in [
                    (format!("{bound} PRECEDING"), "UNBOUNDED FOLLOWING".to_owned()),
                    ("UNBOUNDED PRECEDING".to_owned(), format!("{bound} FOLLOWING")),
                    (format!("{bound} FOLLOWING"), format!("{bound} FOLLOWING")),
                ] {
                    let statement = sums(units, &start, &end);
                    assert_eq!(refused(&client, &statement).await.0, code, "{statement}");
                }
            }
            for (start, end) in [
                ("UNBOUNDED FOLLOWING", "UNBOUNDED FOLLOWING"),
                ("UNBOUNDED PRECEDING", "UNBOUNDED PRECEDING"),
                ("CURRENT ROW", "1 PRECEDING"),
                ("1 FOLLOWING", "CURRENT ROW"),
            ] {
                assert_eq!(
                    refused(&client, &sums(units, start, end)).await.0,
                    "42P20",
                    "{units} {start} {end}"
                );
            }
        }
        let fractions = sums("ROWS", "0.5 PRECEDING", "0.4 FOLLOWING");
        assert_eq!(rows(&client, &fractions).await.join(" "), "1 3 5");
        let named = format!("SELECT sum(a) OVER w FROM {T} WINDOW w AS (ORDER BY a ROWS -1 PRECEDING)");
        assert_eq!(refused(&client, &named).await.0, "22013");
    });
}

#[test]
fn operators_over_no_and_one_row_answer() {
    let listener = TestListener::start(2);
    listener.client(async {
        let client = listener.admin().await;
        for from in [
            "(SELECT 1 AS a WHERE false) t",
            "(SELECT 1 AS a) t",
            "(SELECT NULL::int AS a) t",
            "generate_series(1, 0) t(a)",
            "generate_series(1, 1) t(a)",
        ] {
            let statements = [
                format!("SELECT * FROM {from}"),
                format!("SELECT a, count(*), sum(a), avg(a), min(a), array_agg(a) FROM {from} GROUP BY a"),
                format!("SELECT count(*), sum(a), avg(a), min(a), array_agg(a), median(a) FROM {from}"),
                format!("SELECT a FROM {from} GROUP BY GROUPING SETS ((a), ())"),
                format!("SELECT a FROM {from} GROUP BY CUBE (a)"),
                format!("SELECT DISTINCT a FROM {from} ORDER BY a LIMIT 1 OFFSET 1"),
                format!("SELECT DISTINCT ON (a) a FROM {from} ORDER BY a"),
                format!("SELECT row_number() OVER (), ntile(2) OVER (ORDER BY a) FROM {from}"),
                format!("SELECT sum(a) OVER (PARTITION BY a ORDER BY a ROWS 1 PRECEDING) FROM {from}"),
                format!("SELECT * FROM {from} JOIN (SELECT 1 AS b) u ON t.a = u.b"),
                format!("SELECT * FROM {from} LEFT JOIN (SELECT 1 AS b WHERE false) u ON t.a = u.b"),
                format!("SELECT * FROM {from} FULL JOIN (SELECT 1 AS b WHERE false) u ON t.a = u.b"),
                format!("SELECT * FROM {from} RIGHT JOIN (SELECT 1 AS b) u ON t.a > u.b"),
                format!("SELECT * FROM {from}, (SELECT 1 AS b) u, (SELECT 2 AS c) v WHERE a + b + c > 0"),
                format!("SELECT a FROM {from} UNION SELECT a FROM {from}"),
                format!("SELECT a FROM {from} INTERSECT SELECT 1"),
                format!("SELECT a FROM {from} EXCEPT SELECT 1"),
                format!("SELECT a FROM {from} WHERE a IN (SELECT a FROM {from})"),
                format!("SELECT a FROM {from} WHERE NOT EXISTS (SELECT 1 FROM {from} WHERE a > 1)"),
                format!("SELECT (SELECT max(a) FROM {from}), a FROM {from}"),
                format!("SELECT unnest(ARRAY[a]) FROM {from}"),
                format!(
                    "WITH RECURSIVE r AS (SELECT a FROM {from} UNION ALL SELECT a + 1 FROM r WHERE a < 3) \
                     SELECT * FROM r"
                ),
            ];
            let found = faults(&client, &statements).await;
            assert!(found.is_empty(), "{found:#?}");
        }
    });
}

/// Three joined series failed in the server.
#[test]
fn joined_series_answer_or_refuse() {
    for cores in [1, 3] {
        let listener = TestListener::start(cores);
        listener.client(async {
            let client = listener.admin().await;
            let mut statements = Vec::new();
            for last in ["0", "1", "40", "100000", "4294967296", "9223372036854775807"] {
                for condition in [
                    "x + y + z = 5",
                    "x = y AND y = z",
                    "x > y AND y > z",
                    "x + y > z",
                    "x = 1",
                    "x < 2 AND y < 2 AND z < 2",
                    "x * y = z OR x IS NULL",
                    "x NOT IN (SELECT 1)",
                ] {
                    let series = |name: &str| format!("generate_series(1, {last}) {name}0({name})");
                    let from =
                        format!("FROM {}, {}, {} WHERE {condition}", series("x"), series("y"), series("z"));
                    statements.push(format!("EXPLAIN SELECT * {from} LIMIT 1"));
                    if last.len() < 3 {
                        statements.push(format!("SELECT * {from} ORDER BY x DESC, y, z LIMIT 3"));
                        statements.push(format!("SELECT count(*), sum(x + y), max(z) {from}"));
                    }
                }
            }
            let found = faults(&client, &statements).await;
            assert!(found.is_empty(), "{found:#?}");
        });
    }
}

#[test]
fn table_functions_with_unusual_arguments_answer_or_refuse() {
    let listener = TestListener::start(1);
    listener.client(async {
        let client = listener.admin().await;
        let mut statements = Vec::new();
        for name in ["generate_series", "range", "unnest"] {
            let call = |arguments: &str| format!("SELECT * FROM {name}({arguments}) LIMIT 2");
            statements.push(call(""));
            statements.extend(["NULL", "NULL, NULL", "NULL, NULL, NULL", "1, NULL", "1, 2, NULL"].map(call));
            for one in EXTREMES {
                statements.push(call(one));
                statements.extend(
                    [format!("{one}, {one}"), format!("1, {one}"), format!("{one}, 1")].map(|a| call(&a)),
                );
                statements.push(call(&format!("1, 5, {one}")));
            }
        }
        let found = faults(&client, &statements).await;
        assert!(found.is_empty(), "{found:#?}");
    });
}

#[test]
fn texts_cast_to_types_stored_as_text_are_checked() {
    let listener = TestListener::start(1);
    listener.cql(&[
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE ks.checked (u uuid PRIMARY KEY, n text)",
        "INSERT INTO ks.checked (u, n) VALUES (a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11, 'no uuid')",
    ]);
    listener.client(async {
        let client = listener.admin().await;
        let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for (text, expected) in [
            ("SELECT '{A0EEBC99-9C0B4EF8-BB6D6BB9BD380A11}'::uuid", uuid),
            ("SELECT CAST('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' AS uuid)", uuid),
            ("SELECT NULL::uuid", "-"),
            ("SELECT '{\"a\": [1, null]}'::json", "{\"a\": [1, null]}"),
            ("SELECT '10.0.0.0/8'::inet", "10.0.0.0/8"),
            ("SELECT u = '{A0EEBC999C0B4EF8BB6D6BB9BD380A11}'::uuid AND u::uuid = u FROM ks.checked", "t"),
            ("SELECT n FROM ks.checked WHERE u = 'A0EEBC999C0B4EF8BB6D6BB9BD380A11'::uuid", "no uuid"),
        ] {
            assert_eq!(rows(&client, text).await, [expected], "{text}");
        }
        for text in [
            "SELECT 'x'::uuid",
            "SELECT ''::uuid",
            "SELECT 1::uuid",
            "SELECT '{a: 1}'::json",
            "SELECT '1 2'::jsonb",
            "SELECT 'localhost'::inet",
            "SELECT n::uuid FROM ks.checked",
        ] {
            assert_eq!(refused(&client, text).await.0, "22P02", "{text}");
        }
        let statement = client.prepare("SELECT $1::uuid").await.expect("prepared");
        let row = client.query_one(&statement, &[&uuid.to_uppercase()]).await.expect("a row");
        assert_eq!(row.get::<_, String>(0), uuid);
    });
}

#[test]
fn locks_are_refused() {
    let listener = TestListener::start(1);
    listener.client(async {
        let client = listener.admin().await;
        for text in [
            "SELECT * FROM system.local FOR UPDATE",
            "SELECT * FROM system.local FOR SHARE",
            "SELECT * FROM (SELECT * FROM system.local FOR UPDATE) t",
            "SELECT * FROM pg_catalog.pg_class FOR UPDATE",
        ] {
            assert_eq!(refused(&client, text).await.0, "25006", "{text}");
        }
    });
}
