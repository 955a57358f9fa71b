//! Materialized views: rows, plans, catalogs, rights, and changes of their tables. That a scan has
//! the rows of CQL is tested in `embedded` (`tests/columns/views.rs`).

use crate::common::{TestListener, refused, rows};

const BY_NOTE: &str = "CREATE MATERIALIZED VIEW shop.by_note AS SELECT * FROM shop.orders WHERE note IS NOT NULL AND \
                       customer IS NOT NULL AND id IS NOT NULL PRIMARY KEY (note, customer, id)";

const FIRST: &str = "CREATE MATERIALIZED VIEW shop.\"First\" AS SELECT customer, id FROM shop.orders WHERE \
                     customer < 3 AND id IS NOT NULL PRIMARY KEY (id, customer)";

/// Starts a listener with a table of 100 rows and two views. A tenth of the rows has no note.
fn filled(cores: usize) -> TestListener {
    let listener = TestListener::start(cores);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (customer int, id int, price int, note text, PRIMARY KEY (customer, id))",
        BY_NOTE,
        FIRST,
    ]);
    let inserts: Vec<String> = (0..100)
        .map(|n| match n % 10 {
            0 => format!("INSERT INTO shop.orders (customer, id, price) VALUES ({}, {n}, {n})", n % 7),
            _ => format!(
                "INSERT INTO shop.orders (customer, id, price, note) VALUES ({}, {n}, {n}, 'n{}')",
                n % 7,
                n % 10
            ),
        })
        .collect();
    listener.cql(&inserts.iter().map(String::as_str).collect::<Vec<_>>());
    listener
}

#[test]
fn view_is_queried_like_a_table() {
    for cores in [1, 3] {
        let listener = filled(cores);
        listener.client(async {
            let admin = listener.admin().await;
            let check = async |text: &str, expected: &[&str]| {
                assert_eq!(rows(&admin, text).await, expected, "{text} on {cores} cores");
            };
            check("SELECT count(*), sum(price), min(note) FROM shop.by_note", &["90|4500|n1"]).await;
            check(
                "SELECT * FROM shop.by_note WHERE note = 'n7' AND customer = 3",
                &["n7|3|17|17", "n7|3|87|87"],
            )
            .await;
            check(
                "SELECT id FROM shop.by_note WHERE note > 'n8' AND price < 30 ORDER BY id",
                &["9", "19", "29"],
            )
            .await;
            check("SELECT id, price FROM shop.by_note ORDER BY price DESC LIMIT 2", &["99|99", "98|98"])
                .await;
            check("SELECT note FROM shop.by_note ORDER BY note DESC, id LIMIT 1", &["n9"]).await;
            check("SELECT count(*) FROM (SELECT 1 FROM shop.by_note LIMIT 7) x", &["7"]).await;
            check("SELECT count(*) FROM shop.\"First\"", &["44"]).await;
            let joined = "SELECT count(*), count(v.id) FROM shop.orders o LEFT JOIN shop.by_note v \
                          ON v.customer = o.customer AND v.id = o.id";
            check(joined, &["100|90"]).await;
            let both = "SELECT count(*) FROM shop.by_note v JOIN shop.\"First\" f USING (customer, id)";
            check(both, &["40"]).await;
            let plan =
                rows(&admin, "EXPLAIN SELECT id FROM shop.by_note WHERE note = 'n7' ORDER BY price LIMIT 3")
                    .await;
            let plan = plan.join("\n");
            assert!(
                plan.contains("shop.by_note, columns=[note, id, price], view of=orders, filters=1"),
                "{plan}"
            );
            assert!(plan.contains("narrowed by=DynamicFilter"), "{plan}");
            // A write is in the view at once.
            listener.cql(&["UPDATE shop.orders SET note = 'n10' WHERE customer = 3 AND id = 17"]);
            check("SELECT note FROM shop.by_note WHERE customer = 3 AND id = 17", &["n10"]).await;
            let (code, message) = refused(&admin, "INSERT INTO shop.by_note VALUES ('a', 1, 1, 1)").await;
            assert_eq!(code, "25006", "{message}");
        });
    }
}

#[test]
fn catalogs_show_views_as_views() {
    let listener = filled(1);
    listener.client(async {
        let admin = listener.admin().await;
        let of_shop = |columns: &str, view: &str, of: &str| {
            format!("SELECT {columns} FROM information_schema.{view} WHERE {of} = 'shop' ORDER BY 1, 2")
        };
        for (text, expected) in [
            (
                of_shop("table_name, table_type", "tables", "table_schema"),
                &["First|VIEW", "by_note|VIEW", "orders|BASE TABLE"][..],
            ),
            (
                of_shop("table_name, view_definition, is_updatable", "views", "table_schema"),
                &["First|-|NO", "by_note|-|NO"],
            ),
            (of_shop("table_name, constraint_name", "table_constraints", "table_schema"), &["orders|orders_pkey"]),
            (
                "SELECT column_name, ordinal_position, data_type, is_nullable FROM information_schema.columns \
                 WHERE table_name = 'by_note' ORDER BY 2"
                    .to_owned(),
                &["note|1|text|YES", "customer|2|integer|YES", "id|3|integer|YES", "price|4|integer|YES"],
            ),
            (
                "SELECT c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = 'shop' ORDER BY 1"
                    .to_owned(),
                &["First|v", "by_note|v", "orders|r"],
            ),
            ("SELECT tablename FROM pg_tables WHERE schemaname = 'shop'".to_owned(), &["orders"]),
            (
                "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relname = 'First' \
                 AND attnum > 0 ORDER BY attnum"
                    .to_owned(),
                &["id", "customer"],
            ),
        ] {
            assert_eq!(rows(&admin, &text).await, expected, "{text}");
        }
    });
}

