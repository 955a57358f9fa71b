//! Sessions: catalogs that clients query, settings, statements about levels, invalid input, and
//! the end of a session.
#![expect(clippy::disallowed_methods, reason = "the client stands outside of the lanes")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{TestListener, refused, rows};
use frontdoor::Limits;
use sql::SqlConfig;

/// Regression test: a query of two minutes left no line in the log.
#[test]
fn slow_statements_are_logged_without_literals_and_drivers_reads() {
    let config = SqlConfig { slow_statement: Some(Duration::ZERO), ..SqlConfig::default() };
    let listener = TestListener::start_with(1, 1 << 30, config);
    listener.client(async {
        let admin = listener.admin().await;
        for text in [
            "SELECT oid FROM pg_type WHERE typname = 'secret'",
            "SELECT count(*) FROM generate_series(1, 100) AS t(x) WHERE x::text <> 'secret' AND x > 17",
        ] {
            rows(&admin, text).await;
        }
        let pid: i32 = rows(&admin, "SELECT pg_backend_pid()").await[0].parse().expect("a number");
        let own = rows(&admin, "SELECT id FROM system.running_statements").await;
        assert_eq!(own, [format!("sql-{pid}")], "the number by which the session is cancelled");
    });
    let logged = listener.slow.lock().expect("no panic").clone();
    let from = "SELECT count(*) FROM generate_series(?, ?) AS t(x) WHERE x::text <> ? AND x > ?";
    assert_eq!(logged[0], format!("default admin {from}"));
    assert!(!logged.iter().any(|line| line.contains("pg_type")), "{logged:?}");
}

#[test]
fn catalogs_list_tables() {
    let listener = TestListener::start(2);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (customer int, id int, note text, PRIMARY KEY (customer, id))",
    ]);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, expected: &[&str]| {
            assert_eq!(rows(&admin, text).await, expected, "{text}");
        };
        check(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = 'shop'",
            &["shop|orders"],
        )
        .await;
        check(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'orders' \
             ORDER BY ordinal_position",
            &["customer|integer", "id|integer", "note|text"],
        )
        .await;
        check(
            "SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'shop.orders'::regclass \
             ORDER BY attnum",
            &["customer", "id", "note"],
        )
        .await;
        check("SELECT current_database(), current_user", &["fairlane|admin"]).await;
        check("SET search_path = shop; SELECT count(*) FROM orders", &["0"]).await;
        listener.cql(&["CREATE TABLE shop.more (id int PRIMARY KEY)"]);
        check("SELECT count(*) FROM more", &["0"]).await;
        listener.cql(&["DROP TABLE shop.more"]);
        assert_eq!(refused(&admin, "SELECT count(*) FROM more").await.0, "42P01");
    });
}

#[test]
fn settings_and_levels_change_by_statements() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        let check = async |text: &str, expected: &[&str]| {
            assert_eq!(rows(&admin, text).await, expected, "{text}");
        };
        check("SHOW service_level", &["default"]).await;
        check("SHOW server_version; SHOW TRANSACTION ISOLATION LEVEL", &["16.6", "read committed"]).await;
        check("CREATE SERVICE LEVEL reports WITH shares = 100", &[]).await;
        check("SET service_level = reports; SHOW service_level", &["reports"]).await;
        check("SET bypass_cache = yes; SHOW bypass_cache", &["on"]).await;
        check("DISCARD ALL; SHOW service_level", &["default"]).await;
        let listed = rows(&admin, "LIST ALL SERVICE LEVELS").await;
        assert!(listed.iter().any(|row| row.starts_with("reports|") && row.contains("100")), "{listed:?}");
        let prepared = admin.query("LIST ALL SERVICE LEVELS", &[]).await.expect("rows");
        assert_eq!(prepared.len(), listed.len());
        check("SET service_level = reports", &[]).await;
        check("DROP SERVICE LEVEL reports", &[]).await;
        let (code, message) = refused(&admin, "SELECT 1").await;
        assert!(code == "22023" && message.contains("reports"), "{code} {message}");
        check("RESET service_level; SELECT 1", &["1"]).await;
    });
}

/// Allows `sessions_max` sessions, and reserves none for superusers.
fn limited_to(sessions_max: usize) -> SqlConfig {
    let connections = Limits { reserved_max: 0, ..Limits::of_sessions(sessions_max) };
    SqlConfig { connections, ..SqlConfig::default() }
}

