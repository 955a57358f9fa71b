//! Queries over tables written by CQL: results, rights, and the lanes and levels they run in.

mod corpus;
mod dialect;
mod random;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common::{TestListener, refused, rows};
use lanes::Group;

const ROWS: i64 = 300;

/// Starts a listener with a table of 10 partitions of 30 rows each.
fn filled(cores: usize) -> TestListener {
    let listener = TestListener::start(cores);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (customer int, id int, price int, note text, PRIMARY KEY (customer, id))",
        "CREATE TABLE shop.people (id int PRIMARY KEY, name text, tags set<text>, ages map<text, int>)",
        "INSERT INTO shop.people (id, name, tags, ages) VALUES (1, 'Ada', {'b', 'a'}, {'x': 36})",
        "INSERT INTO shop.people (id) VALUES (2)",
    ]);
    let inserts: Vec<String> = (0..ROWS)
        .map(|n| {
            let values = format!("({}, {n}, {}, 'n{n}')", n % 10, n * 3);
            format!("INSERT INTO shop.orders (customer, id, price, note) VALUES {values}")
        })
        .collect();
    listener.cql(&inserts.iter().map(String::as_str).collect::<Vec<_>>());
    listener
}

#[test]
fn queries_return_the_expected_rows() {
    for cores in [1, 2, 3] {
        let listener = filled(cores);
        listener.client(async {
            let admin = listener.admin().await;
            let check = async |text: &str, expected: &[&str]| {
                assert_eq!(rows(&admin, text).await, expected, "{text} on {cores} cores");
            };
            check("SELECT 1 AS one", &["1"]).await;
            check("SELECT count(*), sum(price) FROM shop.orders", &["300|134550"]).await;
            check("SELECT note FROM shop.orders WHERE customer = 7 AND id = 17", &["n17"]).await;
            check("SELECT id FROM shop.orders WHERE note = 'n8'", &["8"]).await;
            check("SELECT id FROM shop.orders ORDER BY price DESC LIMIT 2", &["299", "298"]).await;
            let grouped =
                "SELECT customer, count(*) FROM shop.orders GROUP BY 1 HAVING customer < 3 ORDER BY 1";
            check(grouped, &["0|30", "1|30", "2|30"]).await;
            let joined = "SELECT o.id, p.name FROM shop.orders o JOIN shop.people p ON o.customer = p.id \
                          WHERE o.id < 13 ORDER BY 1";
            check(joined, &["1|Ada", "2|-", "11|Ada", "12|-"]).await;
            let wide = "-99999999999999999999.999999999999999999";
            check(&format!("SELECT CAST('{wide}' AS decimal(38, 18)), 1.50"), &[&format!("{wide}|1.50")])
                .await;
            let list = format!("SELECT make_array(CAST('{wide}' AS decimal(38, 18)), NULL)");
            check(&list, &[&format!("{{{wide},NULL}}")]).await;
            check("SELECT tags, ages FROM shop.people ORDER BY id", &["{a,b}|{\"x\":36}", "-|-"]).await;
            check("SELECT x.n FROM (VALUES (2), (1)) AS x(n) ORDER BY n; SELECT 3", &["1", "2", "3"]).await;
            let found = rows(&admin, "SELECT * FROM shop.orders LIMIT 7").await;
            assert_eq!(found.len(), 7);
        });
    }
}

#[test]
fn limit_returns_the_first_rows_of_the_sorted_result() {
    let listener = filled(2);
    let nulls: Vec<String> = (300..310)
        .map(|n| format!("INSERT INTO shop.orders (customer, id) VALUES ({}, {n})", n % 10))
        .collect();
    listener.cql(&nulls.iter().map(String::as_str).collect::<Vec<_>>());
    listener.client(async {
        let admin = listener.admin().await;
        let orders = [
            "price, id",
            "price DESC, id",
            "price DESC NULLS LAST, id",
            "price NULLS FIRST, id DESC",
            "id",
            "id DESC",
            "customer DESC, id DESC",
            "customer, price DESC NULLS LAST, id",
            "note DESC NULLS LAST, id",
        ];
        for order in orders {
            // Without a limit there is no dynamic filter.
            let all = rows(&admin, &format!("SELECT id FROM shop.orders ORDER BY {order}")).await;
            assert_eq!(all.len(), 310);
            for limit in [1, 7, 50, 305] {
                let text = format!("SELECT id FROM shop.orders ORDER BY {order} LIMIT {limit}");
                assert_eq!(rows(&admin, &text).await, all[..limit], "{text}");
            }
            let some = format!("SELECT id FROM shop.orders WHERE price > 450 ORDER BY {order} LIMIT 9");
            let every = format!("SELECT id FROM shop.orders WHERE price > 450 ORDER BY {order}");
            assert_eq!(rows(&admin, &some).await, rows(&admin, &every).await[..9], "{some}");
        }
        let plan = rows(&admin, "EXPLAIN SELECT id FROM shop.orders ORDER BY price LIMIT 3").await.join("\n");
        assert!(plan.contains("narrowed by=DynamicFilter"), "{plan}");
        // Each round of a recursion resets dynamic filters.
        let recursive = "WITH RECURSIVE r(n, id) AS (SELECT 0, 1000 UNION ALL SELECT n + 1, (SELECT min(id) FROM \
                         (SELECT id FROM shop.orders ORDER BY price DESC NULLS LAST LIMIT 3) x) FROM r WHERE n < 3) \
                         SELECT n, id FROM r ORDER BY n";
        assert_eq!(rows(&admin, recursive).await, ["0|1000", "1|297", "2|297", "3|297"]);
    });
}