#[test]
fn rights_on_the_table_decide_about_its_views() {
    let listener = filled(2);
    listener.cql(&["CREATE TABLE shop.people (id int PRIMARY KEY)"]);
    listener.client(async {
        let admin = listener.admin().await;
        for text in [
            "CREATE ROLE ann WITH PASSWORD = 'annspassword' AND LOGIN = true",
            "GRANT SELECT ON shop.people TO ann",
        ] {
            admin.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        let ann = listener.connect(("ann", "annspassword")).await.expect("let in");
        let count = "SELECT count(*) FROM shop.by_note";
        for text in [
            count,
            "EXPLAIN SELECT * FROM shop.by_note",
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM shop.\"First\")",
        ] {
            let (code, message) = refused(&ann, text).await;
            assert!(code == "42501" && message.contains("<table shop.orders>"), "{text}: {code} {message}");
        }
        let shown = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'shop'";
        assert_eq!(rows(&ann, shown).await, ["1"]);
        assert_eq!(rows(&ann, "SELECT has_table_privilege('shop.by_note', 'SELECT')").await, ["f"]);
        admin.simple_query("GRANT SELECT ON shop.orders TO ann").await.expect("granted");
        assert_eq!(rows(&ann, count).await, ["90"]);
        assert_eq!(rows(&ann, shown).await, ["4"]);
        assert_eq!(rows(&ann, "SELECT has_table_privilege('shop.by_note', 'SELECT')").await, ["t"]);
        // Masked columns close the views that have them.
        listener.cql(&["ALTER TABLE shop.orders ALTER note MASKED WITH DEFAULT"]);
        assert_eq!(rows(&ann, "SELECT count(*) FROM shop.\"First\"").await, ["44"]);
        let joined = "SELECT count(*) FROM shop.\"First\" f JOIN shop.by_note v USING (customer, id)";
        for text in [count, "SELECT count(*) FROM shop.orders", joined] {
            let (code, message) = refused(&ann, text).await;
            assert!(
                code == "42501" && message.contains("no UNMASK permission on <table shop.orders>"),
                "{text}: {message}"
            );
        }
        admin.simple_query("GRANT UNMASK ON shop.orders TO ann").await.expect("granted");
        assert_eq!(rows(&ann, count).await, ["90"]);
    });
}

#[test]
fn changes_of_the_table_reach_plans_of_its_views() {
    let listener = filled(2);
    listener.client(async {
        let mut admin = listener.admin().await;
        let first = "SELECT * FROM shop.by_note WHERE note = 'n7' AND id = 17";
        assert_eq!(rows(&admin, first).await, ["n7|3|17|17"]);
        listener.cql(&[
            "ALTER TABLE shop.orders ADD weight int",
            "UPDATE shop.orders SET weight = 5 WHERE customer = 3 AND id = 17",
        ]);
        assert_eq!(rows(&admin, first).await, ["n7|3|17|17|5"]);
        listener.cql(&["ALTER TABLE shop.orders RENAME customer TO client"]);
        assert_eq!(
            rows(&admin, "SELECT client, id FROM shop.\"First\" WHERE client = 2 AND id = 16").await,
            ["2|16"]
        );
        listener.cql(&["ALTER MATERIALIZED VIEW shop.by_note WITH comment = 'by its note'"]);
        assert_eq!(rows(&admin, first).await, ["n7|3|17|17|5"]);
        listener.cql(&["TRUNCATE shop.orders"]);
        assert_eq!(rows(&admin, "SELECT count(*) FROM shop.by_note").await, ["0"]);
        let many: Vec<String> = (0..200)
            .map(|n| format!("INSERT INTO shop.orders (client, id, note) VALUES ({n}, {n}, 'n{n}')"))
            .collect();
        listener.cql(&many.iter().map(String::as_str).collect::<Vec<_>>());
        // A query that runs reads on after DROP, and the next one finds nothing.
        let transaction = admin.transaction().await.expect("begun");
        let portal = transaction.bind("SELECT id FROM shop.by_note", &[]).await.expect("bound");
        let mut found = transaction.query_portal(&portal, 10).await.expect("rows").len();
        listener.cql(&["DROP MATERIALIZED VIEW shop.by_note"]);
        found += transaction.query_portal(&portal, 0).await.expect("rows").len();
        assert_eq!(found, 200);
        transaction.commit().await.expect("ended");
        let missing = ("42P01".to_owned(), "table 'fairlane.shop.by_note' not found".to_owned());
        assert_eq!(refused(&admin, first).await, missing);
        // A view of the same name has other rows.
        listener.cql(&[
            "CREATE MATERIALIZED VIEW shop.by_note AS SELECT client, id FROM shop.orders WHERE client = 7 \
                        AND id IS NOT NULL PRIMARY KEY (id, client)",
        ]);
        assert_eq!(rows(&admin, "SELECT * FROM shop.by_note").await, ["7|7"]);
    });
}
