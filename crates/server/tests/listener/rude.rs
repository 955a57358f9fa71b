//! Abusive clients: each sends a load that once occupied a core or the memory of a server. The
//! tests count work units between yields, bytes and answers, never time.

use crate::common::{ADMIN, Answer, Client, TestServer, assert_short_polls, settings, values};
use frontdoor::Accounts;
use server::ServerConfig;
use testkit::until;
use wire::{
    BatchBuf, BatchEntry, BatchKind, BatchParams, Compression, Execute, Prepare, Query, QueryParams, Request,
    Statement, Value, Values, ValuesBuf, Version,
};

/// Starts a server with a table. Returns it with its administrator's connection.
fn with_table(config: ServerConfig) -> (TestServer, Client) {
    let server = TestServer::start(1, config);
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
    admin.run("CREATE ROLE nobody WITH PASSWORD = 'nobody' AND LOGIN = true");
    (server, admin)
}

/// Opens an authenticated connection with LZ4.
fn compressed(server: &TestServer, (name, password): (&str, &str)) -> Client {
    let mut client = server.connect();
    client.startup(Version::V4, Compression::Lz4);
    assert_eq!(client.log_in(name, password), Answer::AuthSuccess);
    client
}

fn query(text: &str) -> Request<'_> {
    Request::Query(Query { text, params: QueryParams::default() })
}

#[test]
fn messages_before_login_are_few_and_not_decoded() {
    let server = TestServer::start(1, settings());
    let mut client = server.connect();
    client.startup(Version::V4, Compression::Lz4);
    let types = vec![""; 8_000];
    let mut refused = 0;
    for _ in 0..200 {
        client.queue(&Request::Register(types.clone()));
    }
    client.flush();
    while let Some((_, answer)) = client.receive() {
        let Answer::Error(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.kind.code(), 0x000A, "{failure:?}");
        refused += 1;
    }
    assert!(
        (20..=40).contains(&refused),
        "{refused} messages were answered before the connection was closed"
    );
    assert_short_polls(&server);
    // A message with a malformed list is refused the same way, because it is not decoded.
    let mut client = server.connect();
    client.startup(Version::V4, Compression::None);
    client.send_raw(&[4, 0, 0, 9, 0x0b, 0, 0, 0, 2, 0xff, 0xff]);
    let Some((9, Answer::Error(failure))) = client.receive() else { panic!("an error was expected") };
    assert_eq!(failure.message, "Unexpected message REGISTER, expecting AUTH_RESPONSE");
}

#[test]
fn many_requests_at_once_yield() {
    let (server, mut admin) = with_table(settings());
    for _ in 0..20_000 {
        admin.queue(&Request::Options);
    }
    let bytes = admin.encoder.finish().split();
    let mut writer = admin.stream.try_clone().expect("a second handle");
    #[expect(clippy::disallowed_methods, reason = "the client runs outside the lanes")]
    let writing =
        std::thread::spawn(move || std::io::Write::write_all(&mut writer, &bytes).expect("is read"));
    for _ in 0..20_000 {
        assert!(matches!(admin.receive(), Some((_, Answer::Supported(_)))));
    }
    writing.join().expect("all was sent");
    assert_short_polls(&server);
}

#[test]
fn long_text_is_inflated_and_parsed_on_the_heavy_lane() {
    let (server, _admin) = with_table(settings());
    let mut nobody = compressed(&server, ("nobody", "nobody"));
    // 15 MiB compressed to 64 KB: a comment, terms beyond the limit, and terms within it.
    let comment = format!("SELECT key FROM system.local /* {} */", "a".repeat(15 << 20));
    assert!(matches!(nobody.query(&comment), Answer::Rows { .. }));
    let terms = format!("SELECT key FROM system.local WHERE key IN ({}'')", "'',".repeat(5 << 20));
    assert_eq!(nobody.query(&terms).code(), 0x2000);
    let fewer = format!("SELECT key FROM system.local WHERE key IN ({}'')", "'',".repeat(9_000));
    let _ = nobody.query(&fewer);
    // In v5 the text comes in segments, each compressed on its own.
    let mut nobody = server.connect();
    nobody.startup(Version::V5, Compression::Lz4);
    assert_eq!(nobody.log_in("nobody", "nobody"), Answer::AuthSuccess);
    assert!(matches!(nobody.query(&comment), Answer::Rows { .. }));
    assert_short_polls(&server);
}

