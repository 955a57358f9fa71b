//! Visibility of other roles' objects, and the end of a role's sessions.

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use wire::{Execute, QueryParams, Request, Version};

const UNAUTHORIZED: i32 = 0x2100;
const INVALID: i32 = 0x2200;

/// Starts a server with the roles `ann` and `bob`, each with a keyspace of its own (`a`, `b`).
fn two_tenants() -> (TestServer, Client) {
    let server = TestServer::start(2, settings());
    let mut admin = server.client(Version::V5, ADMIN);
    for (role, keyspace) in [("ann", "a"), ("bob", "b")] {
        admin.run(&format!("CREATE ROLE {role} WITH PASSWORD = 'secret' AND LOGIN = true"));
        admin.run(&format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ));
        admin.run(&format!("CREATE TYPE {keyspace}.{keyspace}_type (x int)"));
        admin.run(&format!("CREATE TABLE {keyspace}.t (k int PRIMARY KEY, {keyspace}_column int)"));
        admin.run(&format!("CREATE TABLE {keyspace}.u (k int PRIMARY KEY)"));
        admin.run(&format!("GRANT SELECT ON {keyspace}.t TO {role}"));
    }
    (server, admin)
}

fn first_cells(answer: &Answer) -> Vec<String> {
    answer.texts().into_iter().map(|mut row| row.swap_remove(0)).collect()
}

#[test]
fn role_sees_the_schema_of_its_own_keyspaces() {
    let (server, mut admin) = two_tenants();
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    // Tables that drivers read when they connect.
    assert_eq!(ann.run("SELECT key FROM system.local").texts(), [["local"]]);
    ann.run("SELECT * FROM system.peers_v2");
    let tables = [
        "keyspaces",
        "tables",
        "columns",
        "types",
        "indexes",
        "views",
        "functions",
        "aggregates",
        "triggers",
    ];
    for table in tables {
        let query = format!("SELECT keyspace_name FROM system_schema.{table}");
        let (shown, all) = (first_cells(&ann.run(&query)), first_cells(&admin.run(&query)));
        let expected: Vec<String> = all.iter().filter(|keyspace| *keyspace != "b").cloned().collect();
        assert_eq!(shown, expected, "{table}");
        let other_rows = ann.run(&format!("{query} WHERE keyspace_name = 'b'"));
        assert_eq!(other_rows.texts().len(), 0, "{table}");
    }
    let count = "SELECT count(*) FROM system_schema.keyspaces WHERE keyspace_name IN ('a', 'b')";
    let number = |answer: Answer| first_cells(&answer)[0].clone().into_bytes()[7];
    assert_eq!((number(ann.run(count)), number(admin.run(count))), (1, 2));
    // A role sees the whole keyspace, although its right is on one table.
    let own_tables = ann.run("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'a'");
    assert_eq!(own_tables.texts(), [["t"], ["u"]]);
    assert_eq!(first_cells(&ann.run("SELECT keyspace_name FROM system_virtual_schema.keyspaces")).len(), 2);
}

#[test]
fn describe_shows_no_objects_of_other_roles() {
    let (server, mut admin) = two_tenants();
    let mut ann = server.client(Version::V4, ("ann", "secret"));
    for text in
        ["DESCRIBE KEYSPACES", "DESCRIBE TABLES", "DESCRIBE TYPES", "DESCRIBE SCHEMA", "DESCRIBE FULL SCHEMA"]
    {
        let (shown, all) = (first_cells(&ann.run(text)), first_cells(&admin.run(text)));
        let expected: Vec<String> = all.iter().filter(|keyspace| *keyspace != "b").cloned().collect();
        assert_eq!(shown, expected, "{text}");
        assert!(all.contains(&"b".to_owned()) && shown.contains(&"a".to_owned()), "{text}");
    }
    for text in ["KEYSPACE {}", "ONLY KEYSPACE {}", "TABLE {}.t", "TYPE {}.x", "{}", "{}.t"] {
        let describe_text = |keyspace: &str| format!("DESCRIBE {}", text.replace("{}", keyspace));
        let answers = ["b", "nothing"].map(|keyspace| {
            let answer = ann.query(&describe_text(keyspace));
            assert_eq!(answer.code(), UNAUTHORIZED, "{} {answer:?}", describe_text(keyspace));
            format!("{answer:?}").replace(&format!("<keyspace {keyspace}>"), "")
        });
        assert_eq!(answers[0], answers[1], "whether or not it exists");
        assert_eq!(admin.query(&describe_text("nothing")).code(), INVALID);
    }
    ann.run("DESCRIBE KEYSPACE a");
    ann.run("DESCRIBE TABLE a.u");
    ann.run("DESCRIBE TYPE a.a_type");
    ann.run("DESCRIBE system_auth.roles");
    assert_eq!(ann.query("DESCRIBE TABLE a.nothing").code(), INVALID);
}

