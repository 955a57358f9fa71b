//! Keyspaces without rights for a role are invisible to it, in every catalog and error.
#![expect(clippy::disallowed_methods, reason = "the client stands outside of the lanes")]

use crate::common::{ADMIN, TestListener, refused, rows};
use tokio_postgres::{Client, NoTls};

const ANN: (&str, &str) = ("ann", "annspassword");

/// Texts that no answer to ann may contain.
const HIDDEN: [&str; 3] = ["tenant", "ledger", "balance"];

/// Starts a listener with a keyspace in which ann may read a table, and one without rights for
/// her.
fn filled() -> TestListener {
    let listener = TestListener::start(2);
    let keyspace = |name: &str| {
        let strategy = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        format!("CREATE KEYSPACE {name} WITH replication = {strategy}")
    };
    listener.cql(&[
        &keyspace("shop"),
        &keyspace("tenant"),
        "CREATE TABLE shop.orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE tenant.ledger (id int PRIMARY KEY, balance int)",
    ]);
    listener
}

async fn sessions(listener: &TestListener) -> (Client, Client) {
    let admin = listener.admin().await;
    for text in [
        "CREATE ROLE ann WITH PASSWORD = 'annspassword' AND LOGIN = true",
        "GRANT SELECT ON shop.orders TO ann",
    ] {
        admin.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
    let ann = listener.connect(ANN).await.expect("let in");
    (admin, ann)
}

#[test]
fn catalogs_show_a_role_its_own_keyspaces() {
    let listener = filled();
    listener.client(async {
        let (admin, ann) = sessions(&listener).await;
        for (text, own) in [
            ("SELECT schema_name FROM information_schema.schemata", "shop"),
            ("SELECT table_schema, table_name FROM information_schema.tables", "shop|orders"),
            ("SELECT table_name, column_name FROM information_schema.columns", "orders|note"),
            (
                "SELECT table_name, constraint_name FROM information_schema.table_constraints",
                "orders|orders_pkey",
            ),
            ("SELECT table_name, column_name FROM information_schema.key_column_usage", "orders|id"),
            ("SELECT table_name, column_name FROM information_schema.constraint_column_usage", "orders|id"),
            ("SELECT nspname FROM pg_catalog.pg_namespace", "shop"),
            ("SELECT relname FROM pg_catalog.pg_class", "orders"),
            ("SELECT attname FROM pg_catalog.pg_attribute", "note"),
            ("SELECT schemaname, tablename FROM pg_catalog.pg_tables", "shop|orders"),
            ("SELECT keyspace_name FROM system_schema.keyspaces", "shop"),
            ("SELECT keyspace_name, table_name FROM system_schema.tables", "shop|orders"),
            ("SELECT table_name, column_name FROM system_schema.columns", "orders|note"),
        ] {
            let of_all = rows(&admin, text).await;
            assert!(of_all.iter().any(|row| HIDDEN.iter().any(|hidden| row.contains(hidden))), "{text}");
            let shown = rows(&ann, text).await;
            assert!(shown.iter().any(|row| row == own), "{text}: {shown:?}");
            for hidden in HIDDEN {
                assert!(!shown.iter().any(|row| row.contains(hidden)), "{text} shows {hidden}");
            }
        }
    });
}

/// Standard SQL shows a role the tables that it may read. `pg_catalog` has the names of all tables
/// in a keyspace that it sees, as PostgreSQL's has.
#[test]
fn information_schema_shows_what_the_role_may_read() {
    let listener = filled();
    listener.client(async {
        let (admin, ann) = sessions(&listener).await;
        listener.cql(&["CREATE TABLE shop.people (id int PRIMARY KEY)"]);
        for table in ["tables", "columns", "table_constraints", "key_column_usage"] {
            let text = format!(
                "SELECT DISTINCT table_name FROM information_schema.{table} \
                                WHERE table_schema IN ('shop', 'system_auth') ORDER BY 1"
            );
            assert_eq!(rows(&ann, &text).await, ["orders"], "{table}");
            let of_all = rows(&admin, &text).await;
            assert!(
                of_all.contains(&"people".to_owned()) && of_all.contains(&"roles".to_owned()),
                "{of_all:?}"
            );
        }
        assert_eq!(rows(&ann, "SELECT has_table_privilege('system_auth.roles', 'SELECT')").await, ["f"]);
        assert_eq!(rows(&ann, "SELECT has_table_privilege('system_schema.tables', 'SELECT')").await, ["t"]);
        let owners = "SELECT tableowner, pg_get_userbyid(c.relowner), schema_owner FROM pg_tables t \
                      JOIN pg_class c ON c.relname = t.tablename \
                      JOIN information_schema.schemata s ON s.schema_name = t.schemaname \
                      WHERE t.tablename = 'orders'";
        assert_eq!(rows(&ann, owners).await, ["admin|admin|admin"]);
    });
}

/// `\d` of psql.
#[test]
fn key_of_a_table_is_shown_like_an_index() {
    let listener = filled();
    listener.client(async {
        let admin = listener.admin().await;
        let wide = "CREATE TABLE shop.wide (a int, \"B\" int, c int, d int, PRIMARY KEY ((a, \"B\"), c, d))";
        listener.cql(&[wide]);
        let keys = [("orders", "(id)"), ("wide", "((a, \"B\"), c, d)"), ("role_members", "(role, member)")];
        for (table, key) in keys {
            let of_table = rows(&admin, &format!("SELECT oid FROM pg_class WHERE relname = '{table}'")).await;
            let oid = &of_table[0];
            let columns = "c.relchecks, c.relkind, c.relhasindex";
            let relation = format!("SELECT {columns} FROM pg_catalog.pg_class c WHERE c.oid = '{oid}'");
            let shown = rows(&admin, &relation).await;
            assert!(shown[0].starts_with("0|r|t"), "{shown:?}");
            let keys = format!(
                "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid, \
                 pg_catalog.pg_get_indexdef(i.indexrelid, 0, true) \
                 FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i \
                 WHERE c.oid = '{oid}' AND c.oid = i.indrelid AND i.indexrelid = c2.oid"
            );
            let shown = rows(&admin, &keys).await;
            assert!(shown[0].starts_with(&format!("{table}_pkey|t|t|f|t| USING {key}|")), "{shown:?}");
        }
    });
}

#[test]
fn table_oids_are_stable_across_roles() {
    let listener = filled();
    listener.client(async {
        let (admin, ann) = sessions(&listener).await;
        let number = "SELECT oid FROM pg_catalog.pg_class WHERE relname = 'ledger'";
        let before = rows(&admin, number).await;
        assert_eq!(before.len(), 1);
        assert!(rows(&ann, number).await.is_empty());
        let columns = format!("SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = {}", before[0]);
        assert!(rows(&ann, &columns).await.is_empty());
        assert_eq!(rows(&admin, number).await, before);
    });
}

#[test]
fn hidden_table_is_reported_as_missing() {
    let listener = filled();
    listener.client(async {
        let (admin, ann) = sessions(&listener).await;
        for name in ["tenant.ledger", "tenant.nothing", "nowhere.nothing"] {
            let expected = ("42P01".to_owned(), format!("table 'fairlane.{name}' not found"));
            for text in [
                format!("SELECT * FROM {name}"),
                format!("SELECT wrong FROM {name}"),
                format!("EXPLAIN SELECT * FROM {name}"),
                format!("SELECT 1 WHERE EXISTS (SELECT balance FROM {name})"),
            ] {
                assert_eq!(refused(&ann, &text).await, expected, "{text}");
            }
        }
        // In a visible keyspace a role sees which tables it may not read.
        listener.cql(&["CREATE TABLE shop.people (id int PRIMARY KEY)"]);
        assert_eq!(refused(&ann, "SELECT * FROM shop.people").await.0, "42501");
        assert!(rows(&admin, "SELECT * FROM tenant.ledger").await.is_empty());
        // A plan from before the revocation hides the table too.
        let statement = ann.prepare("SELECT * FROM shop.orders").await.expect("prepared");
        admin.simple_query("REVOKE SELECT ON shop.orders FROM ann").await.expect("revoked");
        let error = ann.query(&statement, &[]).await.expect_err("no longer");
        let error = error.as_db_error().expect("of the server");
        assert_eq!(
            (error.code().code(), error.message()),
            ("42P01", "table 'fairlane.shop.orders' not found")
        );
    });
}

#[test]
fn hidden_keyspace_is_no_database() {
    let listener = filled();
    listener.client(async {
        let _admin = sessions(&listener).await;
        let path = async |(user, password): (&str, &str), database: &str| {
            let mut config = tokio_postgres::Config::new();
            config.host("127.0.0.1").port(listener.at.port()).user(user).password(password).dbname(database);
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    Ok(rows(&client, "SHOW search_path").await)
                }
                Err(error) => {
                    let error = error.as_db_error().expect("of the server");
                    Err((error.code().code().to_owned(), error.message().replace(database, "x")))
                }
            }
        };
        let unknown = Err(("3D000".to_owned(), "database \"x\" does not exist".to_owned()));
        for (role, database) in [(ANN, "tenant"), (ANN, "nowhere"), (ADMIN, "nowhere"), (ANN, "admin")] {
            assert_eq!(path(role, database).await, unknown, "{database}");
        }
        let default = path(ANN, "fairlane").await.expect("a session");
        for database in ["postgres", "ann"] {
            assert_eq!(path(ANN, database).await.as_ref(), Ok(&default), "{database}");
        }
        assert_ne!(path(ADMIN, "tenant").await, Ok(default.clone()));
        assert_ne!(path(ANN, "shop").await, Ok(default));
    });
}