#[test]
fn unauthorized_statement_is_neither_planned_nor_cached() {
    let (server, mut admin) = with_table(settings());
    let mut nobody = server.client(Version::V4, ("nobody", "nobody"));
    let unauthorized = 0x2100;
    for text in [
        "SELECT nothing FROM ks.t",
        "SELECT * FROM ks.absent",
        "INSERT INTO ks.t (absent) VALUES (1)",
        "UPDATE ks.t SET absent = 1 WHERE k = 1",
        "DELETE FROM ks.t WHERE absent = 1",
        "BEGIN BATCH INSERT INTO ks.t (absent) VALUES (1); APPLY BATCH",
    ] {
        assert_eq!(nobody.query(text).code(), unauthorized, "{text}");
    }
    let (_, metrics) = server.get("/metrics");
    assert!(metrics.contains("\nfairlane_prepared_statements 0\n"), "no statement was cached");
    admin.run("GRANT MODIFY ON ks.t TO nobody");
    assert_eq!(
        nobody.query("INSERT INTO ks.t (absent) VALUES (1)").code(),
        0x2200,
        "with the right, details are reported"
    );
    for text in
        ["INSERT INTO ks.t (k) VALUES (1) IF NOT EXISTS", "UPDATE ks.t SET v = 1 WHERE k = 1 IF v = 2"]
    {
        assert_eq!(nobody.query(text).code(), unauthorized, "{text}: its answer shows what is stored");
    }
}

#[test]
fn prepared_statements_are_bounded_in_bytes() {
    let (server, mut admin) = with_table(ServerConfig { prepared_bytes_max: 1 << 20, ..settings() });
    let (prepared_id, _) = admin.prepare("SELECT v FROM ks.t WHERE k = ?");
    let mut nobody = compressed(&server, ("nobody", "nobody"));
    let large = format!("SELECT key FROM system.local /* {} */", "a".repeat(15 << 20));
    let refused = nobody.ask(&Request::Prepare(Prepare { text: &large, keyspace: None }));
    let Answer::Error(failure) = refused else { panic!("{refused:?}") };
    assert!(failure.message.contains("is larger than allowed maximum of"), "{}", failure.message);
    for n in 0..300 {
        let text = format!("SELECT key FROM system.local /* {n} {} */", "a".repeat(20_000));
        nobody.prepare(&text);
    }
    let (_, metrics) = server.get("/metrics");
    let prepared_count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("fairlane_prepared_statements "))
        .expect("is there");
    assert!(
        prepared_count.parse::<u32>().expect("a number") < 30,
        "{prepared_count} statements of 40 KB in 1 MiB"
    );
    let buffer = values(&[&1_i32.to_be_bytes()]);
    let params = QueryParams { values: buffer.values(), ..QueryParams::default() };
    let answer = admin.ask(&Request::Execute(Execute { id: &prepared_id, result_metadata_id: &[], params }));
    assert!(matches!(answer, Answer::Rows { .. }), "another role's statement stays: {answer:?}");
}

