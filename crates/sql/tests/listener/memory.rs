//! Memory that no operator of DataFusion reserves by itself. Each query keeps several times the
//! memory of its level, which may not spill: it is refused with the level's name, or it answers
//! with less. Afterwards the level has nothing.

use crate::common::{TestListener, refused, rows};
use sql::SqlConfig;
use testkit::until;

const MIB: u64 = 1 << 20;
/// Query memory, bytes.
const MEMORY: u64 = 64 * MIB;
/// 200 MB of texts.
const TEXTS: &str =
    "(SELECT value AS n, repeat('x', 1000) || value AS t FROM generate_series(1, 200000)) AS a";

fn start() -> TestListener {
    let listener = TestListener::start_with(2, MEMORY, SqlConfig::default());
    listener.client(async {
        let admin = listener.admin().await;
        for text in ["CREATE SERVICE LEVEL narrow WITH spill = false", "ATTACH SERVICE LEVEL narrow TO admin"]
        {
            admin.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
    });
    listener
}

fn used(listener: &TestListener) -> u64 {
    listener.level_usage("narrow").memory.used
}

/// Runs queries that must be refused, each after it had at least half of the memory.
fn all_refused(queries: &[String]) {
    let listener = start();
    for query in queries {
        listener.client(async {
            let admin = listener.admin().await;
            let (code, message) = refused(&admin, query).await;
            assert!(code == "53200" && message.contains("'narrow'"), "{query}: {code} {message}");
            assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
        });
        until(query, || used(&listener) == 0);
        let peak = listener.level_usage("narrow").memory.peak;
        assert!(peak <= MEMORY + 32 * MIB, "{query}: {peak} bytes were charged");
    }
    let peak = listener.level_usage("narrow").memory.peak;
    assert!(peak >= MEMORY / 4, "{peak} bytes were charged");
}

#[test]
fn aggregates_that_collect_are_refused() {
    let of_texts = [
        "cardinality(array_agg(t))",
        "cardinality(array_agg(arrow_cast(t, 'Utf8View')))",
        "length(string_agg(t, ','))",
        "count(DISTINCT t)",
        "cardinality(array_agg(DISTINCT t))",
        "length(string_agg(DISTINCT t, ','))",
        "cardinality(array_agg(t ORDER BY n DESC))",
    ];
    let of_groups = [
        "max(length(s)) FROM (SELECT string_agg(t, ',') AS s",
        "max(cardinality(s)) FROM (SELECT array_agg(t) AS s",
    ];
    let of_numbers = [
        "median(value * 2.5::float8)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY value * 2.5::float8)",
        "sum(DISTINCT value * 7919 % 20000003)",
        "count(DISTINCT value * 7919 % 20000003)",
    ];
    let texts = of_texts.iter().map(|aggregate| format!("SELECT {aggregate} FROM {TEXTS}"));
    let groups = of_groups.iter().map(|head| format!("SELECT {head} FROM {TEXTS} GROUP BY n % 3) AS b"));
    let numbers = of_numbers.iter().map(|one| format!("SELECT {one} FROM generate_series(1, 20000000)"));
    all_refused(&texts.chain(groups).chain(numbers).collect::<Vec<_>>());
}

#[test]
fn windows_are_refused() {
    let over =
        |window: &str| format!("SELECT count(w), max(t) FROM (SELECT t, {window} AS w FROM {TEXTS}) AS b");
    let mut queries: Vec<String> = [
        "count(*) OVER ()",
        "max(t) OVER ()",
        "first_value(t) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        "lead(t, 150000) OVER (ORDER BY n)",
        "lag(t, 150000) OVER ()",
        "lag(t, 2147483647) OVER ()",
        "lag(t, 3) IGNORE NULLS OVER ()",
        "nth_value(t, 150000) OVER ()",
        // Without ORDER BY no sort is refused before. A buffer of views keeps all its former texts.
        "lag(arrow_cast(t, 'Utf8View'), 3) OVER ()",
        "lag(arrow_cast(t, 'BinaryView'), 3) OVER ()",
        "lag(ARRAY[arrow_cast(t, 'Utf8View')], 3) OVER ()",
        "ntile(4) OVER (ORDER BY n)",
        "sum(n) OVER (ORDER BY n ROWS BETWEEN 150000 PRECEDING AND CURRENT ROW)",
        "array_agg(t) OVER (PARTITION BY n % 2)",
    ]
    .map(over)
    .into();
    // The results are hundreds of times longer than the rows.
    let small = "FROM generate_series(1, 20000)";
    for window in [
        "array_agg(value) OVER (ORDER BY value)",
        "string_agg(value::text, ',') OVER (ORDER BY value)",
        "string_agg(value::text, ',') OVER ()",
        "max(repeat('y', 100000)) OVER (ORDER BY value)",
    ] {
        queries.push(format!("SELECT count(w) FROM (SELECT {window} AS w {small}) AS b WHERE w IS NOT NULL"));
    }
    all_refused(&queries);
}

#[test]
fn streaming_windows_need_little_memory() {
    let listener = start();
    listener.client(async {
        let admin = listener.admin().await;
        for window in [
            "row_number() OVER (ORDER BY n)",
            "sum(n) OVER (ORDER BY n ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)",
            "lag(n, 3) OVER (ORDER BY n)",
            "max(n) OVER (ORDER BY n)",
        ] {
            let inner = "SELECT value AS n FROM generate_series(1, 2500000)";
            let query = format!(
                "SELECT count(*) FROM (SELECT {window} AS w FROM ({inner}) AS a) AS b WHERE w IS NOT NULL"
            );
            let count = rows(&admin, &query).await;
            assert!(count == ["2500000"] || count == ["2499997"], "{window}: {count:?}");
        }
        for window in ["lag(t, 3) OVER ()", "lead(t) OVER ()", "max(t) OVER (ROWS 3 PRECEDING)"] {
            let inner = "SELECT value::text || repeat('x', 100) AS t FROM generate_series(1, 1000000)";
            let windowed = format!("SELECT {window} AS w FROM ({inner}) AS a");
            let query = format!("SELECT max(length(w)) > 100 FROM ({windowed}) AS b");
            assert_eq!(rows(&admin, &query).await, ["t"], "{window}");
        }
    });
    until("memory is free", || used(&listener) == 0);
}

#[test]
fn wide_values_of_subqueries_and_functions_fit_or_are_refused() {
    let listener = start();
    let one = "(SELECT repeat('x', CAST(max(value) AS int) * 1000000) FROM generate_series(1, 4))";
    let queries = [
        (
            format!(
                "SELECT max(length(w)) FROM (SELECT {one} AS w, value FROM generate_series(1, 500)) AS a \
                 WHERE value > 0"
            ),
            "4000000",
        ),
        (format!("SELECT count({one} || value) FROM generate_series(1, 300)"), "300"),
        (
            "SELECT max(length(a) + length(b) + length(c) + length(d)) \
             FROM (SELECT repeat('a', CAST(value % 2 + 10000 AS int)) AS a, \
             repeat('b', CAST(value % 2 + 10000 AS int)) AS b, repeat('c', CAST(value % 2 + 10000 AS int)) AS c, \
             repeat('d', CAST(value % 2 + 10000 AS int)) AS d FROM generate_series(1, 20000)) AS t WHERE length(a) > 1"
                .to_owned(),
            "40004",
        ),
    ];
    for (query, expected) in &queries {
        listener.client(async {
            let admin = listener.admin().await;
            assert_eq!(rows(&admin, query).await, [*expected], "{query}");
        });
        until(query, || used(&listener) == 0);
    }
}

#[test]
fn long_rows_are_charged_while_they_are_encoded() {
    let answers = [
        "SELECT string_agg(t, ',') FROM (SELECT repeat('x', 1000) || value AS t FROM generate_series(1, 20000)) AS a",
        "SELECT array_agg(t) FROM (SELECT repeat('x', 1000) || value AS t FROM generate_series(1, 18000)) AS a",
        "SELECT array_agg(value) FROM generate_series(1, 2000000)",
    ];
    all_refused(&answers.map(str::to_owned));
}

/// One rule of the optimizer computes all of them, before the plan is counted.
#[test]
fn constants_are_charged_while_they_are_computed() {
    let many = |one: &str| format!("SELECT {}", vec![one; 20].join(", "));
    all_refused(&[
        many("repeat('x', 15000000)"),
        many("length(repeat('x', 15000000))"),
        many("length(repeat('x', 7000000) || repeat('y', 7000000))"),
    ]);
}

#[test]
fn portals_that_wait_are_charged() {
    let listener = start();
    listener.client(async {
        let mut client = listener.admin().await;
        let transaction = client.transaction().await.expect("begins");
        let statement = transaction
            .prepare("SELECT repeat('x', 1000000), value FROM generate_series(1, 100000)")
            .await
            .expect("prepares");
        let (mut portals, mut refusal) = (Vec::new(), None);
        while refusal.is_none() && portals.len() < 100 {
            let portal = transaction.bind(&statement, &[]).await.expect("binds");
            match transaction.query_portal(&portal, 1).await {
                Ok(rows) => {
                    assert_eq!(rows.len(), 1);
                    portals.push(portal);
                    let held = used(&listener);
                    assert!(held >= 8 * MIB * portals.len() as u64, "{held} bytes of {}", portals.len());
                }
                Err(error) => refusal = error.code().map(|code| code.code().to_owned()),
            }
        }
        assert_eq!(refusal.as_deref(), Some("53200"), "after {} portals", portals.len());
        assert!(!portals.is_empty());
        drop(portals);
        drop(transaction);
    });
    until("memory is free", || used(&listener) == 0);
}

#[test]
fn cancelled_query_releases_its_memory() {
    let listener = start();
    listener.client(async {
        let client = listener.admin().await;
        let token = client.cancel_token();
        let query = "SELECT count(*) FROM (SELECT row_number() OVER () AS r FROM generate_series(1, 10000000000)) AS a \
                     WHERE r < 0";
        let running = client.simple_query(query);
        let cancelling = async {
            while used(&listener) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            token.cancel_query(tokio_postgres::NoTls).await.expect("is sent");
        };
        let (answer, ()) = futures::join!(running, cancelling);
        let error = answer.err().and_then(|error| error.code().cloned());
        assert_eq!(error.map(|code| code.code().to_owned()).as_deref(), Some("57014"));
    });
    until("memory is free", || used(&listener) == 0);
}
