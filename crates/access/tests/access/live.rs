//! Changes apply at once to open sessions on every core, and survive a restart.

use std::rc::Rc;
use std::time::Duration;

use crate::common::{CORES, PASSWORD, Server, format_result, open_session, statement};
use access::{Access, AuthError, Login};
use engine::{Action, StatementTarget};
use testkit::Folder;
use workload::{RequestKind, WorkloadType};

async fn log_in(access: &Rc<Access>, role: &str) -> Login {
    open_session(access, role).await.expect("logs in")
}

/// Runs statements as `admin` on core 0. All of them must succeed.
fn prepare(server: &Server, statements: &[&str]) {
    for text in statements {
        assert_eq!(server.run(0, "admin", text), "ok", "{text}");
    }
}

const ANN: &str = "CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true";

#[test]
fn session_sees_changes_of_another_core_at_once() {
    let server = Server::start(None);
    prepare(
        &server,
        &[ANN, "CREATE SERVICE LEVEL a WITH shares = 700", "CREATE SERVICE LEVEL b WITH shares = 50"],
    );
    server.on(1, |access| async move {
        let login = log_in(&access, "ann").await;
        let level = |login: &Login| {
            let effective = access.effective(login);
            (effective.level.name().to_string(), effective.spec.shares)
        };
        let default = access.effective(&login).group();
        assert_eq!((level(&login), default), (("default".into(), 1000), lanes::Group::DEFAULT));
        for (text, name, shares) in [
            ("ATTACH SERVICE LEVEL a TO ann", "a", 700),
            ("ALTER SERVICE LEVEL a WITH shares = 30", "a", 30),
            ("ATTACH SERVICE LEVEL b TO ann", "b", 50),
            ("DETACH SERVICE LEVEL FROM ann", "default", 1000),
            ("ATTACH SERVICE LEVEL a TO ann", "a", 30),
            ("DROP SERVICE LEVEL a", "default", 1000),
        ] {
            let change = move || async move {
                let access = crate::common::access();
                let admin = log_in(&access, "admin").await;
                format_result(statement(&access, &admin, text).await)
            };
            let before = access.version();
            assert_eq!(lanes::call(0, change).await, "ok", "{text}");
            assert!(access.version() > before);
            assert_eq!(level(&login), (name.into(), shares), "{text}");
        }
        assert_ne!(access.handshake().group(), default);
    });
    server.stop();
}

#[test]
fn dropped_role_loses_its_rights_at_once() {
    let server = Server::start(None);
    prepare(&server, &[ANN, "GRANT SELECT ON ALL KEYSPACES TO ann"]);
    server.on(0, |access| async move {
        let (login, admin) = (log_in(&access, "ann").await, log_in(&access, "admin").await);
        let target =
            StatementTarget { keyspace: "ks".into(), table: Some("t".into()), action: Action::Select };
        let may = |login: &Login| access.authorize(login, std::slice::from_ref(&target)).is_ok();
        assert!(may(&login) && may(&login) && may(&access.anonymous()));
        assert_eq!(format_result(statement(&access, &admin, "DROP ROLE ann").await), "ok");
        assert!(!may(&login));
        assert!(may(&admin));
    });
    server.stop();
}

#[test]
fn using_service_level_needs_execute() {
    let server = Server::start(None);
    prepare(&server, &[ANN, "CREATE SERVICE LEVEL a WITH shares = 7", "CREATE SERVICE LEVEL b"]);
    prepare(&server, &["GRANT EXECUTE ON SERVICE LEVEL a TO ann", "ATTACH SERVICE LEVEL b TO ann"]);
    prepare(&server, &["CREATE SERVICE LEVEL c"]);
    server.on(1, |access| async move {
        let login = log_in(&access, "ann").await;
        let using = |level| access.effective_using(&login, level).map(|effective| effective.spec.shares);
        assert_eq!((using("a"), using("b")), (Ok(7), Ok(1000)));
        for level in ["c", "d"] {
            let message = format!(
                "User ann has no EXECUTE permission on <service level {level}> or any of its parents"
            );
            assert_eq!(
                using(level).unwrap_err().to_string(),
                message,
                "the error is the same for a missing level"
            );
        }
        let admin = log_in(&access, "admin").await;
        let missing = access.effective_using(&admin, "d").unwrap_err().to_string();
        assert_eq!(missing, "The service level 'd' doesn't exist.");
    });
    server.stop();
}

