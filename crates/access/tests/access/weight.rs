//! Roles, grants and service levels have a weight, which is bounded.

use crate::common::Server;

/// Returns the numbered statement.
type Form = fn(usize) -> String;

/// Runs numbered statements until one is refused. Returns the number of those that were run.
fn until_refused(server: &Server, text: impl Fn(usize) -> String) -> usize {
    for n in 0..2_000 {
        let answer = server.run(0, "admin", &text(n));
        if answer != "ok" {
            let expected = "expected at most 65536 bytes of roles, grants and service levels, got ";
            assert!(answer.contains(expected), "{answer}");
            return n;
        }
    }
    panic!("no statement was refused: {}", text(0))
}

#[test]
fn roles_grants_and_levels_are_refused_beyond_their_weight() {
    let forms: [(&str, Form); 5] = [
        ("roles", |n| format!("CREATE ROLE \"{n:0200}\"")),
        ("levels", |n| format!("CREATE SERVICE LEVEL \"{n:0200}\" WITH shares = 5")),
        ("grants", |n| match n {
            n if n < 20 => format!("CREATE ROLE r{n}"),
            n if n < 40 => format!("CREATE ROLE s{}", n - 20),
            n => format!("GRANT ALTER ON ROLE r{} TO s{}", (n - 40) / 20, (n - 40) % 20),
        }),
        ("memberships", |n| match n {
            n if n < 20 => format!("CREATE ROLE r{n}"),
            n if n < 40 => format!("CREATE ROLE s{}", n - 20),
            n => format!("GRANT r{} TO s{}", (n - 40) / 20, (n - 40) % 20),
        }),
        ("users", |n| format!("CREATE USER IF NOT EXISTS '{n:0200}' SUPERUSER")),
    ];
    for (name, form) in forms {
        let server = Server::start(None);
        server.on(0, |access| async move { access.set_bytes_max(64 << 10) });
        let run = until_refused(&server, form);
        assert!(run > 5, "{name}: {run} statements are permitted");
        // Existing roles stay usable, and may shrink.
        assert_eq!(server.run(0, "admin", "ALTER ROLE admin WITH LOGIN = true"), "ok", "{name}");
        if name == "roles" {
            assert_eq!(server.run(0, "admin", &format!("DROP ROLE \"{:0200}\"", 0)), "ok");
            assert_eq!(server.run(0, "admin", &form(0)), "ok", "its place is free");
        }
        server.stop();
    }
}

#[test]
fn change_that_fills_the_weight_exactly_is_accepted() {
    let server = Server::start(None);
    let set = |bytes| server.on(0, move |access| async move { access.set_bytes_max(bytes) });
    set(1);
    let refusal = server.run(0, "admin", "CREATE ROLE ann");
    let needed = refusal.split_once(", got ").and_then(|(_, rest)| rest.split_once(':')).expect("a number").0;
    let needed: u64 = needed.parse().expect("a number");
    set(needed - 1);
    assert!(server.run(0, "admin", "CREATE ROLE ann").starts_with("Invalid"));
    // A longer name needs more.
    set(needed);
    assert!(server.run(0, "admin", "CREATE ROLE anna").starts_with("Invalid"));
    assert_eq!(server.run(0, "admin", "CREATE ROLE ann"), "ok");
    server.stop();
}
