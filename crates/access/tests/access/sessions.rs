//! Sessions end with their role, and grants end with their resource.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{PASSWORD, Server, engine_alone, format_result, open_session, statement};
use access::{Access, Login};
use engine::{Action, Error, SchemaChange, StatementOutcome, StatementTarget};
use testkit::Folder;

const ANN: &str = "CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true";
const KS: &str = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

fn prepare(server: &Server, statements: &[&str]) {
    for text in statements {
        assert_eq!(server.run(0, "admin", text), "ok", "{text}");
    }
}

/// Runs a statement as `admin` on core 0, from another core.
async fn as_admin(text: &str) -> String {
    let text = text.to_owned();
    let run = move || async move {
        let access = crate::common::access();
        let admin = open_session(&access, "admin").await.expect("logs in");
        format_result(statement(&access, &admin, &text).await)
    };
    lanes::call(0, run).await
}

async fn log_in(access: &Rc<Access>, role: &str) -> Login {
    access.authenticate(role, PASSWORD).await.expect("logs in")
}

fn select(table: &str) -> [StatementTarget; 1] {
    [StatementTarget { keyspace: "ks".into(), table: Some(table.into()), action: Action::Select }]
}

#[test]
fn session_ends_with_its_role_login_or_password() {
    let server = Server::start(None);
    prepare(&server, &["CREATE ROLE readers"]);
    server.on(1, |access| async move {
        for (text, ends) in [
            ("GRANT readers TO ann", false),
            ("ALTER ROLE ann WITH SUPERUSER = true", false),
            ("ALTER ROLE ann WITH LOGIN = true", false),
            ("ALTER ROLE ann WITH LOGIN = false", true),
            ("ALTER ROLE ann WITH PASSWORD = 'other'", true),
            ("ALTER ROLE ann WITH PASSWORD = 'secret'", true),
            ("DROP ROLE ann", true),
        ] {
            assert_eq!(as_admin(ANN).await, "ok");
            let (login, other) = (log_in(&access, "ann").await, log_in(&access, "admin").await);
            let ended = Rc::new(Cell::new(0));
            for session in [&login, &other] {
                let ended = ended.clone();
                session.on_end(move || ended.set(ended.get() + 1));
            }
            assert!(login.is_current());
            assert_eq!(as_admin(text).await, "ok", "{text}");
            assert_eq!((login.is_current(), ended.get()), (!ends, u32::from(ends)), "{text}");
            assert!(other.is_current(), "{text}");
            let refusal = "Role ann was dropped, lost LOGIN or got another password: log in again";
            let refused = Err(Error::Unauthorized(refusal.to_owned()));
            assert_eq!(access.authorize(&login, &[]), if ends { refused } else { Ok(()) }, "{text}");
            let listed = format_result(statement(&access, &login, "LIST ROLES").await);
            assert_eq!(listed == format!("Unauthorized: {refusal}"), ends, "{text}: {listed}");
            assert_eq!(as_admin("DROP ROLE IF EXISTS ann").await, "ok");
        }
    });
    server.stop();
}

#[test]
fn later_role_of_a_name_ends_earlier_sessions() {
    let server = Server::start(None);
    prepare(&server, &[KS, "CREATE TABLE ks.t (k int PRIMARY KEY)", ANN]);
    server.on(1, |access| async move {
        let earlier = log_in(&access, "ann").await;
        for text in ["DROP ROLE ann", ANN, "GRANT SELECT ON ks.t TO ann"] {
            assert_eq!(as_admin(text).await, "ok", "{text}");
        }
        let later = log_in(&access, "ann").await;
        assert!(access.authorize(&later, &select("t")).is_ok());
        assert!(access.authorize(&earlier, &select("t")).is_err());
        assert_ne!(access.rights(&earlier), access.rights(&later));
        let statement =
            format_result(statement(&access, &earlier, "ALTER ROLE ann WITH PASSWORD = 'mine'").await);
        assert!(statement.starts_with("Unauthorized: Role ann was dropped"), "{statement}");
    });
    server.stop();
}