#[test]
fn prepared_queries_and_portals_return_all_rows() {
    let listener = filled(2);
    listener.client(async {
        let mut admin = listener.admin().await;
        let select = "SELECT id, note FROM shop.orders WHERE customer = $1 AND price >= $2 ORDER BY id";
        let statement = admin.prepare(select).await.expect("prepared");
        // After an error a transaction runs nothing but its end, prepared or not.
        rows(&admin, "BEGIN").await;
        refused(&admin, "SELECT nothing").await;
        let error =
            admin.query(&statement, &[&7_i32, &800_i32]).await.expect_err("the transaction has failed");
        assert_eq!(error.code().map(|code| code.code()), Some("25P02"));
        rows(&admin, "ROLLBACK").await;
        let found = admin.query(&statement, &[&7_i32, &800_i32]).await.expect("rows");
        let found: Vec<(i32, String)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(
            found,
            [(267, "n267".into()), (277, "n277".into()), (287, "n287".into()), (297, "n297".into())]
        );
        let none = admin.query(&statement, &[&7_i32, &8000_i32]).await.expect("no rows");
        assert!(none.is_empty());
        let transaction = admin.transaction().await.expect("begun");
        let portal = transaction.bind("SELECT id FROM shop.orders", &[]).await.expect("bound");
        let mut counts = Vec::new();
        while counts.last() != Some(&0) {
            counts.push(transaction.query_portal(&portal, 120).await.expect("rows").len());
        }
        assert_eq!(counts.iter().sum::<usize>(), ROWS as usize);
        assert_eq!(counts[..2], [120, 120]);
        transaction.commit().await.expect("ended");
    });
}

#[test]
fn repeated_text_is_planned_once_for_each_user_and_schema() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let found = async |text: &str, expected: &[&str]| {
            let before = listener.counted("fairlane_sql_plans_found_total");
            assert_eq!(rows(&admin, text).await, expected, "{text}");
            listener.counted("fairlane_sql_plans_found_total") - before
        };
        let count = "SELECT count(*), max(price) FROM shop.orders WHERE customer < 9";
        assert_eq!(found(count, &["270|894"]).await, 0);
        assert_eq!(found(count, &["270|894"]).await, 1);
        listener.cql(&["INSERT INTO shop.orders (customer, id, price) VALUES (8, 1000, 5000)"]);
        assert_eq!(found(count, &["271|5000"]).await, 1, "the plan is kept, not its answer");
        admin.simple_query("SET search_path TO shop").await.expect("set");
        assert_eq!(found(count, &["271|5000"]).await, 0, "names may mean something else");
        admin.simple_query("RESET search_path").await.expect("reset");
        let everything = "SELECT * FROM shop.people WHERE id = 2";
        assert_eq!(found(everything, &["2|-|-|-"]).await, 0);
        assert_eq!(found(everything, &["2|-|-|-"]).await, 1);
        listener.cql(&["ALTER TABLE shop.people ADD more int"]);
        assert_eq!(found(everything, &["2|-|-|-|-"]).await, 0, "the definition of the table changed");
        assert_eq!(found(count, &["271|5000"]).await, 0);
        // Plans with the current time, and of virtual tables, are not cached.
        assert_eq!(found("SELECT 1", &["1"]).await + found("SELECT 1", &["1"]).await, 0);
        let uncached = "SELECT count(*) > 0 FROM information_schema.tables";
        assert_eq!(found(uncached, &["t"]).await + found(uncached, &["t"]).await, 0);
        for text in [
            "CREATE ROLE ann WITH PASSWORD = 'annspassword' AND LOGIN = true",
            "GRANT SELECT ON shop.orders TO ann",
        ] {
            admin.simple_query(text).await.expect(text);
        }
        let ann = listener.connect(("ann", "annspassword")).await.expect("let in");
        let mine = "SELECT current_user, count(*) FROM shop.orders";
        assert_eq!(rows(&admin, mine).await, ["admin|301"]);
        assert_eq!(rows(&ann, mine).await, ["ann|301"]);
        assert_eq!(rows(&ann, mine).await, ["ann|301"]);
        assert_eq!(refused(&ann, everything).await.0, "42501");
        admin.simple_query("REVOKE SELECT ON shop.orders FROM ann").await.expect("revoked");
        assert_eq!(refused(&ann, mine).await.0, "42P01", "the plan is kept, not the right");
        // Far more statements than the plan cache holds.
        for n in 0..100 {
            assert_eq!(
                found(&format!("SELECT {n} FROM shop.people WHERE id = 1"), &[&n.to_string()]).await,
                0
            );
        }
        assert_eq!(found("SELECT 99 FROM shop.people WHERE id = 1", &["99"]).await, 1);
        assert_eq!(found(count, &["271|5000"]).await, 0, "the least recently used plan was evicted");
    });
}

