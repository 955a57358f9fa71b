//! `max_concurrency` of SQL statements: the limiter, slots, and clients that do not read.
#![expect(clippy::disallowed_methods, reason = "the client is outside of the lanes")]

use std::cell::Cell;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use tokio_postgres::Client;

use crate::common::{STARTUP, TestListener, message, refused, rows};
use sql::SqlConfig;

/// Takes some milliseconds of CPU.
const QUERY: &str = "SELECT sum(value % 7) FROM generate_series(1, 200000)";

/// Runs longer than any test waits.
const ENDLESS: &str = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)";

async fn sessions_in(listener: &TestListener, level: &str, count: usize) -> Vec<Client> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(listener.session_in(level).await);
    }
    sessions
}

async fn until_running(admin: &Client, state: &str) {
    // Not the administrator's own.
    let text =
        format!("SELECT id FROM system.running_statements WHERE state = '{state}' AND service_level = 'few'");
    while rows(admin, &text).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn limiter_holds_batch_and_refuses_none() {
    const SESSIONS: usize = 20;
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL few WITH max_concurrency = 'auto' AND workload_type = 'batch'")
            .await;
        let sessions = sessions_in(&listener, "few", SESSIONS).await;
        // The limiter looks for new levels twice a second.
        while listener.level_usage("few").limit.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (ended, most_in_flight) = (Cell::new(0), Cell::new(0));
        let work = sessions.iter().map(|client| async {
            // Longer than the time limit that a level has before its first statement.
            for _ in 0..6 {
                assert_eq!(rows(client, QUERY).await.len(), 1);
                ended.set(ended.get() + 1);
            }
        });
        let watch = async {
            while ended.get() < SESSIONS * 6 {
                let usage = listener.level_usage("few");
                let limit = usage.limit.map_or(0, |limit| limit.statements);
                assert!((1..=51).contains(&limit), "limit {limit}");
                // Until the first ones have ended, their work is not known. All sessions ask at
                // once.
                if (2 * SESSIONS..5 * SESSIONS).contains(&ended.get()) {
                    most_in_flight.set(most_in_flight.get().max(usage.in_flight));
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::join!(futures::future::join_all(work), watch);
        // Eight may wait beside the one that runs. The work of each is measured.
        let most = most_in_flight.get();
        assert!((2..=14).contains(&most), "{most} of {SESSIONS} in flight");
        assert_eq!(listener.level_usage("few").shed, 0);
    });
}

#[test]
fn limiter_refuses_late_interactive_statements_with_a_time_to_come_back() {
    const SESSIONS: usize = 60;
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        let options = "max_concurrency = 'auto' AND workload_type = 'interactive' AND timeout = 2s";
        rows(&admin, &format!("CREATE SERVICE LEVEL few WITH {options}")).await;
        let sessions = sessions_in(&listener, "few", SESSIONS).await;
        let (answered, refused) = (Cell::new(0), Cell::new(0));
        let work = sessions.iter().map(|client| async {
            while answered.get() == 0 || refused.get() == 0 {
                match client.simple_query(QUERY).await {
                    Ok(_) => answered.set(answered.get() + 1),
                    Err(error) => {
                        let error = error.as_db_error().expect("an answer");
                        if error.code().code() == "53000" {
                            assert!(error.message().contains("Try again in "), "{error}");
                            refused.set(refused.get() + 1);
                        }
                    }
                }
            }
        });
        futures::future::join_all(work).await;
        assert!(listener.level_usage("few").shed > 0);
    });
}

#[test]
fn full_level_is_seen_in_system_tables() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL few WITH max_concurrency = 1 AND queue_timeout = 50ms").await;
        let (runner, other) = (listener.session_in("few").await, listener.session_in("few").await);
        let seen = async {
            until_running(&admin, "running").await;
            assert_eq!(refused(&other, QUERY).await.0, "53000");
            let text = "SELECT state FROM system.running_statements WHERE service_level = 'few'";
            assert!(rows(&other, text).await.contains(&"running".to_owned()));
            assert_eq!(rows(&other, "SELECT count(*) FROM pg_catalog.pg_namespace").await.len(), 1);
            runner.cancel_token().cancel_query(tokio_postgres::NoTls).await.expect("cancelled");
        };
        let ((code, _), ()) = tokio::join!(refused(&runner, ENDLESS), seen);
        assert_eq!(code, "57014");
    });
}

