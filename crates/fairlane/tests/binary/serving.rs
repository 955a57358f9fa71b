//! Start, use, stop and another start of a server.

use crate::server::{Folder, Server, fairlane, output, run};

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

#[test]
fn data_roles_and_levels_survive_a_restart() {
    let folder = Folder::new("orderly");
    let server = Server::start(&folder);
    let mut session = server.session("admin", "secret");
    run(
        &mut session,
        &[
            KEYSPACE,
            "CREATE TABLE k.t (id int PRIMARY KEY, name text)",
            "INSERT INTO k.t (id, name) VALUES (1, 'one')",
            "CREATE ROLE analyst WITH PASSWORD = 'word' AND LOGIN = true",
            "GRANT SELECT ON KEYSPACE k TO analyst",
            "CREATE SERVICE LEVEL olap WITH shares = 100",
            "ATTACH SERVICE LEVEL olap TO analyst",
            "ALTER SERVICE LEVEL olap WITH shares = 50",
        ],
    );
    drop(session);
    assert_eq!(server.stop().code(), Some(0));

    let server = Server::start(&folder);
    let mut analyst = server.session("analyst", "word");
    let rows = analyst.query("SELECT name FROM k.t WHERE id = 1").expect("a row");
    assert_eq!(rows, [[Some(b"one".to_vec())]]);
    let refused = analyst.query("INSERT INTO k.t (id, name) VALUES (2, 'two')");
    assert!(refused.is_err(), "only SELECT was granted");
    let level = server.session("admin", "secret").query("LIST ATTACHED SERVICE LEVEL OF analyst");
    assert_eq!(level.expect("listed"), [[Some(b"analyst".to_vec()), Some(b"olap".to_vec())]]);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn generated_password_logs_in_and_survives_a_restart() {
    let folder = Folder::new("password");
    let server = Server::ready(&mut Server::command(&folder));
    let password = std::fs::read_to_string(folder.path().join("admin-password")).expect("the password");
    drop(server.session("admin", password.trim()));
    assert_eq!(server.stop().code(), Some(0));
    let server = Server::ready(&mut Server::command(&folder));
    let same = std::fs::read_to_string(folder.path().join("admin-password")).expect("the password");
    assert_eq!(same, password);
    drop(server.session("admin", password.trim()));
}

#[test]
fn health_and_metrics_are_served() {
    let folder = Folder::new("health");
    let server = Server::start(&folder);
    assert!(server.get("/health/live").starts_with("HTTP/1.1 200"));
    assert!(server.get("/health/ready").starts_with("HTTP/1.1 200"));
    assert!(server.get("/metrics").contains("fairlane_"));
}

#[test]
fn help_version_and_settings_are_printed() {
    let printed = |args: &[&str]| {
        let output = output(&mut fairlane(args));
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(printed(&["--version"]).starts_with("fairlane "));
    assert!(printed(&["--help"]).contains("fairlane serve"));
    assert!(printed(&["serve", "--help"]).contains("--data-dir FOLDER"));
    assert!(printed(&["load", "--help"]).contains("--hosts"));
    let settings = printed(&["config", "--print", "--listen", "127.0.0.1:7"]);
    assert!(settings.contains("listen = \"127.0.0.1:7\"  # from the command line"), "{settings}");
}