#[test]
fn decimals_have_the_configured_scale() {
    for (decimal_scale, expected) in [(6, None), (18, Some("0.000000000000000001|2.500000000000000000"))] {
        let listener = TestListener::start_with(
            1,
            1 << 30,
            sql::SqlConfig { decimal_scale, ..sql::SqlConfig::default() },
        );
        listener.cql(&[
            "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE shop.coins (id int PRIMARY KEY, price decimal, paid list<decimal>)",
            "INSERT INTO shop.coins (id, price, paid) VALUES (1, 0.000000000000000001, [1.5, 1E-18])",
            "INSERT INTO shop.coins (id, price) VALUES (2, 2.5)",
        ]);
        listener.client(async {
            let admin = listener.admin().await;
            let text = "SELECT min(price), max(price) FROM shop.coins";
            let Some(expected) = expected else {
                let (code, message) = refused(&admin, text).await;
                assert!(message.contains("--sql-decimals"), "{code} {message}");
                return;
            };
            assert_eq!(rows(&admin, text).await, [expected]);
            for condition in
                ["price = 2.5", "price > 0.000000000000000001", "price BETWEEN 2 AND 3", "price IN (2.5, 7)"]
            {
                assert_eq!(
                    rows(&admin, &format!("SELECT id FROM shop.coins WHERE {condition}")).await,
                    ["2"],
                    "{condition}"
                );
            }
            let joined =
                "SELECT a.id FROM shop.coins a JOIN shop.coins b ON a.price = b.price WHERE b.id = 1";
            assert_eq!(rows(&admin, joined).await, ["1"]);
            assert_eq!(
                rows(&admin, "SELECT paid FROM shop.coins WHERE id = 1").await,
                ["{1.500000000000000000,0.000000000000000001}"]
            );
        });
    }
}

#[test]
fn now_returns_the_time_of_execution() {
    let listener = filled(1);
    listener.client(async {
        let admin = listener.admin().await;
        for text in ["SELECT now()::text", "SELECT now()::text FROM shop.people WHERE id = 1"] {
            let statement = admin.prepare(text).await.expect("prepared");
            let mut times = Vec::new();
            for _ in 0..3 {
                let row = admin.query_one(&statement, &[]).await.expect("a row");
                times.push(row.get::<_, String>(0));
                times.extend(rows(&admin, text).await);
            }
            assert!(times.is_sorted_by(|a, b| a < b), "{text}: {times:?}");
        }
    });
}

#[test]
fn functions_use_the_sessions_settings() {
    let listener = filled(1);
    listener.cql(&["INSERT INTO shop.people (id, name) VALUES (3, '2026-01-01T00:00:00')"]);
    listener.client(async {
        let admin = listener.admin().await;
        for (zone, expected) in [("UTC", "1767225600"), ("+02:00", "1767218400")] {
            admin.simple_query(&format!("SET TimeZone = '{zone}'")).await.expect("set");
            let seconds = "SELECT to_unixtime(name) FROM shop.people WHERE id = 3";
            let beside = "SELECT to_unixtime(name) FROM shop.people WHERE id = 3 AND now() > '2020-01-01'";
            for text in [seconds, seconds, beside] {
                assert_eq!(rows(&admin, text).await, [expected], "{text} in {zone}");
            }
        }
    });
}