#[test]
fn rights_stay_cached_while_other_roles_change() {
    let server = Server::start(None);
    prepare(
        &server,
        &[KS, "CREATE TABLE ks.t (k int PRIMARY KEY)", ANN, "CREATE ROLE readers", "CREATE ROLE other"],
    );
    prepare(&server, &["GRANT readers TO ann", "CREATE SERVICE LEVEL a WITH shares = 7"]);
    server.on(1, |access| async move {
        let login = log_in(&access, "ann").await;
        for (text, changes) in [
            ("GRANT SELECT ON KEYSPACE ks TO other", false),
            ("ALTER ROLE other WITH PASSWORD = 'x'", false),
            ("DROP ROLE other", false),
            ("ALTER SERVICE LEVEL a WITH shares = 8", false),
            ("ATTACH SERVICE LEVEL a TO readers", true),
            ("GRANT SELECT ON ks.t TO readers", true),
            ("GRANT MODIFY ON ks.t TO ann", true),
            ("REVOKE readers FROM ann", true),
        ] {
            let (rights, version) = (access.rights(&login), access.version());
            assert_eq!(as_admin(text).await, "ok", "{text}");
            assert!(access.version() > version);
            assert_eq!(access.rights(&login) != rights, changes, "{text}");
        }
        assert_eq!(access.effective(&login).spec.shares, 1000);
    });
    server.stop();
}

#[test]
fn role_change_runs_in_the_level_of_the_session() {
    const CHANGES: u64 = 40;
    let server = Server::start(None);
    prepare(&server, &[ANN, "CREATE ROLE r", "GRANT ALL ON ROLE r TO ann"]);
    prepare(&server, &["CREATE SERVICE LEVEL a WITH shares = 7", "ATTACH SERVICE LEVEL a TO ann"]);
    server.on(1, |access| async move {
        let login = log_in(&access, "ann").await;
        let dispatches = |group| lanes::handle().core_usage(0, group).dispatches;
        let group = access.effective(&login).group();
        let before = (dispatches(group), dispatches(lanes::Group::CONTROL));
        let own = async move {
            for i in 0..CHANGES {
                let text = format!("ALTER ROLE r WITH LOGIN = {}", i % 2 == 0);
                assert_eq!(format_result(statement(&access, &login, &text).await), "ok");
            }
        };
        lanes::spawn(group, own).await;
        assert!(dispatches(group) - before.0 >= CHANGES);
        assert!(dispatches(lanes::Group::CONTROL) - before.1 < CHANGES, "the server's own work alone");
    });
    server.stop();
}

#[test]
fn grant_does_not_hold_for_a_later_table_of_its_name() {
    let dir = Folder::new("grants");
    let server = Server::start(Some(&dir));
    prepare(
        &server,
        &[KS, "CREATE TABLE ks.t (k int PRIMARY KEY)", "CREATE TABLE ks.u (k int PRIMARY KEY)", ANN],
    );
    prepare(&server, &["GRANT SELECT ON ks.t TO ann", "GRANT SELECT ON ks.u TO ann"]);
    prepare(&server, &["GRANT SELECT ON system_views.clients TO ann"]);
    let check = |server: &Server, expected: [bool; 2]| {
        let may = |access: Rc<Access>| async move {
            let login = log_in(&access, "ann").await;
            ["t", "u"].map(|table| access.authorize(&login, &select(table)).is_ok())
        };
        assert_eq!(server.on(1, may), expected);
    };
    check(&server, [true, true]);
    // Simulate a server that could not remove the grants.
    server.on(0, |_| async {
        for text in ["DROP TABLE ks.t", "CREATE TABLE ks.t (k int PRIMARY KEY)"] {
            engine_alone(text).await.expect(text);
        }
    });
    check(&server, [false, true]);
    server.stop();
    let server = Server::start(Some(&dir));
    check(&server, [false, true]);
    let stored =
        server.run(0, "admin", "SELECT resource FROM system_auth.role_permissions WHERE role = 'ann'");
    assert_eq!(stored.lines().count(), 3, "a restart removes grants on dropped tables: {stored}");
    assert!(stored.contains("data/system_views/clients/"), "{stored}");
    prepare(&server, &["GRANT SELECT ON ks.t TO ann"]);
    check(&server, [true, true]);
    server.stop();
}

