//! A server in front of a cluster, of one node: another server.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use cluster::{Ring, Topology};
use lanes::Group;
use server::ServerConfig;
use wire::{
    Batch, BatchBuf, BatchEntry, BatchKind, BatchParams, Compression, Consistency, Execute, FailureKind,
    Query, QueryParams, Request, Statement, Values, Version,
};

/// Starts a node, and a front of one core before it.
fn start() -> (TestServer, TestServer) {
    let node = TestServer::start(1, settings());
    let front = TestServer::start_front(&node, ServerConfig { auth_failures_max: 100, ..settings() });
    (node, front)
}

#[test]
fn failed_logins_are_limited_by_name_and_address() {
    let (_node, front) = start();
    let mut guesser = front.connect();
    guesser.startup(Version::V5, Compression::None);
    for _ in 0..20 {
        assert_eq!(guesser.log_in("ann", "wrong").code(), 0x0100);
    }
    let Answer::Error(refused) = guesser.log_in("ann", "wrong") else { panic!("an error") };
    assert!(refused.message.starts_with("Too many logins of ann failed from this address"), "{refused:?}");
    front.client(Version::V4, ADMIN).run("SELECT * FROM system_schema.tables");
}

#[test]
fn right_password_that_is_kept_needs_no_node() {
    let (node, front) = start();
    let mut session = front.client(Version::V5, ADMIN);
    node.client(Version::V5, ADMIN).run("CREATE ROLE bob WITH PASSWORD = 'bob' AND LOGIN = true");
    session.run("SELECT * FROM system_schema.tables");
    drop(node);
    front.client(Version::V5, ADMIN);
    let mut other = front.connect();
    other.startup(Version::V5, Compression::None);
    assert_eq!(other.log_in("bob", "bob").code(), 0x1001, "the cluster cannot be asked");
}

#[test]
fn sessions_end_when_a_node_refuses_their_password() {
    let (node, front) = start();
    let mut admin = node.client(Version::V5, ADMIN);
    admin.run("CREATE ROLE ann WITH PASSWORD = 'old' AND LOGIN = true");
    let (mut ann, mut idle) =
        (front.client(Version::V5, ("ann", "old")), front.client(Version::V5, ("ann", "old")));
    ann.run("LIST ROLES OF ann");
    // The node closes the front's connections of the role. The next one is refused.
    admin.run("ALTER ROLE ann WITH PASSWORD = 'new'");
    for client in [&mut ann, &mut idle] {
        let refused = loop {
            match client.query("LIST ROLES OF ann") {
                // In flight when the node closed the connection.
                Answer::Error(failure) if failure.message.contains("was lost before it answered") => {}
                other => break other,
            }
        };
        assert_eq!(refused.code(), 0x2100, "{refused:?}");
        assert!(format!("{refused:?}").contains("log in again"), "{refused:?}");
        assert_eq!(client.receive(), None, "the session has ended");
    }
    let mut again = front.connect();
    again.startup(Version::V5, Compression::None);
    assert_eq!(again.log_in("ann", "old").code(), 0x0100, "the old password is kept no more");
    assert_eq!(again.log_in("ann", "new"), Answer::AuthSuccess);
    again.run("LIST ROLES OF ann");
}

#[test]
fn unknown_types_of_events_are_accepted_in_front_of_a_cluster_only() {
    let (node, front) = start();
    let types = || Request::Register(vec!["SCHEMA_CHANGE", "GRACEFUL_DISCONNECT"]);
    assert_eq!(front.client(Version::V5, ADMIN).ask(&types()), Answer::Ready);
    assert_eq!(node.client(Version::V5, ADMIN).ask(&types()).code(), 0x000A);
}

#[test]
fn running_statements_show_texts_for_nodes_without_values() {
    let (node, front) = start();
    let mut client = front.client(Version::V5, ADMIN);
    let (id, _) =
        client.prepare("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system'");
    let blocked = Blocked::start(&node);
    let text = "SELECT id FROM system_schema.types WHERE id = 'secret'";
    client.queue(&Request::Query(Query { text, ..Query::default() }));
    client.queue(&Request::Execute(Execute { id: &id, ..Execute::default() }));
    client.flush();
    let shown = || {
        front.lanes.block_on(0, Group::CONTROL, || async {
            let engine = testkit::engine();
            let table = engine::Engine::registry(&*engine).get("system", "running_statements");
            format!("{:?}", table.expect("registered").rows_at_once().expect("made at once"))
        })
    };
    let expected = [
        "SELECT id FROM system_schema.types WHERE id = ?",
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?",
    ];
    testkit::until("both are shown", || expected.iter().all(|text| shown().contains(text)));
    blocked.end();
    assert!(client.receive().is_some() && client.receive().is_some());
}