#[test]
fn role_sees_its_own_sessions_and_levels() {
    let (server, mut admin) = two_tenants();
    for text in [
        "CREATE SERVICE LEVEL fast",
        "CREATE SERVICE LEVEL slow",
        "ATTACH SERVICE LEVEL fast TO ann",
        "GRANT SELECT ON system_views.clients TO ann",
    ] {
        admin.run(text);
    }
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    let _bob = server.client(Version::V5, ("bob", "secret"));
    let (clients, levels) = (
        "SELECT username FROM system_views.clients",
        "SELECT service_level, waited_for FROM system.level_usage",
    );
    let sorted = |answer: &Answer| {
        let mut cells = first_cells(answer);
        cells.sort();
        cells
    };
    assert_eq!(sorted(&admin.run(clients)), ["admin", "ann", "bob"]);
    assert_eq!(sorted(&ann.run(clients)), ["ann"]);
    assert_eq!(sorted(&admin.run(levels)), ["default", "driver", "fast", "slow"]);
    assert_eq!(ann.run(levels).texts(), [["fast", "null"]]);
    assert_eq!(
        ann.run("SELECT id FROM system.running_statements WHERE role = 'bob' ALLOW FILTERING").texts().len(),
        0
    );
    admin.run("GRANT DESCRIBE ON ALL ROLES TO ann");
    admin.run("GRANT DESCRIBE ON ALL SERVICE LEVELS TO ann");
    assert_eq!(sorted(&ann.run(clients)), ["admin", "ann", "bob"]);
    assert_eq!(sorted(&ann.run(levels)), ["default", "driver", "fast", "slow"]);
}

#[test]
fn idle_sessions_end_with_their_role() {
    let (server, mut admin) = two_tenants();
    let mut sessions: Vec<Client> = (0..4).map(|_| server.client(Version::V5, ("ann", "secret"))).collect();
    let mut bob = server.client(Version::V4, ("bob", "secret"));
    admin.run("GRANT SELECT ON a.u TO ann");
    sessions[0].run("SELECT * FROM a.u");
    admin.run("ALTER ROLE ann WITH PASSWORD = 'other'");
    for session in &mut sessions {
        assert_eq!(session.receive(), None, "closed without a request");
    }
    let mut last = server.client(Version::V5, ("ann", "other"));
    admin.run("DROP ROLE ann");
    assert_eq!(last.receive(), None);
    bob.run("SELECT * FROM b.t");
}

#[test]
fn password_change_is_answered_before_the_session_ends() {
    let (server, _admin) = two_tenants();
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    assert_eq!(ann.run("ALTER ROLE ann WITH PASSWORD = 'other'"), Answer::Void);
    assert_eq!(ann.receive(), None);
    server.client(Version::V5, ("ann", "other")).run("SELECT * FROM a.t");
}

/// As in Cassandra: a client prepares its statements before it has the permissions.
#[test]
fn prepared_statement_is_authorized_when_it_runs() {
    let (server, mut admin) = two_tenants();
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    for text in ["SELECT b_column FROM b.t WHERE k = 1", "INSERT INTO b.t (k, b_column) VALUES (1, 2)"] {
        let (id, result_metadata_id) = ann.prepare(text);
        let params = QueryParams::default();
        let execute = Request::Execute(Execute { id: &id, result_metadata_id: &result_metadata_id, params });
        assert_eq!(ann.ask(&execute).code(), UNAUTHORIZED, "{text}");
        admin.run("GRANT ALL PERMISSIONS ON b.t TO ann");
        let answer = ann.ask(&execute);
        assert!(matches!(answer, Answer::Rows { .. } | Answer::Void), "{text}: {answer:?}");
        admin.run("REVOKE ALL PERMISSIONS ON b.t FROM ann");
        assert_eq!(ann.ask(&execute).code(), UNAUTHORIZED, "{text}");
    }
}

