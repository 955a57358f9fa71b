//! Start, use, stop and another start of a server.

use load::session::Session;

use crate::server::{Folder, PATIENCE, Server, fairlane, output, run};

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

/// Regression test: the commands could not encrypt.
#[test]
fn maintenance_is_encrypted() {
    let folder = Folder::new("encrypted-maintenance");
    let file = |name: &str| format!("{}/../../tests/clients/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Server::command(&folder);
    command.args(["--tls-certificate", &file("certificate.pem"), "--tls-key", &file("key.pem")]);
    command.args(["--tls-client-ca", &file("client-ca.pem"), "--tls-client-required"]);
    let server = Server::ready(command.env("FAIRLANE_ADMIN_PASSWORD", "secret"));
    let host = server.cql.replace("127.0.0.1", "localhost");
    let (authority, certificate, key) = (file("certificate.pem"), file("client.pem"), file("client-key.pem"));
    let authority = vec!["--tls-ca", &authority];
    let own = vec!["--tls-certificate", &certificate, "--tls-key", &key];
    let path = |name: &str| std::path::PathBuf::from(file(name));
    let (of_client, its_key) = (path("client.pem"), path("client-key.pem"));
    let files = frontdoor::ClientFiles { certificate: &of_client, key: &its_key };
    let tls = frontdoor::TlsClient::from_files(&path("certificate.pem"), Some(files)).expect("read");
    let stream = load::session::open(&host, PATIENCE).expect("connected");
    let stream = tls.connect("localhost", stream).expect("trusted");
    let mut session = Session::over(stream, &host, Some("admin"), Some("secret")).expect("logged in");
    for statement in [KEYSPACE, "CREATE TABLE k.t (id int PRIMARY KEY)"] {
        session.query(statement).expect(statement);
    }
    let flush = |more: &[&str]| {
        let mut command = fairlane(&["flush", "k.t", "--user", "admin", "--host", &host]);
        let output = command.args(more).env("FAIRLANE_PASSWORD", "secret").output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(flush(&[&*authority, &own].concat()), (true, String::new()));
    let with_half = [&*authority, &own[..2]].concat();
    let other = file("other.pem");
    for (more, why) in [
        (with_half, "--tls-certificate and --tls-key together"),
        (own, "expected --tls-ca"),
        (vec!["--tls-ca", &other], "the TLS handshake failed"),
        (vec!["--tls-ca", "/nowhere.pem"], "/nowhere.pem"),
        (vec![], "encrypted connections only"),
    ] {
        let (is_done, text) = flush(&more);
        assert!(!is_done && text.contains(why), "{more:?}: {text}");
    }
}
