//! SQL whose operators gather data: aggregates that collect, windows over everything, portals that
//! wait with a batch in hand, values that grow with each row, and joins of wide values. Every one
//! of them asks for tens of gigabytes.

use super::sql_planning::spread;
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::postgres::{Postgres, bind, execute, framed, parse};

/// Sessions that run such statements at once.
const CLIENTS: usize = 3;
/// Time limit of the sessions. Long enough to gather gigabytes.
const TIMEOUT: &str = "SET statement_timeout = 2000";
/// Sessions that hold suspended portals, and the portals of each.
const SESSIONS: usize = 24;
const PORTALS: usize = 12;

/// A long series of wide texts, no two of them equal.
const WIDE: &str =
    "(SELECT x, x::text || repeat('x', 10000) AS w FROM generate_series(1, 3000000) AS s(x)) AS t";
/// A long series of narrow rows.
const LONG: &str = "generate_series(1, 300000000) AS t(x)";

fn texts(all: &[&str]) -> Vec<String> {
    let filled = |text: &&str| text.replace("WIDE", WIDE).replace("LONG", LONG);
    all.iter().map(filled).collect()
}

/// Runs aggregates that keep every value.
pub(crate) fn aggregates(run: &AttackRun) -> Result<(), ServerAnswer> {
    let all = texts(&[
        "SELECT length(string_agg(w, ',')) FROM WIDE",
        "SELECT median(DISTINCT x) FROM LONG",
        "SELECT cardinality(array_agg(ARRAY[w, w, w])) FROM WIDE",
        "SELECT median(x) FROM LONG",
        "SELECT bit_xor(DISTINCT x), count(DISTINCT (x, x + 1)) FROM LONG",
        "SELECT cardinality(array_agg(DISTINCT w)) FROM WIDE",
        "SELECT cardinality(array_agg(x)) FROM LONG",
        "SELECT cardinality(array_agg(w ORDER BY x DESC)) FROM WIDE",
        "SELECT length(string_agg(DISTINCT w, ',')) FROM WIDE",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM LONG",
        "SELECT approx_percentile_cont(x, 0.5, 1000000000) FROM LONG",
        "SELECT count(DISTINCT x), count(DISTINCT x + 1), count(DISTINCT x * 2) FROM LONG",
        "SELECT count(DISTINCT w), sum(DISTINCT x) FROM WIDE",
        "SELECT max(cardinality(a)) FROM (SELECT x % 1000000 AS g, array_agg(x) AS a FROM LONG GROUP BY g) AS u",
        "SELECT count(*) FROM (SELECT x % 3000000 AS g, median(x), max(w), first_value(w ORDER BY x) FROM \
         WIDE GROUP BY g) AS u",
        "SELECT max(w), min(w), last_value(w ORDER BY w) FROM WIDE",
        "SELECT count(*) FROM (SELECT w, count(*) FROM WIDE GROUP BY w) AS u",
        "SELECT array_agg(x), string_agg(w, '') FROM WIDE GROUP BY CUBE (x, w)",
    ]);
    spread(run, CLIENTS, TIMEOUT, &all)
}

/// Runs windows over everything, and windows whose frames hold everything.
pub(crate) fn windows(run: &AttackRun) -> Result<(), ServerAnswer> {
    let all = texts(&[
        "SELECT count(n) FROM (SELECT lag(w, 2147483647) OVER (ORDER BY x) AS n FROM WIDE) AS u",
        "SELECT count(n) FROM (SELECT lead(w, 2000000) OVER (ORDER BY x) AS n FROM WIDE) AS u",
        "SELECT max(length(a)) FROM (SELECT string_agg(w, ',') OVER (ORDER BY x) AS a FROM WIDE) AS u",
        "SELECT max(cardinality(a)) FROM (SELECT array_agg(x) OVER (ORDER BY x ROWS BETWEEN 100000 \
         PRECEDING AND 100000 FOLLOWING) AS a FROM LONG) AS u",
        "SELECT count(n) FROM (SELECT nth_value(w, 1000000) OVER (ORDER BY x RANGE BETWEEN 2000000 \
         PRECEDING AND 2000000 FOLLOWING) AS n FROM WIDE) AS u",
        "SELECT max(cardinality(a)) FROM (SELECT array_agg(x) OVER (ORDER BY x) AS a FROM LONG) AS u",
        "SELECT count(n) FROM (SELECT sum(x) OVER () AS n FROM LONG) AS u",
        "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY w) AS n FROM WIDE) AS u",
        "SELECT max(n) FROM (SELECT rank() OVER (PARTITION BY x % 2 ORDER BY w DESC) AS n FROM WIDE) AS u",
        "SELECT count(n) FROM (SELECT first_value(w) OVER (ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND \
         UNBOUNDED FOLLOWING) AS n FROM WIDE) AS u",
        "SELECT count(n) FROM (SELECT ntile(7) OVER (ORDER BY w) AS n, percent_rank() OVER (ORDER BY x) \
         FROM WIDE) AS u",
        "SELECT count(n) FROM (SELECT median(x) OVER (ORDER BY x ROWS BETWEEN 1000000 PRECEDING AND CURRENT \
         ROW) AS n FROM LONG) AS u",
        "SELECT count(n) FROM (SELECT count(*) OVER (PARTITION BY w) AS n FROM WIDE) AS u",
        "SELECT max(w) OVER (), min(w) OVER (ORDER BY x DESC) FROM WIDE",
    ]);
    spread(run, CLIENTS, TIMEOUT, &all)
}

