//! Statements that are short, and large as plans: planning them is bounded, with guardrails and
//! without.

use crate::common::{TestListener, refused, rows};

/// Nests `inner` in itself: `level` is put around the query below.
fn nested(levels: usize, inner: &str, level: impl Fn(&str) -> String) -> String {
    (0..levels).fold(inner.to_owned(), |below, _| level(&below))
}

/// Returns a query over a chain of `levels` named queries. `level` is the query over the one below.
fn chained(levels: usize, first: &str, level: &str, last: &str) -> String {
    let named = |n: usize| format!(", q{} AS ({})", n + 1, level.replace("BELOW", &format!("q{n}")));
    let named: String = (0..levels).map(named).collect();
    format!("WITH q0 AS ({first}){named} {}", last.replace("BELOW", &format!("q{levels}")))
}

/// Statements that have an answer, although a rewrite of DataFusion would multiply their nodes.
fn answered() -> Vec<(&'static str, String, &'static str)> {
    const ONE: &str = "SELECT a FROM (VALUES (1)) t(a)";
    const DOUBLED: &str = "SELECT a + a AS a FROM BELOW";
    let outer = "SELECT u.b AS a FROM (VALUES (1)) t(a) LEFT JOIN (VALUES (1)) u(b) ON t.a = u.b";
    let doubled = |levels, last: &str| chained(levels, ONE, DOUBLED, last);
    let sums = listed(400, |n| format!("sum(a) OVER (ORDER BY a) AS s{n}"));
    vec![
        ("calls over one window", format!("SELECT s0 + s399 FROM (SELECT {sums} FROM ({ONE}) t) t"), "2"),
        ("sums", doubled(30, "SELECT a FROM BELOW"), "1073741824"),
        ("a filter over sums", doubled(30, "SELECT a FROM BELOW WHERE a > 1"), "1073741824"),
        (
            "a filter over sums in groups",
            doubled(22, "SELECT a FROM (SELECT a, count(*) FROM BELOW GROUP BY a) t WHERE a > 1"),
            "4194304",
        ),
        (
            "a join over sums",
            doubled(16, "SELECT t.a FROM BELOW t JOIN (VALUES (65536)) u(b) ON t.a = u.b"),
            "65536",
        ),
        (
            "an outer join below sums",
            chained(30, outer, DOUBLED, "SELECT count(*) FROM BELOW WHERE a > 1"),
            "1",
        ),
        (
            "filters at each level",
            chained(25, ONE, "SELECT a + a AS a FROM BELOW WHERE a > 0", "SELECT a FROM BELOW"),
            "33554432",
        ),
        ("an order", doubled(29, "SELECT a FROM BELOW ORDER BY a + a, a LIMIT 1"), "536870912"),
        (
            "a sum of sorted columns",
            format!(
                "SELECT {0} FROM (SELECT * FROM (VALUES ({1})) t({2}) ORDER BY {2} LIMIT 5) t",
                (0..12).map(|n| format!("c{n}")).collect::<Vec<_>>().join(" + "),
                vec!["1"; 13].join(", "),
                (0..13).map(|n| format!("c{}", (n + 12) % 13)).collect::<Vec<_>>().join(", "),
            ),
            "12",
        ),
    ]
}

