//! Behavior that programs written for Postgres rely on: names and types of columns, functions,
//! parameters.

use std::time::SystemTime;

use tokio_postgres::types::Type;

use super::filled;
use crate::common::{TestListener, refused, rows};

#[test]
fn columns_have_postgres_names() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, names: &str, expected: &str| {
            let statement = admin.prepare(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
            let found: Vec<&str> = statement.columns().iter().map(tokio_postgres::Column::name).collect();
            assert_eq!(found.join(" "), names, "{text}");
            assert_eq!(rows(&admin, text).await.join(","), expected, "{text}");
        };
        let of_one = "FROM shop.orders WHERE customer = 1";
        check(&format!("SELECT count(*), sum(price), 1 {of_one}"), "count sum ?column?", "30|13140|1").await;
        check(&format!("SELECT max(price)::varchar, min(id) {of_one}"), "max min", "873|1").await;
        check("SELECT 1, 1, NULL, NULL", "?column? ?column? ?column? ?column?", "1|1|-|-").await;
        check("SELECT id, id, id AS x, name AS x FROM shop.people WHERE id = 2", "id id x x", "2|2|2|-")
            .await;
        check("SELECT id, *, id FROM shop.people WHERE id = 2", "id id ages name tags id", "2|2|-|-|-|2")
            .await;
        let joined = "SELECT a.id, b.id FROM shop.people a JOIN shop.people b ON a.id = b.id ORDER BY b.id";
        check(joined, "id id", "1|1,2|2").await;
        check("SELECT count FROM (SELECT count(*) FROM shop.people) AS s", "count", "2").await;
        check("WITH w AS (SELECT max(price) FROM shop.orders) SELECT max + 1 FROM w", "?column?", "898")
            .await;
        let grouped = "SELECT upper(name), count(*) FROM shop.people GROUP BY upper(name) \
                       ORDER BY upper(name), count(*)";
        check(grouped, "upper count", "ADA|1,-|1").await;
        let distinct = "SELECT DISTINCT customer % 2 FROM shop.orders ORDER BY customer % 2";
        check(distinct, "?column?", "0,1").await;
        let united =
            "SELECT count(*), count(*) FROM shop.people HAVING count(*) > 0 UNION ALL SELECT 0, 0 ORDER BY 1";
        check(united, "count count", "0|0,2|2").await;
        check("SELECT name::text FROM shop.people GROUP BY name ORDER BY name", "name", "Ada,-").await;
        check(
            "SELECT relname, relname FROM pg_class WHERE relname = 'people'",
            "relname relname",
            "people|people",
        )
        .await;
    });
}

#[test]
fn correlated_subqueries_run_for_each_row() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let of_each = "SELECT p.id, (SELECT max(o.price) FROM shop.orders o WHERE o.customer = p.id) AS most \
                       FROM shop.people p ORDER BY p.id";
        assert_eq!(rows(&admin, of_each).await, ["1|873", "2|876"]);
        assert_eq!(rows(&admin, "SELECT (SELECT max(orders.price) FROM shop.orders)").await, ["897"]);
        let several = "SELECT id, (SELECT o.price FROM shop.orders o) AS any FROM shop.people";
        assert!(admin.simple_query(several).await.is_err(), "one row is wanted, not one of many");
    });
}

