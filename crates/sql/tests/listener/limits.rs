//! Limits on clients: messages, statements, functions, and memory between statements.
#![expect(clippy::disallowed_methods, reason = "the client stands outside of the lanes")]

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{PATIENCE, STARTUP, TestListener, message, refused, rows};
use frontdoor::Accounts;
use sql::SqlConfig;

/// Sends bytes on a new connection and returns all answers until it is closed.
fn answer(listener: &TestListener, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(listener.at).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let mut reading = stream.try_clone().expect("a second handle");
    let reader = std::thread::spawn(move || {
        let mut answer = Vec::new();
        let _ = reading.read_to_end(&mut answer); // a reset shows no more than a close
        answer
    });
    let _ = stream.write_all(bytes);
    String::from_utf8_lossy(&reader.join().expect("read")).into_owned()
}

fn open_listener(config: SqlConfig) -> TestListener {
    TestListener::start_with(1, 1 << 30, SqlConfig { authenticate: false, ..config })
}

#[test]
fn malformed_messages_end_with_a_protocol_error() {
    let listener = TestListener::start(1);
    for kind in *b"DECPBQ" {
        let answer = answer(&listener, &[STARTUP, &message(kind, b"")].concat());
        assert!(
            answer.contains("FATAL") && answer.contains("C08P01"),
            "{} before login: {answer}",
            kind as char
        );
    }
    let gss = [0, 0, 0, 8, 4, 210, 22, 48];
    let answers = answer(&listener, &gss.repeat(1000));
    assert!(answers.starts_with("NE") && answers.contains("08P01"), "{answers}");
    drop(listener);
    let listener = open_listener(SqlConfig::default());
    for kind in *b"DECPBQX?" {
        let bytes = [STARTUP, &message(kind, b"\0x"), &message(b'S', b"")].concat();
        if kind != b'X' {
            let answer = answer(&listener, &bytes);
            assert!(answer.contains("08P01"), "{} in a session: {answer}", kind as char);
        }
    }
    let swallows = message(b'B', b"\0\0\0\0\0\x01\0\0\0\x40");
    let answer = answer(&listener, &[STARTUP, &swallows, &message(b'Q', &[b'x'; 80])].concat());
    assert!(answer.contains("08P01"), "{answer}");
    listener.client(async { assert_eq!(rows(&listener.admin().await, "SELECT 1").await, ["1"]) });
}

#[test]
fn floods_of_messages_yield() {
    let listener = open_listener(SqlConfig::default());
    // Without a Sync, answers to Close may still be buffered when the client closes.
    let end = [message(b'S', b""), message(b'X', b"")].concat();
    let flood =
        |one: &[u8], count: usize| answer(&listener, &[STARTUP, &one.repeat(count), &end].concat()).len();
    let check = |kind: u8, body: &[u8], least: usize| {
        let length = flood(&message(kind, body), 20_000);
        assert!(length > least, "{}: {length} bytes of answers, expected more than {least}", kind as char);
    };
    check(b'S', b"", 6 * 20_000);
    check(b'H', b"", 0);
    check(b'C', b"Sname\0", 5 * 20_000);
    let show = [&b"SHOW timezone;".repeat(10_000)[..], b"\0"].concat();
    assert!(flood(&message(b'Q', &show), 1) > 20 * 10_000);
    let most = listener.lanes.most_units(0);
    assert!(most <= lanes::UNITS_MAX, "{most} units in one task poll");
}