#[test]
fn metrics_count_sessions_and_statements() {
    let listener = TestListener::start_with(2, 1 << 30, limited_to(3));
    let check = |metric: &'static str, expected: u64| {
        let name = format!("fairlane_sql_{metric}");
        let name: &'static str = name.leak();
        testkit::until(&format!("{name} is {}, not {expected}", listener.counted(name)), || {
            listener.counted(name) == expected
        });
    };
    listener.client(async {
        let one = listener.admin().await;
        let two = listener.admin().await;
        check("connections", 2);
        assert!(listener.connect(("admin", "wrong")).await.is_err());
        check("auth_failures_total", 1);
        let three = listener.admin().await;
        assert!(listener.connect(crate::common::ADMIN).await.is_err());
        check("connections_accepted_total", 5);
        check("connections_refused_total", 1);
        // The wrong password, and the connection over the limit.
        check("errors_total", 2);
        check("statements_total", 0);
        assert_eq!(rows(&two, "SELECT 1; SHOW timezone; SELECT count(*) FROM system_auth.roles").await.len(), 3);
        two.query("SELECT 2", &[]).await.expect("a row");
        check("statements_total", 4);
        refused(&three, "SELECT nothing").await;
        check("errors_total", 3);
        check("plans_kept", 1);
        check("catalog_failures_total", 0);
        let divided = "SELECT 1 / (length(nspname) - length(nspname)) FROM pg_catalog.pg_namespace";
        let unfinished = "SELECT 1 FROM information_schema.tables WHERE";
        for text in ["SELECT nothing FROM pg_catalog.pg_class", divided, unfinished] {
            refused(&three, text).await;
        }
        check("catalog_failures_total", 3);
        let (received, sent) = (
            listener.counted("fairlane_sql_bytes_received_total"),
            listener.counted("fairlane_sql_bytes_sent_total"),
        );
        let long = "x".repeat(100_000);
        assert_eq!(rows(&one, &format!("SELECT '{long}'")).await, [long.as_str()]);
        assert!(listener.counted("fairlane_sql_bytes_received_total") - received > 100_000);
        assert!(listener.counted("fairlane_sql_bytes_sent_total") - sent > 100_000);
        let held = "SELECT sum(bytes) FROM system.memory WHERE purpose LIKE '%SQL%' GROUP BY purpose ORDER BY purpose";
        let held: Vec<u64> =
            rows(&one, held).await.iter().map(|bytes| bytes.parse().expect("a number")).collect();
        let [buffers, plans] = held[..] else { panic!("buffers, plans: {held:?}") };
        assert!((3 * 1024..10 << 20).contains(&buffers) && plans > 0, "{held:?}");
    });
    // Dropping the runtime closes the clients.
    check("connections", 0);
}