/// A statement whose client does not read must not keep its slot beyond its time limit.
#[test]
fn client_that_does_not_read_loses_its_slot_at_the_time_limit() {
    let config = SqlConfig { authenticate: false, ..SqlConfig::default() };
    let listener = TestListener::start_with(1, 1 << 30, config);
    let mut idle = TcpStream::connect(listener.at).expect("connects");
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL few WITH max_concurrency = 1 AND timeout = 15s").await;
        idle.write_all(STARTUP).expect("sent");
        idle.write_all(&message(b'Q', b"SET service_level = few\0")).expect("sent");
        let text = b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)\0";
        idle.write_all(&message(b'Q', text)).expect("sent");
        until_running(&admin, "running").await;
        // It waits for the slot, which is free when the time limit of the other one is over.
        let other = listener.session_in("few").await;
        rows(&admin, "ALTER SERVICE LEVEL few WITH queue_timeout = 30s").await;
        // Its own time limit may end first, since that of the other one begins with the last row.
        while other.simple_query("SELECT 7").await.is_err() {}
    });
    drop(idle);
}

/// A driver's statements run in the level `driver`. What takes longer than a driver needs goes on
/// in the level of the role, so that its limits cannot be passed.
#[test]
fn long_start_of_a_session_goes_on_in_its_level() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL own").await;
        rows(&admin, "CREATE ROLE user WITH LOGIN = true AND PASSWORD = 'x'").await;
        rows(&admin, "ATTACH SERVICE LEVEL own TO user").await;
        let client = listener.connect(("user", "x")).await.expect("connects");
        let seen = async {
            let running = "SELECT service_level FROM system.running_statements WHERE role = 'user'";
            while rows(&admin, running).await != ["own"] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            client.cancel_token().cancel_query(tokio_postgres::NoTls).await.expect("cancelled");
        };
        // Minutes of work in little memory.
        let text = "SELECT sum(length(repeat(a.attname || b.attname, 1000))) \
                    FROM pg_attribute a, pg_attribute b, pg_attribute c";
        let ((code, message), ()) = tokio::join!(refused(&client, text), seen);
        assert_eq!(code, "57014", "{message}");
        // The session's start is over.
        let text = "SELECT count(*) FROM pg_class";
        let (level, _) = tokio::join!(rows(&client, "SELECT 1"), rows(&client, text));
        assert_eq!(level, ["1"]);
    });
}

/// A number from `pg_stat_activity` ends what that session runs.
#[test]
fn backends_are_cancelled_and_ended_by_their_numbers() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "CREATE SERVICE LEVEL few").await;
        rows(&admin, "CREATE ROLE user WITH LOGIN = true AND PASSWORD = 'x'").await;
        rows(&admin, "ATTACH SERVICE LEVEL few TO user").await;
        let client = listener.connect(("user", "x")).await.expect("connects");
        let number = rows(&client, "SELECT pg_backend_pid()").await.remove(0);
        let cancelling = async {
            until_running(&admin, "running").await;
            rows(&admin, &format!("SELECT pg_cancel_backend({number})")).await
        };
        let ((code, _), answer) = tokio::join!(refused(&client, ENDLESS), cancelling);
        assert_eq!((&*code, answer), ("57014", vec!["t".to_owned()]));
        // A session of another role.
        let of_admin: i32 = rows(&admin, "SELECT pg_backend_pid()").await[0].parse().expect("a number");
        let text = format!("SELECT pg_terminate_backend({of_admin})");
        assert_eq!(refused(&client, &text).await.0, "42501");
        let row =
            admin.query_one(&format!("SELECT pg_terminate_backend({number})"), &[]).await.expect("a row");
        assert!(row.get::<_, bool>(0));
        while !client.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Statements of drivers before a client's first query. A limit that ends every query of a level
/// must not keep its users from connecting.
#[test]
fn limits_of_a_level_keep_no_driver_from_connecting() {
    const OF_DRIVERS: [&str; 6] = [
        "SET extra_float_digits = 3",
        "SHOW TRANSACTION ISOLATION LEVEL",
        "SELECT pg_catalog.version()",
        "SELECT current_schema()",
        "SELECT t.oid, t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace",
        "SELECT table_name FROM information_schema.tables",
    ];
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        for (at, limit) in ["query_limit = {'elapsed': '1ms'}", "timeout = 1ms"].into_iter().enumerate() {
            let level = format!("short{at}");
            rows(&admin, &format!("CREATE SERVICE LEVEL {level} WITH {limit}")).await;
            rows(&admin, &format!("CREATE ROLE user{at} WITH LOGIN = true AND PASSWORD = 'x'")).await;
            rows(&admin, &format!("ATTACH SERVICE LEVEL {level} TO user{at}")).await;
            let client = listener.connect((&format!("user{at}"), "x")).await.expect("connects");
            for text in OF_DRIVERS {
                rows(&client, text).await;
            }
            // The first query of the client itself ends this.
            for text in [ENDLESS, "SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d"] {
                let (code, message) = refused(&client, text).await;
                assert!(code == "57014" && message.contains(&level), "{text}: {code} {message}");
            }
        }
    });
}