#[test]
fn privileges_of_a_role_are_told() {
    let listener = filled();
    listener.client(async {
        let (admin, ann) = sessions(&listener).await;
        listener.cql(&["CREATE TABLE shop.people (id int PRIMARY KEY)"]);
        for (call, of_ann, of_admin) in [
            ("has_table_privilege('shop.orders', 'SELECT')", "t", "t"),
            ("has_table_privilege('SHOP.Orders', 'select, insert')", "t", "t"),
            ("has_table_privilege('shop.orders', 'insert')", "f", "f"),
            ("has_table_privilege('shop.orders', 'SELECT WITH GRANT OPTION')", "f", "f"),
            ("has_table_privilege('shop.people', 'SELECT')", "f", "t"),
            ("has_table_privilege('shop.' || 'people', 'SELECT')", "f", "t"),
            ("has_table_privilege(current_user, 'shop.orders', 'SELECT')", "t", "t"),
            ("has_table_privilege(NULL, 'SELECT')", "-", "-"),
            ("has_any_column_privilege('shop.people', 'SELECT')", "f", "t"),
            ("has_column_privilege('shop.orders', 'note', 'SELECT')", "t", "t"),
            ("has_schema_privilege('shop', 'USAGE')", "t", "t"),
            ("has_schema_privilege('shop', 'CREATE')", "f", "f"),
            ("has_schema_privilege('pg_catalog', 'USAGE')", "t", "t"),
            ("has_database_privilege('fairlane', 'CONNECT')", "t", "t"),
            ("has_database_privilege('fairlane', 'TEMP')", "f", "f"),
        ] {
            let text = format!("SELECT {call}");
            assert_eq!(
                (rows(&ann, &text).await, rows(&admin, &text).await),
                (vec![of_ann.to_owned()], vec![of_admin.to_owned()]),
                "{call}"
            );
        }
        for (call, code) in [
            ("has_table_privilege('tenant.ledger', 'SELECT')", "42P01"),
            ("has_table_privilege('nothing', 'SELECT')", "42P01"),
            ("has_schema_privilege('tenant', 'USAGE')", "3F000"),
            ("has_database_privilege('other', 'CONNECT')", "3D000"),
            ("has_table_privilege('shop.orders', 'READ')", "22023"),
            ("has_table_privilege('admin', 'shop.orders', 'SELECT')", "0A000"),
            ("has_table_privilege('shop.orders')", "42883"),
        ] {
            let (got, message) = refused(&ann, &format!("SELECT {call}")).await;
            assert_eq!(got, code, "{call}: {message}");
            assert!(!HIDDEN[2..].iter().any(|hidden| message.contains(hidden)), "{call}: {message}");
        }
        // An answer is not kept beyond a revocation.
        let of_row = "SELECT has_table_privilege('shop.orders', 'SELECT') FROM (VALUES (1), (2)) t(a)";
        assert_eq!(rows(&ann, of_row).await, ["t", "t"]);
        rows(&admin, "GRANT SELECT ON shop.people TO ann").await;
        rows(&admin, "REVOKE SELECT ON shop.orders FROM ann").await;
        assert_eq!(rows(&ann, of_row).await, ["f", "f"]);
    });
}