#[test]
fn grant_of_version_0_1_0_is_bound_to_its_table() {
    let dir = Folder::new("old-grants");
    let server = Server::start(Some(&dir));
    prepare(&server, &[KS, "CREATE TABLE ks.t (k int PRIMARY KEY)", ANN]);
    server.on(0, |_| async {
        let old = "INSERT INTO system_auth.role_permissions (role, resource, permission) \
                   VALUES ('ann', 'data/ks/t', 'SELECT')";
        engine_alone(old).await.expect(old);
    });
    server.stop();
    let server = Server::start(Some(&dir));
    let may = server
        .on(1, |access| async move { access.authorize(&log_in(&access, "ann").await, &select("t")).is_ok() });
    assert!(may);
    let stored =
        server.run(0, "admin", "SELECT resource FROM system_auth.role_permissions WHERE role = 'ann'");
    assert_eq!((stored.lines().count(), stored.matches("data/ks/t/").count()), (2, 1), "{stored}");
    server.stop();
}

#[test]
fn late_schema_change_grants_nothing_on_the_next_table() {
    let server = Server::start(None);
    prepare(&server, &[KS, ANN, "CREATE ROLE bob WITH PASSWORD = 'secret' AND LOGIN = true"]);
    server.on(0, |access| async move {
        let (ann, bob) = (log_in(&access, "ann").await, log_in(&access, "bob").await);
        let create = "CREATE TABLE ks.t (k int PRIMARY KEY)";
        let change = |outcome: StatementOutcome| match outcome {
            StatementOutcome::SchemaChange(change) => change,
            other => panic!("{other:?}"),
        };
        let of_ann: SchemaChange = change(engine_alone(create).await.expect("creates"));
        let dropped = change(engine_alone("DROP TABLE ks.t").await.expect("drops"));
        let of_bob = change(engine_alone(create).await.expect("creates"));
        for (login, change) in [(&bob, &of_bob), (&ann, &of_ann), (&ann, &dropped)] {
            access.schema_changed(login, change).await.expect("follows");
        }
        assert!(access.authorize(&bob, &select("t")).is_ok());
        assert!(access.authorize(&ann, &select("t")).is_err());
    });
    server.stop();
}

#[test]
fn keyspace_waits_until_earlier_grants_are_removed() {
    let server = Server::start(None);
    prepare(&server, &[KS, ANN, "GRANT SELECT ON KEYSPACE ks TO ann"]);
    server.on(0, |_| async {
        engine_alone("DROP KEYSPACE ks").await.expect("drops");
    });
    let refusal =
        "Overloaded: Grants on an earlier keyspace ks are still being removed. Try again in a second.";
    assert_eq!(server.run(1, "admin", KS), refusal);
    let mut created = String::new();
    for _ in 0..1000 {
        created = server.run(1, "admin", KS);
        if created == "ok" {
            break;
        }
        assert_eq!(created, refusal);
    }
    assert_eq!(created, "ok");
    let permissions = server.run(0, "admin", "LIST ALL PERMISSIONS OF ann");
    assert_eq!(permissions.lines().count(), 1, "{permissions}");
    server.stop();
}

#[test]
fn unfiltered_rows_need_the_right_to_see_all() {
    let server = Server::start(None);
    prepare(&server, &[KS, "CREATE TABLE ks.t (k int PRIMARY KEY)", ANN, "GRANT SELECT ON ks.t TO ann"]);
    server.on(1, |access| async move {
        let target = |keyspace: &str, table: &str| {
            [StatementTarget { keyspace: keyspace.into(), table: Some(table.into()), action: Action::Select }]
        };
        let (ann, admin) = (log_in(&access, "ann").await, log_in(&access, "admin").await);
        let tables = target("system_schema", "tables");
        assert!(access.authorize(&ann, &tables).is_ok());
        assert!(access.authorize_unfiltered(&ann, &tables).is_err());
        assert!(access.authorize_unfiltered(&ann, &select("t")).is_ok());
        assert!(access.authorize_unfiltered(&admin, &tables).is_ok());
        assert_eq!(as_admin("GRANT SELECT ON ALL KEYSPACES TO ann").await, "ok");
        assert!(access.authorize_unfiltered(&ann, &tables).is_ok());
    });
    server.stop();
}

