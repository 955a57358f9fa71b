//! Data folders: opened with other numbers of cores, checked, snapshots and restores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use load::session::Session;
use rustix::process::Signal;
use testkit::until;

use crate::server::{Folder, Server, fairlane, output, run, wait};

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
/// With [`ROWS`] rows of this size, each core flushes its memtable of 4 MiB a few times.
const VALUE_BYTES: usize = 20_000;
const ROWS: usize = 600;

fn start(folder: &Folder, cores: &str) -> Server {
    let mut command = Server::command(folder);
    command.args(["--cores", cores, "--memory", "64MiB"]).env("FAIRLANE_ADMIN_PASSWORD", "secret");
    Server::ready(&mut command)
}

fn value(id: usize, version: usize) -> String {
    format!("{version}-{id:0>VALUE_BYTES$}")
}

fn write(session: &mut Session, ids: std::ops::Range<usize>, version: usize) {
    for id in ids {
        run(session, &[&format!("INSERT INTO k.t (id, value) VALUES ({id}, '{}')", value(id, version))]);
    }
}

/// Checks all rows. `versions` has the end of each range of ids and the version of its rows. Rows
/// that [`delete`] deletes are missing.
fn check(session: &mut Session, versions: &[(usize, usize)], what: &str) {
    let mut from = 0;
    let mut expected = 0;
    for (to, version) in versions {
        for id in from..*to {
            let rows = session.query(&format!("SELECT value FROM k.t WHERE id = {id}")).expect("a read");
            let wanted = (id % 7 != 3).then(|| vec![Some(value(id, *version).into_bytes())]);
            assert!(rows == Vec::from_iter(wanted), "{what}: row {id}");
            expected += usize::from(id % 7 != 3);
        }
        from = *to;
    }
    let count = session.query("SELECT count(*) FROM k.t").expect("a count");
    assert_eq!(count, [[Some((expected as u64).to_be_bytes().to_vec())]], "{what}: the count");
}

fn delete(session: &mut Session, to: usize) {
    for id in (0..to).filter(|id| id % 7 == 3) {
        run(session, &[&format!("DELETE FROM k.t WHERE id = {id}")]);
    }
}

fn admin(server: &Server) -> Session {
    server.session("admin", "secret")
}

#[test]
fn folder_opens_with_another_number_of_cores() {
    let folder = Folder::new("cores");
    let server = start(&folder, "1");
    run(&mut admin(&server), &[KEYSPACE, "CREATE TABLE k.t (id bigint PRIMARY KEY, value text)"]);
    write(&mut admin(&server), 0..ROWS, 1);
    delete(&mut admin(&server), ROWS);
    assert_eq!(server.stop().code(), Some(0));

    let server = start(&folder, "2");
    check(&mut admin(&server), &[(ROWS, 1)], "one core, stopped, then two");
    write(&mut admin(&server), 0..ROWS / 2, 2);
    delete(&mut admin(&server), ROWS);
    server.kill();

    let server = start(&folder, "1");
    check(&mut admin(&server), &[(ROWS / 2, 2), (ROWS, 1)], "two cores, killed, then one");
    write(&mut admin(&server), 0..ROWS / 4, 3);
    delete(&mut admin(&server), ROWS);
    server.kill();

    let server = start(&folder, "3");
    check(&mut admin(&server), &[(ROWS / 4, 3), (ROWS / 2, 2), (ROWS, 1)], "one core, killed, then three");
    assert_eq!(server.stop().code(), Some(0));
    let names =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let shards: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("shard-")).collect();
    assert_eq!(shards.len(), 3, "files of another number of cores are left: {shards:?}");
}

/// Runs a command. Returns its exit code, and standard output and error.
fn run_command(args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = output(&mut fairlane(args));
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code().expect("an exit without a signal"), text)
}

/// Returns the largest table file of a shard.
fn table_file(folder: &Path, shard: &str) -> PathBuf {
    let tables = folder.join(shard).join("tables");
    let files = fs::read_dir(tables).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.max_by_key(|path| fs::metadata(path).expect("a file").len()).expect("a table file")
}

