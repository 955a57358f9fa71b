//! Runs every statement of the table of needs with every single permission on every resource, and
//! with exactly the permissions that it needs.

use crate::common::{Server, format_result, open_session};
use access::{NEEDS, Need, On, Right};
use cql::ast::Permission;
use engine::StatementOutcome;

/// Objects that the examples use. Runs before each example and restores the objects, whatever the
/// last example changed. Some statements fail if there is nothing to restore.
const FIXTURE: [&str; 26] = [
    "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY, v int, w int)",
    "DROP INDEX IF EXISTS ks.t_v_idx",
    "CREATE INDEX IF NOT EXISTS i ON ks.t (w)",
    "CREATE TYPE IF NOT EXISTS ks.ty (x int)",
    "DROP KEYSPACE IF EXISTS new",
    "DROP TABLE IF EXISTS ks.new",
    "DROP TYPE IF EXISTS ks.new",
    "DROP ROLE IF EXISTS new",
    "DROP SERVICE LEVEL IF EXISTS new",
    "CREATE SERVICE LEVEL IF NOT EXISTS lvl",
    "ALTER SERVICE LEVEL lvl WITH cpu_min = '0%'",
    "CREATE ROLE IF NOT EXISTS someone",
    "CREATE ROLE IF NOT EXISTS leveled",
    "CREATE ROLE IF NOT EXISTS granted",
    "CREATE ROLE IF NOT EXISTS friend",
    "DETACH SERVICE LEVEL FROM someone",
    "ATTACH SERVICE LEVEL lvl TO leveled",
    "REVOKE someone FROM friend",
    "REVOKE leveled FROM friend",
    "GRANT granted TO friend",
    "REVOKE ALL ON ks.t FROM friend",
    // Some examples need a permission on another table.
    "CREATE TABLE IF NOT EXISTS ks.u (k int PRIMARY KEY)",
    "CREATE ROLE IF NOT EXISTS ann WITH PASSWORD = 'secret' AND LOGIN = true",
    "TRUNCATE ks.t",
    "TRUNCATE ks.u",
];

/// Every resource, followed by the resources above it.
const RESOURCES: [&[&str]; 11] = [
    &["ALL KEYSPACES"],
    &["KEYSPACE ks", "ALL KEYSPACES"],
    &["ks.t", "ALL TABLES IN KEYSPACE ks", "KEYSPACE ks", "ALL KEYSPACES"],
    &["ks.u", "ALL TABLES IN KEYSPACE ks", "KEYSPACE ks", "ALL KEYSPACES"],
    &["ALL ROLES"],
    &["ROLE someone", "ALL ROLES"],
    &["ROLE leveled", "ALL ROLES"],
    &["ROLE granted", "ALL ROLES"],
    &["ROLE friend", "ALL ROLES"],
    &["ALL SERVICE LEVELS"],
    &["SERVICE LEVEL lvl", "ALL SERVICE LEVELS"],
];

fn reset(server: &Server) {
    for text in FIXTURE {
        let answer = server.run(0, "admin", text);
        assert!(
            answer == "ok" || answer.contains("is not a member") || answer.contains("is a member"),
            "{text}: {answer}"
        );
    }
}

/// Returns the resource of a right, for an example.
fn resource(need: &Need, on: On) -> &'static str {
    let role = ["someone", "leveled", "granted"].into_iter().find(|role| need.example.contains(role));
    match on {
        On::Table | On::Granted => "ks.t",
        On::Keyspace => "KEYSPACE ks",
        On::AllKeyspaces => "ALL KEYSPACES",
        On::Role => match role {
            Some("leveled") => "ROLE leveled",
            Some("granted") => "ROLE granted",
            _ => "ROLE someone",
        },
        On::Grantee => "ROLE friend",
        On::AllRoles => "ALL ROLES",
        On::Level => "SERVICE LEVEL lvl",
        On::AllLevels => "ALL SERVICE LEVELS",
    }
}

/// True if a grant satisfies a right.
fn fulfils(need: &Need, right: Right, (permission, on): (Permission, &str)) -> bool {
    let above = |resource| {
        RESOURCES.iter().find(|chain| chain[0] == resource).is_some_and(|chain| chain.contains(&on))
    };
    match right {
        Right::May(needed, of) => needed == permission && above(resource(need, of)),
        // The examples grant SELECT.
        Right::Holds => permission == Permission::Select && above("ks.t"),
        Right::Any(_) => above("KEYSPACE ks") || ["ks.t", "ks.u", "ALL TABLES IN KEYSPACE ks"].contains(&on),
    }
}

fn fulfilled(need: &Need, grants: &[(Permission, &str)]) -> bool {
    let one = |right: &Right| grants.iter().any(|grant| fulfils(need, *right, *grant));
    need.all_of.iter().all(|ways| ways.iter().any(one))
}

