//! Short SQL whose plan is very large: expressions that double when one level is substituted into
//! the next, plans that double, grouping sets, joins and wildcards. Most of it is work of the
//! planner, before the first row.

use std::time::Duration;

use super::{on_threads, sql_rounds};
use crate::answers::ServerAnswer;
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::postgres::{CANCEL_REQUEST, Postgres, framed, parse, query, sync, untyped};

/// Sessions that plan at once.
const CLIENTS: usize = 3;
/// Time limit of the sessions. It ends any statement that can be cancelled.
const TIMEOUT: &str = "SET statement_timeout = 1000";
/// Sessions that are cancelled or leave while the server plans.
const LEAVING: usize = 24;
/// Time after which they leave.
const PLANNING: Duration = Duration::from_millis(400);
/// Longest time in which a cancelled statement must end.
const CANCELLED_MAX: Duration = Duration::from_secs(1);

/// Source of one row, whose value the planner does not know.
const ROW: &str = "SELECT value AS a FROM generate_series(1, 1)";

/// Deals the texts out to `clients` sessions, each of which runs its part again and again. The most
/// dangerous come first, since the short form runs only some.
pub(super) fn spread(
    run: &AttackRun,
    clients: usize,
    limit: &str,
    texts: &[String],
) -> Result<(), ServerAnswer> {
    on_threads(clients, |thread| {
        let own: Vec<String> = texts.iter().skip(thread).step_by(clients).cloned().collect();
        sql_rounds(run, &[limit], &own)
    })
}

/// Chains tables by WITH, each of which computes `item` from the one before, whose value is `a`.
fn chained(depth: usize, item: &str, rest: &str) -> String {
    let one = |n: usize| format!(", c{n} AS (SELECT {item} AS a FROM c{} {rest})", n - 1);
    let all: String = (1..=depth).map(one).collect();
    format!("WITH c0 AS ({ROW}){all} SELECT a FROM c{depth}")
}

/// Nests subqueries as [`chained`] chains them. The parser accepts fewer levels.
fn nested(depth: usize, item: &str, rest: &str) -> String {
    let level = |below: String, _| format!("SELECT {item} AS a FROM ({below}) AS t {rest}");
    format!("SELECT a FROM ({}) AS t", (0..depth).fold(ROW.to_owned(), level))
}

/// Expressions that mention the value below at least twice.
const DOUBLING: [&str; 16] = [
    "a + a",
    "a * a - a",
    "CASE WHEN a > 0 THEN a ELSE -a END",
    "coalesce(a, a)",
    "nullif(a, a + 1)",
    "greatest(a, a)",
    "(a BETWEEN a AND a)::int",
    "(a = a OR a > a)::int",
    "(a IN (a, a + 1))::int",
    "length(a || ',' || a)",
    "length(concat(a, a))",
    "cardinality(ARRAY[a, a])",
    "abs(a) % (abs(a) + 1)",
    "(a IS DISTINCT FROM a)::int",
    "round(a::numeric / (a + 1)::numeric)::int",
    "substr(a::text || a::text, 1, 3)::int",
];

/// Chains each doubling expression 16 to 55 levels deep, and nests it 10 levels deep.
pub(crate) fn substitution(run: &AttackRun) -> Result<(), ServerAnswer> {
    let depths = [22, 55, 30, 16, 40];
    let chains = DOUBLING.iter().zip(depths.iter().cycle()).map(|(item, depth)| chained(*depth, item, ""));
    let nests = DOUBLING.iter().step_by(4).map(|item| nested(10, item, ""));
    spread(run, CLIENTS, TIMEOUT, &chains.chain(nests).collect::<Vec<_>>())
}