#[test]
fn folder_is_checked_and_restored_from_snapshots() {
    let folder = Folder::new("kept");
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    let server = start(&folder, "2");
    run(&mut admin(&server), &[KEYSPACE, "CREATE TABLE k.t (id bigint PRIMARY KEY, value text)"]);
    write(&mut admin(&server), 0..ROWS, 1);
    delete(&mut admin(&server), ROWS);
    // A server has the folder open: a snapshot is made, a check is refused.
    let (code, text) = run_command(&["snapshot", &path, "first"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = run_command(&["snapshot", &path, "first"]);
    assert!(code == 1 && text.contains("exists already"), "{text}");
    let (code, text) = run_command(&["check", &path]);
    assert!(code == 1 && text.contains("use"), "{text}");
    write(&mut admin(&server), 0..ROWS, 2);
    delete(&mut admin(&server), ROWS);
    assert_eq!(server.stop().code(), Some(0));
    // No server has it open.
    let (code, text) = run_command(&["snapshot", &path, "second"]);
    assert_eq!(code, 0, "{text}");
    for checked in [path.clone(), format!("{path}/snapshots/first"), format!("{path}/snapshots/second")] {
        let (code, text) = run_command(&["check", &checked]);
        assert!(code == 0 && text.contains("partitions"), "{checked}: {text}");
    }
    // Nothing is overwritten.
    let (code, text) = run_command(&["restore", &path, "first"]);
    assert!(code == 1 && text.contains("Nothing is overwritten"), "{text}");
    for (name, version) in [("first", 1), ("second", 2)] {
        let restored = Folder::new(&format!("restored-{name}"));
        let to = restored.path().to_str().expect("UTF-8");
        let (code, text) = run_command(&["restore", &path, name, to]);
        assert_eq!(code, 0, "{text}");
        let (code, text) = run_command(&["restore", &path, name, to]);
        assert!(code == 1 && text.contains("not empty"), "{text}");
        let server = start(&restored, "1");
        check(&mut admin(&server), &[(ROWS, version)], name);
    }
    // A damage is reported with file and offset.
    let damaged = table_file(folder.path(), "shard-0001");
    damage(&damaged);
    let (code, text) = run_command(&["check", &path]);
    let name = damaged.to_str().expect("UTF-8");
    let is_reported = text.lines().any(|line| line.starts_with(name) && line.contains("at byte"));
    assert!(code == 1 && is_reported, "{text}");
    let (code, _) = run_command(&["check", &format!("{path}/snapshots/second")]);
    assert_eq!(code, 0);
    // A repair saves what is readable.
    let (code, text) = run_command(&["check", "--repair", &path]);
    assert!(code == 0 && text.contains("1 of them damaged") && text.contains("lost: 0 files, "), "{text}");
    let (code, text) = run_command(&["check", &path]);
    assert_eq!(code, 0, "{text}");
    let server = start(&folder, "2");
    let (code, text) = run_command(&["check", "--repair", &path]);
    assert!(code == 1 && text.contains("in use"), "{text}");
    let rows = admin(&server).query("SELECT count(*) FROM k.t").expect("a count");
    let count = u64::from_be_bytes(rows[0][0].as_ref().expect("a number")[..].try_into().expect("8 bytes"));
    assert!(count > 0 && count < ROWS as u64, "{count} rows after the repair");
    assert_eq!(server.stop().code(), Some(0));
}

/// Starts a command and waits until its request is there.
fn ask(args: &[&str], request: &Path) -> Child {
    let child = fairlane(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until("there is a request", || request.exists());
    child
}

/// Waits for a command. Returns its exit code, and standard output and error.
fn ended(mut child: Child) -> (i32, String) {
    let code = wait(&mut child).code().expect("an exit without a signal");
    let Output { stdout, stderr, .. } = child.wait_with_output().expect("its output");
    (code, String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

#[test]
fn commands_notice_that_the_server_has_died() {
    let folder = Folder::new("dead");
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    let requests = folder.path().join("snapshots");
    let server = start(&folder, "2");
    run(&mut admin(&server), &[KEYSPACE, "CREATE TABLE k.t (id bigint PRIMARY KEY, value text)"]);
    write(&mut admin(&server), 0..10, 1);
    delete(&mut admin(&server), 10);
    server.signal(Signal::STOP);
    let command = ask(&["snapshot", &path, "first"], &requests.join("first.wanted"));
    server.kill();
    // The command makes the snapshot itself.
    let (code, text) = ended(command);
    assert_eq!(code, 0, "{text}");
    assert!(!requests.join("first.wanted").exists());

    let server = start(&folder, "2");
    write(&mut admin(&server), 0..20, 2);
    delete(&mut admin(&server), 20);
    let restore = ["restore", &path, "first", "--table", "k.t"];
    let request = requests.join("first.restore");
    server.signal(Signal::STOP);
    let command = ask(&restore, &request);
    server.kill();
    let (code, text) = ended(command);
    assert!(code == 1 && text.contains("start one"), "{text}");
    assert!(!request.exists(), "the next start must not restore the table");

    // The command dies before the server reads its request.
    let server = start(&folder, "2");
    server.signal(Signal::STOP);
    let mut command = ask(&restore, &request);
    command.kill().expect("it runs");
    wait(&mut command);
    server.signal(Signal::CONT);
    until("the request is gone", || !request.exists());
    check(&mut admin(&server), &[(20, 2)], "nothing is restored");
    let (code, text) = run_command(&restore);
    assert_eq!(code, 0, "{text}");
    check(&mut admin(&server), &[(10, 1)], "restored");
}

/// Flips a bit in the middle of a file. The file is replaced by a copy, because snapshots link it.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(file).expect("removed");
    fs::write(file, bytes).expect("written");
}

#[test]
fn repair_lets_a_server_with_damaged_system_tables_start() {
    let folder = Folder::new("repair");
    let server = start(&folder, "1");
    // The schema is the only data: its file is the largest.
    let tables = (0..40).map(|n| format!("CREATE TABLE k.t{n} (id bigint PRIMARY KEY, value text)"));
    let tables: Vec<String> = tables.collect();
    run(&mut admin(&server), &[KEYSPACE]);
    tables.iter().for_each(|create| run(&mut admin(&server), &[create]));
    assert_eq!(server.stop().code(), Some(0));
    damage(&table_file(folder.path(), "shard-0000"));
    let mut command = Server::command(&folder);
    command.args(["--cores", "1", "--memory", "64MiB"]).env("FAIRLANE_ADMIN_PASSWORD", "secret");
    let failed = output(&mut command);
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && text.contains("is damaged"), "{text}");
    let (code, text) = run_command(&["check", "--repair", folder.path().to_str().expect("UTF-8")]);
    assert!(code == 0 && text.contains("1 of them damaged"), "{text}");
    assert_eq!(start(&folder, "1").stop().code(), Some(0));
}