#[test]
fn scalar_subqueries_run_in_values() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        let series = "(SELECT x FROM generate_series(1, 3) AS s(x)) AS t";
        for (text, expected) in [
            ("VALUES ((SELECT 2)), (3), (NULL)", &["2", "3", "-"][..]),
            ("VALUES ('a', (SELECT 2)), ('b', 3), ('c', (SELECT 1) + 3)", &["a|2", "b|3", "c|4"]),
            ("VALUES ((SELECT max(x) FROM t)), ((SELECT x FROM t WHERE x > 9))", &["3", "-"]),
            ("VALUES ((SELECT (SELECT 4)), (SELECT ARRAY[1, 2]), (SELECT 'a') || 'b')", &["4|{1,2}|ab"]),
            ("SELECT b FROM (VALUES ((SELECT 1), 'a'), (2, 'b')) AS v(a, b) WHERE a = 1", &["a"]),
            ("SELECT x FROM t WHERE x IN (VALUES ((SELECT 2)), (3)) ORDER BY x", &["2", "3"]),
            ("SELECT (SELECT a FROM (VALUES ((SELECT 5))) AS v(a))", &["5"]),
            ("SELECT sum(a) FROM (VALUES ((SELECT 1.5)), (2)) AS v(a)", &["3.5"]),
            (
                "WITH RECURSIVE r(a) AS (VALUES ((SELECT 2)) UNION ALL SELECT a + (SELECT 1) FROM r WHERE a < 4) \
                 SELECT a FROM r",
                &["2", "3", "4"],
            ),
        ] {
            let text = text.replace("FROM t", &format!("FROM {series}"));
            assert_eq!(rows(&admin, &text).await, expected, "{text}");
        }
        // More than one row, and conditions as values.
        let several = format!("VALUES ((SELECT x FROM {series}))");
        assert_eq!(refused(&admin, &several).await.0, "21000");
        for (text, expected) in [
            ("VALUES (EXISTS (SELECT 1)), (false)", &["t", "f"][..]),
            ("VALUES (1 IN (SELECT 1)), (1 IN (SELECT 2)), (1 IN (SELECT NULL::int))", &["t", "f", "-"]),
        ] {
            assert_eq!(rows(&admin, text).await, expected, "{text}");
        }
    });
}

#[test]
fn subqueries_of_catalog_queries_are_right_or_refused() {
    let listener = filled(1);
    listener.client(async {
        let admin = listener.admin().await;
        for (text, expected) in [
            ("SELECT (SELECT count(c.oid) > 0 FROM pg_class c) AS some", "t"),
            ("SELECT (SELECT nspname FROM pg_namespace WHERE nspname = 'shop')", "shop"),
            (
                "SELECT (SELECT nspname FROM pg_namespace WHERE nspname > 'sa' ORDER BY nspname LIMIT 1)",
                "shop",
            ),
        ] {
            assert_eq!(rows(&admin, text).await, [expected], "{text}");
        }
        for (text, code) in [
            // Both were NULL before.
            ("SELECT (SELECT count(pg_class.oid) FROM pg_class) AS n", "0A000"),
            ("SELECT (SELECT x.n FROM (SELECT count(*) AS n FROM pg_class) x) FROM pg_namespace", "0A000"),
            // It was the first name before.
            ("SELECT (SELECT relname FROM pg_class)", "21000"),
        ] {
            assert_eq!(refused(&admin, text).await.0, code, "{text}");
        }
    });
}

#[test]
fn explain_follows_its_options() {
    let listener = filled(1);
    listener.client(async {
        let admin = listener.admin().await;
        let explain = async |options: &str| {
            let text = format!("EXPLAIN ({options}) SELECT count(*) FROM shop.orders");
            rows(&admin, &text).await.join("\n")
        };
        assert!(explain("ANALYZE").await.contains("output_rows=300"));
        assert!(!explain("ANALYZE false").await.contains("output_rows"));
        let plan = explain("FORMAT JSON").await;
        let json = plan.strip_prefix("logical_plan|").expect("the type of the plan, then the plan");
        let parsed: serde_json::Value =
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert!(parsed.is_array(), "{json}");
        let (code, _) = refused(&admin, "EXPLAIN (FORMAT XML) SELECT 1").await;
        assert_eq!(code, "0A000");
    });
}

