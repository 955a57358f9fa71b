//! Changes of roles and levels survive a restart with a wall clock that steps back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use crate::common::Server;
use embedded::WallClock;
use testkit::Folder;

const HOUR_US: i64 = 3_600_000_000;

#[test]
fn role_changes_survive_a_clock_step_back() {
    let dir = Folder::new("access-clock");
    let now_us = Arc::new(AtomicI64::new(1_800_000_000_000_000));
    let session = |statements: &[&str]| -> Vec<String> {
        let clock = now_us.clone();
        let server = Server::start_at(Some(&dir), WallClock::new(move || clock.load(SeqCst)));
        let answers = statements.iter().map(|text| server.run(0, "admin!", text)).collect();
        server.stop();
        now_us.fetch_sub(HOUR_US, SeqCst);
        answers
    };
    let made = session(&[
        "CREATE ROLE ann WITH LOGIN = true",
        "CREATE ROLE bob WITH LOGIN = true",
        "GRANT ann TO bob",
        "GRANT CREATE ON ALL KEYSPACES TO bob",
        "CREATE SERVICE LEVEL olap WITH shares = 100",
    ]);
    assert_eq!(made, ["ok"; 5]);
    let changed = session(&[
        "DROP ROLE ann",
        "REVOKE CREATE ON ALL KEYSPACES FROM bob",
        "ALTER ROLE bob WITH LOGIN = false",
        "DROP SERVICE LEVEL olap",
    ]);
    assert_eq!(changed, ["ok"; 4]);
    let seen = session(&[
        "LIST ROLES OF bob NORECURSIVE",
        "LIST ALL PERMISSIONS OF bob",
        "LIST ALL SERVICE LEVELS",
        "LIST ROLES",
    ]);
    let [of_bob, permissions, levels, roles] = &seen[..] else { panic!("four answers") };
    assert!(!of_bob.contains("ann") && !roles.contains("ann"), "{seen:?}");
    assert!(!permissions.contains("CREATE") && !levels.contains("olap"), "{seen:?}");
    assert!(
        roles.lines().any(
            |line| line.starts_with("'bob' | False | False") || line.starts_with("'bob' | false | false")
        ),
        "{roles}"
    );
}
