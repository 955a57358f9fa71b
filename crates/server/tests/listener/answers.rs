//! Short statements with large answers, over the protocol: refused, charged to the connection's
//! account, or divided into pages. The connection and the others continue.

use frontdoor::Accounts;
use server::ServerConfig;
use testkit::until;
use wire::{Compression, Execute, Prepare, Query, QueryParams, Request, Version};

use crate::common::{ADMIN, Answer, Client, TestServer, assert_short_polls, settings, values};

const MIB: usize = 1 << 20;

/// Starts a server with a table of one row, whose value has 1 MiB.
fn with_value(config: ServerConfig) -> (TestServer, Client) {
    let server = TestServer::start(1, config);
    for guardrail in engine::GUARDRAILS {
        server.limit(guardrail.guardrail, 0);
    }
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE ks.t (k int, c int, s blob static, v blob, PRIMARY KEY (k, c))");
    let (value, text) = (vec![7; MIB], "INSERT INTO ks.t (k, c, s, v) VALUES (1, 1, ?, ?)");
    let bound = values(&[&value, &value]);
    let params = QueryParams { values: bound.values(), ..QueryParams::default() };
    assert_eq!(admin.ask(&Request::Query(Query { text, params })), Answer::Void);
    (server, admin)
}

fn repeated(shown: &str, times: usize, rest: &str) -> String {
    format!("SELECT {} FROM {rest}", vec![shown; times].join(", "))
}

#[test]
fn value_shown_many_times_is_refused_or_shown_whole() {
    let (server, _admin) = with_value(settings());
    for (version, compression) in
        [(Version::V4, Compression::None), (Version::V4, Compression::Lz4), (Version::V5, Compression::Lz4)]
    {
        let mut client = server.connect();
        client.startup(version, compression);
        assert_eq!(client.log_in(ADMIN.0, ADMIN.1), Answer::AuthSuccess);
        for rest in ["ks.t WHERE k = 1 AND c = 1", "ks.t WHERE k = 1", "ks.t"] {
            // Static columns alone take no restriction of rows.
            let all = if rest.contains("c = 1") { &["v", "v AS w"][..] } else { &["v", "s", "v AS w"] };
            for shown in all {
                let refused = client.query(&repeated(shown, 70, rest));
                let Answer::Error(failure) = refused else { panic!("an error was expected") };
                assert_eq!(failure.kind.code(), 0x2200, "{failure:?}");
                assert!(failure.message.contains("bytes in one row of an answer"), "{failure:?}");
                let Answer::Rows { rows, .. } = client.query(&repeated(shown, 5, rest)) else {
                    panic!("rows were expected")
                };
                let lens: Vec<_> = rows[0].iter().map(|cell| cell.as_ref().map(Vec::len)).collect();
                assert_eq!(lens, [Some(MIB); 5]);
            }
        }
    }
    assert_short_polls(&server);
}