/// The core of a node that answers nothing.
struct Blocked {
    release: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Blocked {
    fn start(node: &TestServer) -> Blocked {
        let (release, released) = mpsc::channel::<()>();
        let (block, is_blocked) = mpsc::channel::<()>();
        let lanes = node.lanes.clone();
        #[expect(clippy::disallowed_methods, reason = "the test waits outside of the lanes")]
        let thread = std::thread::spawn(move || {
            lanes.block_on(0, Group::CONTROL, move || async move {
                block.send(()).expect("the test waits");
                released.recv().expect("the test goes on");
            });
        });
        is_blocked.recv().expect("the core waits");
        Blocked { release, thread }
    }

    fn end(self) {
        self.release.send(()).expect("the core waits");
        self.thread.join().expect("no panic");
    }
}

#[test]
fn unanswered_conditional_writes_time_out_as_such() {
    let node = TestServer::start(1, settings());
    let request_timeout = Duration::from_millis(200);
    let front = TestServer::start_front(&node, ServerConfig { request_timeout, ..settings() });
    let mut client = front.client(Version::V5, ADMIN);
    client.run("SELECT * FROM system_schema.tables");
    let blocked = Blocked::start(&node);
    let mut check = |request: Request<'_>, expected: &str| {
        let Answer::Error(failure) = client.ask(&request) else { panic!("an error") };
        let FailureKind::WriteTimeout { write_type, .. } = &failure.kind else { panic!("{failure:?}") };
        assert_eq!(write_type, expected, "{request:?}");
    };
    let query = |text| Request::Query(Query { text, ..Query::default() });
    check(query("INSERT INTO ks.t (k) VALUES (1)"), "SIMPLE");
    check(query("INSERT INTO ks.t (k) VALUES (1) IF NOT EXISTS"), "CAS");
    for (text, expected) in [("", "BATCH"), (" IF v = 2", "CAS")] {
        let text = format!("UPDATE ks.t SET v = 1 WHERE k = 1{text}");
        let mut entries = BatchBuf::new();
        let statement = wire::Statement::Text(&text);
        entries.push(BatchEntry { statement, values: Values::default() }).expect("short");
        check(Request::Batch(Batch::new(BatchKind::Logged, &entries, BatchParams::default())), expected);
    }
    blocked.end();
}

/// Sends a text on stream 1, with a level in its payload.
fn send_with(client: &mut Client, text: &str, level: Option<&'static [u8]>) {
    let payload = vec![("service_level".to_owned(), level.map(bytes::Bytes::from_static))];
    let prelude = wire::Prelude { payload, ..wire::Prelude::default() };
    let query = Request::Query(Query { text, ..Query::default() });
    client.encoder.request_with(1, &query, &prelude).expect("fits");
    client.flush();
}

#[test]
fn request_runs_in_the_level_of_its_payload_if_its_role_has_it() {
    let (node, front) = start();
    let mut admin = front.client(Version::V5, ADMIN);
    admin.run("CREATE SERVICE LEVEL gold");
    node.client(Version::V5, ADMIN).run("CREATE ROLE ann WITH PASSWORD = 'ann' AND LOGIN = true");
    let text = "SELECT * FROM system_schema.types";
    let ask = |client: &mut Client, level: Option<&'static [u8]>| {
        send_with(client, text, level);
        client.receive().expect("an answer").1
    };
    for _ in 0..3 {
        assert!(!matches!(ask(&mut admin, Some(b"gold")), Answer::Error(_)));
    }
    let used = "SELECT statements FROM system.level_usage WHERE service_level = 'gold'";
    assert_eq!(admin.run(used).texts(), [["\0\0\0\0\0\0\0\u{3}"]], "a bigint");
    let mut ann = front.client(Version::V5, ("ann", "ann"));
    for (level, expected) in [
        (Some(&b"gold"[..]), "expected a service level of role ann"),
        (Some(b"missing"), "got 'missing'"),
        (Some(b"\xff"), "in the custom payload key service_level"),
        (None, "got ''"),
    ] {
        let Answer::Error(refused) = ask(&mut ann, level) else { panic!("{level:?} is none of hers") };
        assert_eq!(refused.kind, FailureKind::Invalid);
        assert!(refused.message.contains(expected), "{refused:?}");
    }
    admin.run("ATTACH SERVICE LEVEL gold TO ann");
    assert!(!matches!(ask(&mut ann, Some(b"gold")), Answer::Error(_)));
    ann.run(text);
}