#[test]
fn certificate_session_ends_when_its_role_gets_a_password() {
    let server = Server::start(None);
    server.on(1, |access| async move {
        for (text, ends) in [
            ("ALTER ROLE ann WITH LOGIN = true", false),
            ("ALTER ROLE ann WITH SUPERUSER = true", false),
            ("ALTER ROLE ann WITH LOGIN = false", true),
            ("ALTER ROLE ann WITH PASSWORD = 'secret'", true),
            ("DROP ROLE ann", true),
        ] {
            assert!(access.log_in_by_certificate("ann").is_none(), "{text}");
            assert_eq!(as_admin("CREATE ROLE ann WITH LOGIN = true").await, "ok");
            let login = access.log_in_by_certificate("ann").expect("the role may log in");
            let ended = Rc::new(Cell::new(false));
            let end = ended.clone();
            login.on_end(move || end.set(true));
            assert!(login.is_current());
            assert_eq!(as_admin(text).await, "ok", "{text}");
            assert_eq!((login.is_current(), ended.get()), (!ends, ends), "{text}");
            assert_eq!(as_admin("DROP ROLE IF EXISTS ann").await, "ok");
        }
    });
    server.stop();
}

#[test]
fn dropped_role_leaves_no_view_behind() {
    let server = Server::start(None);
    prepare(&server, &[ANN, "CREATE SERVICE LEVEL a WITH shares = 7", "ATTACH SERVICE LEVEL a TO ann"]);
    server.on(1, |access| async move {
        let login = log_in(&access, "ann").await;
        let view = Rc::downgrade(&access.effective(&login));
        drop(login);
        assert!(view.upgrade().is_some(), "later sessions of the role share its view");
        assert_eq!(as_admin("DROP ROLE ann").await, "ok");
        assert!(view.upgrade().is_none());
    });
    server.stop();
}

#[test]
fn listeners_check_rights_after_each_loss_of_rights() {
    let server = Server::start(None);
    prepare(&server, &[KS, "CREATE TABLE ks.t (k int PRIMARY KEY)", ANN, "CREATE ROLE readers"]);
    server.on(1, |access| async move {
        let checks = Rc::new(Cell::new([0, 0]));
        for listener in 0..2 {
            let checks = checks.clone();
            access.on_rights_taken(move || {
                let mut counts = checks.get();
                counts[listener] += 1;
                checks.set(counts);
            });
        }
        for (text, takes) in [
            ("GRANT readers TO ann", false),
            ("GRANT SELECT ON ks.t TO readers", false),
            ("REVOKE SELECT ON ks.t FROM readers", true),
            ("CREATE SERVICE LEVEL a WITH shares = 7", false),
            ("ATTACH SERVICE LEVEL a TO ann", false),
            ("ALTER SERVICE LEVEL a WITH shares = 8", false),
            ("DETACH SERVICE LEVEL FROM ann", false),
            ("GRANT EXECUTE ON SERVICE LEVEL a TO readers", false),
            // Its other edits take nothing.
            ("DROP SERVICE LEVEL a", true),
            ("REVOKE readers FROM ann", true),
            ("ALTER ROLE ann WITH LOGIN = false", true),
            ("DROP ROLE ann", true),
        ] {
            checks.set([0, 0]);
            assert_eq!(as_admin(text).await, "ok", "{text}");
            assert_eq!(checks.get(), [u32::from(takes); 2], "{text}");
        }
    });
    server.stop();
}