#[test]
fn complex_statements_are_refused() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        for (what, text) in [
            ("sums", format!("SELECT {}", vec!["1"; 3_000].join(" + "))),
            ("conditions", format!("SELECT 1 WHERE {}", vec!["1 > 2"; 3_000].join(" OR "))),
            ("casts", format!("SELECT 1{}", "::int".repeat(3_000))),
            ("nested calls", format!("SELECT {}1{}", "abs(".repeat(40), ")".repeat(40))),
            ("set operations", vec!["SELECT 1"; 3_000].join(" EXCEPT ")),
        ] {
            assert_eq!(refused(&admin, &text).await.0, "54001", "{what}");
        }
        // At the limit they run.
        let ors = vec!["1 = 2"; 2_000].join(" OR ");
        assert!(rows(&admin, &format!("SELECT 1 WHERE {ors}")).await.is_empty());
        let unions = vec!["SELECT 1"; 300].join(" UNION ALL ");
        assert_eq!(rows(&admin, &format!("SELECT count(*) FROM ({unions}) AS u")).await, ["300"]);
        let sums = vec!["value"; 450].join(" + ");
        assert_eq!(rows(&admin, &format!("SELECT {sums} FROM generate_series(1, 1)")).await, ["450"]);
        let ands = vec!["value > 0"; 200].join(" AND ");
        assert_eq!(rows(&admin, &format!("SELECT 1 FROM generate_series(1, 1) WHERE {ands}")).await, ["1"]);
    });
}

#[test]
fn functions_with_unbounded_results_are_refused() {
    let listener = TestListener::start(2);
    listener.client(async {
        let admin = listener.admin().await;
        for text in [
            "SELECT length(repeat(arrow_cast('x', 'LargeUtf8'), 4000000000000000000))",
            "SELECT length(repeat('x', 2147483647))",
            "SELECT length(lpad('x', 2000000000, 'y'))",
            "SELECT array_length(array_repeat(1, 2147483000))",
            "SELECT array_length(range(0, 2000000000))",
            "SELECT levenshtein(repeat('a', 150000), repeat('b', 150000))",
            "SELECT length(repeat('x', (value * 2000000000)::bigint)) FROM generate_series(1, 2)",
        ] {
            assert_eq!(refused(&admin, text).await.0, "54000", "{text}");
        }
        assert_eq!(rows(&admin, "SELECT repeat('ab', 2) || lpad('c', 3, '-')").await, ["abab--c"]);
        let grouped = "SELECT 'a' || (value % 2), count(*) FROM generate_series(1, 4) GROUP BY 1 ORDER BY 1";
        assert_eq!(rows(&admin, grouped).await, ["a0|2", "a1|2"]);
    });
}

#[test]
fn memory_between_statements_is_bounded() {
    let listener = TestListener::start_with(
        1,
        1 << 30,
        SqlConfig { accounts: Accounts::new(4 << 20, 0), ..SqlConfig::default() },
    );
    listener.client(async {
        let admin = listener.admin().await;
        let mut kept = Vec::new();
        let error = loop {
            let text = format!("SELECT '{}{}'", "x".repeat(200_000), kept.len());
            match admin.prepare(&text).await {
                Ok(statement) => kept.push(statement),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("53200"), "{error}");
        assert!((1..6).contains(&kept.len()), "{} statements", kept.len());
        kept.clear();
        assert_eq!(rows(&admin, "SELECT 1").await, ["1"]);
    });
}

#[test]
fn idle_session_timeout_ends_the_session() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        rows(&admin, "SET idle_session_timeout = '20ms'").await;
        while listener.sql.connections() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(admin.simple_query("SELECT 1").await.is_err());
    });
}

#[test]
fn a_message_without_memory_is_skipped_and_refused() {
    let listener = open_listener(SqlConfig { accounts: Accounts::new(4 << 20, 0), ..SqlConfig::default() });
    let long = |kind: u8, head: &[u8], tail: &[u8]| message(kind, &[head, &[b' '; 2 << 20], tail].concat());
    let parse = long(b'P', b"\0SELECT 7", b"\0\0\0");
    let query = long(b'Q', b"SELECT 8", b"\0");
    let next = message(b'Q', b"SELECT 9\0");
    let answer = answer(
        &listener,
        &[STARTUP, &parse, &message(b'S', b""), &query, &next, &message(b'X', b"")].concat(),
    );
    assert_eq!(answer.matches("C53200").count(), 2, "{answer}");
    assert!(!answer.contains("FATAL") && answer.matches("SELECT 1").count() == 1, "{answer}");
}

#[test]
fn a_message_has_a_bounded_number_of_statements() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        let (code, message) = refused(&admin, &"SELECT 1;".repeat(70_000)).await;
        assert!(code == "54000" && message.contains("batch_statements"), "{code} {message}");
        assert_eq!(rows(&admin, "SELECT 1;;SELECT 2;").await, ["1", "2"]);
    });
}