#[test]
fn request_with_a_level_in_its_payload_has_no_settings_of_others() {
    let (node, front) = start();
    let mut admin = node.client(Version::V5, ADMIN);
    admin.run("CREATE ROLE team");
    admin.run("CREATE ROLE ann WITH PASSWORD = 'ann' AND LOGIN = true");
    admin.run("GRANT team TO ann");
    let mut ann = front.client(Version::V5, ("ann", "ann"));
    let mut admin = front.client(Version::V5, ADMIN);
    for text in [
        "CREATE SERVICE LEVEL gold WITH shares = 100",
        "CREATE SERVICE LEVEL hasty WITH timeout = 200ms",
        "ATTACH SERVICE LEVEL gold TO ann",
        "ATTACH SERVICE LEVEL hasty TO team",
    ] {
        admin.run(text);
    }
    let text = "SELECT * FROM system_schema.types";
    ann.run(text);
    let blocked = Blocked::start(&node);
    send_with(&mut ann, text, Some(b"gold"));
    let without = ann.queue(&Request::Query(Query { text, ..Query::default() }));
    ann.flush();
    // An equal limit of the other one would have ended before.
    let (stream, answer) = ann.receive().expect("an answer");
    assert_eq!((stream, answer.code()), (without, 0x1200), "{answer:?}");
    blocked.end();
    let (stream, answer) = ann.receive().expect("an answer");
    assert!(stream == 1 && matches!(answer, Answer::Rows { .. }), "{answer:?}");
}

#[test]
fn prepared_attachment_asks_the_cluster_for_an_unknown_role() {
    let (node, front) = start();
    node.client(Version::V5, ADMIN).run("CREATE ROLE ann");
    let mut admin = front.client(Version::V5, ADMIN);
    admin.run("CREATE SERVICE LEVEL gold");
    let (id, result_metadata_id) = admin.prepare("ATTACH SERVICE LEVEL gold TO ann");
    let execute = Execute { id: &id, result_metadata_id: &result_metadata_id, ..Execute::default() };
    assert_eq!(admin.ask(&Request::Execute(execute)), Answer::Void);
    let (id, _) = admin.prepare("ATTACH SERVICE LEVEL gold TO missing");
    let Answer::Error(refused) = admin.ask(&Request::Execute(Execute { id: &id, ..Execute::default() }))
    else {
        panic!("the cluster has no such role")
    };
    assert!(refused.message.contains("missing"), "{refused:?}");
}