#[test]
fn cost_of_named_values_is_linear() {
    let (server, mut admin) = with_table(settings());
    let markers =
        |count: usize| format!("SELECT key FROM system.local WHERE key IN ({})", vec!["?"; count].join(","));
    let (id, _) = admin.prepare(&markers(300));
    let named = |count: usize| {
        let mut buffer = ValuesBuf::new();
        (0..count).for_each(|_| buffer.push_named("no such marker", Value::Null).expect("fits"));
        buffer
    };
    for (count, is_refused) in [(300, false), (301, true)] {
        let buffer = named(count);
        let params = QueryParams { values: buffer.values(), ..QueryParams::default() };
        let answer = admin.ask(&Request::Execute(Execute { id: &id, result_metadata_id: &[], params }));
        let Answer::Error(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(
            failure.message.starts_with("Invalid amount of bind variables"),
            is_refused,
            "{failure:?}"
        );
    }
    assert_short_polls(&server);
}

#[test]
fn batch_of_many_statements_yields_between_them() {
    let (server, mut admin) = with_table(settings());
    let (id, _) = admin.prepare("INSERT INTO ks.t (k, v) VALUES (?, 1)");
    let mut batch = BatchBuf::default();
    for k in 0..5_000_i32 {
        let one = values(&[&k.to_be_bytes()]);
        batch.push(BatchEntry { statement: Statement::Prepared(&id), values: one.values() }).expect("fits");
    }
    for k in 5_000..10_000_i32 {
        let text = format!("INSERT INTO ks.t (k, v) VALUES ({k}, 1)");
        batch
            .push(BatchEntry { statement: Statement::Text(&text), values: Values::default() })
            .expect("fits");
    }
    assert_eq!(admin.ask(&batch_request(&batch)), Answer::Void);
    let rows = admin.run("SELECT count(*) FROM ks.t");
    let Answer::Rows { rows, .. } = rows else { panic!("rows were expected") };
    assert_eq!(rows[0][0].as_deref(), Some(&10_000_i64.to_be_bytes()[..]));
    // An invalid statement fails the whole batch before any write is applied.
    batch
        .push(BatchEntry {
            statement: Statement::Text("INSERT INTO ks.t (k, absent) VALUES (-1, 1)"),
            values: Values::default(),
        })
        .expect("fits");
    assert_eq!(admin.ask(&batch_request(&batch)).code(), 0x2200);
    assert_eq!(admin.run("SELECT v FROM ks.t WHERE k = -1").texts().len(), 0);
    assert_short_polls(&server);
}

fn batch_request(batch: &BatchBuf) -> Request<'_> {
    Request::Batch(wire::Batch::new(BatchKind::Unlogged, batch, BatchParams::default()))
}