#[test]
fn concurrent_changes_of_all_cores_succeed() {
    const EACH: usize = 20;
    let server = Server::start(None);
    std::thread::scope(|scope| {
        for core in 0..CORES {
            let server = &server;
            let create = move || {
                server.on(core, move |access| async move {
                    let admin = log_in(&access, "admin").await;
                    for i in 0..EACH {
                        let text = format!("CREATE SERVICE LEVEL l{core}_{i} WITH shares = {}", i + 1);
                        assert_eq!(format_result(statement(&access, &admin, &text).await), "ok");
                        let same = format_result(
                            statement(&access, &admin, "CREATE SERVICE LEVEL IF NOT EXISTS same").await,
                        );
                        assert_eq!(same, "ok");
                    }
                });
            };
            scope.spawn(create);
        }
    });
    let catalog = server.on(1, |access| async move { access.levels().catalog() });
    assert_eq!(catalog.entries().count(), CORES * EACH + 3);
    let listed = server.run(1, "admin", "LIST ALL SERVICE LEVELS");
    assert_eq!(listed.lines().count(), 1 + CORES * EACH + 3);
    let stored = server.run(1, "admin", "SELECT service_level FROM system_distributed.service_levels");
    assert_eq!(stored.lines().count(), 1 + CORES * EACH + 1, "{stored}");
    server.stop();
}