/// Statements that are refused before they take memory.
fn too_complex() -> Vec<(&'static str, String)> {
    let list = (0..3_000).map(|n| n.to_string()).collect::<Vec<_>>().join(" + ");
    let columns = |count: usize| (0..count).map(|n| format!("{n} AS c{n}")).collect::<Vec<_>>().join(", ");
    vec![
        (
            "cube",
            format!(
                "SELECT count(*) FROM (SELECT {}) t GROUP BY CUBE ({})",
                columns(26),
                (0..26).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ")
            ),
        ),
        (
            "cubes",
            format!(
                "SELECT count(*) FROM (SELECT {}) t GROUP BY {}",
                columns(26),
                (0..26).map(|n| format!("CUBE (c{n})")).collect::<Vec<_>>().join(", ")
            ),
        ),
        (
            "BETWEEN",
            format!("SELECT {}", nested(22, "1 = 1", |below| format!("({below}) BETWEEN false AND true"))),
        ),
        (
            "coalesce",
            format!(
                "SELECT {} FROM (VALUES (NULL::int)) t(a)",
                nested(17, "a", |below| format!("coalesce({below}, a)"))
            ),
        ),
        (
            "CASE",
            format!(
                "SELECT {} FROM (VALUES (true)) t(a)",
                nested(15, "a", |below| format!("CASE WHEN {below} THEN a ELSE false END"))
            ),
        ),
        ("rows", format!("SELECT {}", nested(18, "1 < 2", |below| format!("(({below}), 1) < (true, 2)")))),
        (
            "numbers of columns",
            format!("SELECT {list} AS a FROM (VALUES (1)) t(b) GROUP BY {}", vec!["1"; 1_000].join(", ")),
        ),
        (
            "names of columns",
            format!("SELECT {list} AS a FROM (VALUES (1)) t(b) HAVING {}", vec!["a > 0"; 400].join(" OR ")),
        ),
        (
            "orders",
            format!("SELECT {list} AS a FROM (VALUES (1)) t(b) ORDER BY {}", vec!["1"; 1_000].join(", ")),
        ),
        (
            "windows",
            format!(
                "SELECT {} FROM (VALUES (1)) t(b) WINDOW w AS (ORDER BY {list})",
                vec!["sum(b) OVER w"; 1_000].join(", ")
            ),
        ),
        ("stars", format!("SELECT {} FROM (SELECT {}) t", vec!["*"; 2_000].join(", "), columns(500))),
        (
            "named queries",
            format!(
                "WITH q0 AS (SELECT 1 AS a) {} SELECT 1 FROM q20",
                (0..20)
                    .map(|n| format!(", q{} AS (SELECT x.a FROM q{n} x, q{n} y)", n + 1))
                    .collect::<String>()
            ),
        ),
        (
            "a literal in named queries",
            format!(
                "WITH q0 AS (SELECT '{}' AS a) {} SELECT 1 FROM q9",
                "x".repeat(100_000),
                (0..9)
                    .map(|n| format!(", q{} AS (SELECT x.a FROM q{n} x, q{n} y)", n + 1))
                    .collect::<String>()
            ),
        ),
        (
            "aggregates",
            format!("SELECT {} FROM (VALUES (1)) t(a)", listed(3_000, |n| format!("sum(a + {n})"))),
        ),
        (
            "aggregates in one result column",
            format!("SELECT coalesce({}) FROM (VALUES (1)) t(a)", listed(9_000, |n| format!("sum(a + {n})"))),
        ),
        (
            "windows",
            format!(
                "SELECT {} FROM (VALUES (1)) t(a)",
                listed(500, |n| format!("sum(a) OVER (ORDER BY a + {n})"))
            ),
        ),
        (
            "keys of ORDER BY",
            format!("SELECT a FROM (VALUES (1)) t(a) ORDER BY {}", listed(3_000, |n| format!("a + {n}"))),
        ),
        ("long result columns", format!("SELECT {}", listed(2_000, |n| format!("{n}{}", " + 1".repeat(40))))),
    ]
}

/// Returns the texts of `count` expressions.
fn listed(count: usize, each: impl Fn(usize) -> String) -> String {
    (0..count).map(each).collect::<Vec<_>>().join(", ")
}

fn check(guardrails_off: bool) {
    let listener = TestListener::start(1);
    if guardrails_off {
        listener.without_guardrails();
    }
    listener.client(async {
        let client = listener.admin().await;
        for (what, statement, expected) in answered() {
            assert_eq!(rows(&client, &statement).await, [expected], "{what}");
        }
        for (what, statement) in too_complex() {
            let (code, text) = refused(&client, &statement).await;
            assert_eq!(code, "54001", "{what}: {text}");
        }
        assert_eq!(rows(&client, "SELECT 1").await, ["1"]);
    });
    assert_eq!(listener.level_usage("default").memory.used, 0, "planning released its memory");
}

#[test]
fn short_statements_of_large_plans_are_bounded() {
    check(false);
}

#[test]
fn plans_are_bounded_without_guardrails() {
    check(true);
}
