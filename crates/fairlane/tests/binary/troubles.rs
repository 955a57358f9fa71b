//! Faults of the folder, the ports, the settings and the limits: each is reported in one line with
//! the remedy. Where the server can continue, it does.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use load::session::Session;

use crate::server::{Folder, Mounted, Server, fairlane, output, run};

/// Checks that a command ends with this code, and that the last line of standard error has these
/// words.
#[track_caller]
fn refused(command: &mut Command, code: i32, expected: &[&str]) {
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let sentence = text.lines().last().unwrap_or_default();
    assert!(sentence.starts_with("fairlane: ") && sentence.ends_with(['.', '?']), "{text}");
    for words in expected {
        assert!(sentence.contains(words), "expected {words} in {text}");
    }
}

#[test]
fn folder_in_use_or_invalid_is_refused() {
    let (folder, other) = (Folder::new("mine"), Folder::new("other"));
    let server = Server::start(&folder);
    refused(&mut Server::command(&folder), 1, &["in use by another server", "choose another folder"]);
    let file = folder.path().join("host-id");
    refused(Server::command(&other).arg("--data-dir").arg(file), 1, &["choose another with --data-dir"]);
    assert_eq!(server.stop().code(), Some(0));
}

/// The variable sets a password at the first start only.
#[test]
fn password_that_is_not_the_present_one_is_refused() {
    let folder = Folder::new("password");
    assert_eq!(Server::start(&folder).stop().code(), Some(0));
    let with = |password: &str| {
        let mut command = Server::command(&folder);
        command.env("FAIRLANE_ADMIN_PASSWORD", password);
        command
    };
    refused(&mut with("other"), 1, &["FAIRLANE_ADMIN_PASSWORD", "the role admin", "ALTER ROLE admin"]);
    assert_eq!(Server::ready(&mut with("secret")).stop().code(), Some(0), "the present one");
    assert_eq!(Server::ready(&mut Server::command(&folder)).stop().code(), Some(0), "none");
}

#[test]
fn lost_password_is_set_while_no_server_runs() {
    let (folder, other) = (Folder::new("lost"), Folder::new("lost-other"));
    let set = |folder: &Folder, role: &str, password: &str| {
        let given = other.path().join("given");
        std::fs::write(&given, password).expect("written");
        let mut command =
            fairlane(&["password", role, "--cores", "2", "--overprovisioned", "--memory", "256MiB"]);
        command.arg("--data-dir").arg(folder.path());
        command.stdin(std::fs::File::open(&given).expect("written"));
        command
    };
    std::fs::create_dir_all(other.path()).expect("made");
    refused(&mut set(&other, "admin", "new\n"), 1, &["no server has run", "--data-dir"]);
    let server = Server::ready(&mut Server::command(&folder));
    assert!(folder.path().join("admin-password").exists());
    refused(&mut set(&folder, "admin", "new\n"), 1, &["in use by another server"]);
    assert_eq!(server.stop().code(), Some(0));
    refused(&mut set(&folder, "nobody", "new\n"), 1, &["nobody"]);
    refused(&mut set(&folder, "admin", "\n"), 1, &["empty line"]);
    let done = output(&mut set(&folder, "admin", "it's \"new\"\nanother line"));
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("The role admin has the new password"), "{text}");
    assert!(!folder.path().join("admin-password").exists(), "it had the old one");
    let server = Server::ready(&mut Server::command(&folder));
    run(&mut server.session("admin", "it's \"new\""), &["LIST ROLES"]);
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn port_in_use_or_without_encryption_is_refused() {
    let folder = Folder::new("ports");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let port = address.port().to_string();
    for (flag, value) in [
        ("--listen", address.to_string()),
        ("--http-listen", address.to_string()),
        ("--sql-listen", address.to_string()),
        ("--shard-aware-port", port),
    ] {
        refused(Server::command(&folder).args([flag, &value]), 1, &["is taken", flag]);
    }
    for flag in ["--listen", "--http-listen", "--sql-listen"] {
        refused(Server::command(&folder).args([flag, "0.0.0.0:0"]), 1, &["plain text", "--allow-plaintext"]);
    }
    let certificate = ["--tls-certificate", "/nowhere/c.pem", "--tls-key", "/nowhere/k.pem"];
    refused(Server::command(&folder).args(certificate), 1, &["/nowhere/c.pem", "--tls-certificate"]);
    // The failed starts left no password, nor anything else.
    let left: Vec<_> = std::fs::read_dir(folder.path()).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(Server::ready(&mut Server::command(&folder)).stop().code(), Some(0));
}