#[test]
fn late_schema_change_grants_nothing_to_a_later_role() {
    let server = Server::start(None);
    prepare(&server, &[KS, ANN]);
    server.on(0, |access| async move {
        let (earlier, anonymous) = (log_in(&access, "ann").await, access.anonymous());
        let create = "CREATE TABLE ks.t (k int PRIMARY KEY)";
        let Ok(StatementOutcome::SchemaChange(change)) = engine_alone(create).await else {
            panic!("creates")
        };
        for text in ["DROP ROLE ann", ANN, "CREATE ROLE anonymous"] {
            assert_eq!(as_admin(text).await, "ok", "{text}");
        }
        for login in [&earlier, &anonymous] {
            access.schema_changed(login, &change).await.expect("follows");
        }
        assert!(access.authorize(&log_in(&access, "ann").await, &select("t")).is_err());
        for role in ["ann", "anonymous"] {
            let listed = as_admin(&format!("LIST ALL PERMISSIONS OF {role}")).await;
            assert_eq!(listed.lines().count(), 1, "{listed}");
        }
    });
    server.stop();
}

#[test]
fn session_without_authentication_may_do_everything() {
    let server = Server::start(None);
    server.on(1, |access| async move {
        let login = access.anonymous();
        // Its name has no meaning, and may be the name of a role.
        for text in [KS, "DROP KEYSPACE ks", "CREATE ROLE anonymous", "DROP ROLE anonymous"] {
            assert_eq!(format_result(statement(&access, &login, text).await), "ok", "{text}");
        }
    });
    server.stop();
}

#[test]
fn change_planned_after_a_drop_of_its_role_is_refused() {
    let server = Server::start(None);
    prepare(&server, &[ANN, "CREATE ROLE r", "GRANT ALTER ON ROLE r TO ann"]);
    server.on(0, |access| async move {
        let (ann, admin) = (log_in(&access, "ann").await, log_in(&access, "admin").await);
        let run = |login: &Login, text: &'static str| {
            let (access, login) = (access.clone(), login.clone());
            let run = async move { format_result(statement(&access, &login, text).await) };
            lanes::spawn(lanes::current_group(), run)
        };
        // All of them begin before the first takes effect.
        let changes = [
            run(&admin, "DROP ROLE ann"),
            run(&admin, "CREATE ROLE IF NOT EXISTS ann"),
            run(&admin, "GRANT ALTER ON ROLE r TO ann"),
            run(&ann, "ALTER ROLE r WITH LOGIN = true"),
        ];
        let refusal = "Unauthorized: Role ann was dropped, lost LOGIN or got another password: log in again";
        for (change, expected) in changes.into_iter().zip(["ok", "ok", "ok", refusal]) {
            assert_eq!(change.await, expected);
        }
    });
    server.stop();
}

#[test]
fn late_drop_of_a_keyspace_keeps_the_grants_on_the_next() {
    let server = Server::start(None);
    let other = KS.replace("ks", "other");
    prepare(&server, &[&other, "CREATE TABLE other.t (k int PRIMARY KEY)", ANN]);
    prepare(&server, &["GRANT SELECT ON KEYSPACE other TO ann", "GRANT MODIFY ON other.t TO ann"]);
    server.on(0, |access| async move {
        engine_alone(KS).await.expect("creates");
        let Ok(StatementOutcome::SchemaChange(dropped)) = engine_alone("DROP KEYSPACE ks").await else {
            panic!("drops")
        };
        let create = "CREATE TABLE ks.t (k int PRIMARY KEY)";
        for text in [KS, create, "GRANT SELECT ON KEYSPACE ks TO ann", "GRANT MODIFY ON ks.t TO ann"] {
            assert_eq!(as_admin(text).await, "ok", "{text}");
        }
        let before = as_admin("LIST ALL PERMISSIONS OF ann").await;
        assert_eq!(before.lines().count(), 5, "{before}");
        access.schema_changed(&access.anonymous(), &dropped).await.expect("follows");
        assert_eq!(as_admin("LIST ALL PERMISSIONS OF ann").await, before);
        // Now the grants of this keyspace end, and only they.
        assert_eq!(as_admin("DROP KEYSPACE ks").await, "ok");
        let after = as_admin("LIST ALL PERMISSIONS OF ann").await;
        let kept: Vec<&str> = before.lines().filter(|line| !line.contains("ks")).collect();
        assert_eq!(after, kept.join("\n"));
    });
    server.stop();
}
