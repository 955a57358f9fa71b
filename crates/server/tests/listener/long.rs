//! Long requests, whose texts are bound on the heavy lane: their keyspace, their end, and their
//! plans.

use std::net::Shutdown;

use crate::common::{ADMIN, Answer, Client, TestServer, assert_short_polls, settings, values};
use wire::*;

fn start() -> (TestServer, Client) {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V4, ADMIN);
    for keyspace in ["a", "b"] {
        client.run(&format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ));
        client.run(&format!("CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v list<int>)"));
    }
    (server, client)
}

/// Returns a write of two thousand terms.
fn long_write(table: &str, key: &str) -> String {
    format!("INSERT INTO {table} (k, v) VALUES ({key}, [{}1])", "1, ".repeat(2_000))
}

fn queue(client: &mut Client, text: &str) {
    client.queue(&Request::Query(Query { text, params: QueryParams::default() }));
}

fn execute(client: &mut Client, id: &[u8], key: i32) -> Answer {
    let values = values(&[&key.to_be_bytes()]);
    let params = QueryParams { values: values.values(), ..QueryParams::default() };
    client.ask(&Request::Execute(Execute { id, result_metadata_id: &[], params }))
}

fn count(client: &mut Client, table: &str) -> usize {
    client.run(&format!("SELECT k FROM {table}")).texts().len()
}

#[test]
fn long_text_uses_the_keyspace_at_the_time_it_was_sent() {
    let (_server, mut client) = start();
    for text in ["USE a", &long_write("t", "1"), "USE b", &long_write("t", "2")] {
        queue(&mut client, text);
    }
    let insert = long_write("t", "?");
    client.queue(&Request::Prepare(Prepare { text: &insert, keyspace: None }));
    queue(&mut client, "USE a");
    client.flush();
    let answers: Vec<Answer> = (0..6).map(|_| client.receive().expect("an answer").1).collect();
    assert!(!answers.iter().any(|answer| matches!(answer, Answer::Error(_))), "{answers:?}");
    assert_eq!((count(&mut client, "a.t"), count(&mut client, "b.t")), (1, 1));
    let id = answers.iter().find_map(|answer| match answer {
        Answer::Prepared { id, .. } => Some(id.clone()),
        _ => None,
    });
    let id = id.expect("it is prepared");
    assert_eq!(execute(&mut client, &id, 3), Answer::Void);
    assert_eq!((count(&mut client, "a.t"), count(&mut client, "b.t")), (1, 2), "prepared for b");
    client.run("USE b");
    assert_eq!(client.prepare(&insert).0, id);
}

#[test]
fn queued_text_uses_the_keyspace_at_the_time_it_was_sent() {
    let (_server, mut client) = start();
    client.run("CREATE SERVICE LEVEL narrow WITH max_concurrency = 1 AND max_queue_size = 100");
    let write = |key: u32| format!("INSERT INTO t (k) VALUES ({key}) USING SERVICE LEVEL narrow");
    queue(&mut client, "USE a");
    (0..20).for_each(|key| queue(&mut client, &write(key)));
    queue(&mut client, "USE b");
    client.flush();
    for _ in 0..22 {
        let (_, answer) = client.receive().expect("an answer");
        assert!(!matches!(answer, Answer::Error(_)), "{answer:?}");
    }
    assert_eq!((count(&mut client, "a.t"), count(&mut client, "b.t")), (20, 0));
}

#[test]
fn long_write_is_executed_after_a_half_close() {
    let (server, mut other) = start();
    for key in 0..20 {
        let mut client = server.client(Version::V4, ADMIN);
        queue(&mut client, &long_write("a.t", &key.to_string()));
        client.flush();
        client.stream.shutdown(Shutdown::Write).expect("the client's side is closed");
        assert_eq!(client.receive().map(|(_, answer)| answer), Some(Answer::Void));
        assert_eq!(client.receive(), None);
    }
    assert_eq!(count(&mut other, "a.t"), 20);
}

#[test]
fn stale_long_write_is_bound_on_the_heavy_lane() {
    let (server, mut client) = start();
    let (id, _) = client.prepare(&long_write("a.t", "?"));
    for (at, column) in ["x", "y"].into_iter().enumerate() {
        client.run(&format!("ALTER TABLE a.t ADD {column} int"));
        assert_eq!(execute(&mut client, &id, at as i32), Answer::Void);
        client.run(&format!("ALTER TABLE a.t DROP {column}"));
        let (mut entries, key) = (BatchBuf::new(), (10 + at as i32).to_be_bytes());
        let values = values(&[&key]);
        entries
            .push(BatchEntry { statement: Statement::Prepared(&id), values: values.values() })
            .expect("fits");
        let batch = Batch::new(BatchKind::Logged, &entries, BatchParams::default());
        assert_eq!(client.ask(&Request::Batch(batch)), Answer::Void);
    }
    assert_eq!(count(&mut client, "a.t"), 4);
    client.run("DROP TABLE a.t");
    let dropped = execute(&mut client, &id, 1);
    assert!(matches!(dropped, Answer::Error(_)), "{dropped:?}");
    assert_short_polls(&server);
}