#[test]
fn unread_answers_are_charged() {
    let accounts = Accounts::new(64 << 20, 8 << 20);
    let (server, _admin) = with_value(ServerConfig { accounts: accounts.clone(), ..settings() });
    let mut clients: Vec<Client> = (0..8).map(|_| server.client(Version::V4, ADMIN)).collect();
    let text = repeated("v", 15, "ks.t WHERE k = 1 AND c = 1");
    // Sockets take a part of each answer.
    for client in &mut clients {
        for _ in 0..3 {
            client.queue(&Request::Query(Query { text: &text, params: QueryParams::default() }));
        }
        client.flush();
    }
    // Each that is built is charged until its client has read it, or refused.
    until("answers are charged", || accounts.all().used_bytes() > 30 << 20);
    let mut answered = 0;
    for client in &mut clients {
        for _ in 0..3 {
            assert!(accounts.all().used_bytes() <= 64 << 20);
            match client.receive().expect("an answer").1 {
                Answer::Rows { rows, .. } => {
                    assert_eq!(rows[0].len(), 15);
                    answered += 1;
                }
                Answer::Error(failure) => assert_eq!(failure.kind.code(), 0x1001, "{failure:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(answered > 0, "some fit");
    until("all is released", || accounts.all().used_bytes() == 0);
    assert_short_polls(&server);
}

#[test]
fn answer_larger_than_its_account_is_invalid() {
    let accounts = Accounts::new(64 << 20, 8 << 20);
    let (server, mut admin) = with_value(ServerConfig { accounts, ..settings() });
    let refused = admin.query(&repeated("v", 20, "ks.t WHERE k = 1 AND c = 1"));
    let Answer::Error(failure) = refused else { panic!("an error was expected") };
    assert_eq!(failure.kind.code(), 0x2200, "a retry does not help: {failure:?}");
    assert!(failure.message.contains("the memory of this connection"), "{failure:?}");
    assert_short_polls(&server);
}

#[test]
fn wide_metadata_is_encoded_on_the_heavy_lane() {
    let (server, mut admin) = with_value(settings());
    let fields: Vec<String> = (0..1_000).map(|n| format!("field_of_a_wide_type_{n:0100} int")).collect();
    admin.run(&format!("CREATE TYPE ks.wide ({})", fields.join(", ")));
    admin.run("CREATE TABLE ks.w (k int PRIMARY KEY, u frozen<wide>)");
    for version in [Version::V4, Version::V5] {
        let mut client = server.client(version, ADMIN);
        let refused = client.query(&repeated("u", 100, "ks.w"));
        assert_eq!(refused.code(), 0x2200);
        let text = repeated("u", 100, "ks.w");
        assert_eq!(client.ask(&Request::Prepare(Prepare { text: &text, keyspace: None })).code(), 0x2200);
        for times in [1, 8] {
            let Answer::Rows { columns, .. } = client.query(&repeated("u", times, "ks.w")) else {
                panic!("rows were expected")
            };
            assert_eq!(columns, vec!["u"; times]);
            let (id, result_id) = client.prepare(&repeated("u", times, "ks.w"));
            let execute = |skip_metadata| {
                let params = QueryParams { skip_metadata, ..QueryParams::default() };
                Request::Execute(Execute { id: &id, result_metadata_id: &result_id, params })
            };
            for skip_metadata in [false, true] {
                let Answer::Rows { columns, .. } = client.ask(&execute(skip_metadata)) else {
                    panic!("rows were expected")
                };
                assert_eq!(columns.len(), if skip_metadata { 0 } else { times });
            }
            let (id, _) = client.prepare("INSERT INTO ks.w (k, u) VALUES (?, ?)");
            assert_eq!(id.len(), 16);
        }
    }
    assert_short_polls(&server);
}

#[test]
fn prepared_columns_count_as_memory() {
    let config = ServerConfig { prepared_bytes_max: 8 << 20, ..settings() };
    let (server, mut admin) = with_value(config);
    let fields: Vec<String> = (0..1_000).map(|n| format!("field_of_a_wide_type_{n:0100} int")).collect();
    admin.run(&format!("CREATE TYPE ks.wide ({})", fields.join(", ")));
    admin.run("CREATE TABLE ks.w (k int PRIMARY KEY, u frozen<wide>)");
    for n in 0..100 {
        admin.prepare(&format!("{} LIMIT {}", repeated("u", 2, "ks.w"), n + 1));
    }
    let (_, metrics) = server.get("/metrics");
    let count = metrics.lines().find_map(|line| line.strip_prefix("fairlane_prepared_statements "));
    let count: usize = count.expect("is there").parse().expect("a number");
    assert!((1..=12).contains(&count), "{count} statements of 750 KB each");
}

#[test]
fn describe_is_paged() {
    let (server, mut admin) = with_value(settings());
    for n in 0..400 {
        let columns: Vec<String> = (0..10).map(|c| format!("column_{c} int")).collect();
        admin.run(&format!("CREATE TABLE ks.t{n} (k int PRIMARY KEY, {})", columns.join(", ")));
    }
    for text in ["DESCRIBE SCHEMA", "DESCRIBE KEYSPACE ks", "DESCRIBE TABLES", "DESCRIBE TABLE ks.t1"] {
        let Answer::Rows { rows: whole, paging: None, .. } = admin.query(text) else { panic!("all rows") };
        for page_size in [1, 7, 5_000] {
            if page_size == 1 && whole.len() > 300 {
                continue;
            }
            let (mut all, mut state, mut pages) = (Vec::new(), None::<Vec<u8>>, 0);
            loop {
                let params = QueryParams {
                    page_size: Some(page_size),
                    paging_state: state.as_deref(),
                    ..QueryParams::default()
                };
                let answer = admin.ask(&Request::Query(Query { text, params }));
                let Answer::Rows { rows, paging, .. } = answer else { panic!("{answer:?}") };
                assert!(rows.len() <= page_size as usize);
                all.extend(rows);
                pages += 1;
                state = paging;
                if state.is_none() {
                    break;
                }
            }
            assert!(all == whole, "{text}: {} and {} rows", all.len(), whole.len());
            assert!(pages >= whole.len() / page_size as usize, "{text}");
        }
    }
    let params = QueryParams { paging_state: Some(b"nonsense!"), ..QueryParams::default() };
    let refused = admin.ask(&Request::Query(Query { text: "DESCRIBE SCHEMA", params }));
    assert_eq!(refused.code(), 0x2200);
    assert_short_polls(&server);
}

#[test]
fn refused_batch_conditions_are_charged() {
    let accounts = Accounts::new(64 << 20, 8 << 20);
    let (server, mut admin) = with_value(ServerConfig { accounts: accounts.clone(), ..settings() });
    let part = |c: u32| format!("UPDATE ks.t SET v = 0x00 WHERE k = 1 AND c = {c} IF s = 0x00 AND v = 0x02;");
    let batch = |count: u32| {
        let parts: Vec<String> = (0..count).map(part).collect();
        format!("BEGIN BATCH {} APPLY BATCH", parts.join(" "))
    };
    for c in 0..100 {
        admin.run(&format!("UPDATE ks.t SET v = 0x01 WHERE k = 1 AND c = {c}"));
    }
    // Every row repeats the static column.
    assert_eq!(admin.query(&batch(100)).code(), 0x2200);
    assert!(matches!(admin.query(&batch(2)), Answer::Rows { .. }));
    until("all is released", || accounts.all().used_bytes() == 0);
    assert_short_polls(&server);
}

/// A list of all roles or permissions is charged as it grows, and made with yields.
#[test]
fn lists_of_many_roles_are_charged() {
    for (bytes, is_listed) in [(128 << 10, false), (64 << 20, true)] {
        let accounts = Accounts::new(bytes, bytes);
        let server = TestServer::start(1, ServerConfig { accounts, ..settings() });
        let mut admin = server.client(Version::V4, ADMIN);
        for n in 0..1_200 {
            admin.run(&format!("CREATE ROLE \"{n:_>100}\""));
        }
        admin.run(&format!("GRANT ALL ON ALL KEYSPACES TO \"{:_>100}\"", 7));
        assert!(matches!(admin.query(&format!("LIST ROLES OF \"{:_>100}\"", 7)), Answer::Rows { .. }));
        for text in ["LIST ROLES", "LIST ROLES NORECURSIVE"] {
            match admin.query(text) {
                Answer::Rows { rows, .. } => assert!(is_listed && rows.len() > 1_200),
                Answer::Error(failure) => {
                    assert!(!is_listed && failure.kind.code() == 0x2200, "{failure:?}");
                    assert!(failure.message.contains("select fewer columns, or read smaller pages"));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_short_polls(&server);
    }
}