#[test]
fn permissions_on_the_table_decide_for_its_view() {
    let (server, mut admin) = two_tenants();
    admin.run(
        "CREATE MATERIALIZED VIEW a.v AS SELECT * FROM a.t WHERE a_column IS NOT NULL AND k IS NOT NULL \
         PRIMARY KEY (a_column, k)",
    );
    admin.run("INSERT INTO a.t (k, a_column) VALUES (1, 2)");
    let select = "SELECT * FROM a.v WHERE a_column = 2";
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    assert_eq!(ann.run(select).texts().len(), 1);
    let mut bob = server.client(Version::V5, ("bob", "secret"));
    let refused = bob.query(select);
    assert_eq!(refused.code(), UNAUTHORIZED);
    let text = "User bob has no SELECT permission on <table a.v> or any of its parents";
    assert!(format!("{refused:?}").contains(text), "the base table is not named: {refused:?}");
}

#[test]
fn description_with_internals_has_roles_grants_and_levels() {
    let (server, mut admin) = two_tenants();
    for text in [
        "CREATE SERVICE LEVEL \"Fast\" WITH shares = 7",
        "CREATE ROLE readers",
        "GRANT readers TO ann",
        "ATTACH SERVICE LEVEL \"Fast\" TO ann",
    ] {
        admin.run(text);
    }
    let statements = |client: &mut Client, text: &str| -> Vec<String> {
        client.run(text).texts().into_iter().map(|mut row| row.swap_remove(3)).collect()
    };
    let all = statements(&mut admin, "DESCRIBE SCHEMA WITH INTERNALS");
    for expected in [
        "CREATE ROLE IF NOT EXISTS readers WITH LOGIN = false AND SUPERUSER = false;",
        "CREATE ROLE IF NOT EXISTS ann WITH LOGIN = true AND SUPERUSER = false;",
        "GRANT readers TO ann;",
        "GRANT SELECT ON TABLE a.t TO ann;",
        "ATTACH SERVICE LEVEL \"Fast\" TO ann;",
    ] {
        assert!(all.iter().any(|text| text == expected), "{expected}: {all:?}");
    }
    let level =
        all.iter().find(|text| text.contains("LEVEL IF NOT EXISTS \"Fast\" WITH")).expect("the level");
    assert!(level.contains("shares = 7"), "{level}");
    assert!(!all.iter().any(|text| text.contains("PASSWORD")), "hashes are shown on request only");
    // The statements create the same roles and levels again, passwords included.
    let with = statements(&mut admin, "DESCRIBE SCHEMA WITH INTERNALS AND PASSWORDS");
    let ann =
        with.iter().find(|text| text.starts_with("CREATE ROLE IF NOT EXISTS ann WITH HASHED")).expect("ann");
    admin.run("DROP ROLE ann");
    admin.run(ann);
    let mut ann = server.client(Version::V5, ("ann", "secret"));
    let plain = ann.run("DESCRIBE SCHEMA").texts().len();
    assert_eq!(ann.run("DESCRIBE SCHEMA WITH INTERNALS").texts().len(), plain, "a superuser's alone");
    assert_eq!(ann.query("DESCRIBE SCHEMA WITH INTERNALS AND PASSWORDS").code(), UNAUTHORIZED);
}

#[test]
fn names_in_descriptions_are_quoted_where_needed() {
    let server = TestServer::start(1, settings());
    let mut admin = server.client(Version::V5, ADMIN);
    admin.run(
        "CREATE KEYSPACE \"Ks\" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    admin.run("CREATE TYPE \"Ks\".\"a-b\" (\"select\" int)");
    admin.run("CREATE TABLE \"Ks\".\"Order\" (\"K\" int PRIMARY KEY, \"a b\" frozen<\"a-b\">)");
    let rows = admin.run("DESCRIBE KEYSPACE \"Ks\"").texts();
    let names: Vec<[&str; 3]> = rows.iter().map(|row| [&*row[0], &*row[1], &*row[2]]).collect();
    let quoted = "\"Ks\"";
    assert_eq!(
        names,
        [[quoted, "keyspace", quoted], [quoted, "type", "\"a-b\""], [quoted, "table", "\"Order\""]]
    );
    admin.run("DROP KEYSPACE \"Ks\"");
    for row in &rows {
        admin.run(&row[3]);
    }
    assert_eq!(admin.run("DESCRIBE KEYSPACE \"Ks\"").texts(), rows);
}