#[test]
fn unknown_settings_and_commands_are_refused() {
    let folder = Folder::new("settings");
    refused(&mut fairlane(&["serve", "--datadir", "x"]), 2, &["did you mean `--data-dir`?"]);
    refused(&mut fairlane(&["serve", "--listen", "here"]), 2, &["--listen", "127.0.0.1:9042"]);
    refused(&mut fairlane(&["surve"]), 2, &["unknown command `surve`", "--help"]);
    std::fs::create_dir_all(folder.path()).expect("made");
    let file = folder.path().join("fairlane.toml");
    std::fs::write(&file, "datadir = \"x\"\n").expect("written");
    let mut named = fairlane(&["serve", "--config"]);
    refused(named.arg(&file), 2, &["fairlane.toml", "`datadir`", "did you mean `data_dir`?"]);
    refused(fairlane(&["serve"]).current_dir(folder.path()), 2, &["`datadir`", "did you mean `data_dir`?"]);
    std::fs::remove_file(&file).expect("removed");
    refused(named.arg("--overprovisioned"), 2, &["fairlane.toml"]);
}

/// Copies the binary to a place where any user may run it.
fn for_anyone(folder: &Folder) -> std::path::PathBuf {
    std::fs::create_dir_all(folder.path()).expect("made");
    let copy = folder.path().join("fairlane");
    std::fs::copy(env!("CARGO_BIN_EXE_fairlane"), &copy).expect("copied");
    copy
}

#[test]
fn read_only_folder_is_refused() {
    let folder = Folder::new("read-only");
    let binary = for_anyone(&folder);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("made");
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o555)).expect("ours");
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--shard-aware-port", "off"]);
    command.args(["--cores", "1", "--overprovisioned", "--sql-listen", "off"]).arg("--data-dir").arg(&data);
    command.current_dir(folder.path());
    if rustix::process::geteuid().is_root() {
        // Permissions do not stop root: the server runs as a user without any.
        command.uid(65_534).gid(65_534);
        let other = Command::new("true").uid(65_534).gid(65_534).status();
        other.expect("root may become another user; otherwise run the tests as a user without privileges");
    }
    let shown = data.display().to_string();
    refused(&mut command, 1, &[&shown, "Permission denied", "make it writable", "--data-dir"]);
}

/// Fills a disk to the last byte with one file. Returns its path.
fn fill(folder: &Path) -> std::path::PathBuf {
    use std::io::Write;
    let path = folder.join("filler");
    let mut file = std::fs::File::create(&path).expect("made");
    for bytes in [1 << 20, 4096, 1] {
        while file.write(&vec![1; bytes]).is_ok_and(|written| written == bytes) {}
    }
    path
}

#[test]
fn disk_full_at_the_start_is_refused() {
    let folder = Folder::new("full");
    // Space for a few files, not for a log.
    let test = "troubles::disk_full_at_the_start_is_refused";
    let Some(disk) = Mounted::new(&folder, "256k", test) else { return };
    let command = || {
        let mut command = Server::command(&folder);
        command.arg("--data-dir").arg(disk.path().join("data"));
        command
    };
    refused(&mut command(), 1, &["No space left on device", "free some space"]);
    fill(disk.path());
    refused(&mut command(), 1, &["No space left on device", "free some space", "--data-dir"]);
}

/// Inserts rows until one is refused. Returns the number of acknowledged rows and the error. On a
/// busy machine a write may wait for a flush until it times out. It is then repeated.
fn rows_until_refused(session: &mut Session) -> (usize, String) {
    let (mut id, mut late) = (0, 0);
    while id < 10_000 && late < 10 {
        match session.query(&format!("INSERT INTO k.t (id, text) VALUES ({id}, '{}')", text(id))) {
            Ok(_) => id += 1,
            Err(error) if error.to_string().contains("timed out") => late += 1,
            Err(error) => return (id, error.to_string()),
        }
    }
    panic!("the disk never became full, or {late} writes waited in vain");
}