#[test]
fn values_have_the_described_types() {
    let listener = TestListener::start(1);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.small (id int PRIMARY KEY, a tinyint, b list<tinyint>, c duration, \
         d frozen<tuple<tinyint, int>>)",
        "INSERT INTO shop.small (id, a, b, c, d) VALUES (1, -128, [1, -2], 1mo2d3h, (7, 8))",
        "INSERT INTO shop.small (id) VALUES (2)",
    ]);
    listener.client(async {
        let admin = listener.admin().await;
        let found = admin.query("SELECT a, b FROM shop.small ORDER BY id", &[]).await.expect("binary");
        assert_eq!(found[0].columns()[0].type_(), &Type::INT2);
        assert_eq!((found[0].get::<_, i16>(0), found[0].get::<_, Vec<i16>>(1)), (-128, vec![1, -2]));
        assert_eq!((found[1].get::<_, Option<i16>>(0), found[1].get::<_, Option<Vec<i16>>>(1)), (None, None));
        let text = "SELECT a, b, c, d FROM shop.small ORDER BY id";
        assert_eq!(rows(&admin, text).await, ["-128|{1,-2}|1 mon 2 days 03:00:00|(7,8)", "-|-|-|-"]);
        assert_eq!(
            rows(&admin, "SELECT CAST(NULL AS interval), interval '90 minutes'").await,
            ["-|01:30:00"]
        );
        let now = admin.query_one("SELECT now(), current_timestamp", &[]).await.expect("now");
        assert_eq!(now.columns()[0].type_(), &Type::TIMESTAMPTZ);
        let at = now.get::<_, SystemTime>(0).duration_since(SystemTime::UNIX_EPOCH).expect("it was");
        assert!(lanes::time::unix_micros().abs_diff(at.as_micros() as i64) < 60_000_000);
    });
}

#[test]
fn times_convert_to_other_zones() {
    let listener = TestListener::start(1);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.events (id int PRIMARY KEY, at timestamp)",
        "INSERT INTO shop.events (id, at) VALUES (1, '2026-01-01T20:30:00.125Z')",
        "INSERT INTO shop.events (id) VALUES (2)",
    ]);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |what: &str, expected: &[&str]| {
            let text = format!("SELECT {what} FROM shop.events ORDER BY id");
            assert_eq!(rows(&admin, &text).await, expected, "{text}");
        };
        check("at AT TIME ZONE 'Asia/Tokyo'", &["2026-01-02 05:30:00.125", "-"]).await;
        check("date_trunc('day', at AT TIME ZONE 'Asia/Tokyo')", &["2026-01-02 00:00:00", "-"]).await;
        check("timezone('UTC', at)", &["2026-01-01 20:30:00.125", "-"]).await;
        check("timezone(NULL, at)", &["-", "-"]).await;
        // To local time and back.
        check("at AT TIME ZONE 'America/New_York' AT TIME ZONE 'America/New_York' = at", &["t", "-"]).await;
        check("to_char(at, 'YYYY-MM-DD HH24:MI:SS.MS')", &["2026-01-01 20:30:00.125", "-"]).await;
        let (code, message) = refused(&admin, "SELECT at AT TIME ZONE 'Nowhere' FROM shop.events").await;
        assert!(message.contains("Nowhere"), "{code} {message}");
        let (code, message) = refused(&admin, "SELECT 1 AT TIME ZONE 'UTC'").await;
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("42883", "function timezone(text, bigint) does not exist")
        );
    });
}