#[test]
fn failing_statements_report_code_and_cause() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, code: &str, part: &str| {
            let (found, message) = refused(&admin, text).await;
            assert!(found == code && message.contains(part), "{text}: {found} {message}");
        };
        check("SELECT * FROM shop.nothing", "42P01", "nothing").await;
        check("SELECT * FROM nowhere.orders", "42P01", "orders").await;
        check("SELECT nothing FROM shop.orders", "42703", "nothing").await;
        check("SELEC 1", "42601", "syntax").await;
        check("SELECT 1; SELECT $1", "42601", "parameter").await;
        check("INSERT INTO shop.orders VALUES (1, 2, 3, 'x')", "25006", "read-only").await;
        check("EXPLAIN INSERT INTO shop.orders VALUES (1, 2, 3, 'x')", "25006", "read-only").await;
        check("DROP TABLE shop.orders", "25006", "read-only").await;
        check("COPY shop.orders TO '/tmp/x'", "25006", "read-only").await;
        check("SELECT 1 / (price - price) FROM shop.orders", "22012", "zero").await;
        check("SET no_such_thing = 1", "42704", "no_such_thing").await;
        check("SET service_level = 'none'", "22023", "none").await;
        check("FETCH ALL FROM c", "0A000", "FETCH").await;
        check("BEGIN; SELECT nothing; SELECT 1", "42703", "nothing").await;
        check("SELECT 1", "25P02", "aborted").await;
        assert_eq!(rows(&admin, "ROLLBACK; SELECT 5").await, ["5"]);
    });
}

#[test]
fn query_without_memory_fails_with_the_reason() {
    let listener = TestListener::start_with(2, 1 << 20, sql::SqlConfig::default());
    listener.client(async {
        let admin = listener.admin().await;
        let sorted = "SELECT a.n FROM generate_series(1, 400000) AS a(n) ORDER BY a.n % 1000, a.n";
        let (code, message) = refused(&admin, sorted).await;
        assert!(code == "53200" && message.contains("memory"), "{code} {message}");
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
    });
}

#[test]
fn roles_read_only_granted_tables() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        for text in [
            "CREATE ROLE ann WITH PASSWORD = 'annspassword' AND LOGIN = true",
            "CREATE ROLE bob WITH PASSWORD = 'bobspassword' AND LOGIN = false",
            "CREATE ROLE jim WITH HASHED PASSWORD = '$2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW' \
             AND LOGIN = true",
            "GRANT SELECT ON shop.orders TO ann",
            "CREATE SERVICE LEVEL reports WITH shares = 100",
        ] {
            admin.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        for login in [("ann", "wrong"), ("nobody", "x"), ("bob", "bobspassword"), ("jim", "wrong")] {
            let error = listener.connect(login).await.expect_err("refused");
            assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("28P01"), "{login:?}");
        }
        let jim = listener.connect(("jim", "secret")).await.expect("let in by a bcrypt hash");
        assert_eq!(rows(&jim, "SELECT current_user").await, ["jim"]);
        let ann = listener.connect(("ann", "annspassword")).await.expect("let in");
        assert_eq!(rows(&ann, "SELECT count(*), current_user FROM shop.orders").await, ["300|ann"]);
        for text in [
            "SELECT * FROM shop.people",
            "SELECT 1 WHERE EXISTS (SELECT * FROM shop.people)",
            "WITH p AS (SELECT * FROM shop.people) SELECT count(*) FROM p",
            "EXPLAIN SELECT * FROM shop.people",
            "SET service_level = reports",
            "CREATE SERVICE LEVEL mine",
        ] {
            assert_eq!(refused(&ann, text).await.0, "42501", "{text}");
        }
        admin.simple_query("GRANT EXECUTE ON SERVICE LEVEL reports TO ann").await.expect("granted");
        assert_eq!(rows(&ann, "SET service_level = reports; SHOW service_level").await, ["reports"]);
        let statement = ann.prepare("SELECT count(*) FROM shop.orders").await.expect("prepared");
        admin.simple_query("REVOKE SELECT ON shop.orders FROM ann").await.expect("revoked");
        let error = ann.query(&statement, &[]).await.expect_err("no longer");
        // It was the last right to the keyspace, which is hidden now.
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42P01"));
    });
}

