//! `system.connections`, and `CANCEL SESSION` over CQL.

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use wire::*;

/// Starts a server with two ordinary roles that may read the table.
fn start(cores: usize) -> (TestServer, Client) {
    let server = TestServer::start(cores, settings());
    let mut admin = server.client(Version::V5, ADMIN);
    for role in ["ann", "bob"] {
        admin.run(&format!("CREATE ROLE {role} WITH PASSWORD = 'pw' AND LOGIN = true"));
        admin.run(&format!("GRANT SELECT ON system.connections TO {role}"));
    }
    (server, admin)
}

fn role(server: &TestServer, name: &str) -> Client {
    server.client(Version::V4, (name, "pw"))
}

/// Returns the id of the client's session.
fn id(admin: &mut Client, client: &Client) -> String {
    let port = client.stream.local_addr().expect("connected").port();
    let query = format!("SELECT id FROM system.connections WHERE port = {port} ALLOW FILTERING");
    let [row] = &admin.run(&query).texts()[..] else { panic!("one session of port {port}") };
    row[0].clone()
}

/// Waits until `count` connections are shown.
fn until_shown(admin: &mut Client, count: usize) {
    let shown = || admin.run("SELECT id FROM system.connections").texts().len() == count;
    testkit::until(&format!("{count} connections are shown"), shown);
}

#[test]
fn role_sees_its_connections_and_superuser_sees_all() {
    let (server, mut admin) = start(2);
    let (mut ann, mut bob) = (role(&server, "ann"), role(&server, "bob"));
    let mut before_login = server.connect();
    before_login.startup(Version::V4, Compression::None);
    ann.run("USE system");
    let columns = "role, protocol, stage, service_level, protocol_version, driver_name, keyspace_name";
    let select = format!("SELECT {columns} FROM system.connections");
    let own = ["ann", "cql", "ready", "default", "4", "test", "system"];
    assert_eq!(ann.run(&select).texts(), [own]);
    assert_eq!(bob.run(&select).texts(), [["bob", "cql", "ready", "default", "4", "test", "null"]]);
    let mut all = admin.run(&select).texts();
    all.sort_unstable();
    let expected = [
        ["admin", "cql", "ready", "default", "5", "test", "null"],
        own,
        ["bob", "cql", "ready", "default", "4", "test", "null"],
        ["null", "cql", "login", "null", "4", "test", "null"],
    ];
    assert_eq!(all, expected);
    // The client's requests are counted: USE, and three reads of the table.
    ann.run(&select);
    let Answer::Rows { rows, .. } =
        ann.run("SELECT requests, requests_in_flight, encrypted FROM system.connections")
    else {
        panic!("rows")
    };
    let number = |cell: &Option<Vec<u8>>| {
        cell.as_ref().expect("a number").iter().fold(0, |n, b| n << 8 | u64::from(*b))
    };
    assert_eq!(rows[0].iter().map(number).collect::<Vec<_>>(), [4, 1, 0]);
    // An ended session is not shown.
    drop(bob);
    until_shown(&mut admin, 3);
}

#[test]
fn role_ends_its_sessions_and_superuser_ends_any() {
    let (server, mut admin) = start(2);
    let (mut ann, mut second, mut bob) = (role(&server, "ann"), role(&server, "ann"), role(&server, "bob"));
    let mut before_login = server.connect();
    before_login.startup(Version::V4, Compression::None);
    let [second_id, bob_id, before_login_id] =
        [&second, &bob, &before_login].map(|client| id(&mut admin, client));
    // The answer does not reveal if a session of another role exists.
    for id in [&bob_id, &before_login_id, "0-99999", "sql-2", "x"] {
        let Answer::Error(denied) = ann.query(&format!("CANCEL SESSION '{id}'")) else {
            panic!("{id} is not ann's")
        };
        let expected = format!(
            "User ann may cancel a session of its own only, and has no session '{id}' now; a superuser may cancel any"
        );
        assert_eq!((denied.kind.code(), denied.message), (0x2100, expected));
    }
    assert!(
        matches!(bob.query("SELECT key FROM system.local"), Answer::Rows { .. }),
        "the session of bob continues"
    );
    assert_eq!(ann.query(&format!("CANCEL SESSION '{second_id}'")), Answer::Void);
    assert_eq!(second.receive(), None);
    assert_eq!(admin.query(&format!("CANCEL SESSION '{bob_id}'")), Answer::Void);
    assert_eq!(bob.receive(), None);
    assert_eq!(admin.query(&format!("CANCEL SESSION '{before_login_id}'")), Answer::Void);
    assert_eq!(before_login.receive(), None, "a connection before login is ended too");
    // An ended session is unknown. A client that ends its own session is answered first.
    until_shown(&mut admin, 2);
    let unknown = admin.query(&format!("CANCEL SESSION '{bob_id}'"));
    assert_eq!(unknown.code(), 0x2200, "{unknown:?}");
    let own = id(&mut admin, &ann);
    assert_eq!(ann.query(&format!("CANCEL SESSION '{own}'")), Answer::Void);
    assert_eq!(ann.receive(), None);
}

#[test]
fn ended_session_closes_although_its_client_reads_nothing() {
    let (server, mut admin) = start(1);
    admin.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    admin.run(&format!("INSERT INTO ks.t (k, v) VALUES (1, '{}')", "x".repeat(1 << 20)));
    let mut idle = server.client(Version::V4, ADMIN);
    let session = id(&mut admin, &idle);
    for _ in 0..64 {
        idle.queue(&Request::Query(Query {
            text: "SELECT v FROM ks.t WHERE k = 1",
            params: QueryParams::default(),
        }));
    }
    idle.flush();
    let held = format!("SELECT bytes_held FROM system.connections WHERE id = '{session}'");
    loop {
        let Answer::Rows { rows, .. } = admin.run(&held) else { panic!("rows") };
        let bytes = rows[0][0].as_ref().expect("a number").iter().fold(0, |n, b| n << 8 | u64::from(*b));
        if bytes > 1 << 20 {
            break;
        }
        std::thread::yield_now();
    }
    admin.run(&format!("CANCEL SESSION '{session}'"));
    until_shown(&mut admin, 1);
}