/// Returns a text of 16 KiB that no other row has.
fn text(id: usize) -> String {
    format!("{id:0>16384}")
}

#[test]
fn full_disk_refuses_writes_and_keeps_acknowledged_rows() {
    let folder = Folder::new("filling");
    let test = "troubles::full_disk_refuses_writes_and_keeps_acknowledged_rows";
    let Some(disk) = Mounted::new(&folder, "200m", test) else { return };
    let log = folder.path().join("log");
    let command = || {
        let mut command = Server::command(&folder);
        command.arg("--data-dir").arg(disk.path());
        command.stderr(std::fs::File::create(&log).expect("made"));
        command
    };
    let start = || Server::ready(command().env("FAIRLANE_ADMIN_PASSWORD", "secret"));
    // The server generates a password then, in case that it has to create the administrator.
    let start_without_password = || Server::ready(&mut command());
    let server = start();
    let mut session = server.session("admin", "secret");
    let keyspace =
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    run(&mut session, &[keyspace, "CREATE TABLE k.t (id int PRIMARY KEY, text text)"]);
    fill(disk.path());
    let (acknowledged, why) = rows_until_refused(&mut session);
    assert!(why.contains("No space left on device") && why.contains("free some space"), "{why}");
    let all_there = |session: &mut Session| {
        for id in 0..acknowledged {
            let rows = session.query(&format!("SELECT text FROM k.t WHERE id = {id}")).expect("a read");
            assert_eq!(rows, [[Some(text(id).into_bytes())]], "row {id} of {acknowledged}");
        }
    };
    all_there(&mut session);
    assert!(server.stop().code().is_some(), "expected an exit without a signal");
    let log = std::fs::read_to_string(&log).expect("a log");
    let is_reported = |line: &str| line.contains(" error ") && line.contains("No space left on device");
    assert!(log.lines().any(is_reported), "expected an error in the log: {log}");
    // Nothing of what the stop has freed is left.
    let again = fill(disk.path());
    std::fs::rename(&again, again.with_extension("too")).expect("renamed");
    let server = start_without_password();
    let mut session = server.session("admin", "secret");
    all_there(&mut session);
    let (_, why) = rows_until_refused(&mut session);
    assert!(why.contains("No space left on device") && why.contains("free some space"), "{why}");
    all_there(&mut session);
    std::fs::remove_file(again.with_extension("too")).expect("removed");
    let written = (0..60).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(500));
        session.query("INSERT INTO k.t (id, text) VALUES (-1, 'there is room again')").is_ok()
    });
    assert!(written, "writes are refused for ever");
    assert_eq!(server.stop().code(), Some(0));
    let server = start();
    let mut session = server.session("admin", "secret");
    all_there(&mut session);
    run(&mut session, &["INSERT INTO k.t (id, text) VALUES (-2, 'there is room again')"]);
    assert_eq!(server.stop().code(), Some(0));
}

/// Returns a command of the server with a limit of open files.
fn with_files(folder: &Folder, files: usize) -> Command {
    let server = Server::command(folder);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"]);
    command.arg(server.get_program()).args(server.get_args()).env("FAIRLANE_ADMIN_PASSWORD", "secret");
    command
}

#[test]
fn low_file_limit_is_refused_or_delays_new_clients() {
    let folder = Folder::new("few-files");
    refused(&mut with_files(&folder, 12), 1, &["only 12 files", "ulimit -n"]);
    let server = Server::ready(&mut with_files(&folder, 96));
    let mut first = server.session("admin", "secret");
    // Beyond the limit, connections wait in the kernel until others are closed.
    let many: Vec<_> = (0..100).filter_map(|_| std::net::TcpStream::connect(&server.cql).ok()).collect();
    first.query("SELECT key FROM system.local").expect("an open session is served");
    drop(many);
    server
        .session("admin", "secret")
        .query("SELECT key FROM system.local")
        .expect("a new session after the others");
    assert_eq!(server.stop().code(), Some(0));
}