#[test]
fn queries_run_on_heavy_lanes_in_the_levels_group() {
    let listener = filled(2);
    let levels = listener.lanes.clone();
    listener.client(async {
        let admin = listener.admin().await;
        let before = levels.usage(Group::DEFAULT).cpu_heavy_ns;
        let text = "SELECT count(*) FROM shop.orders a, shop.orders b WHERE a.price + b.price > 10";
        rows(&admin, text).await;
        assert!(levels.usage(Group::DEFAULT).cpu_heavy_ns > before);
        let explained = rows(
            &admin,
            "EXPLAIN ANALYZE SELECT customer, sum(price) FROM shop.orders GROUP BY 1 ORDER BY 1",
        )
        .await;
        let text = explained.join("\n");
        assert!(text.contains("LaneExchangeExec") && text.contains("output_rows=300"), "{text}");
    });
}

/// Runs longer than any test waits: computes billions of rows and keeps none.
const LONG: &str = "SELECT sum(x.p * y.p) FROM (SELECT a.price + b.price AS p FROM shop.orders a, shop.orders b) x, \
                    (SELECT c.price - d.price AS p FROM shop.orders c, shop.orders d) y";

#[test]
fn running_statement_is_listed_and_canceled_by_id() {
    let listener = filled(2);
    listener.client(async {
        let (admin, runner) = (listener.admin().await, listener.admin().await);
        let cancel = async {
            let shown = "SELECT id, service_level, role, state, statement, rows_read > 0 \
                         FROM system.running_statements \
                         WHERE rows_read > 0 AND statement <> 'read system.running_statements'";
            let row = loop {
                let found = rows(&admin, shown).await;
                if let Some(row) = found.first() {
                    break row.clone();
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            };
            let (id, rest) = row.split_once('|').expect("columns");
            assert_eq!(rest, "default|admin|running|read shop.orders|t");
            rows(&admin, &format!("CANCEL STATEMENT '{id}'")).await;
            let again = format!("CANCEL STATEMENT '{id}'");
            // It may take a moment to end.
            while admin.simple_query(&again).await.is_ok() {}
        };
        let ((code, _), ()) = tokio::join!(refused(&runner, LONG), cancel);
        assert_eq!(code, "57014");
        assert_eq!(rows(&runner, "SELECT 1").await, ["1"]);
    });
}

#[test]
fn query_beyond_its_limit_is_canceled_or_demoted() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        for text in [
            "CREATE SERVICE LEVEL slow WITH shares = 10",
            "CREATE SERVICE LEVEL short WITH query_limit = {'elapsed': '30ms', 'action': 'cancel'}",
            "CREATE SERVICE LEVEL moving WITH query_limit = {'rows': 100, 'action': 'demote:slow'}",
            "SET service_level = short",
        ] {
            admin.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        let (code, message) = refused(&admin, LONG).await;
        assert!(code == "57014" && message.contains("'short'"), "{code} {message}");
        rows(&admin, "SET service_level = moving; SET statement_timeout = '2s'").await;
        let (code, message) = refused(&admin, LONG).await;
        assert!(code == "57014" && message.contains("2000 ms"), "{code} {message}");
        assert!(listener.heavy_ns("slow") > 1_000_000, "it ran there: {} ns", listener.heavy_ns("slow"));
    });
}

/// Alters the level of a statement that has read rows. Returns the statement's error.
async fn altered(listener: &TestListener, before: &str, after: &str) -> (String, String) {
    let (admin, runner) = (listener.admin().await, listener.admin().await);
    rows(&admin, &format!("CREATE SERVICE LEVEL changing WITH {before}")).await;
    rows(&runner, "SET service_level = changing").await;
    let alter = async {
        let reading =
            "SELECT id FROM system.running_statements WHERE service_level = 'changing' AND rows_read > 0";
        while rows(&admin, reading).await.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        rows(&admin, &format!("ALTER SERVICE LEVEL changing WITH {after}")).await;
    };
    let (ended, ()) = tokio::join!(refused(&runner, LONG), alter);
    rows(&admin, "DROP SERVICE LEVEL changing").await;
    ended
}

#[test]
fn altered_level_applies_to_running_statements() {
    let listener = filled(2);
    listener.client(async {
        let (code, message) = altered(&listener, "shares = 100", "timeout = 10ms").await;
        assert!(code == "57014" && message.contains("'changing' (10 ms)"), "{code} {message}");
        let (code, message) = altered(&listener, "timeout = 1h", "timeout = 20ms").await;
        assert!(code == "57014" && message.contains("'changing' (20 ms)"), "{code} {message}");
        let limit = "query_limit = {'rows': 10, 'action': 'cancel'}";
        let (code, message) = altered(&listener, "shares = 100", limit).await;
        assert!(code == "57014" && message.contains("query_limit"), "{code} {message}");
    });
}