#[test]
fn parameter_types_follow_from_the_context() {
    let listener = filled(2);
    listener.client(async {
        let admin = listener.admin().await;
        let limited = "SELECT id FROM shop.orders WHERE customer = $1 ORDER BY id LIMIT $2 OFFSET $3";
        let statement = admin.prepare(limited).await.expect("prepared");
        assert_eq!(statement.params(), [Type::INT4, Type::INT8, Type::INT8]);
        let found = admin.query(&statement, &[&3_i32, &2_i64, &1_i64]).await.expect("rows");
        assert_eq!(found.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [13, 23]);
        let any = "SELECT id FROM shop.people WHERE id = ANY($1) ORDER BY id";
        let statement = admin.prepare(any).await.expect("prepared");
        assert_eq!(statement.params(), [Type::INT4_ARRAY]);
        assert_eq!(admin.query(&statement, &[&vec![2, 9, 1]]).await.expect("rows").len(), 2);
        let cast = admin.prepare("SELECT $1::bigint + 1, $2::text").await.expect("prepared");
        assert_eq!(cast.params(), [Type::INT8, Type::TEXT]);
        let row = admin.query_one(&cast, &[&41_i64, &"x"]).await.expect("a row");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1)), (42, "x"));
        let sorted = "SELECT price::bigint FROM shop.orders o WHERE customer = 0 \
                      ORDER BY abs(price - 40), o.price LIMIT 2";
        assert_eq!(rows(&admin, sorted).await, ["30", "60"]);
        let within = "SELECT s.name FROM (SELECT p.name, o.* FROM shop.people p JOIN shop.orders o \
                      ON o.customer = p.id) s WHERE s.id = 1";
        assert_eq!(rows(&admin, within).await, ["Ada"]);
        // A subquery that cannot be planned fails, and is not replaced by NULL.
        assert_eq!(
            refused(&admin, "SELECT v.x, (SELECT v.x + 1) FROM (VALUES (1)) AS v(x)").await.0,
            "0A000"
        );
    });
}

#[test]
fn pools_and_drivers_find_their_functions() {
    let listener = filled(1);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, expected: &[&str]| {
            assert_eq!(rows(&admin, text).await, expected, "{text}");
        };
        // asyncpg, when it returns a connection to its pool.
        check("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;", &["-"]).await;
        // Npgsql.
        check(
            "SET SESSION AUTHORIZATION DEFAULT; RESET SESSION AUTHORIZATION; SELECT pg_is_in_recovery()",
            &["f"],
        )
        .await;
        check("SELECT current_setting('server_version_num')::int / 100", &["1600"]).await;
        check("SELECT current_setting('jit') AS cur, set_config('jit', 'on', false) AS new", &["off|on"])
            .await;
        check("SHOW jit", &["on"]).await;
        check("SELECT pg_catalog.set_config('search_path', 'shop', false)", &["shop"]).await;
        check("SELECT count(*) FROM people", &["2"]).await;
        check("SELECT set_config('search_path', 'public', true); SHOW search_path", &["public", "shop"])
            .await;
        check("SELECT current_setting('no.such', true)", &["-"]).await;
        assert!(refused(&admin, "SELECT current_setting('no.such')").await.1.contains("no.such"));
        assert_eq!(refused(&admin, "SELECT set_config('jit', name, false) FROM people").await.0, "0A000");
        assert_eq!(refused(&admin, "SELECT set_config('no_such', 'x', false)").await.0, "42704");
        check("SELECT quote_ident('Odd'), quote_literal('it''s')", &["\"Odd\"|'it''s'"]).await;
        check("SELECT 1 WHERE 1 OPERATOR(pg_catalog.=) 1 AND 'x'::name = 'x'", &["1"]).await;
        check("SELECT id FROM people WHERE name = CAST('Ada' AS citext)", &["1"]).await;
    });
}

#[test]
fn information_schema_matches_postgres() {
    let listener = filled(2);
    let columns = "a timestamp, b uuid, c list<int>, d map<int, int>, e decimal";
    listener.cql(&[&format!("CREATE TABLE shop.kinds ({columns}, PRIMARY KEY (b, a))")]);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, expected: &[&str]| {
            assert_eq!(rows(&admin, text).await, expected, "{text}");
        };
        check(
            "SELECT column_name, ordinal_position, data_type, udt_name, is_nullable, is_identity \
             FROM information_schema.columns WHERE table_schema = 'shop' AND table_name = 'kinds' ORDER BY 2",
            &[
                "b|1|text|text|NO|NO",
                "a|2|timestamp with time zone|timestamptz|YES|NO",
                "c|3|ARRAY|_int4|YES|NO",
                "d|4|json|json|YES|NO",
                "e|5|numeric|numeric|YES|NO",
            ],
        )
        .await;
        check(
            "SELECT c.constraint_type, k.column_name, k.ordinal_position FROM information_schema.table_constraints c \
             JOIN information_schema.key_column_usage k ON k.constraint_name = c.constraint_name \
             AND k.constraint_schema = c.constraint_schema WHERE c.table_schema = 'shop' AND c.table_name = 'orders' \
             ORDER BY 3",
            &["PRIMARY KEY|customer|1", "PRIMARY KEY|id|2"],
        )
        .await;
        check(
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'shop' ORDER BY 1",
            &["kinds|BASE TABLE", "orders|BASE TABLE", "people|BASE TABLE"],
        )
        .await;
        let both = "SELECT count(*) FROM information_schema.schemata WHERE schema_name IN ('shop', 'pg_catalog')";
        check(both, &["2"]).await;
        check("SELECT character_set_name FROM information_schema.character_sets", &["UTF8"]).await;
        check("SELECT count(*) FROM information_schema.referential_constraints", &["0"]).await;
    });
}

