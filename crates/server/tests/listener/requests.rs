//! Requests of an authenticated session.

use crate::common::{ADMIN, Answer, Client, TestServer, settings, values};
use wire::*;

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

fn with_table(cores: usize) -> (TestServer, Client) {
    let server = TestServer::start(cores, settings());
    let mut client = server.client(Version::V4, ADMIN);
    client.run(KEYSPACE);
    assert_eq!(client.run("USE ks"), Answer::SetKeyspace("ks".into()));
    client.run("CREATE TABLE t (k int PRIMARY KEY, v text)");
    (server, client)
}

fn execute<'a>(id: &'a [u8], result_metadata_id: &'a [u8], values: Values<'a>) -> Request<'a> {
    let params = QueryParams { values, skip_metadata: true, ..QueryParams::default() };
    Request::Execute(Execute { id, result_metadata_id, params })
}

#[test]
fn pipelined_answers_keep_their_streams_on_every_core() {
    let (server, mut admin) = with_table(2);
    for version in [Version::V4, Version::V5] {
        // As many connections as cores, so that each core has one.
        for _ in 0..2 {
            let mut client = server.client(version, ADMIN);
            client.run("USE ks");
            let (insert, _) = client.prepare("INSERT INTO t (k, v) VALUES (?, ?)");
            let (select, result_id) = client.prepare("SELECT v FROM t WHERE k = ?");
            assert_eq!(client.prepare("SELECT v FROM t WHERE k = ?").0, select, "ids are stable");
            let mut sent = Vec::new();
            for k in 0..200i32 {
                let text = format!("value {k}");
                client.queue(&execute(&insert, &[], values(&[&k.to_be_bytes(), text.as_bytes()]).values()));
            }
            client.flush();
            (0..200).for_each(|_| assert!(matches!(client.receive(), Some((_, Answer::Void)))));
            for k in 0..200i32 {
                let stream =
                    client.queue(&execute(&select, &result_id, values(&[&k.to_be_bytes()]).values()));
                sent.push((stream, format!("value {k}")));
            }
            client.flush();
            for _ in 0..200 {
                let (stream, answer) = client.receive().expect("an answer");
                let expected = sent.iter().find(|(sent, _)| *sent == stream).expect("a stream that was sent");
                let Answer::Rows { columns, .. } = &answer else { panic!("{answer:?}") };
                assert_eq!(columns.len(), 0, "the client has the metadata");
                assert_eq!(answer.texts(), [[expected.1.as_str()]]);
            }
        }
    }
    assert_eq!(admin.run("SELECT count(*) FROM t").texts().len(), 1);
}

#[test]
fn server_binds_named_values_and_rejects_wrong_counts() {
    let (_server, mut client) = with_table(1);
    let mut named = ValuesBuf::new();
    named.push_named("v", Value::Bytes(b"one")).expect("fits");
    named.push_named("k", Value::Bytes(&1i32.to_be_bytes())).expect("fits");
    let params = QueryParams { values: named.values(), ..QueryParams::default() };
    let insert = Query { text: "INSERT INTO t (k, v) VALUES (:k, :v)", params };
    assert_eq!(client.ask(&Request::Query(insert)), Answer::Void);
    assert_eq!(client.run("SELECT v FROM t WHERE k = 1").texts(), [["one"]]);
    let one = values(&[b"x"]);
    let params = QueryParams { values: one.values(), ..QueryParams::default() };
    let text = "SELECT v FROM t WHERE k = ? AND v = ? ALLOW FILTERING";
    assert_eq!(client.ask(&Request::Query(Query { text, params })).code(), 0x2200);
    let unknown = execute(&[7; 16], &[], one.values());
    assert_eq!(client.ask(&unknown).code(), 0x2500);
}

#[test]
fn changed_table_is_answered_with_its_new_columns() {
    let (server, mut v4) = with_table(1);
    let mut v5 = server.client(Version::V5, ADMIN);
    v5.run("USE ks");
    v4.run("INSERT INTO t (k, v) VALUES (1, 'one')");
    let (id, _) = v4.prepare("SELECT * FROM t WHERE k = ?");
    let (_, result_id) = v5.prepare("SELECT * FROM t WHERE k = ?");
    v4.run("ALTER TABLE t ADD w int");
    let key = values(&[&1i32.to_be_bytes()]);
    for client in [&mut v4, &mut v5] {
        let Answer::Rows { columns, .. } = client.ask(&execute(&id, &result_id, key.values())) else {
            panic!("rows")
        };
        assert_eq!(columns, ["k", "v", "w"], "the client receives the new columns");
    }
}