/// Runs an example as `ann`, who has exactly these grants.
fn check(server: &Server, need: &Need, grants: &[(Permission, &str)]) {
    for (permission, on) in grants {
        let grant = format!("GRANT {} ON {on} TO ann", permission.name());
        assert_eq!(server.run(0, "admin", &grant), "ok", "{grant}");
    }
    let answer = server.run(1, "ann", need.example);
    let is_allowed = fulfilled(need, grants);
    assert_eq!(!answer.starts_with("Unauthorized"), is_allowed, "{} with {grants:?}: {answer}", need.example);
    if is_allowed {
        assert!(!answer.starts_with("Invalid") && !answer.starts_with("other"), "{}: {answer}", need.example);
        reset(server);
    }
    for (permission, on) in grants {
        // Dropping a resource removed its grants.
        server.run(0, "admin", &format!("REVOKE {} ON {on} FROM ann", permission.name()));
    }
}

/// Returns every valid grant.
fn grants(server: &Server) -> Vec<(Permission, &'static str)> {
    let mut all = Vec::new();
    let resources = RESOURCES.iter().copied().flatten().copied();
    let resources: std::collections::BTreeSet<&'static str> = resources.collect();
    for on in resources {
        for permission in Permission::ALL {
            let name = permission.name();
            if server.run(0, "admin", &format!("GRANT {name} ON {on} TO ann")) == "ok" {
                assert_eq!(server.run(0, "admin", &format!("REVOKE {name} ON {on} FROM ann")), "ok");
                all.push((permission, on));
            }
        }
    }
    all
}

#[test]
fn every_statement_needs_exactly_its_permissions() {
    let server = Server::start(None);
    reset(&server);
    let all = grants(&server);
    assert!(all.len() > 50, "{}", all.len());
    for need in &NEEDS {
        check(&server, need, &[]);
        for grant in &all {
            check(&server, need, std::slice::from_ref(grant));
        }
        // Try exactly the needed permissions, for each alternative, and then all but one of them.
        let ways = need.all_of.iter().map(|ways| ways.len()).max().unwrap_or(0);
        for way in 0..ways {
            let exact: Vec<(Permission, &str)> = need
                .all_of
                .iter()
                .map(|ways| match ways[way.min(ways.len() - 1)] {
                    Right::May(permission, on) => (permission, resource(need, on)),
                    Right::Holds => (Permission::Select, "ks.t"),
                    Right::Any(_) => (Permission::Modify, "ks.u"),
                })
                .collect();
            assert!(fulfilled(need, &exact), "{}", need.example);
            check(&server, need, &exact);
            for without in 0..exact.len() {
                let mut fewer = exact.clone();
                fewer.remove(without);
                check(&server, need, &fewer);
            }
        }
    }
    server.stop();
}

#[test]
fn roles_need_no_permission_on_themselves() {
    let server = Server::start(None);
    reset(&server);
    for text in ["GRANT leveled TO ann", "GRANT SELECT ON ks.t TO leveled"] {
        assert_eq!(server.run(0, "admin", text), "ok", "{text}");
    }
    for (text, is_allowed) in [
        ("LIST ROLES", true),
        ("LIST USERS", true),
        ("LIST ROLES OF ann", true),
        ("LIST ROLES OF leveled", true),
        ("LIST ALL PERMISSIONS OF ann", true),
        ("LIST ALL PERMISSIONS OF leveled", true),
        ("LIST ATTACHED SERVICE LEVEL OF leveled", true),
        ("LIST EFFECTIVE SERVICE LEVEL OF ann", true),
        ("SELECT * FROM ks.t USING SERVICE LEVEL lvl", true),
        ("ALTER ROLE leveled WITH LOGIN = true", false),
        ("ALTER ROLE ann WITH LOGIN = true", false),
        ("GRANT leveled TO someone", false),
        ("ALTER ROLE ann WITH PASSWORD = 'secret'", true),
    ] {
        let answer = server.run(1, "ann", text);
        assert_eq!(!answer.starts_with("Unauthorized"), is_allowed, "{text}: {answer}");
    }
    server.stop();
}