/// Queries of tools, shortened to the parts that identify them.
#[test]
fn tools_find_types_columns_and_keys() {
    let listener = filled(1);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, expected: &[&str]| {
            assert_eq!(rows(&admin, text).await, expected, "{text}");
        };
        // psqlodbc: SQLPrimaryKeys.
        let keys = "select ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname from pg_catalog.pg_index i \
                    where tc.relname = 'orders' AND n.nspname = 'shop' AND ta.attnum = i.indkey[ia.attnum-1]";
        check(keys, &["customer|1|orders_pkey|shop|orders", "id|2|orders_pkey|shop|orders"]).await;
        // Npgsql: types. Each array has its elements' type.
        let types = "SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid FROM (SELECT \
                     CASE WHEN elemproc.proname='array_recv' THEN 'a' END FROM pg_type) AS t";
        let found = rows(&admin, types).await;
        assert!(found.contains(&"pg_catalog|1007|_int4|a|f|23".to_owned()), "{found:?}");
        assert!(found.contains(&"pg_catalog|25|text|b|f|-".to_owned()), "{found:?}");
        // asyncpg: the type of a list, by a parameter whose type it requires.
        let tree = "WITH typeinfo_tree(oid) AS (SELECT oid FROM pg_type AS ti WHERE ti.oid = any($1::oid[])) \
                    SELECT * FROM typeinfo_tree";
        let statement = admin.prepare(tree).await.expect("known");
        assert_eq!(statement.params(), [Type::OID_ARRAY]);
        let row = admin.query_one(&statement, &[&vec![1007_u32]]).await.expect("a type");
        assert_eq!((row.get::<_, &str>("name"), row.get::<_, &str>("elemtype_name")), ("_int4", "int4"));
        // Metabase: the fields of a table.
        let fields = "SELECT c.ordinal_position - 1 AS \"database-position\", false AS \"database-is-auto-increment\" \
                      FROM \"information_schema\".\"columns\" AS \"c\" LEFT JOIN pk ON (\"c\".\"table_schema\" = pk.s) \
                      AND (\"c\".\"table_name\" = \"pk\".\"table_name\") WHERE c.table_schema !~ 'pg_' \
                      AND (\"c\".\"table_schema\" IN ($1)) AND (\"c\".\"table_name\" IN ($2)) \
                      AND \"pn\".\"nspname\" IN ($3)";
        let found = admin.query(fields, &[&"shop", &"orders", &"shop"]).await.expect("fields");
        let field = |row: &tokio_postgres::Row| {
            let (name, ty, is_key): (&str, &str, bool) = (row.get("name"), row.get("database-type"), row.get("pk?"));
            format!("{name} {ty} {is_key}")
        };
        let expected = ["customer int4 true", "id int4 true", "note text false", "price int4 false"];
        assert_eq!(found.iter().map(field).collect::<Vec<_>>(), expected);
        // A setting given as a parameter.
        admin.query("SELECT set_config('jit', $1, false)", &[&"on"]).await.expect("set");
        check("SHOW jit", &["on"]).await;
    });
}
