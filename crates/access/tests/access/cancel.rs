//! CANCEL reaches every listener of every core, and reveals nothing about other roles.

use std::cell::RefCell;

use crate::common::{CORES, Server};
use access::{CancelTarget, Cancelled};

thread_local! {
    /// Ids that a listener of this core cancelled.
    static CANCELLED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Registers a listener with one statement.
fn register(server: &Server, core: usize, id: &'static str, owner: &'static str) {
    server.on(core, move |access| async move {
        access.on_cancel(move |target, wanted, role| match () {
            () if (target, wanted) != (CancelTarget::Statement, id) => Cancelled::Unknown,
            () if role.is_some_and(|role| role != owner) => Cancelled::OfOther,
            () => {
                CANCELLED.with_borrow_mut(|ids| ids.push(id.to_owned()));
                Cancelled::Done
            }
        });
    });
}

#[test]
fn cancel_finds_the_statement_of_any_listener_and_core() {
    let server = Server::start(None);
    for name in ["ann", "bob"] {
        assert_eq!(server.run(0, "admin", &format!("CREATE USER {name} WITH PASSWORD 'secret'")), "ok");
    }
    for (core, id) in [(0, "a"), (0, "b"), (1, "c"), (1, "d")] {
        register(&server, core, id, "ann");
    }
    let cancelled =
        || (0..CORES).flat_map(|core| server.on(core, |_| async { CANCELLED.take() })).collect::<Vec<_>>();
    for id in ["a", "b", "c", "d"] {
        for core in 0..CORES {
            let cancel = |role| server.run(core, role, &format!("CANCEL STATEMENT '{id}'"));
            let refusal = cancel("bob");
            assert!(refusal.starts_with("Unauthorized: "), "{refusal}");
            let unknown = server.run(core, "bob", "CANCEL STATEMENT 'x'");
            assert_eq!(refusal, unknown.replace("'x'", &format!("'{id}'")), "the error hides other roles");
            assert_eq!(cancelled(), [""; 0], "{id}");
            for role in ["ann", "admin"] {
                assert_eq!(cancel(role), "ok", "{role}: {id}");
                assert_eq!(cancelled(), [id], "{role}");
            }
        }
    }
    let missing = server.run(0, "admin", "CANCEL STATEMENT 'x'");
    assert!(missing.starts_with("Invalid: no statement has the id 'x': "), "{missing}");
    // The id of a statement is no id of a session.
    let missing = server.run(0, "admin", "CANCEL SESSION 'a'");
    assert!(missing.starts_with("Invalid: no session has the id 'a': "), "{missing}");
    server.stop();
}