#[test]
fn demoted_statement_is_listed_in_its_new_level() {
    let listener = filled(2);
    listener.client(async {
        let (admin, runner) = (listener.admin().await, listener.admin().await);
        for text in [
            "CREATE SERVICE LEVEL slow WITH shares = 10",
            "CREATE SERVICE LEVEL moving WITH query_limit = {'rows': 100, 'action': 'demote:slow'}",
        ] {
            rows(&admin, text).await;
        }
        rows(&runner, "SET service_level = moving").await;
        let seen = async {
            let shown = "SELECT id FROM system.running_statements WHERE service_level = 'slow'";
            loop {
                if let Some(id) = rows(&admin, shown).await.first() {
                    return rows(&admin, &format!("CANCEL STATEMENT '{id}'")).await;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let ((code, _), _) = tokio::join!(refused(&runner, LONG), seen);
        assert_eq!(code, "57014");
    });
}

/// Everything that a statement holds moves with its CPU time: otherwise its old level counts it for
/// ever, and its new level measures work of which no statement ends.
#[test]
fn demoted_statement_takes_permit_slot_and_memory_along() {
    // The build side of a join, which is held as long as the query runs.
    const HOLDS: &str = "SELECT sum(length(a.t) + b.n % 3) FROM \
                         (SELECT value AS n, repeat('x', 80) || value AS t FROM generate_series(1, 100000)) a \
                         JOIN (SELECT value AS n FROM generate_series(1, 1000000000000)) b ON a.n = b.n % 100000";
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let runner = listener.admin().await;
        let next = listener.admin().await;
        for text in [
            "CREATE SERVICE LEVEL slow WITH shares = 10 AND max_concurrency = 3",
            "CREATE SERVICE LEVEL moving WITH max_concurrency = 1 AND queue_timeout = 10s AND timeout = 1h \
             AND query_limit = {'elapsed': '50ms', 'action': 'demote:slow'}",
        ] {
            rows(&admin, text).await;
        }
        for client in [&runner, &next] {
            rows(client, "SET service_level = moving").await;
        }
        let moved = async {
            let shown = "SELECT id FROM system.running_statements WHERE service_level = 'slow'";
            let id = loop {
                if let Some(id) = rows(&admin, shown).await.into_iter().next() {
                    break id;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            };
            // The only slot of the level is free again.
            assert_eq!(rows(&next, "SELECT count(*) FROM shop.orders").await, ["300"]);
            rows(&next, "RESET service_level").await;
            while listener.level_usage("slow").memory.used < 1 << 20 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            let [old, new] = ["moving", "slow"].map(|level| listener.level_usage(level));
            assert_eq!((old.in_flight, old.slots.occupancy.running, old.memory.used), (0, 0, 0));
            assert_eq!((new.in_flight, new.slots.occupancy.running), (1, 1));
            rows(&admin, &format!("CANCEL STATEMENT '{id}'")).await;
        };
        let ((code, _), ()) = tokio::join!(refused(&runner, HOLDS), moved);
        assert_eq!(code, "57014");
        rows(&runner, "RESET service_level").await;
        for level in ["moving", "slow"] {
            let left = || listener.level_usage(level);
            assert_eq!((left().in_flight, left().slots.occupancy.running), (0, 0), "{level}");
            // Its tasks free their memory where they yield next.
            while left().memory.used > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    });
}

/// Returns the states of a level's statements.
async fn shown(client: &tokio_postgres::Client, level: &str) -> Vec<String> {
    let text = "SELECT state FROM system.running_statements WHERE service_level = ";
    rows(client, &format!("{text}'{level}'")).await
}

#[test]
fn suspended_query_keeps_its_slot_and_its_limits() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let mut runner = listener.admin().await;
        let other = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL few WITH max_concurrency = 1 AND queue_timeout = 100ms").await;
        for client in [&runner, &other] {
            rows(client, "SET service_level = few").await;
        }
        let text = "SELECT id FROM shop.orders ORDER BY id";
        let transaction = runner.transaction().await.expect("begun");
        let portal = transaction.bind(text, &[]).await.expect("bound");
        let first = transaction.query_portal(&portal, 10).await.expect("ten rows");
        assert_eq!((first.len(), first[9].get::<_, i32>(0)), (10, 9));
        assert_eq!(shown(&admin, "few").await, ["suspended"]);
        // Other sessions do not get the slot. The session itself may use it.
        let (code, message) = refused(&other, text).await;
        assert!(code == "53300" || code == "53400" || message.contains("few"), "{code} {message}");
        let count = transaction.query_one("SELECT count(*) FROM shop.orders", &[]).await.expect("its own");
        assert_eq!(count.get::<_, i64>(0), 300);
        let rest = transaction.query_portal(&portal, 0).await.expect("the rest");
        assert_eq!((rest.len(), rest[0].get::<_, i32>(0)), (290, 10));
        assert!(shown(&admin, "few").await.is_empty());
        assert_eq!(rows(&other, text).await.len(), 300);

        // A suspended query ends at its time limit. Its client gets the error when it asks for
        // more rows.
        let portal = transaction.bind(text, &[]).await.expect("bound");
        transaction.query_portal(&portal, 10).await.expect("ten rows");
        rows(&admin, "ALTER SERVICE LEVEL few WITH timeout = 50ms").await;
        while !shown(&admin, "few").await.is_empty() {}
        assert_eq!(rows(&other, text).await.len(), 300);
        let error = transaction.query_portal(&portal, 10).await.expect_err("it was ended");
        assert!(
            error.as_db_error().is_some_and(|error| error.message().contains("'few' (50 ms)")),
            "{error}"
        );
        drop(transaction);

        // The last used one of two suspended queries is listed. A client's cancel request ends
        // neither, since no statement runs.
        rows(&admin, "ALTER SERVICE LEVEL few WITH timeout = null").await;
        let transaction = runner.transaction().await.expect("begun");
        let (one, other_one) = (transaction.bind(text, &[]).await, transaction.bind(text, &[]).await);
        let (one, other_one) = (one.expect("bound"), other_one.expect("bound"));
        for portal in [&one, &other_one, &one] {
            assert_eq!(transaction.query_portal(portal, 10).await.expect("rows").len(), 10);
        }
        transaction.cancel_token().cancel_query(tokio_postgres::NoTls).await.expect("asked");
        // The request is sent, and may not have arrived yet.
        for _ in 0..50 {
            assert_eq!(shown(&admin, "few").await, ["suspended"]);
        }
        let found = transaction.query_portal(&one, 0).await.expect("the rest");
        assert_eq!((found.len(), shown(&admin, "few").await), (280, vec!["suspended".to_owned()]));
        // The end of the transaction closes its portals.
        transaction.simple_query("COMMIT").await.expect("ended");
        assert!(shown(&admin, "few").await.is_empty());
        drop((one, other_one, transaction));

        // A canceled query, and one whose portal is closed, release the slot too.
        for cancel in [true, false] {
            let transaction = runner.transaction().await.expect("begun");
            let portal = transaction.bind(text, &[]).await.expect("bound");
            transaction.query_portal(&portal, 10).await.expect("ten rows");
            let id = rows(&admin, "SELECT id FROM system.running_statements WHERE state = 'suspended'").await;
            match cancel {
                true => drop(rows(&admin, &format!("CANCEL STATEMENT '{}'", id[0])).await),
                false => drop(portal),
            }
            if cancel {
                while !shown(&admin, "few").await.is_empty() {}
            }
            transaction.rollback().await.expect("rolled back");
            assert_eq!(rows(&other, text).await.len(), 300, "cancelled: {cancel}");
        }
    });
}