#[test]
fn batch_of_stale_statements_yields_between_bindings() {
    let (server, mut client) = start();
    // Each text is short enough to be bound on the fast lane.
    let insert = |n: usize| format!("INSERT INTO a.t (k, v) VALUES (?, [{}{n}])", "1, ".repeat(600));
    let ids: Vec<_> = (0..20).map(|n| client.prepare(&insert(n)).0).collect();
    client.run("ALTER TABLE a.t ADD x int");
    let mut entries = BatchBuf::new();
    for (key, id) in (0_i32..).zip(&ids) {
        let key = key.to_be_bytes();
        let values = values(&[&key]);
        entries
            .push(BatchEntry { statement: Statement::Prepared(id), values: values.values() })
            .expect("fits");
    }
    let batch = Batch::new(BatchKind::Logged, &entries, BatchParams::default());
    assert_eq!(client.ask(&Request::Batch(batch)), Answer::Void);
    assert_eq!(count(&mut client, "a.t"), 20);
    assert_short_polls(&server);
}

/// Returns a server without guardrails, and a client of protocol `version`.
fn unguarded(version: Version) -> (TestServer, Client) {
    let (server, _) = start();
    engine::GUARDRAILS.iter().for_each(|spec| server.limit(spec.guardrail, 0));
    let mut client = server.client(version, ADMIN);
    client.run("CREATE TABLE a.w (k int PRIMARY KEY, v text)");
    (server, client)
}

fn lengths(client: &mut Client) -> Vec<usize> {
    let rows = client.run("SELECT v FROM a.w").texts();
    let mut lengths: Vec<usize> = rows.iter().map(|row| row[0].len()).collect();
    lengths.sort_unstable();
    lengths
}

#[test]
fn texts_of_many_megabytes_are_run_in_bounded_polls() {
    for version in [Version::V4, Version::V5] {
        let (server, mut client) = unguarded(version);
        // Characters of three bytes: the slowest to check.
        let wide = |bytes: usize| "\u{20ac}".repeat(bytes / 3);
        let write = |key: u32, bytes| format!("INSERT INTO a.w (k, v) VALUES ({key}, '{}')", wide(bytes));
        client.run(&write(1, 4 << 20));
        let (id, result_id) = client.prepare(&write(2, 120 << 10));
        let params = QueryParams::default();
        let execute = Execute { id: &id, result_metadata_id: &result_id, params };
        assert_eq!(client.ask(&Request::Execute(execute)), Answer::Void);
        let (mut entries, texts) = (BatchBuf::new(), [write(3, 3 << 20), write(4, 300), write(5, 20_000)]);
        let mut add = |statement| {
            entries.push(BatchEntry { statement, values: values(&[]).values() }).expect("fits");
        };
        texts.iter().for_each(|text| add(Statement::Text(text)));
        add(Statement::Prepared(&id));
        let batch = Batch::new(BatchKind::Unlogged, &entries, BatchParams::default());
        assert_eq!(client.ask(&Request::Batch(batch)), Answer::Void);
        let expected = [300, 20_000, 120 << 10, 3 << 20, 4 << 20].map(|bytes| wide(bytes).len());
        assert_eq!(lengths(&mut client), expected);
        assert_short_polls(&server);
    }
}

#[test]
fn large_bound_values_are_run_in_bounded_polls() {
    let (server, mut client) = unguarded(Version::V5);
    let (id, result_id) = client.prepare("INSERT INTO a.w (k, v) VALUES (?, ?)");
    let (key, large) = (1_i32.to_be_bytes(), "\u{20ac}".repeat(1 << 20));
    let values = values(&[&key, large.as_bytes()]);
    let params = QueryParams { values: values.values(), ..QueryParams::default() };
    let execute = Execute { id: &id, result_metadata_id: &result_id, params };
    assert_eq!(client.ask(&Request::Execute(execute)), Answer::Void);
    assert_eq!(lengths(&mut client), [3 << 20]);
    assert_short_polls(&server);
}

/// Returns a segment of protocol v5 with one part of an envelope.
fn segment(part: &[u8]) -> Vec<u8> {
    let fields = (part.len() as u32).to_le_bytes();
    let (mut crc24, mut crc32) = (0x87_5060_u32, !0_u32);
    for byte in &fields[..3] {
        crc24 ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc24 = crc24 << 1 ^ if crc24 & 0x80_0000 != 0 { 0x197_4F0B } else { 0 };
        }
    }
    for byte in [0xFA, 0x2D, 0x55, 0xCA].iter().chain(part) {
        crc32 ^= u32::from(*byte);
        for _ in 0..8 {
            crc32 = crc32 >> 1 ^ if crc32 & 1 != 0 { 0xEDB8_8320 } else { 0 };
        }
    }
    let crc24 = crc24.to_le_bytes();
    [&fields[..3], &crc24[..3], part, &(!crc32).to_le_bytes()].concat()
}

#[test]
fn segments_of_one_byte_are_joined_in_bounded_polls() {
    let (server, mut client) = unguarded(Version::V5);
    let text = format!("INSERT INTO a.w (k, v) VALUES (1, '{}')", "x".repeat(100_000));
    let mut encoder = Encoder::new(Direction::Request, Version::V5);
    let query = Request::Query(Query { text: &text, params: QueryParams::default() });
    encoder.request(7, &query).expect("fits");
    let whole = encoder.finish().split();
    let segments: Vec<u8> = whole.iter().flat_map(|byte| segment(&[*byte])).collect();
    client.send_raw(&segments);
    assert_eq!(client.receive(), Some((7, Answer::Void)));
    assert_eq!(lengths(&mut client), [100_000]);
    assert_short_polls(&server);
}