#[test]
fn requests_that_wait_for_a_slot_are_charged() {
    let config = ServerConfig {
        accounts: Accounts::new(48 << 20, server::largest_request_bytes(16 << 20)),
        ..settings()
    };
    let (server, mut admin) = with_table(config);
    admin.run("CREATE SERVICE LEVEL narrow WITH max_concurrency = 1 AND max_queue_size = 1000 AND queue_timeout = 10s");
    admin.run("ATTACH SERVICE LEVEL narrow TO nobody");
    admin.run("GRANT SELECT ON ks.t TO nobody");
    let mut nobody = compressed(&server, ("nobody", "nobody"));
    let text = format!("SELECT * FROM ks.t /* {} */", "a".repeat(15 << 20));
    for _ in 0..50 {
        nobody.queue(&query(&text));
    }
    nobody.flush();
    let mut overloaded = 0;
    for _ in 0..50 {
        match nobody.receive().expect("an answer").1 {
            Answer::Rows { .. } => {}
            Answer::Error(failure) if failure.kind.code() == 0x1001 => {
                assert!(failure.message.contains("memory for"), "{}", failure.message);
                overloaded += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(overloaded > 0, "750 MiB do not fit in 48");
    let held = admin.run("SELECT purpose, bytes FROM system.memory");
    let Answer::Rows { rows, .. } = held else { panic!("rows were expected") };
    let request_row = rows.iter().find(|row| {
        row[0].as_deref() == Some(b"requests that are large or wait, and what SQL sessions keep")
    });
    assert_eq!(
        request_row.expect("a row")[1].as_deref(),
        Some(&0_i64.to_be_bytes()[..]),
        "all memory is released"
    );
    assert_short_polls(&server);
}

#[test]
fn text_prepared_again_is_bound_to_the_new_table() {
    let server = TestServer::start(2, settings());
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    let text = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
    for (ty, v) in [("int", &1_i32.to_be_bytes()[..]), ("text", b"one"), ("bigint", &1_i64.to_be_bytes())] {
        admin.run(&format!("CREATE TABLE ks.t (k int PRIMARY KEY, v {ty})"));
        let (id, _) = admin.prepare(text);
        // By then, the connections of both cores know the statement.
        for _ in 0..4 {
            let mut other = server.client(Version::V4, ADMIN);
            let buffer = values(&[&1_i32.to_be_bytes(), v]);
            let params = QueryParams { values: buffer.values(), ..QueryParams::default() };
            let execute = Execute { id: &id, result_metadata_id: &[], params };
            assert_eq!(other.ask(&Request::Execute(execute)), Answer::Void, "{ty}");
        }
        admin.run("DROP TABLE ks.t");
        admin.run(&format!(
            "CREATE TABLE ks.t (k int PRIMARY KEY, v {})",
            if ty == "int" { "uuid" } else { "int" }
        ));
        let mut other = server.client(Version::V4, ADMIN);
        let buffer = values(&[&1_i32.to_be_bytes(), v]);
        let params = QueryParams { values: buffer.values(), ..QueryParams::default() };
        let old = other.ask(&Request::Execute(Execute { id: &id, result_metadata_id: &[], params }));
        assert_eq!(old.code(), 0x2500, "the client has to prepare it again: {old:?}");
        let mut batch = BatchBuf::default();
        batch
            .push(BatchEntry { statement: Statement::Prepared(&id), values: buffer.values() })
            .expect("fits");
        assert_eq!(other.ask(&batch_request(&batch)).code(), 0x2500, "in a batch too");
        admin.run("DROP TABLE ks.t");
    }
}

#[test]
fn large_answers_are_encoded_on_the_heavy_lane() {
    let (server, mut admin) = with_table(settings());
    admin.run("CREATE TABLE ks.wide (k int, c int, v blob, PRIMARY KEY (k, c))");
    for c in 0..40 {
        admin.run(&format!("INSERT INTO ks.wide (k, c, v) VALUES (1, {c}, 0x{})", "ab".repeat(100_000)));
    }
    for (version, compression) in [
        (Version::V4, Compression::None),
        (Version::V4, Compression::Lz4),
        (Version::V5, Compression::None),
        (Version::V5, Compression::Lz4),
    ] {
        let mut client = server.connect();
        client.startup(version, compression);
        assert_eq!(client.log_in(ADMIN.0, ADMIN.1), Answer::AuthSuccess);
        let large = client.queue(&query("SELECT c, v FROM ks.wide WHERE k = 1"));
        let small = client.queue(&query("SELECT key FROM system.local"));
        client.flush();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (stream, answer) = client.receive().expect("an answer");
            let Answer::Rows { rows, columns, .. } = answer else { panic!("rows were expected") };
            if stream == large {
                assert_eq!(columns, ["c", "v"]);
                let numbers: Vec<_> = rows.iter().map(|row| row[0].clone().expect("a number")).collect();
                assert_eq!(numbers, (0..40_i32).map(|c| c.to_be_bytes().to_vec()).collect::<Vec<_>>());
                assert!(rows.iter().all(|row| row[1].as_deref() == Some(&[0xab; 100_000][..])));
            }
            seen.push(stream);
        }
        seen.sort_unstable();
        assert_eq!(seen, [large, small], "{version:?} {compression:?}");
        assert_eq!(client.run("SELECT key FROM system.local").texts(), [["local"]], "the framing holds");
    }
    assert_short_polls(&server);
}

#[test]
fn answer_without_pages_is_charged_as_it_grows() {
    let (_server, mut admin) = with_table(ServerConfig {
        frame_bytes_max: 1 << 20,
        accounts: Accounts::new(3 << 20, server::largest_request_bytes(1 << 20)),
        ..settings()
    });
    admin.run("CREATE TABLE ks.wide (k int, c int, v blob, PRIMARY KEY (k, c))");
    for c in 0..40 {
        admin.run(&format!("INSERT INTO ks.wide (k, c, v) VALUES (1, {c}, 0x{})", "ab".repeat(100_000)));
    }
    let Answer::Error(failure) = admin.query("SELECT v FROM ks.wide WHERE k = 1") else {
        panic!("4 MB in 3 MiB")
    };
    assert_eq!(failure.kind.code(), 0x2200, "it never fits: {failure:?}");
    assert!(matches!(admin.query("SELECT v FROM ks.wide WHERE k = 1 AND c < 20"), Answer::Rows { .. }));
    let params = QueryParams { page_size: Some(1_000), ..QueryParams::default() };
    let paged = admin.ask(&Request::Query(Query { text: "SELECT v FROM ks.wide WHERE k = 1", params }));
    assert!(matches!(paged, Answer::Rows { paging: Some(_), .. }), "pages are small");
}

#[test]
fn unread_answers_stay_charged() {
    // A role may hold 20 MiB over all its connections.
    let accounts = Accounts::new(40 << 20, 20 << 20);
    let (server, mut admin) = with_table(ServerConfig { accounts: accounts.clone(), ..settings() });
    admin.run("CREATE TABLE ks.wide (k int, c int, v blob, PRIMARY KEY (k, c))");
    for c in 0..120 {
        admin.run(&format!("INSERT INTO ks.wide (k, c, v) VALUES (1, {c}, 0x{})", "ab".repeat(100_000)));
    }
    admin.run("GRANT SELECT ON ks.wide TO nobody");
    // 12 MB, of which the sockets take a part.
    let text = "SELECT v FROM ks.wide WHERE k = 1";
    let mut stalled = server.client(Version::V4, ("nobody", "nobody"));
    stalled.queue(&query(text));
    stalled.flush();
    let mut other = server.client(Version::V4, ("nobody", "nobody"));
    until("answers are held", || accounts.all().used_bytes() >= 12_000_000);
    assert_eq!(other.query(text).code(), 0x1001);
    assert!(matches!(admin.query(text), Answer::Rows { .. }), "another role has its own account");
    assert!(matches!(stalled.receive(), Some((_, Answer::Rows { .. }))));
    until("no answer is held", || accounts.all().used_bytes() == 0);
    assert!(matches!(other.query(text), Answer::Rows { .. }));
}

#[test]
fn small_answers_that_wait_for_their_client_are_charged() {
    let accounts = Accounts::new(40 << 20, 20 << 20);
    let (server, mut admin) = with_table(ServerConfig { accounts: accounts.clone(), ..settings() });
    admin.run("CREATE TABLE ks.texts (k int PRIMARY KEY, v blob)");
    admin.run(&format!("INSERT INTO ks.texts (k, v) VALUES (1, 0x{})", "ab".repeat(30_000)));
    let mut greedy = server.client(Version::V4, ADMIN);
    // 30 MB in answers that are encoded at once. The sockets take a part.
    for _ in 0..1_000 {
        greedy.queue(&query("SELECT v FROM ks.texts WHERE k = 1"));
    }
    greedy.flush();
    until("answers are charged", || accounts.all().used_bytes() > 0);
    let mut charged_max = 0;
    for _ in 0..200 {
        charged_max = charged_max.max(accounts.all().used_bytes());
        admin.run("SELECT v FROM ks.texts WHERE k = 1");
    }
    assert!(charged_max <= 2 << 20, "{charged_max} bytes");
    for _ in 0..1_000 {
        assert!(matches!(greedy.receive(), Some((_, Answer::Rows { .. }))));
    }
    until("no answer is held", || accounts.all().used_bytes() == 0);
}

#[test]
fn unread_answers_are_bounded() {
    let (server, mut admin) = with_table(settings());
    admin.run("CREATE TABLE ks.wide (k int, c int, v blob, PRIMARY KEY (k, c))");
    for c in 0..100 {
        admin.run(&format!("INSERT INTO ks.wide (k, c, v) VALUES (1, {c}, 0x{})", "ab".repeat(10_000)));
    }
    let mut greedy = server.client(Version::V5, ADMIN);
    // 1,000 pages of 1 MB.
    for _ in 0..1_000 {
        let params = QueryParams { page_size: Some(5_000), ..QueryParams::default() };
        greedy.queue(&Request::Query(Query { text: "SELECT v FROM ks.wide WHERE k = 1", params }));
    }
    greedy.flush();
    // The administrator's own reads continue and show the memory held.
    let held = |admin: &mut Client| {
        let Answer::Rows { rows, .. } = admin.run("SELECT purpose, bytes FROM system.memory") else {
            panic!("rows were expected")
        };
        let unread =
            rows.iter().find(|row| row[0].as_deref() == Some(b"answers that CQL clients have not read"));
        let bytes = unread.expect("a row")[1].clone().expect("a number");
        i64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    };
    let mut bytes_max = 0;
    let (mut seen, mut asked) = (0, 0);
    while seen < 200 && asked < 100_000 {
        bytes_max = bytes_max.max(held(&mut admin));
        seen += usize::from(bytes_max > 0);
        asked += 1;
    }
    // 8 MiB of pages, and for each request in flight the smallest page with one row beyond its
    // limit.
    assert!(
        bytes_max > 0 && bytes_max < 40 << 20,
        "{bytes_max} of 1 GB of answers wait for a client that reads none"
    );
    for _ in 0..1_000 {
        assert!(
            matches!(greedy.receive(), Some((_, Answer::Rows { .. }))),
            "once it reads it gets all of them"
        );
    }
}