/// Runs functions and operators whose results are a megabyte in each row of a batch.
pub(crate) fn growing_rows(run: &AttackRun) -> Result<(), ServerAnswer> {
    let many = |item: &str, count: usize| vec![item; count].join(", ");
    let mut all = texts(&[
        "SELECT max(length(repeat(x::text, 200000))) FROM LONG",
        "SELECT max(length(regexp_replace(w, 'x', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', \
         'g'))) FROM WIDE",
        "SELECT max(length(array_to_string(array_repeat(w, 1000), ','))) FROM WIDE",
        "SELECT max(cardinality(regexp_split_to_array(w, ''))) FROM WIDE",
        "SELECT max(cardinality(string_to_array(w, NULL))), max(cardinality(string_to_array(w, 'x'))) FROM WIDE",
        "SELECT max(length(encode(w::bytea, 'hex'))) FROM WIDE",
        "SELECT max(length(lpad(x::text, 1000000, 'ab'))), max(length(rpad(x::text, 1000000, 'ab'))) FROM LONG",
        "SELECT max(length(replace(w, 'x', w))) FROM WIDE",
        "SELECT max(length(translate(w, 'x', 'äöü'))), max(length(upper(w))) FROM WIDE",
        "SELECT max(cardinality(array_repeat(w, 1000))) FROM WIDE",
        "SELECT max(cardinality(range(0, x + 1000000))) FROM LONG",
        "SELECT count(*) FROM (SELECT unnest(array_repeat(w, 10000)) AS u FROM WIDE) AS v",
        "SELECT max(cardinality(array_resize(ARRAY[x], 10000000, x))) FROM LONG",
        "SELECT count(*) FROM WIDE WHERE repeat(w, 100) LIKE '%y%'",
        "SELECT max(length(w || w || w || w || w || w || w || w || w || w)) FROM WIDE",
        "SELECT w, w, w, w, w, w, w, w, w, w, w, w, w, w, w, w FROM WIDE",
    ]);
    all.push(format!("SELECT max(length(concat({}))) FROM {WIDE}", many("w", 1_000)));
    all.push(format!("SELECT max(length(concat_ws(w, {}))) FROM {WIDE}", many("w", 300)));
    all.push(format!("SELECT max(cardinality(ARRAY[{}])) FROM {WIDE}", many("w", 1_000)));
    all.push(format!("SELECT count(row({})) FROM {WIDE}", many("w", 1_000)));
    all.push(format!("SELECT max(cardinality(array_concat({}))) FROM {WIDE}", many("ARRAY[w, w]", 300)));
    all.push(format!("SELECT greatest({}) FROM {WIDE}", many("w || 'a'", 500)));
    spread(run, CLIENTS, TIMEOUT, &all)
}