/// Returns the rows read by scans, from `EXPLAIN ANALYZE`.
async fn scanned(client: &tokio_postgres::Client, text: &str) -> u64 {
    let explained = rows(client, &format!("EXPLAIN ANALYZE {text}")).await.join("\n");
    let scans = explained.lines().filter(|line| line.contains("ScanExec"));
    let count = |line: &str| -> u64 {
        let rest = line.split("output_rows=").nth(1).unwrap_or_else(|| panic!("{text}: {explained}"));
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{text}: {explained}"))
    };
    scans.map(count).sum()
}

#[test]
fn scan_reads_only_the_named_partitions() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |condition: &str, expected: u64, read: u64| {
            let text = format!("SELECT count(*) FROM shop.orders WHERE {condition}");
            assert_eq!(rows(&admin, &text).await, [expected.to_string()], "{condition}");
            assert_eq!(scanned(&admin, &text).await, read, "{condition}");
        };
        check("customer = 7", 30, 30).await;
        check("customer IN (7, 3)", 60, 60).await;
        check("customer IN (7, 3, 7, 99, 5, 1, NULL)", 120, 120).await;
        check("customer = 7 OR customer = 99", 30, 30).await;
        check("(customer = 7 AND id < 50) OR (customer = 3 AND id > 250)", 10, 60).await;
        check("customer IN (7, 3) AND customer > 3", 30, 30).await;
        check("customer IN (98, 99)", 0, 0).await;
        check("customer NOT IN (7, 3)", 240, 300).await;
        check("customer = 7 OR price = 9", 31, 300).await;
        // A dynamic filter of the join: one row of people, and the orders of one customer.
        let joined =
            "SELECT count(*) FROM shop.people p JOIN shop.orders o ON o.customer = p.id WHERE p.name = 'Ada'";
        assert_eq!(rows(&admin, joined).await, ["30"]);
        assert!(scanned(&admin, joined).await <= 2 + 30);
        let filtered = format!("{joined} AND o.price >= 0");
        assert_eq!(rows(&admin, &filtered).await, ["30"]);
        assert!(scanned(&admin, &filtered).await <= 2 + 30);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&7, &3];
        let text = "SELECT count(*) FROM shop.orders WHERE customer IN ($1, $2)";
        let row = admin.query_one(text, &parameters).await.expect("prepared");
        assert_eq!(row.get::<_, i64>(0), 60);
    });
}