#[test]
fn batches_accept_texts_and_ids() {
    let (_server, mut client) = with_table(1);
    let (insert, _) = client.prepare("INSERT INTO t (k, v) VALUES (?, ?)");
    let (key, none) = (values(&[&1i32.to_be_bytes(), b"one"]), ValuesBuf::new());
    let mut entries = BatchBuf::new();
    let text = Statement::Text("INSERT INTO t (k, v) VALUES (2, 'two')");
    entries.push(BatchEntry { statement: Statement::Prepared(&insert), values: key.values() }).expect("fits");
    entries.push(BatchEntry { statement: text, values: none.values() }).expect("fits");
    let batch = Batch::new(BatchKind::Unlogged, &entries, BatchParams::default());
    assert_eq!(client.ask(&Request::Batch(batch)), Answer::Void);
    assert_eq!(client.run("SELECT v FROM t WHERE k IN (1, 2)").texts(), [["one"], ["two"]]);
    let mut entries = BatchBuf::new();
    let select = Statement::Text("SELECT * FROM t");
    entries.push(BatchEntry { statement: select, values: none.values() }).expect("fits");
    let batch = Batch::new(BatchKind::Logged, &entries, BatchParams::default());
    assert_eq!(client.ask(&Request::Batch(batch)).code(), 0x2200);
}

#[test]
fn errors_have_the_codes_of_the_protocol() {
    let (_server, mut client) = with_table(1);
    for (text, code) in [
        ("SELEC * FROM t", 0x2000),
        ("SELECT * FROM nothere", 0x2200),
        ("SELECT * FROM system.nothere", 0x2200),
        ("USE nothere", 0x2200),
        ("CREATE TABLE t (k int PRIMARY KEY)", 0x2400),
        ("DROP TABLE system_auth.roles", 0x2100),
        ("SELECT * FROM t USING TIMEOUT 1d", 0x2200),
        ("LIST SERVICE LEVEL nothere", 0x2200),
        ("SELECT * FROM t USING SERVICE LEVEL nothere", 0x2200),
    ] {
        assert_eq!(client.query(text).code(), code, "{text}");
    }
}

#[test]
fn describe_returns_statements_that_create_the_schema() {
    let (_server, mut client) = with_table(1);
    let keyspace = client.run("DESCRIBE KEYSPACE ks").texts();
    let kinds: Vec<&str> = keyspace.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(kinds, ["keyspace", "table"]);
    let create = client.run("DESCRIBE TABLE t").texts()[0][3].clone();
    client.run("DROP TABLE t");
    client.run(&create);
    assert_eq!(client.run("DESC TABLE ks.t").texts()[0][3], create);
    assert_eq!(client.run("DESCRIBE TABLES").texts(), [["ks", "table", "t"]]);
    assert_eq!(client.run("DESCRIBE CLUSTER").texts()[0][..2], ["fairlane", "Murmur3Partitioner"]);
    assert!(client.run("DESCRIBE KEYSPACES").texts().iter().any(|row| row[2] == "system"));
    assert_eq!(client.query("DESCRIBE TABLE nothere").code(), 0x2200);
}