/// Gathers wide values by joins, subqueries, sets and recursion.
pub(crate) fn joins(run: &AttackRun) -> Result<(), ServerAnswer> {
    let all = texts(&[
        "SELECT count(l.w) FROM WIDE_L, WIDE_R WHERE l.w < r.w",
        "SELECT max(length((SELECT string_agg(w, '') FROM WIDE) || x)) FROM LONG",
        "VALUES ((SELECT string_agg(w, '') FROM WIDE)), ((SELECT string_agg(w, 'b') FROM WIDE))",
        "SELECT x, (SELECT array_agg(y) FROM generate_series(1, 50000000) AS s(y)) FROM LONG",
        "SELECT max(length(l.w || r.w)) FROM WIDE_L JOIN WIDE_R ON l.x % 100 = r.x % 100",
        "SELECT count(*) FROM (SELECT w FROM WIDE UNION SELECT w || 'a' FROM WIDE) AS u",
        "SELECT count(*) FROM WIDE_L FULL JOIN WIDE_R ON l.w = r.w",
        "SELECT count(*) FROM WIDE_L WHERE l.w NOT IN (SELECT w FROM WIDE)",
        "SELECT count(*) FROM (SELECT w FROM WIDE INTERSECT SELECT w FROM WIDE) AS u",
        "SELECT count(*) FROM (SELECT DISTINCT w FROM WIDE) AS u",
        "SELECT count(*) FROM (SELECT DISTINCT ON (w) w, x FROM WIDE ORDER BY w, x DESC) AS u",
        "SELECT max(length(w)) FROM (SELECT w FROM WIDE ORDER BY w DESC OFFSET 2000000) AS u",
        "SELECT count(*) FROM (SELECT w FROM WIDE ORDER BY w LIMIT 2000000) AS u",
        "SELECT x, (SELECT max(w) FROM WIDE) FROM LONG WHERE x IN (SELECT x FROM WIDE)",
        "SELECT count(*) FROM LONG AS a JOIN LONG AS b ON a.x = b.x",
        "WITH RECURSIVE r(a) AS (SELECT repeat('x', 1000) UNION ALL SELECT a || a FROM r) SELECT \
         max(length(a)) FROM r",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + v FROM r, (VALUES (1), (2), (3)) AS v(v)) \
         SELECT count(*) FROM r",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION SELECT a + v FROM r, generate_series(1, 1000) AS v(v)) \
         SELECT count(*) FROM r",
        "WITH RECURSIVE r(a) AS (SELECT ARRAY[1] UNION ALL SELECT array_concat(a, a) FROM r) SELECT \
         max(cardinality(a)) FROM r",
        "WITH big AS (SELECT w FROM WIDE) SELECT count(*) FROM big AS l, big AS r WHERE l.w = r.w || 'a'",
    ]);
    let named = |text: String| {
        let source = WIDE.trim_end_matches(" AS t");
        text.replace(&format!("{WIDE}_L"), &format!("{source} AS l"))
            .replace(&format!("{WIDE}_R"), &format!("{source} AS r"))
    };
    let all: Vec<String> = all.into_iter().map(named).map(|text| text.replace("AS t(x) AS", "AS")).collect();
    spread(run, CLIENTS, TIMEOUT, &all)
}

/// Requests rows of up to gigabytes, of few values that are repeated.
pub(crate) fn wide_answers(run: &AttackRun) -> Result<(), ServerAnswer> {
    let many = |item: &str, count: usize| vec![item; count].join(", ");
    let texts = [
        format!("SELECT {} FROM yard.big", many("v", 1_600)),
        format!("SELECT {} FROM yard.big AS l, yard.big AS r", many("l.v, r.v", 300)),
        format!("SELECT {}", many("repeat('x', 15000000)", 400)),
        format!("SELECT ARRAY[{}] FROM yard.big", many("v", 1_600)),
        format!("SELECT ROW({}) FROM yard.big", many("v", 1_600)),
        format!("SELECT array_agg(v), string_agg(v, ','), {} FROM yard.big", many("array_agg(v)", 100)),
        format!("SELECT {} FROM yard.big ORDER BY v", many("v || k", 500)),
        format!("SELECT k, {} FROM yard.w", many("v", 1_500)),
    ];
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Fetches one row of each of 288 portals, whose batches have megabytes, and leaves them suspended.
pub(crate) fn suspended_batches(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts = texts(&[
        "SELECT x, repeat('x', 20000) || x FROM LONG",
        "SELECT w, w || w FROM WIDE",
        "SELECT w FROM WIDE WHERE x > 1000 AND w LIKE '%x%'",
        "SELECT x, array_repeat(x, 5000) FROM LONG",
        "SELECT x, lag(w) OVER (ORDER BY x) FROM WIDE",
        "SELECT x, unnest(ARRAY[w, w, w, w, w]) FROM WIDE",
    ]);
    let mut held = Vec::new();
    'sessions: for _ in 0..SESSIONS {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        postgres.query("BEGIN")?;
        for n in 0..PORTALS {
            if !run.round() {
                held.push(postgres);
                break 'sessions;
            }
            let name = format!("n{n}");
            let messages = [
                parse(&name, &texts[n % texts.len()]),
                bind(&name, &name),
                execute(&name, 1),
                framed(b'H', b""),
            ];
            postgres.send(&messages.concat())?;
            let answer = suspended(&mut postgres);
            let is_over = answer.is_error();
            run.record(answer);
            if is_over {
                break;
            }
        }
        held.push(postgres);
    }
    run.hold(|| {});
    Ok(())
}

/// Returns the answer to an Execute.
fn suspended(postgres: &mut Postgres) -> ServerAnswer {
    loop {
        match postgres.message() {
            Ok(message) => match message.answer() {
                Some(answer) if answer.label != "parsed" => return answer,
                _ => {}
            },
            Err(answer) => return answer,
        }
    }
}