#[test]
fn keywords_nested_too_deeply_are_refused() {
    let listener = TestListener::start(1);
    listener.client(async {
        let admin = listener.admin().await;
        let case = |n: usize| format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(n), " END".repeat(n));
        assert_eq!(rows(&admin, &case(44)).await, ["1"]);
        for n in 45..60 {
            let (code, message) = refused(&admin, &case(n)).await;
            assert_eq!(code, "54001", "{n}: {message}");
        }
        assert_eq!(refused(&admin, &format!("SELECT {}true", "NOT ".repeat(60))).await.0, "54001");
    });
}

#[test]
fn throttled_logins_fail_with_the_usual_code() {
    let listener = TestListener::start(1);
    listener.client(async {
        // A role name has 20 failed logins at once, and one more each second.
        for n in 0..200 {
            let error = listener.connect(("nobody", "wrong")).await.expect_err("refused");
            let error = error.as_db_error().unwrap_or_else(|| panic!("{n}: {error}"));
            assert_eq!(error.code().code(), "28P01", "{n}: {}", error.message());
            if error.message().contains("Too many logins") {
                return;
            }
        }
        panic!("200 logins failed, and none too many");
    });
}

/// Each of these would need gigabytes in a batch of 8192 rows, or exceed an array's size.
#[test]
fn join_of_wide_values_with_much_memory_has_few_rows() {
    // A batch of 8192 such rows has more bytes than Arrow's offsets reach.
    let listener = TestListener::start_with(2, 64 << 30, SqlConfig::default());
    listener.client(async {
        let admin = listener.admin().await;
        let wide = "(SELECT repeat('x', CAST(value * 300000 AS int)) AS w FROM generate_series(1, 1))";
        let text = format!("SELECT count(l.w) FROM {wide} l, generate_series(1, 8192) r WHERE l.w > r::text");
        assert_eq!(rows(&admin, &text).await, ["8192"]);
    });
}

#[test]
fn wide_values_get_batches_of_few_rows() {
    let listener = TestListener::start_with(2, 64 << 20, SqlConfig::default());
    listener.client(async {
        let admin = listener.admin().await;
        let million = "repeat('x', 1000000)";
        let values: Vec<String> = (0..3000).map(|n| format!("({n})")).collect();
        for (text, expected) in [
            (format!("SELECT max(length({million} || value)) FROM generate_series(1, 3000)"), "1000004"),
            (format!("SELECT max(length({million} || n)) FROM (VALUES {}) AS v(n)", values.join(",")), "1000004"),
            (
                "SELECT max(length(l.a || r.r)) FROM (SELECT repeat('x', CAST(value * 1000000 AS int)) AS a \
                 FROM generate_series(1, 1)) l CROSS JOIN generate_series(1, 3000) r"
                    .to_owned(),
                "1000004",
            ),
        ] {
            assert_eq!(rows(&admin, &text).await, [expected], "{}", &text[..60]);
        }
        for (text, code) in [
            (format!("SELECT cardinality(array_agg({million})) FROM generate_series(1, 100000)"), "53200"),
            (format!("SELECT length(string_agg({million}, ',')) FROM generate_series(1, 100000)"), "53200"),
            (
                "SELECT count(length(a || n)) FROM (SELECT a, unnest(range(0, 1000000)) AS n FROM \
                 (SELECT repeat('x', CAST(value * 1000000 AS int)) AS a FROM generate_series(1, 1)) AS s) AS t"
                    .to_owned(),
                "54000",
            ),
            ("SELECT arrow_cast(NULL, 'FixedSizeBinary(2000000000)') IS NULL".to_owned(), "54000"),
            ("SELECT arrow_try_cast(NULL, 'FixedSizeList(2000000000 x Int64)') IS NULL".to_owned(), "54000"),
        ] {
            let (got, message) = refused(&admin, &text).await;
            assert_eq!(got, code, "{text}: {message}");
        }
        assert_eq!(rows(&admin, "SELECT CAST(NULL AS int[2000000000]) IS NULL").await, ["t"]);
    });
}
