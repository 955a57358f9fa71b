//! `system.connections` and `CANCEL SESSION` over SQL.
#![expect(clippy::disallowed_methods, reason = "the client stands outside of the lanes")]

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{ADMIN, TestListener, message, refused, rows};
use tokio_postgres::Client;

const LONG: &str = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
const SHUTDOWN: (&str, &str) = ("57P01", "terminating connection due to administrator command");

/// Returns the id of the client's session, after naming its application.
async fn id(admin: &Client, client: &Client, name: &str) -> String {
    rows(client, &format!("SET application_name = '{name}'")).await;
    let text = format!("SELECT id FROM system.connections WHERE application_name = '{name}'");
    rows(admin, &text).await.remove(0)
}

#[test]
fn activity_shows_a_role_its_own_sessions() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE ROLE ann WITH PASSWORD = 'annspassword' AND LOGIN = true").await;
        let ann = listener.connect(("ann", "annspassword")).await.expect("let in");
        rows(&ann, "SET application_name = 'report'").await;
        let own = "SELECT datname, usename, application_name, state FROM pg_stat_activity \
                   WHERE pid = pg_backend_pid()";
        assert_eq!(rows(&ann, own).await, ["fairlane|ann|report|active"]);
        let all = "SELECT a.usename, a.state FROM pg_catalog.pg_stat_activity AS a ORDER BY 1";
        assert_eq!(rows(&ann, all).await, ["ann|active"]);
        assert_eq!(rows(&admin, all).await, ["admin|active", "ann|idle"]);
        // Its pid is the number by which a session is ended.
        let pid = rows(&admin, "SELECT pid FROM pg_stat_activity WHERE usename = 'ann'").await.remove(0);
        rows(&admin, &format!("CANCEL SESSION 'sql-{pid}'")).await;
        ann.simple_query("SELECT 1").await.expect_err("the session has ended");
    });
}

#[test]
fn connections_table_shows_settings() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL reports WITH shares = 100").await;
        let other = listener.admin().await;
        rows(
            &other,
            "SET application_name = 'report'; SET search_path = shop, public; \
             SET service_level = reports",
        )
        .await;
        let columns = "role, protocol, stage, service_level, protocol_version, keyspace_name, requests, \
                       requests_in_flight, encrypted, address, driver_name";
        let of_report = format!("SELECT {columns} FROM system.connections WHERE application_name = 'report'");
        let shown = rows(&admin, &of_report).await;
        assert_eq!(shown, ["admin|sql|ready|reports|3.0|shop|1|0|f|127.0.0.1|-"]);
        // A connection before login is listed too.
        let mut early = TcpStream::connect(listener.at).expect("connects");
        early.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).expect("sent");
        let mut answer = [0];
        early.read_exact(&mut answer).expect("an answer");
        let early = "SELECT count(*) FROM system.connections WHERE stage = 'login' AND role IS NULL";
        assert_eq!(rows(&admin, early).await, ["1"]);
        // A query reads one snapshot of a table that it names twice.
        let twice = "SELECT count(*) FROM system.connections a JOIN system.connections b \
                     ON a.id = b.id AND a.requests = b.requests";
        assert_eq!(rows(&admin, twice).await, ["3"]);
    });
}

