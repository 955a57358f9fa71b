//! Acknowledged means durable: the server is killed in the middle of writes, again and again, on one folder, and every row it
//! had acknowledged is looked for.
//!
//! `FAIRLANE_TEST_KILLS=50 cargo test --release -p fairlane --test binary kills -- --nocapture` kills it fifty times and
//! prints what was acknowledged and what was lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use load::session::Session;

use crate::server::{Folder, Server, run};

/// How often the server is killed, unless the variable says otherwise.
const KILLS: usize = 3;
/// Each writer waits for one row to be acknowledged before it sends the next, so as many rows are cut off by a kill.
const WRITERS: usize = 4;
/// Rows acknowledged before a kill. Not a round number, so that kills do not fall on the same place of the log.
const ACKNOWLEDGED: usize = 307;
/// Large enough that memtables of the smallest server (4 MiB a core) are full after a few rounds, and kills fall into
/// flushes too.
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

/// A key that no other round and writer uses.
fn id(round: usize, writer: usize, n: usize) -> usize {
    (round * WRITERS + writer) * 1_000_000 + n
}

/// What is in the row of this key, and in no other's.
fn value(id: usize) -> String {
    format!("{id:0>VALUE_BYTES$}")
}

/// Writes one row after the other until the server is gone; counts those acknowledged.
fn write(mut session: Session, round: usize, writer: usize, acknowledged: &AtomicUsize) {
    for n in 0.. {
        let id = id(round, writer, n);
        if session.query(&format!("INSERT INTO k.t (id, value) VALUES ({id}, '{}')", value(id))).is_err() {
            return;
        }
        acknowledged.store(n + 1, Ordering::Release);
    }
}

/// Kills the server in the middle of writes; how many rows of each writer were acknowledged.
fn killed(server: Server, round: usize) -> [usize; WRITERS] {
    let acknowledged: [AtomicUsize; WRITERS] = Default::default();
    let count = || acknowledged.iter().map(|n| n.load(Ordering::Acquire)).sum::<usize>();
    std::thread::scope(|scope| {
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let session = server.session("admin", "secret");
            scope.spawn(move || write(session, round, writer, acknowledged));
        }
        // At most a minute, in which case too few are left to look for, and that is said below.
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

/// The keys of a round that are not there, or not with their value.
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
fn nothing_acknowledged_is_lost_by_kills() {
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
    // Later kills may not lose what earlier ones left.
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