#[test]
fn registered_clients_of_all_cores_get_schema_changes() {
    let (server, mut client) = with_table(2);
    let mut listeners = [server.client(Version::V4, ADMIN), server.client(Version::V5, ADMIN)];
    for listener in &mut listeners {
        let types = vec!["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];
        assert_eq!(listener.ask(&Request::Register(types)), Answer::Ready);
    }
    let changed = client.run("CREATE TABLE u (k int PRIMARY KEY)");
    let Answer::SchemaChange(change) = changed else { panic!("{changed:?}") };
    assert_eq!(change.target, SchemaTarget::Table("u".into()));
    for listener in &mut listeners {
        let event = (EVENT_STREAM, Answer::Event(Event::Schema(change.clone())));
        assert_eq!(listener.receive(), Some(event));
    }
}

#[test]
fn open_sessions_follow_changed_rights_and_levels() {
    let (server, mut admin) = with_table(2);
    for text in [
        "CREATE ROLE ann WITH LOGIN = true AND PASSWORD = 'pw'",
        "CREATE SERVICE LEVEL olap WITH shares = 100",
        "CREATE SERVICE LEVEL oltp WITH shares = 900",
        "INSERT INTO t (k, v) VALUES (1, 'one')",
    ] {
        admin.run(text);
    }
    let mut ann = server.client(Version::V5, ("ann", "pw"));
    let select = "SELECT v FROM ks.t WHERE k = 1";
    assert_eq!(ann.query(select).code(), 0x2100);
    admin.run("GRANT SELECT ON KEYSPACE ks TO ann");
    ann.run(select);
    let reads = |level: &str| -> u64 {
        let (_, metrics) = server.get("/metrics");
        let name = format!("fairlane_service_time_seconds_count{{level=\"{level}\",kind=\"read\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |n| n.parse().expect("a count"))
    };
    for (attach, level) in [
        ("ATTACH SERVICE LEVEL olap TO ann", "olap"),
        ("ATTACH SERVICE LEVEL oltp TO ann", "oltp"),
        ("DETACH SERVICE LEVEL FROM ann", "default"),
    ] {
        admin.run(attach);
        let before = reads(level);
        (0..5).for_each(|_| drop(ann.run(select)));
        assert_eq!(reads(level) - before, 5, "{attach} acts on an open session");
    }
    let other = "SELECT v FROM ks.t WHERE k = 1 USING SERVICE LEVEL olap";
    assert_eq!(ann.query(other).code(), 0x2100, "without a grant");
    let before = reads("olap");
    assert_eq!(admin.run("SELECT v FROM t WHERE k = 1 USING SERVICE LEVEL olap").texts(), [["one"]]);
    assert_eq!(reads("olap") - before, 1);
    admin.run("REVOKE SELECT ON KEYSPACE ks FROM ann");
    assert_eq!(ann.query(select).code(), 0x2100);
}

#[test]
fn definition_without_effect_is_a_warning() {
    let server = TestServer::start(1, settings());
    let mut client = server.client(Version::V4, ADMIN);
    client.run(KEYSPACE);
    assert_eq!(client.warnings, Vec::<String>::new());
    client.run(&KEYSPACE.replace("ks", "three").replace(": 1", ": 3"));
    let copies = "Your replication factor 3 for keyspace three is higher than the number of nodes 1";
    assert_eq!(client.warnings, [copies]);
    client.run("CREATE TABLE three.plain (k int PRIMARY KEY) WITH compression = {'class': 'ZstdCompressor'}");
    assert!(client.warnings.is_empty(), "{:?}", client.warnings);
    client.run(
        "CREATE TABLE three.tuned (k int PRIMARY KEY) WITH caching = {'keys': 'NONE'} AND gc_grace_seconds = 5 \
         AND bloom_filter_fp_chance = 0.1",
    );
    assert_eq!(
        client.warnings,
        ["Options of table three.tuned without effect: bloom_filter_fp_chance, caching"]
    );
    client.run("DROP TABLE three.tuned");
    assert!(client.warnings.is_empty(), "{:?}", client.warnings);
}

#[test]
fn next_page_continues_after_the_last_row() {
    let (_server, mut client) = with_table(2);
    for k in 0..25 {
        client.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 'v')"));
    }
    let (mut seen, mut state): (Vec<_>, Option<Vec<u8>>) = (Vec::new(), None);
    for page in 0.. {
        let params =
            QueryParams { page_size: Some(10), paging_state: state.as_deref(), ..QueryParams::default() };
        let answer = client.ask(&Request::Query(Query { text: "SELECT k FROM t", params }));
        let Answer::Rows { rows, paging, .. } = answer else { panic!("{answer:?}") };
        assert!(rows.len() <= 10 && page < 10);
        seen.extend(rows);
        state = paging;
        if state.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 25);
}

#[test]
fn statement_prepared_on_one_core_runs_on_all() {
    let (server, _admin) = with_table(3);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client(Version::V5, ADMIN)).collect();
    let (insert, _) = clients[0].prepare("INSERT INTO ks.t (k, v) VALUES (?, 'x')");
    for (k, client) in (0i32..).zip(&mut clients) {
        let answer = client.ask(&execute(&insert, &[], values(&[&k.to_be_bytes()]).values()));
        assert_eq!(answer, Answer::Void, "on the core of client {k}");
    }
}