/// Starts a node, and a front whose level `gold` has the datacenter of the node as its tag. Returns
/// them with a session in that level. The keyspace `ks` has replicas there, and `far` elsewhere.
fn start_tagged() -> (TestServer, TestServer, Client) {
    let node = TestServer::start(1, settings());
    let elsewhere = ([127, 0, 0, 1], 1).into();
    let mut nodes = Topology::of_addresses(&[node.at.cql, elsewhere]).nodes().to_vec();
    (nodes[1].datacenter, nodes[1].is_up) = ("elsewhere".into(), false);
    let mut ring = Ring::new(vec![0]);
    for (keyspace, node) in [("ks", 0), ("far", 1)] {
        let placement = ring.add_placement(|_, nodes| nodes.push(node)).expect("few");
        ring.add_keyspace(keyspace, placement);
    }
    let topology = Topology::new(nodes, "datacenter1".into(), Arc::new(ring));
    let front = TestServer::start_front_of(topology, &node, settings());
    let mut client = front.client(Version::V5, ADMIN);
    for keyspace in ["ks", "far"] {
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        client.run(&format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"));
        client.run(&format!("CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int)"));
    }
    client.run("CREATE SERVICE LEVEL gold WITH tag = 'dc:datacenter1'");
    client.run("ATTACH SERVICE LEVEL gold TO admin");
    (node, front, client)
}

/// Sends a request. Returns the reason for which the tag excludes it, if it does.
fn excluded(client: &mut Client, request: &Request<'_>) -> Option<String> {
    match client.ask(request) {
        Answer::Error(failure) => {
            assert_eq!(failure.kind, FailureKind::Invalid, "{failure:?}");
            let (_, reason) = failure.message.split_once("'gold' excludes consistency ").expect("the tag");
            Some(reason.to_owned())
        }
        _ => None,
    }
}

const ELSEWHERE: Option<&str> = Some("ONE, which depends on other datacenters: use LOCAL_ONE");
const UNKNOWN: Option<&str> = Some("ONE for a text whose tables are not known here: use LOCAL_ONE");

#[test]
fn text_at_one_passes_under_a_tag_if_its_tables_have_replicas_there() {
    let (_node, _front, mut client) = start_tagged();
    let mut check = |text: &str, expected: Option<&str>| {
        let params = QueryParams { consistency: Consistency::One, ..QueryParams::default() };
        let query = Request::Query(Query { text, params });
        assert_eq!(excluded(&mut client, &query).as_deref(), expected, "{text}");
    };
    check("SELECT * FROM ks.t", None);
    check("SELECT * FROM far.t", ELSEWHERE);
    check("INSERT INTO far.t (k) VALUES (1)", ELSEWHERE);
    check("BEGIN BATCH INSERT INTO ks.t (k) VALUES (1); INSERT INTO ks.t (k) VALUES (2); APPLY BATCH", None);
    check(
        "BEGIN BATCH INSERT INTO ks.t (k) VALUES (1); INSERT INTO far.t (k) VALUES (2); APPLY BATCH",
        ELSEWHERE,
    );
    check("SELECT * FROM t", UNKNOWN);
    check("SELECT * FROM ks.t WHERE unknown syntax", UNKNOWN);
    check(&format!("INSERT INTO ks.t (k) VALUES (1) -- {}", "x".repeat(4096)), UNKNOWN);
    check("SELECT * FROM system_schema.types", None);
    check("CREATE TABLE far.other (k int PRIMARY KEY)", None);
    check("USE far", None);
    check("SELECT * FROM t", ELSEWHERE);
}

#[test]
fn prepared_statement_at_one_passes_under_a_tag_if_its_table_has_replicas_there() {
    let (_node, _front, mut client) = start_tagged();
    for (keyspace, expected) in [("ks", None), ("far", ELSEWHERE)] {
        // The second has no marker that names its keyspace.
        for text in ["SELECT v FROM KS.t WHERE k = 1 AND v = ? ALLOW FILTERING", "SELECT v FROM KS.t"] {
            let (id, result_metadata_id) = client.prepare(&text.replace("KS", keyspace));
            let values = crate::common::values(&[&1_i32.to_be_bytes()]);
            let values = if text.contains('?') { values.values() } else { Values::default() };
            let params = QueryParams { consistency: Consistency::One, values, ..QueryParams::default() };
            let execute = Execute { id: &id, result_metadata_id: &result_metadata_id, params };
            assert_eq!(excluded(&mut client, &Request::Execute(execute)).as_deref(), expected, "{text}");
        }
    }
}

#[test]
fn batch_under_a_tag_depends_on_no_other_datacenter() {
    let (_node, _front, mut client) = start_tagged();
    let ids =
        ["ks", "far"].map(|keyspace| client.prepare(&format!("INSERT INTO {keyspace}.t (k) VALUES (1)")).0);
    let mut check = |statements: &[Statement<'_>], params: BatchParams<'_>, expected: Option<&str>| {
        let mut entries = BatchBuf::new();
        for statement in statements {
            entries.push(BatchEntry { statement: *statement, values: Values::default() }).expect("short");
        }
        let batch = Request::Batch(Batch::new(BatchKind::Unlogged, &entries, params));
        assert_eq!(excluded(&mut client, &batch).as_deref(), expected, "{batch:?}");
    };
    let [ks, far] = [Statement::Prepared(&ids[0]), Statement::Prepared(&ids[1])];
    let at = |consistency| BatchParams { consistency, ..BatchParams::default() };
    check(&[ks, Statement::Text("DELETE FROM ks.t WHERE k = 1")], at(Consistency::One), None);
    check(&[ks, far], at(Consistency::One), ELSEWHERE);
    check(&[ks, Statement::Text("DELETE FROM far.t WHERE k = 1")], at(Consistency::One), ELSEWHERE);
    check(&[ks, far], at(Consistency::LocalOne), None);
    let conditional = [Statement::Text("UPDATE ks.t SET v = 2 WHERE k = 1 IF v = 1")];
    let serial = |serial_consistency| BatchParams { serial_consistency, ..at(Consistency::LocalQuorum) };
    let excluded = Some("SERIAL, which depends on other datacenters: use LOCAL_SERIAL");
    check(&conditional, serial(None), excluded);
    check(&conditional, serial(Some(Consistency::Serial)), excluded);
    check(&conditional, serial(Some(Consistency::LocalSerial)), None);
}