/// Expressions that mention the value below once, until a rule of the planner repeats it.
const EXPANDED: [&str; 20] = [
    "coalesce(a, 1)",
    "nullif(a, 1)",
    "nvl(a, 2)",
    "nvl2(a, 1, 2)",
    "(a BETWEEN 1 AND 5)::int",
    "(a IN (1, 2, 3))::int",
    "(a NOT IN (1, 2))::int",
    "CASE a WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 6 ELSE 7 END",
    "greatest(a, 1)",
    "(a IS DISTINCT FROM 1)::int",
    "(NOT (a BETWEEN SYMMETRIC 5 AND 1))::int",
    "a / 2",
    "a::smallint",
    "round(a::numeric, 1)::int",
    "(a::text || 'x' LIKE '1%')::int",
    "((a > 1) = true)::int",
    "(a = ANY (ARRAY[1, 2, 3]))::int",
    "date_part('day', to_timestamp(a))::int",
    "length(overlay(a::text PLACING 'x' FROM 1))",
    "((a, 1) IN ((1, 1), (2, 2)))::int",
];

/// Chains each of these expressions, which are merged into one before they are repeated.
pub(crate) fn expansion(run: &AttackRun) -> Result<(), ServerAnswer> {
    let forms = [(30, ""), (24, "WHERE a IS NOT NULL"), (45, "")];
    let texts =
        EXPANDED.iter().zip(forms.iter().cycle()).map(|(item, (depth, rest))| chained(*depth, item, rest));
    spread(run, CLIENTS, TIMEOUT, &texts.collect::<Vec<_>>())
}