#[test]
fn clients_of_every_core_are_listed() {
    let (server, mut admin) = with_table(2);
    let _others: Vec<Client> = (0..3).map(|_| server.client(Version::V4, ADMIN)).collect();
    let listed = admin.run("SELECT username, keyspace_name FROM system_views.clients");
    let mut texts = listed.texts();
    texts.sort();
    let plain = || vec!["admin".to_owned(), "null".to_owned()];
    assert_eq!(texts, [vec!["admin".to_owned(), "ks".to_owned()], plain(), plain(), plain()]);
}

#[test]
fn statement_in_a_batch_has_no_timeout_or_level() {
    let (_server, mut client) = with_table(1);
    for using in ["USING TIMEOUT 1s", "USING SERVICE LEVEL other"] {
        let text = format!("INSERT INTO ks.t (k, v) VALUES (1, 'x') {using}");
        let mut entries = BatchBuf::new();
        let none = values(&[]);
        let entry = BatchEntry { statement: Statement::Text(&text), values: none.values() };
        entries.push(entry).expect("fits");
        let batch = Batch::new(BatchKind::Logged, &entries, BatchParams::default());
        let answer = client.ask(&Request::Batch(batch));
        assert_eq!(answer.code(), 0x2200, "{answer:?}");
    }
    assert_eq!(client.run("SELECT v FROM t WHERE k = 1").texts().len(), 0, "nothing was written");
}

#[test]
fn audit_log_has_logins_changes_and_audited_keyspaces() {
    let (audit, lines) = access::audit_log(vec!["shop".into()], false);
    let server = TestServer::start(1, server::ServerConfig { audit: Some(audit), ..settings() });
    let mut admin = server.client(Version::V4, ADMIN);
    let mut wrong = server.connect();
    wrong.startup(Version::V4, Compression::None);
    wrong.log_in("admin", "a wrong password");
    for keyspace in ["shop", "other"] {
        admin.run(&format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ));
        admin.run(&format!("CREATE TABLE {keyspace}.t (k text PRIMARY KEY)"));
        admin.run(&format!("INSERT INTO {keyspace}.t (k) VALUES ('secret')"));
        admin.run(&format!("SELECT * FROM {keyspace}.t"));
    }
    assert_eq!(admin.query("DROP TABLE shop.absent").code(), 0x2200);
    admin.run("CREATE ROLE bob WITH PASSWORD = 'secret' AND LOGIN = true");
    let mut bob = server.client(Version::V4, ("bob", "secret"));
    assert_eq!(bob.query("SELECT * FROM other.t WHERE k = 'secret'").code(), 0x2100);
    let lines: Vec<serde_json::Value> =
        lines.take().iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let shown: Vec<String> = lines
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or("").to_owned();
            let statement = text("statement").replace('"', "");
            let words: Vec<&str> = statement.split(' ').take(3).collect();
            format!("{} {} {} {}", text("kind"), text("role"), line["ok"], words.join(" "))
        })
        .collect();
    let expected = [
        "login admin true ",
        "login_failed admin false ",
        "schema admin true CREATE KEYSPACE shop",
        "schema admin true CREATE TABLE shop.t",
        "write admin true INSERT INTO shop.t",
        "read admin true SELECT * FROM",
        "schema admin true CREATE KEYSPACE other",
        "schema admin true CREATE TABLE other.t",
        "schema admin false DROP TABLE shop.absent",
        "access admin true CREATE ROLE bob",
        "login bob true ",
        "read bob false SELECT * FROM",
    ];
    assert_eq!(shown, expected);
    assert!(lines.iter().all(|line| !line.to_string().contains("secret")), "no password and no literal");
}
