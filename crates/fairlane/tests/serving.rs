//! The server as its operator and its clients know it: started, used, stopped, killed, started again.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Folder, Server, fairlane, output};

/// Runs statements in turn; each must succeed.
fn run(session: &mut load::session::Session, statements: &[&str]) {
    for statement in statements {
        session.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

#[test]
fn what_was_written_is_there_after_an_orderly_end() {
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

/// Rows acknowledged before the server is killed, in each round and over two connections.
const ACKNOWLEDGED: usize = 300;

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let folder = Folder::new("kill");
    let server = Server::start(&folder);
    let table = "CREATE TABLE k.t (id bigint PRIMARY KEY, round int)";
    run(&mut server.session("admin", "secret"), &[KEYSPACE, table]);
    let mut server = Some(server);
    for round in 0..3_u32 {
        let acknowledged = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let running = server.take().unwrap_or_else(|| Server::start(&folder));
        std::thread::scope(|scope| {
            for (writer, acknowledged) in acknowledged.iter().enumerate() {
                let mut session = running.session("admin", "secret");
                scope.spawn(move || {
                    // Ends when the server is killed.
                    for n in 0.. {
                        let id = id(round, writer, n);
                        let text = format!("INSERT INTO k.t (id, round) VALUES ({id}, {round})");
                        if session.query(&text).is_err() {
                            return;
                        }
                        acknowledged.store(n + 1, Ordering::Release);
                    }
                });
            }
            let enough =
                || acknowledged.iter().map(|n| n.load(Ordering::Acquire)).sum::<usize>() >= ACKNOWLEDGED;
            // At most a minute, in which case too few are left to look for, and that is said below.
            for _ in 0..6000 {
                if enough() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            running.kill();
        });
        let again = Server::start(&folder);
        let mut session = again.session("admin", "secret");
        let mut looked_for = 0;
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            for n in 0..acknowledged.load(Ordering::Acquire) {
                let id = id(round, writer, n);
                let rows = session.query(&format!("SELECT round FROM k.t WHERE id = {id}")).expect("a read");
                assert_eq!(rows, [[Some(round.to_be_bytes().to_vec())]], "round {round} lost row {id}");
                looked_for += 1;
            }
        }
        assert!(looked_for >= ACKNOWLEDGED, "only {looked_for} rows were acknowledged");
        server = Some(again);
    }
}

fn id(round: u32, writer: usize, n: usize) -> usize {
    (round as usize * 2 + writer) * 1_000_000 + n
}

#[test]
fn a_generated_password_is_told_once_and_works() {
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
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&server.http).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a bound");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    assert!(get("/health/live").starts_with("HTTP/1.1 200"));
    assert!(get("/health/ready").starts_with("HTTP/1.1 200"));
    assert!(get("/metrics").contains("fairlane_"));
}

#[track_caller]
fn refused(command: &mut std::process::Command, code: i32, expected: &[&str]) {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for words in expected {
        assert!(said.contains(words), "{said} does not say {words}");
    }
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let (folder, other) = (Folder::new("refused"), Folder::new("refused-other"));
    let server = Server::start(&folder);
    refused(&mut Server::command(&folder), 1, &["in use by another server", "choose another folder"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    refused(Server::command(&other).args(["--listen", &address]), 1, &["is taken", "--listen"]);
    refused(Server::command(&other).args(["--listen", "0.0.0.0:0"]), 1, &["plain text"]);
    let file = folder.path().join("host-id");
    refused(Server::command(&other).arg("--data-dir").arg(file), 1, &["choose another with --data-dir"]);
    refused(Server::command(&other).args(["--cores", "3"]), 1, &["--cores 2"]);
    refused(&mut fairlane(&["serve", "--datadir", "x"]), 2, &["did you mean `--data-dir`?"]);
    refused(&mut fairlane(&["surve"]), 2, &["There is no command `surve`"]);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn the_command_line_explains_itself() {
    let said = |args: &[&str]| {
        let output = output(&mut fairlane(args));
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(said(&["--version"]).starts_with("fairlane "));
    assert!(said(&["--help"]).contains("fairlane serve"));
    assert!(said(&["serve", "--help"]).contains("--data-dir FOLDER"));
    assert!(said(&["load", "--help"]).contains("--hosts"));
    let printed = said(&["config", "--print", "--listen", "127.0.0.1:7"]);
    assert!(printed.contains("listen = \"127.0.0.1:7\"  # from the command line"), "{printed}");
}