/// Pushes filters, orders, groups and windows through projections that double.
pub(crate) fn pushed_filters(run: &AttackRun) -> Result<(), ServerAnswer> {
    let chain = |depth: usize, name: &str| {
        let one = |n: usize| format!(", {name}{n} AS (SELECT a + a AS a FROM {name}{})", n - 1);
        format!("{name}0 AS ({ROW}){}", (1..=depth).map(one).collect::<String>())
    };
    let (l, r) = (chain(26, "l"), chain(27, "r"));
    let texts = [
        chained(30, "a + a", "WHERE a > 0"),
        chained(24, "a + a", "WHERE a > 0 AND a < 100 OR a = 7"),
        chained(28, "a * a", "WHERE a IN (SELECT value FROM generate_series(1, 3)) LIMIT 5"),
        chained(30, "sum(a) + max(a)", "GROUP BY a"),
        chained(30, "row_number() OVER (ORDER BY a) + a + a", ""),
        chained(26, "a + a", "GROUP BY a HAVING a > 0"),
        chained(30, "a + a", "ORDER BY a + a"),
        nested(9, "a + a + a + a", "WHERE a > 0"),
        format!("WITH {l} SELECT * FROM l26 WHERE a > 0 AND a < 1000 ORDER BY a, a + 1, a * 2"),
        format!("WITH {l}, {r} SELECT l.a FROM l26 AS l JOIN r27 AS r ON l.a = r.a AND l.a + r.a > 0"),
        format!("WITH {l}, {r} SELECT a FROM l26 UNION SELECT a FROM r27 ORDER BY 1"),
        format!(
            "WITH {l} SELECT x FROM generate_series(1, 9) AS t(x) WHERE x IN (SELECT a FROM l26 WHERE a < x)"
        ),
    ];
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Uses each of 40 common table expressions twice in the next.
pub(crate) fn doubled_tables(run: &AttackRun) -> Result<(), ServerAnswer> {
    let ctes = |depth: usize, each: &dyn Fn(usize) -> String| {
        let parts = (1..depth).map(|n| format!(", c{n} AS ({})", each(n - 1)));
        format!("WITH c0 AS ({ROW}){} SELECT count(*) FROM c{}", parts.collect::<String>(), depth - 1)
    };
    let tree = (0..14).fold(ROW.to_owned(), |below, _| format!("({below} UNION {below})"));
    let texts = [
        ctes(40, &|n| format!("SELECT * FROM c{n} UNION ALL SELECT * FROM c{n}")),
        ctes(20, &|n| format!("SELECT a FROM c{n} UNION SELECT a + 1 FROM c{n}")),
        ctes(40, &|n| format!("SELECT l.a FROM c{n} AS l, c{n} AS r")),
        ctes(30, &|n| format!("SELECT a FROM c{n} WHERE a IN (SELECT a FROM c{n})")),
        ctes(25, &|n| format!("SELECT a + (SELECT max(a) FROM c{n}) AS a FROM c{n}")),
        ctes(25, &|n| format!("SELECT l.a FROM c{n} AS l LEFT JOIN c{n} AS r USING (a)")),
        ctes(16, &|n| format!("SELECT a FROM c{n} EXCEPT SELECT a + 1 FROM c{n}")),
        ctes(30, &|n| {
            format!("SELECT a FROM c{n} AS o WHERE EXISTS (SELECT 1 FROM c{n} AS i WHERE i.a = o.a)")
        }),
        tree,
    ];
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Runs plans that are deep rather than wide: chains of tables, joins, set operations and operators
/// that no rule flattens. They end the stack if nothing bounds their depth.
pub(crate) fn deep(run: &AttackRun) -> Result<(), ServerAnswer> {
    let cycle = |count: usize, links: &[&str]| {
        (0..count).map(|n| links[n % links.len()].replace('$', &n.to_string())).collect::<String>()
    };
    let mut texts = Vec::new();
    for n in [45, 400, 3_000] {
        texts.push(chained(n, "a + 1", ""));
        texts.push(chained(n, "a + 1", "ORDER BY a LIMIT 5"));
        texts.push(chained(n, "sum(a) OVER (ORDER BY a)", ""));
        let sets = [" UNION SELECT $", " EXCEPT SELECT $", " INTERSECT SELECT $"];
        texts.push(format!("SELECT 1{}", cycle(n, &sets)));
        let joins =
            [" LEFT JOIN generate_series(1, 2) AS t$(a) ON t$.a = t.a", " CROSS JOIN (SELECT $) AS t$"];
        texts.push(format!("SELECT 1 FROM generate_series(1, 2) AS t(a){}", cycle(n, &joins)));
        let operators =
            [" + a", " * 2", " - a", " || 'x'", " = a", " AND a > 1", " OR a IS NULL", " IS TRUE"];
        texts.push(format!("SELECT a{} FROM ({ROW}) AS t", cycle(2 * n, &operators)));
        texts.push(format!(
            "SELECT a FROM ({ROW}) AS t WHERE a > 1{}",
            cycle(2 * n, &[" AND a > $", " OR a < $"])
        ));
    }
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Groups by CUBE, ROLLUP and GROUPING SETS of up to 2^60 sets.
pub(crate) fn grouping_sets(run: &AttackRun) -> Result<(), ServerAnswer> {
    let columns = |count: usize| (0..count).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ");
    let items = (0..60).map(|n| format!("value + {n} AS c{n}")).collect::<Vec<_>>().join(", ");
    let from = format!("FROM (SELECT {items} FROM generate_series(1, 10)) AS t");
    let sets = vec![format!("({})", columns(30)); 3_000].join(", ");
    let texts = [
        format!("SELECT count(*) {from} GROUP BY CUBE ({})", columns(20)),
        format!("SELECT count(*) {from} GROUP BY CUBE ({})", columns(60)),
        format!("SELECT count(*) {from} GROUP BY CUBE ({}), CUBE ({})", columns(8), columns(9)),
        format!("SELECT count(*) {from} GROUP BY ROLLUP ({0}), ROLLUP ({0}), ROLLUP ({0})", columns(30)),
        format!("SELECT count(*) {from} GROUP BY GROUPING SETS ({sets})"),
        format!("SELECT {0}, grouping(c0) {from} GROUP BY CUBE ({0})", columns(13)),
        format!("SELECT count(DISTINCT c0), count(DISTINCT c1) {from} GROUP BY CUBE ({})", columns(11)),
    ];
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Joins 30 to 120 tables, in chains and each with each, and selects wildcards over them.
pub(crate) fn many_joins(run: &AttackRun) -> Result<(), ServerAnswer> {
    let tables = |count: usize| (0..count).map(|n| format!("yard.t AS t{n}")).collect::<Vec<_>>();
    let chain = |count: usize, kind: &str| {
        let joins = (1..count).map(|n| format!(" {kind} JOIN yard.t AS t{n} ON t{n}.k = t{}.k", n - 1));
        format!("FROM yard.t AS t0{}", joins.collect::<String>())
    };
    let each = |count: usize| {
        let pairs = (0..count).flat_map(|l| (0..l).map(move |r| format!("t{l}.k = t{r}.k")));
        pairs.collect::<Vec<_>>().join(" AND ")
    };
    let using = (1..60).map(|n| format!(" FULL JOIN yard.t AS t{n} USING (k)")).collect::<String>();
    let natural = (1..40).map(|n| format!(" NATURAL JOIN yard.t AS t{n}")).collect::<String>();
    let texts = [
        format!("SELECT count(*) FROM {} WHERE {}", tables(30).join(", "), each(30)),
        format!("SELECT * {} WHERE t0.k = 1", chain(120, "LEFT")),
        format!("SELECT count(*) {}", chain(60, "")),
        format!("SELECT k FROM yard.t AS t0{using} WHERE k = 1"),
        format!("SELECT * FROM yard.t AS t0{natural}"),
        format!("SELECT {}* {} LIMIT 1", "*, ".repeat(2_000), chain(30, "")),
        format!("SELECT {}t0.* FROM yard.t AS t0, yard.w AS t1 LIMIT 1", "t0.*, t1.*, ".repeat(2_000)),
        format!("SELECT 1 FROM {} WHERE t0.k IN (SELECT k FROM yard.t) LIMIT 1", tables(40).join(", ")),
    ];
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Lets the planner compute large constants, compile large patterns, and combine long conditions.
pub(crate) fn constants(run: &AttackRun) -> Result<(), ServerAnswer> {
    let list = |each: &dyn Fn(usize) -> String, count: usize, with: &str| {
        (0..count).map(each).collect::<Vec<_>>().join(with)
    };
    let from = "FROM generate_series(1, 10) AS t(x)";
    let texts = [
        format!("SELECT {}", list(&|n| format!("repeat('{n}x', 500000)"), 400, ", ")),
        format!("SELECT length({})", list(&|n| format!("repeat('{n}', 900000)"), 300, " || ")),
        format!("SELECT {}", list(&|n| format!("array_repeat({n}, 1000000)"), 200, ", ")),
        format!(
            "SELECT count(*) {from} WHERE {}",
            list(&|n| format!("x::text ~ '(a{{1,90}}){{1,90}}{n}'"), 300, " OR ")
        ),
        format!(
            "SELECT {} {from}",
            list(&|n| format!("regexp_replace(x::text, '\\w{{1,100}}{n}', '')"), 300, ", ")
        ),
        format!(
            "SELECT count(*) {from} WHERE {}",
            list(&|n| format!("(x = {n} AND x + 1 > {n})"), 3_000, " OR ")
        ),
        format!(
            "SELECT count(*) {from} WHERE {}",
            list(&|n| format!("(x = {n} OR x + 1 > {n})"), 3_000, " AND ")
        ),
        format!("SELECT count(*) {from} WHERE x IN ({})", list(&|n| format!("{n} + x"), 15_000, ", ")),
        format!(
            "SELECT {} {from}",
            list(&|n| format!("sum(x) OVER (PARTITION BY x % {n} + 1 ORDER BY x)"), 1_500, ", ")
        ),
        format!("SELECT x{} {from}", " + 1 - x".repeat(7_000)),
    ];
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Explains plans that double, at every step of the planner.
pub(crate) fn explained(run: &AttackRun) -> Result<(), ServerAnswer> {
    let texts: Vec<String> = ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN (FORMAT JSON)", "EXPLAIN ANALYZE"]
        .iter()
        .flat_map(|explain| {
            let ctes: String = (1..13)
                .map(|n| {
                    format!(", c{n} AS (SELECT a + a AS a FROM c{0} UNION ALL SELECT a FROM c{0})", n - 1)
                })
                .collect();
            [
                format!("{explain} {}", chained(22, "CASE WHEN a > 1 THEN a ELSE a + 1 END", "WHERE a > 0")),
                format!("{explain} WITH c0 AS ({ROW}){ctes} SELECT * FROM c12 ORDER BY a"),
            ]
        })
        .collect();
    spread(run, CLIENTS, TIMEOUT, &texts)
}

/// Parses statements that double, and describes them, and never executes them.
pub(crate) fn parsed_only(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(2 * CLIENTS, |thread| {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        postgres.query(TIMEOUT)?;
        for n in thread.. {
            if !run.round() {
                break;
            }
            let text = chained(20 + n % 12, DOUBLING[n % DOUBLING.len()], "WHERE a > 0");
            let name = format!("s{n}");
            let describe = framed(b'D', &[b"S", name.as_bytes(), b"\0"].concat());
            let outcome = postgres
                .exchange(&[parse(&name, &text), describe, sync()].concat(), |answer| run.record(answer));
            if let Err(answer) = outcome {
                run.record(answer);
                postgres = Postgres::login(&run.target, run.role)?;
            }
        }
        Ok(())
    })
}

/// Statements whose planning or running takes long, one for each session that leaves.
fn long_planning(n: usize) -> String {
    match n % 4 {
        0 => chained(40, "a + a", "WHERE a > 0"),
        1 => chained(32, "a * a - a", ""),
        2 => chained(26, "CASE WHEN a > 0 THEN a + 1 ELSE a END", "ORDER BY a"),
        _ => chained(30, "coalesce(a, a + 1)", "WHERE a > 0"),
    }
}

/// Begins statements without a time limit. Then cancels some, and closes, resets or half-closes the
/// other connections.
pub(crate) fn planning_left(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(LEAVING / 2, |thread| {
        while run.round() {
            let mut postgres = Postgres::login(&run.target, run.role)?;
            postgres.send(&query(&long_planning(thread)))?;
            std::thread::sleep(PLANNING);
            match thread / 4 {
                0 => run.record(cancelled(run, &mut postgres)),
                1 => drop(postgres),
                _ => drop(crate::dial::reset_on_close(&postgres.stream)),
            }
        }
        Ok(())
    })
}

/// Cancels the running statement. Returns its answer, or "late".
fn cancelled(run: &AttackRun, postgres: &mut Postgres) -> ServerAnswer {
    let began = std::time::Instant::now();
    let request = Postgres::open(&run.target, RUDE)
        .and_then(|mut other| other.send(&untyped(CANCEL_REQUEST, &postgres.secret)));
    let mut last = request.err();
    let read = postgres.until_ready(|answer| last = Some(answer));
    match (last.or(read.err()), began.elapsed() > CANCELLED_MAX) {
        (_, true) => ServerAnswer::new("cancelled late"),
        (Some(answer), false) => answer,
        (None, false) => ServerAnswer::new("complete"),
    }
}

/// Begins statements without a time limit and holds their sessions, so that the server stops while
/// it plans.
pub(crate) fn planning_held(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < LEAVING {
        let mut postgres = Postgres::login(&run.target, run.role)?;
        postgres.send(&query(&long_planning(held.len())))?;
        held.push(postgres);
    }
    std::thread::sleep(PLANNING);
    run.hold(|| {});
    Ok(())
}