#[test]
fn roles_and_superusers_cancel_sessions() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true").await;
        let ann = listener.connect(("ann", "pw")).await.expect("let in");
        let (idle, busy) = (listener.admin().await, listener.admin().await);
        let (of_idle, of_busy) = (id(&admin, &idle, "idle").await, id(&admin, &busy, "busy").await);
        for id in [&*of_idle, "sql-99999", "0-1", "x"] {
            let (code, message) = refused(&ann, &format!("CANCEL SESSION '{id}'")).await;
            assert_eq!(code, "42501");
            let expected = format!("a session of its own only, and has no session '{id}' now");
            assert!(message.contains(&expected), "{message}");
        }
        assert_eq!(rows(&idle, "SELECT 1").await, ["1"], "it goes on");
        let end = async {
            // The result also contains this query.
            while !rows(&admin, "SELECT id FROM system.running_statements").await.contains(&of_busy) {
                tokio::task::yield_now().await;
            }
            rows(&admin, &format!("CANCEL SESSION '{of_busy}'")).await
        };
        let (ended, _) = tokio::join!(refused(&busy, LONG), end);
        assert_eq!((&*ended.0, &*ended.1), SHUTDOWN);
        rows(&admin, &format!("CANCEL SESSION '{of_idle}'")).await;
        let error = idle.simple_query("SELECT 1").await.expect_err("it has ended");
        assert!(error.is_closed() || error.code().is_some_and(|code| code.code() == SHUTDOWN.0), "{error}");
        // A role may end its own sessions.
        let second = listener.connect(("ann", "pw")).await.expect("let in");
        let of_second = id(&admin, &second, "second").await;
        rows(&ann, &format!("CANCEL SESSION '{of_second}'")).await;
        while !rows(&admin, "SELECT id FROM system.connections WHERE application_name = 'second'")
            .await
            .is_empty()
        {
            tokio::task::yield_now().await;
        }
        let (code, _) = refused(&admin, &format!("CANCEL SESSION '{of_second}'")).await;
        assert_eq!(code, "22023");
    });
}

/// Returns a startup message of protocol version 3.0.
fn startup(user: &str) -> Vec<u8> {
    let body = format!("\0\x03\0\0user\0{user}\0\0");
    let mut bytes = u32::try_from(body.len() + 4).expect("short").to_be_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

#[test]
fn connection_before_login_gets_the_reason_of_its_end() {
    let listener = TestListener::start(1);
    let mut early = TcpStream::connect(listener.at).expect("connects");
    early.set_read_timeout(Some(crate::common::PATIENCE)).expect("a bound");
    early.write_all(&startup(ADMIN.0)).expect("sent");
    let mut kind = [0];
    early.read_exact(&mut kind).expect("the request for a password");
    listener.client(async {
        let admin = listener.admin().await;
        let id = rows(&admin, "SELECT id FROM system.connections WHERE stage = 'login'").await.remove(0);
        rows(&admin, &format!("CANCEL SESSION '{id}'")).await;
    });
    let mut rest = Vec::new();
    early.read_to_end(&mut rest).expect("until it is closed");
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("FATAL") && rest.contains(SHUTDOWN.0) && rest.contains(SHUTDOWN.1), "{rest:?}");
}

/// Starts a query of `user` whose answer the client does not read. Returns its connection and the
/// id of its session.
async fn unread(listener: &TestListener, admin: &Client, user: &str, text: &str) -> (TcpStream, String) {
    let mut client = TcpStream::connect(listener.at).expect("connects");
    client.write_all(&startup(user)).expect("sent");
    client.write_all(&message(b'Q', format!("{text}\0").as_bytes())).expect("sent");
    let shown = "SELECT id FROM system.connections WHERE requests_in_flight = 1 AND bytes_held > 60000";
    loop {
        if let Some(id) = rows(admin, shown).await.first() {
            return (client, id.clone());
        }
        tokio::task::yield_now().await;
    }
}

fn without_passwords() -> TestListener {
    let config = sql::SqlConfig { authenticate: false, ..sql::SqlConfig::default() };
    TestListener::start_with(1, 1 << 30, config)
}