#[test]
fn errors_without_rights_reveal_no_objects() {
    let server = Server::start(None);
    reset(&server);
    // The two errors differ only in the name that the statement gives.
    for (there, not_there, (name, other)) in [
        ("SELECT * FROM ks.t", "SELECT * FROM ks.x", ("ks.t", "ks.x")),
        ("SELECT * FROM ks.t", "SELECT nothing FROM ks.t", ("", "")),
        ("INSERT INTO ks.t (k) VALUES (1)", "INSERT INTO x.t (k) VALUES (1)", ("ks.t", "x.t")),
        ("DROP TABLE ks.t", "DROP TABLE IF EXISTS ks.x", ("ks.t", "ks.x")),
        ("CREATE TABLE ks.t (k int PRIMARY KEY)", "CREATE TABLE x.t (y z)", ("ks", "x")),
        ("DROP KEYSPACE ks", "DROP KEYSPACE IF EXISTS x", ("ks", "x")),
        (
            "ALTER KEYSPACE ks WITH durable_writes = true",
            "ALTER KEYSPACE x WITH durable_writes = true",
            ("ks", "x"),
        ),
        (
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
            "CREATE KEYSPACE x WITH y = 1",
            ("", ""),
        ),
        ("DESCRIBE KEYSPACE ks", "DESCRIBE KEYSPACE x", ("ks", "x")),
        ("DROP ROLE someone", "DROP ROLE x", ("someone", "x")),
        ("GRANT SELECT ON ks.t TO someone", "GRANT SELECT ON ks.x TO y", ("ks.t", "ks.x")),
        ("GRANT someone TO friend", "GRANT x TO y", ("someone", "x")),
        ("LIST ROLES OF someone", "LIST ROLES OF x", ("someone", "x")),
        ("LIST ALL PERMISSIONS OF someone", "LIST ALL PERMISSIONS OF x", ("someone", "x")),
        ("LIST SERVICE LEVEL lvl", "LIST SERVICE LEVEL x", ("lvl", "x")),
        ("ATTACH SERVICE LEVEL lvl TO someone", "ATTACH SERVICE LEVEL x TO y", ("lvl", "x")),
        ("DETACH SERVICE LEVEL FROM leveled", "DETACH SERVICE LEVEL FROM x", ("leveled", "x")),
        ("LIST EFFECTIVE SERVICE LEVEL OF leveled", "LIST EFFECTIVE SERVICE LEVEL OF x", ("", "")),
    ] {
        let refusals = [there, not_there].map(|text| server.run(1, "ann", text));
        assert!(refusals[0].starts_with("Unauthorized"), "{there}: {}", refusals[0]);
        let expected = if name.is_empty() { refusals[0].clone() } else { refusals[0].replace(name, other) };
        assert_eq!(refusals[1], expected, "{not_there}");
    }
    server.stop();
}

#[test]
fn batch_needs_the_rights_of_each_statement() {
    let server = Server::start(None);
    reset(&server);
    assert_eq!(server.run(0, "admin", "GRANT MODIFY ON ks.t TO ann"), "ok");
    let (own, other) = ("INSERT INTO ks.t (k, v) VALUES (1, 1)", "INSERT INTO ks.u (k) VALUES (1)");
    let conditional = "INSERT INTO ks.t (k, v) VALUES (1, 1) IF NOT EXISTS";
    let no_modify = "Unauthorized: User ann has no MODIFY permission on <table ks.u> or any of its parents";
    let no_select = "Unauthorized: User ann has no SELECT permission on <table ks.t> or any of its parents";
    for (parts, expected) in [
        (&[own][..], "ok"),
        (&[own, own, own], "ok"),
        (&[other], no_modify),
        (&[other, other], no_modify),
        (&[own, other], no_modify),
        (&[other, own], no_modify),
        (&[own, own, other, own], no_modify),
        (&[own, conditional], no_select),
        (&[conditional, own], no_select),
    ] {
        let text = format!("BEGIN BATCH {}; APPLY BATCH", parts.join("; "));
        let checked = server.on(1, move |access| async move {
            let ann = open_session(&access, "ann").await.expect("logs in");
            let batch = cql::parse(&text).expect("parses");
            // This check precedes planning. The engine checks the tables of the plan again.
            format_result(access.authorize_statement(&ann, &batch, None).map(|()| StatementOutcome::Void))
        });
        assert_eq!(checked, expected, "{parts:?}");
    }
    server.stop();
}

#[test]
fn create_keyspace_needs_a_right_on_all_keyspaces() {
    let server = Server::start(None);
    reset(&server);
    let create = |name: &str| {
        format!(
            "CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
    };
    assert_eq!(server.run(0, "admin", "GRANT CREATE ON KEYSPACE ks TO ann"), "ok");
    // The response is the same for an existing keyspace.
    let refusal = "Unauthorized: User ann has no CREATE permission on <all keyspaces> or any of its parents";
    for name in ["ks", "x"] {
        assert_eq!(server.run(1, "ann", &create(name)), refusal, "{name}");
    }
    assert_eq!(server.run(0, "admin", "GRANT CREATE ON ALL KEYSPACES TO ann"), "ok");
    assert_eq!(server.run(1, "ann", &create("new")), "ok");
    server.stop();
}