/// Sends bytes on a new connection. Returns all answers until it is closed.
fn answer(listener: &TestListener, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(listener.at).expect("connects");
    stream.set_read_timeout(Some(crate::common::PATIENCE)).expect("a bound");
    stream.write_all(bytes).expect("sent");
    let mut answer = Vec::new();
    // A reset counts as a close.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn startup(user: &str) -> Vec<u8> {
    let body = format!("\0\x03\0\0user\0{user}\0database\0x\0\0");
    let mut bytes = u32::try_from(body.len() + 4).expect("short").to_be_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

#[test]
fn invalid_input_is_refused() {
    let config = SqlConfig { startup_timeout: Duration::from_millis(300), ..SqlConfig::default() };
    let listener = TestListener::start_with(1, 1 << 30, config);
    let check = |answer: &[u8], text: &str| {
        assert!(
            String::from_utf8_lossy(answer).contains(text),
            "{text}: {:?}",
            String::from_utf8_lossy(answer)
        );
    };
    check(&answer(&listener, b"GET / HTTP/1.1\r\n\r\n"), "longer than this server takes");
    check(&answer(&listener, &[0, 0, 0, 3]), "invalid message length");
    check(&answer(&listener, &[0x16, 3, 1, 2, 0, 1]), "longer than this server takes");
    check(&answer(&listener, &[0, 0, 0, 8, 0, 9, 0, 0]), "Invalid startup message");
    // A connection that sends nothing, or part of a message, is closed.
    assert_eq!(answer(&listener, &[]), b"");
    assert_eq!(answer(&listener, &[0, 0]), b"");
    let wishes_encryption = answer(&listener, &[0, 0, 0, 8, 4, 210, 22, 47]);
    assert_eq!(wishes_encryption, b"N");
    let mut unexpected = startup("admin");
    unexpected.extend_from_slice(b"Q\0\0\0\x0dSELECT 1\0");
    check(&answer(&listener, &unexpected), "unexpected message");
    let mut malformed = startup("admin");
    malformed.extend_from_slice(b"p\0\0\0\x1aSCRAM-SHA-256\0\0\0\0\x04n,,x");
    check(&answer(&listener, &malformed), "malformed SCRAM message");
    listener.client(async {
        let admin = listener.admin().await;
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
    });
}

#[test]
fn silent_connections_do_not_block_logins() {
    let connections = Limits { logins_max: 8, logins_per_address_max: 8, ..Limits::of_sessions(4) };
    let listener = TestListener::start_with(2, 1 << 30, SqlConfig { connections, ..SqlConfig::default() });
    let silent: Vec<_> =
        (0..50).map(|_| std::net::TcpStream::connect(listener.at).expect("connects")).collect();
    listener.client(async {
        assert_eq!(rows(&listener.admin().await, "SELECT 1").await, ["1"]);
    });
    assert!(listener.counted("fairlane_sql_connections_closed_before_login_total") >= 42);
    drop(silent);
}

#[test]
fn idle_session_is_closed() {
    let idle_timeout = Some(Duration::from_millis(50));
    let listener = TestListener::start_with(1, 1 << 30, SqlConfig { idle_timeout, ..SqlConfig::default() });
    listener.client(async {
        let admin = listener.admin().await;
        while !admin.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn sessions_end_with_their_role() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        for (name, change) in [
            ("ann", "DROP ROLE ann"),
            ("bob", "ALTER ROLE bob WITH LOGIN = false"),
            ("cid", "ALTER ROLE cid WITH PASSWORD = 'another'"),
        ] {
            rows(&admin, &format!("CREATE ROLE {name} WITH PASSWORD = 'secret' AND LOGIN = true")).await;
            let session = listener.connect((name, "secret")).await.expect("logs in");
            assert_eq!(rows(&session, "SELECT 1").await, ["1"]);
            rows(&admin, change).await;
            // The idle session is closed too.
            while !session.is_closed() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"], "others stay");
    });
}

#[test]
fn logins_and_audited_queries_are_in_the_audit_log() {
    let (audit, lines) = access::audit_log(vec!["shop".into()], false);
    let listener =
        TestListener::start_with(1, 1 << 30, SqlConfig { audit: Some(audit), ..SqlConfig::default() });
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, note text)",
    ]);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true").await;
        rows(&admin, "SELECT * FROM shop.orders WHERE note = 'hidden'").await;
        rows(&admin, "CREATE SERVICE LEVEL reports WITH shares = 100").await;
        assert!(listener.connect(("ann", "a wrong one")).await.is_err());
        let ann = listener.connect(("ann", "secret")).await.expect("logs in");
        assert_eq!(refused(&ann, "SELECT * FROM shop.orders").await.0, "42P01");
    });
    let shown: Vec<String> = lines
        .take()
        .iter()
        .map(|line| {
            assert!(
                !line.contains("hidden") && !line.contains("secret"),
                "no literal and no password: {line}"
            );
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let text = |key: &str| line[key].as_str().unwrap_or("").to_owned();
            format!("{} {} {} {}", text("kind"), text("role"), line["ok"], text("statement"))
        })
        .collect();
    let expected = [
        "login admin true ",
        "read admin true SELECT FROM shop.orders",
        "access admin true CREATE SERVICE LEVEL reports WITH shares = 100",
        "login_failed ann false ",
        "login ann true ",
        "read ann false SELECT FROM shop.orders",
    ];
    let kept: Vec<&String> = shown.iter().filter(|line| expected.contains(&line.trim_start())).collect();
    assert_eq!(kept, expected.iter().collect::<Vec<_>>(), "{shown:?}");
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let listener = TestListener::start_with(2, 1 << 30, limited_to(2));
    listener.client(async {
        let (first, second) = (listener.admin().await, listener.admin().await);
        let error = listener.connect(crate::common::ADMIN).await.expect_err("refused");
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("53300"), "{error}");
        drop(first);
        assert_eq!(rows(&second, "SELECT 1").await, ["1"]);
        while listener.sql.connections() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(rows(&listener.admin().await, "SELECT 1").await, ["1"]);
    });
}

#[test]
fn stop_ends_sessions_and_returns_true() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
        let sql = listener.sql.clone();
        let stopped = listener.lanes.block_on(0, lanes::Group::CONTROL, move || async move {
            sql.stop(Duration::from_secs(5)).await
        });
        assert!(stopped);
        assert!(admin.simple_query("SELECT 1").await.is_err());
        assert!(listener.connect(crate::common::ADMIN).await.is_err());
    });
}
