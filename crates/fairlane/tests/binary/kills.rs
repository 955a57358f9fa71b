//! Acknowledged writes are durable: the server is killed during writes, several times on one
//! folder, and every acknowledged row is read.
//!
//! `FAIRLANE_TEST_KILLS=50 cargo test --release -p fairlane --test binary kills -- --nocapture`
//! kills it fifty times and prints the numbers of acknowledged and of lost rows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use load::session::Session;

use crate::server::{Folder, Server, run};

/// Number of kills, unless the variable specifies another.
const KILLS: usize = 3;
/// Number of clients that write. Each has one request in flight, so that a kill interrupts this
/// many.
const WRITERS: usize = 4;
/// Rows acknowledged before a kill. Not a round number, so that kills hit different offsets of the
/// log.
const ACKNOWLEDGED: usize = 307;
/// Large enough to fill the memtables of the smallest server (4 MiB a core) in a few rounds, so
/// that kills hit flushes too.
const VALUE_BYTES: usize = 2000;

const KEYSPACE: &str =
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
const TABLE: &str = "CREATE TABLE k.t (id bigint PRIMARY KEY, value text)";

fn kills() -> usize {
    match std::env::var("FAIRLANE_TEST_KILLS") {
        Ok(text) => text.parse().expect("FAIRLANE_TEST_KILLS is a number"),
        Err(_) => KILLS,
    }
}

fn start(folder: &Folder) -> Server {
    let mut command = Server::command(folder);
    command.args(["--memory", "64MiB"]).env("FAIRLANE_ADMIN_PASSWORD", "secret");
    Server::ready(&mut command)
}

/// Returns a key that no other round and writer uses.
fn id(round: usize, writer: usize, n: usize) -> usize {
    (round * WRITERS + writer) * 1_000_000 + n
}

/// Returns the value of the row with this key. No other row has it.
fn value(id: usize) -> String {
    format!("{id:0>VALUE_BYTES$}")
}

/// Writes one row after the other until the server is killed. Counts acknowledged rows.
fn write(mut session: Session, round: usize, writer: usize, acknowledged: &AtomicUsize) {
    for n in 0.. {
        let id = id(round, writer, n);
        if session.query(&format!("INSERT INTO k.t (id, value) VALUES ({id}, '{}')", value(id))).is_err() {
            return;
        }
        acknowledged.store(n + 1, Ordering::Release);
    }
}

/// Kills the server during writes. Returns the number of acknowledged rows of each writer.
fn killed(server: Server, round: usize) -> [usize; WRITERS] {
    let acknowledged: [AtomicUsize; WRITERS] = Default::default();
    let count = || acknowledged.iter().map(|n| n.load(Ordering::Acquire)).sum::<usize>();
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let session = server.session("admin", "secret");
            scope.spawn(move || write(session, round, writer, acknowledged));
        }
        // At most a minute. The assertion below then fails.
        for _ in 0..60_000 {
            if count() >= ACKNOWLEDGED {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
    });
    assert!(count() >= ACKNOWLEDGED, "only {} rows were acknowledged in round {round}", count());
    acknowledged.map(AtomicUsize::into_inner)
}

/// Returns the acknowledged keys of a round whose rows are missing or have another value.
fn lost(session: &mut Session, round: usize, acknowledged: &[usize; WRITERS]) -> Vec<usize> {
    let mut lost = Vec::new();
    for (writer, count) in acknowledged.iter().enumerate() {
        for n in 0..*count {
            let id = id(round, writer, n);
            let rows = session.query(&format!("SELECT value FROM k.t WHERE id = {id}")).expect("a read");
            if rows != [[Some(value(id).into_bytes())]] {
                lost.push(id);
            }
        }
    }
    lost
}

#[test]
fn kills_lose_no_acknowledged_row() {
    let folder = Folder::new("kills");
    let mut server = start(&folder);
    run(&mut server.session("admin", "secret"), &[KEYSPACE, TABLE]);
    let mut rounds = Vec::new();
    for round in 0..kills() {
        rounds.push(killed(server, round));
        server = start(&folder);
        let missing = lost(&mut server.session("admin", "secret"), round, &rounds[round]);
        assert!(missing.is_empty(), "round {round} lost the rows {missing:?}");
    }
    // Later kills may not lose rows of earlier rounds.
    let mut session = server.session("admin", "secret");
    let mut missing = Vec::new();
    for (round, acknowledged) in rounds.iter().enumerate() {
        missing.extend(lost(&mut session, round, acknowledged));
    }
    let acknowledged: usize = rounds.iter().flatten().sum();
    println!("{} kills: {acknowledged} rows acknowledged, {} lost", rounds.len(), missing.len());
    assert!(missing.is_empty(), "later kills lost the rows {missing:?}");
    assert_eq!(server.stop().code(), Some(0));
}