#[test]
fn roles_and_levels_survive_a_restart() {
    let dir = Folder::new("access");
    let server = Server::start(Some(&dir));
    prepare(
        &server,
        &[
            ANN,
            "CREATE ROLE people",
            "GRANT people TO ann",
            "CREATE SERVICE LEVEL a WITH shares = 7 AND timeout = 1500ms AND cpu_limit = '12.5%' \
             AND max_concurrency = 4",
            "CREATE SERVICE LEVEL b WITH workload_type = 'batch'",
            "CREATE SERVICE LEVEL gone",
            "ALTER SERVICE LEVEL driver WITH shares = 77",
            "DROP SERVICE LEVEL gone",
            "ATTACH SERVICE LEVEL a TO people",
            "ATTACH SERVICE LEVEL b TO ann",
            "GRANT SELECT ON KEYSPACE system_auth TO people",
            "ALTER ROLE admin WITH PASSWORD = 'changed'",
        ],
    );
    server.stop();
    let server = Server::start(Some(&dir));
    let refused = server.on(1, |access| async move { access.authenticate("admin", PASSWORD).await.err() });
    let text = "Provided username admin and/or password are incorrect".to_owned();
    assert_eq!(refused, Some(AuthError::Refused(text)), "later starts ignore the first password");
    server.on(1, |access| async move {
        let effective = access.effective(&log_in(&access, "ann").await);
        assert_eq!((effective.spec.shares, &**effective.level.name()), (7, "a"));
        assert_eq!(effective.spec.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(effective.spec.workload_type, Some(WorkloadType::Batch));
        assert_eq!(effective.spec.cpu_limit_ppm, Some(125_000));
        assert_eq!(effective.spec.slots.max_concurrency, Some(4));
    });
    let catalog = server.on(1, |access| async move { access.levels().catalog() });
    let names: Vec<&str> = catalog.entries().map(|entry| &*entry.spec.name).collect();
    assert_eq!(names, ["a", "b", "default", "driver"]);
    assert_eq!(catalog.driver_level().spec.shares, 77);
    let permissions = server.run(0, "ann", "LIST ALL PERMISSIONS OF ann");
    assert_eq!(permissions.lines().last(), Some("'people' | 'people' | '<keyspace system_auth>' | 'SELECT'"));
    server.stop();
}

#[test]
fn metrics_count_the_requests_of_a_level() {
    let server = Server::start(None);
    prepare(&server, &["CREATE SERVICE LEVEL 'a\"b' WITH shares = 7"]);
    for core in 0..CORES {
        server.on(core, move |access| async move {
            let catalog = access.levels().catalog();
            let level = &catalog.get("a\"b").expect("it is there").level;
            level.record(core, RequestKind::Read, 2_000, 500, false);
            level.record(core, RequestKind::Write, 4_000_000, 500, true);
        });
    }
    let text = server.on(1, |access| async move {
        let mut text = String::new();
        access.levels().metrics_text(&mut text);
        text
    });
    for line in [
        "fairlane_requests_total{level=\"a\\\"b\",kind=\"read\"} 2",
        "fairlane_errors_total{level=\"a\\\"b\",kind=\"write\"} 2",
        "fairlane_service_time_seconds_bucket{level=\"a\\\"b\",kind=\"read\",le=\"0.000001024\"} 0",
        "fairlane_service_time_seconds_bucket{level=\"a\\\"b\",kind=\"read\",le=\"0.000002048\"} 2",
        "fairlane_service_time_seconds_bucket{level=\"a\\\"b\",kind=\"read\",le=\"+Inf\"} 2",
        "fairlane_service_time_seconds_sum{level=\"a\\\"b\",kind=\"write\"} 0.008",
        "fairlane_queue_time_seconds_count{level=\"a\\\"b\"} 4",
        "fairlane_shares{level=\"a\\\"b\"} 7",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(
        text.contains("fairlane_cpu_seconds_total{level=\"driver\",lane=\"heavy\"} 0."),
        "hashing ran in driver"
    );
    server.stop();
}

#[test]
fn login_of_an_unknown_name_is_hashed_too() {
    let server = Server::start(None);
    prepare(&server, &["CREATE ROLE no_password WITH LOGIN = true"]);
    for (user, password) in [("admin", "wrong"), ("unknown", "secret"), ("no_password", "x"), ("", "x")] {
        server.on(1, move |access| async move {
            let hashed = || lanes::handle().core_usage(1, lanes::Group::DRIVER).heavy_dispatches;
            let before = hashed();
            let refused = access.authenticate(user, password).await.err();
            let text = format!("Provided username {user} and/or password are incorrect");
            assert_eq!(refused, Some(AuthError::Refused(text)));
            // Metrics of a time slice appear with the next slice at the latest.
            let _ = access.authenticate("admin", PASSWORD).await;
            assert!(hashed() > before, "{user}");
        });
    }
    server.stop();
}

fn address(last: u8) -> Option<std::net::IpAddr> {
    Some(std::net::IpAddr::from([192, 0, 2, last]))
}

#[test]
fn attack_on_one_role_does_not_block_others() {
    let server = Server::start(None);
    prepare(&server, &[ANN]);
    server.on(1, |access| async move {
        let try_one = |user: &'static str, last: u8| {
            let access = access.clone();
            let checking = async move { access.authenticate_from(address(last), user, "x").await.err() };
            lanes::spawn(lanes::Group::DRIVER, checking)
        };
        // Use two addresses, and as many checks as there are slots.
        let attack: Vec<_> = (0..access::CHECKS_MAX).map(|i| try_one("admin", (i % 2) as u8)).collect();
        lanes::yield_now().await;
        let Some(AuthError::Overloaded(text)) = try_one("admin", 3).await else { panic!("beyond the limit") };
        assert!(
            text.contains("the 256 slots for password checks on this core are taken. Try again in 256 ms"),
            "{text}"
        );
        assert!(access.authenticate_from(address(1), "ann", PASSWORD).await.is_ok());
        // Clients that disconnect release their slots.
        for check in attack {
            check.cancel().await;
        }
        assert!(access.authenticate_from(address(3), "admin", PASSWORD).await.is_ok());
    });
    server.stop();
}

#[test]
fn names_with_many_failures_are_rejected_unhashed() {
    let server = Server::start(None);
    prepare(&server, &[ANN]);
    server.on(1, |access| async move {
        let first = format!("n,,n=,r={}", "x".repeat(24));
        for user in ["ann", "unknown"] {
            let mut refused = 0;
            for _ in 0..100 {
                let (exchange, _) = match access.start_scram(start(user, first.as_bytes())) {
                    Ok(begun) => begun,
                    Err(AuthError::Overloaded(text)) => {
                        let message =
                            format!("Too many logins of {user} failed from this address. Try again in ");
                        assert!(text.starts_with(&message), "{text}");
                        refused += 1;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                };
                assert!(access.end_scram(exchange, b"c=biws,r=,p=").is_err());
            }
            assert_eq!(refused, 1, "{user}");
            let right = access.authenticate_from(address(1), user, PASSWORD).await.err();
            assert!(matches!(right, Some(AuthError::Overloaded(_))), "{user}: {right:?}");
        }
        assert!(access.authenticate_from(address(2), "ann", PASSWORD).await.is_ok(), "from another address");
        assert!(access.authenticate_from(address(1), "admin", PASSWORD).await.is_ok(), "as another role");
    });
    server.stop();
}

fn start<'a>(user: &'a str, client_first: &'a [u8]) -> access::ScramStart<'a> {
    access::ScramStart { address: address(1), user, client_first, is_bound: false, end_point: None }
}

#[test]
fn decoys_survive_a_restart() {
    let dir = Folder::new("decoys");
    let challenge = |dir: &std::path::Path, user: &'static str| {
        let server = Server::start(Some(dir));
        let text = server.on(1, move |access| async move {
            let (_, answer) = access.begin_scram(user, b"n,,n=,r=abc").expect("begins");
            answer.split_once(",s=").expect("a salt").1.to_owned()
        });
        server.stop();
        text
    };
    let (first, again) = (challenge(&dir, "unknown"), challenge(&dir, "unknown"));
    let other = challenge(&dir, "other");
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.ends_with(",i=4096"), "{first}");
}