#[test]
fn query_reads_one_snapshot_of_each_table() {
    let listener = filled(2);
    /// Sets the flag when it is dropped, also by a panic.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| {
            let mut id = 1000;
            // Bounded, so that the table does not grow without end on a busy machine.
            while !stop.load(Relaxed) && id < 2000 {
                let insert = |customer: i32| {
                    format!("INSERT INTO shop.orders (customer, id, price) VALUES ({customer}, {id}, 1)")
                };
                let inserts: Vec<String> = (0..10).map(insert).collect();
                listener.cql(&inserts.iter().map(String::as_str).collect::<Vec<_>>());
                id += 1;
            }
        });
        listener.client(async {
            let admin = listener.admin().await;
            let count = "(SELECT count(*) FROM shop.orders)";
            let check = async |text: String| {
                for _ in 0..40 {
                    assert_eq!(rows(&admin, &text).await, ["t"], "{text}");
                }
            };
            check(format!("SELECT {count} = {count}")).await;
            check(format!(
                "SELECT count(DISTINCT n) = 1 FROM (SELECT * FROM {count} AS a(n) UNION ALL \
                 SELECT * FROM {count} AS b(n)) AS u"
            ))
            .await;
            let all = "(SELECT customer, id FROM shop.orders)";
            check(format!(
                "SELECT count(*) = 0 FROM {all} AS a FULL JOIN {all} AS b \
                 ON a.customer = b.customer AND a.id = b.id WHERE a.id IS NULL OR b.id IS NULL"
            ))
            .await;
            let rounds = format!(
                "WITH RECURSIVE r AS (SELECT 1 AS n, x.c FROM {count} AS x(c) UNION ALL SELECT r.n + 1, x.c \
                 FROM r CROSS JOIN {count} AS x(c) WHERE r.n < 5) SELECT count(DISTINCT c) = 1 AND count(*) = 5 FROM r"
            );
            check(rounds).await;
            // The optimizer makes two subqueries of this one.
            check("SELECT true WHERE 1000000 > ALL (SELECT count(*) FROM shop.orders)".to_owned()).await;
            let written: i64 =
                rows(&admin, "SELECT count(*) FROM shop.orders").await[0].parse().expect("a number");
            assert!(written > ROWS + 1000, "expected concurrent writes, got {written} rows");
        });
        drop(ends);
    });
}

#[test]
fn cancel_and_timeouts_end_a_statement() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let long = LONG;
        let token = admin.cancel_token();
        let canceling = async {
            // Repeated until a request meets the running statement.
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                token.cancel_query(tokio_postgres::NoTls).await.expect("asked");
            }
        };
        let (code, message) = tokio::select! {
            found = refused(&admin, long) => found,
            () = canceling => unreachable!("it asks for ever"),
        };
        assert!(code == "57014" && message.contains("user request"), "{code} {message}");
        // Another connection, since a late cancel request would end the next statement of this
        // one.
        let admin = listener.admin().await;
        rows(&admin, "SET statement_timeout = '30ms'").await;
        let (code, message) = refused(&admin, long).await;
        assert!(code == "57014" && message.contains("30 ms"), "{code} {message}");
        rows(&admin, "SET statement_timeout = 0").await;
        rows(&admin, "CREATE SERVICE LEVEL hasty WITH timeout = 30ms; SET service_level = hasty").await;
        let (code, message) = refused(&admin, long).await;
        assert!(code == "57014" && message.contains("'hasty'"), "{code} {message}");
    });
}