async fn until_alone(admin: &Client) {
    while rows(admin, "SELECT id FROM system.connections").await.len() != 1 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn ended_session_closes_though_its_client_does_not_read() {
    let listener = without_passwords();
    listener.client(async {
        let admin = listener.admin().await;
        let text = "SELECT repeat('x', 1000) FROM generate_series(1, 100000)";
        let (_client, id) = unread(&listener, &admin, "any", text).await;
        rows(&admin, &format!("CANCEL SESSION '{id}'")).await;
        until_alone(&admin).await;
    });
}

/// Creates the role `ann`, who may read the table `shop.orders` of 1,000 rows.
async fn with_ann(listener: &TestListener, admin: &Client) {
    rows(admin, "CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true").await;
    rows(admin, "GRANT SELECT ON shop.orders TO ann").await;
    assert!(listener.connect(("ann", "pw")).await.is_ok());
}

fn with_orders() -> TestListener {
    let listener = TestListener::start(2);
    listener.cql(&[
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, note text)",
    ]);
    let row = |id| format!("INSERT INTO shop.orders (id, note) VALUES ({id}, '{}')", "x".repeat(1000));
    let inserts: Vec<String> = (0..1000).map(row).collect();
    listener.cql(&inserts.iter().map(String::as_str).collect::<Vec<_>>());
    listener
}

/// Joins that take hours.
const LONG_READ: &str = "SELECT count(*) FROM shop.orders a, shop.orders b, shop.orders c, shop.orders d";

#[test]
fn query_ends_when_its_role_loses_the_right() {
    let listener = with_orders();
    listener.client(async {
        let admin = listener.admin().await;
        with_ann(&listener, &admin).await;
        rows(&admin, "CREATE ROLE readers").await;
        rows(&admin, "GRANT SELECT ON shop.orders TO readers").await;
        for (grant, revoke, code) in [
            ("GRANT MODIFY ON shop.orders TO ann", "REVOKE SELECT ON shop.orders FROM ann", "42501"),
            ("GRANT readers TO ann", "REVOKE readers FROM ann", "42501"),
            ("ALTER ROLE ann WITH SUPERUSER = true", "ALTER ROLE ann WITH SUPERUSER = false", "42501"),
            ("GRANT SELECT ON shop.orders TO ann", "DROP ROLE ann", "57P01"),
        ] {
            rows(&admin, grant).await;
            let ann = listener.connect(("ann", "pw")).await.expect("let in");
            let change = async {
                let running = "SELECT statement FROM system.running_statements WHERE role = 'ann'";
                while rows(&admin, running).await.is_empty() {
                    tokio::task::yield_now().await;
                }
                rows(&admin, revoke).await
            };
            let (refused, _) = tokio::join!(refused(&ann, LONG_READ), change);
            assert_eq!(refused.0, code, "{revoke}: {}", refused.1);
        }
    });
}

#[test]
fn suspended_portal_ends_when_its_role_loses_the_right() {
    let listener = with_orders();
    listener.client(async {
        let admin = listener.admin().await;
        with_ann(&listener, &admin).await;
        rows(&admin, "GRANT MODIFY ON shop.orders TO ann").await;
        let mut ann = listener.connect(("ann", "pw")).await.expect("let in");
        let transaction = ann.transaction().await.expect("a transaction");
        let portal = transaction.bind("SELECT id FROM shop.orders", &[]).await.expect("a portal");
        assert_eq!(transaction.query_portal(&portal, 10).await.expect("rows").len(), 10);
        rows(&admin, "REVOKE SELECT ON shop.orders FROM ann").await;
        let error = transaction.query_portal(&portal, 10).await.expect_err("no right");
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{error:?}");
    });
}

#[test]
fn session_ends_with_its_role_though_its_client_does_not_read() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true").await;
        let ann = listener.connect(("ann", "pw")).await.expect("let in");
        let stream = ann
            .query_raw("SELECT repeat('x', 1000) FROM generate_series(1, 1000000000)", &[] as &[&str])
            .await
            .expect("rows");
        // The client reads a few rows and then no more: its channel is bounded by the socket.
        let shown = "SELECT id FROM system.connections WHERE role = 'ann' AND requests_in_flight = 1";
        while rows(&admin, shown).await.is_empty() {
            tokio::task::yield_now().await;
        }
        rows(&admin, "DROP ROLE ann").await;
        until_alone(&admin).await;
        drop(stream);
    });
}