#[test]
fn empty_passwords_are_rejected() {
    let server = Server::start(None);
    let refusal = "Invalid: The password must not be empty: give at least one character, or leave the option out for \
                   a role without a password";
    // Verifier of the empty password, with a salt of 16 zero bytes.
    let hashed = "SCRAM-SHA-256$4096:AAAAAAAAAAAAAAAAAAAAAA==$0xMhqAK40OCOdYhojcLUZeSMUOEvuUTKEl4DUl9gtuY=\
                  :T91QzwAuamaQklxzLHUAx6O/tGW9Dmx80uUBuGnEIjo=";
    prepare(&server, &["CREATE ROLE ann WITH LOGIN = true"]);
    for text in [
        "CREATE ROLE bob WITH PASSWORD = ''".to_owned(),
        "CREATE USER bob WITH PASSWORD ''".to_owned(),
        "ALTER ROLE ann WITH PASSWORD = ''".to_owned(),
        format!("ALTER ROLE ann WITH HASHED PASSWORD = '{hashed}'"),
        format!("CREATE ROLE bob WITH HASHED PASSWORD = '{hashed}'"),
    ] {
        assert_eq!(server.run(1, "admin", &text), refusal, "{text}");
    }
    let error = server.on(1, |access| async move { access.authenticate("ann", "").await.err() });
    let text = "Provided username ann and/or password are incorrect".to_owned();
    assert_eq!(error, Some(AuthError::Refused(text)));
    server.stop();
}

#[test]
fn password_of_1024_bytes_is_accepted_and_no_longer_one() {
    let server = Server::start(None);
    let create = |bytes: usize| format!("CREATE USER u{bytes} WITH PASSWORD '{}'", "x".repeat(bytes));
    assert_eq!(server.run(0, "admin", &create(1024)), "ok");
    let refusal = "Invalid: A password can't be longer than 1024 bytes";
    assert_eq!(server.run(0, "admin", &create(1025)), refusal);
    server.on(1, |access| async move {
        assert!(access.authenticate("u1024", &"x".repeat(1024)).await.is_ok());
        assert!(access.authenticate("u1024", &"x".repeat(1025)).await.is_err());
    });
    server.stop();
}

#[test]
fn logins_checked_elsewhere_have_the_same_limits() {
    let server = Server::start(None);
    prepare(&server, &[ANN]);
    server.on(1, |access| async move {
        let begin = |user: &str, last: u8| access.begin_login(address(last), user);
        let attempt = begin("ann", 1).expect("no failures");
        let checks: Vec<_> =
            (0..access::CHECKS_MAX).map_while(|_| access.take_slot(attempt, "ann").ok()).collect();
        assert_eq!(checks.len(), 128, "slots of a name");
        assert!(access.authenticate_from(address(1), "ann", PASSWORD).await.is_err(), "the same slots");
        assert!(begin("ann", 1).is_ok(), "a password that needs no check needs no slot");
        let others = ["b", "c", "d"].map(|name| begin(name, 2).expect("no failures"));
        let others: Vec<_> = others.iter().flat_map(|&other| std::iter::repeat_n(other, 128)).collect();
        let others: Vec<_> = others.iter().filter_map(|&other| access.take_slot(other, "x").ok()).collect();
        let chief = begin("admin", 3).expect("no failures");
        assert!(access.take_slot(chief, "nobody").is_err(), "{} are taken", checks.len() + others.len());
        assert!(access.take_slot(chief, "admin").is_ok(), "superusers have slots of their own");
        drop((checks, others));
        (0..20).for_each(|_| access.login_failed(attempt));
        let refused = access.authenticate_from(address(1), "ann", PASSWORD).await.err();
        assert!(matches!(refused, Some(AuthError::Overloaded(_))), "{refused:?}");
        assert_eq!(begin("ann", 1).err(), refused);
        assert!(begin("ann", 2).is_ok() && begin("bob", 1).is_ok());
    });
    server.stop();
}

#[test]
fn copies_of_roles_are_dropped_once_nothing_needs_them() {
    let server = Server::start(None);
    let role = |name: &str| cluster::ClusterRole { name: name.into(), can_login: true, is_superuser: false };
    let names = |unused: &std::collections::BTreeSet<std::sync::Arc<str>>| {
        unused.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ")
    };
    server.on(1, move |access| async move {
        for name in ["ann", "bob"] {
            access.copy_role(name, vec![role(name)]).await.expect("written");
        }
        let session = access.relayed("ann").expect("copied");
        let unused = access.unused_copies().await;
        assert_eq!(names(&unused), "bob");
        access.drop_copies(unused).await.expect("written");
        assert!(!access.knows_role("bob") && access.knows_role("ann") && session.is_current());
        drop(session);
        assert_eq!(names(&access.unused_copies().await), "ann");
        access.copy_role("bob", vec![role("bob")]).await.expect("written");
        assert!(access.relayed("bob").is_some(), "copied anew");
    });
    server.stop();
}
