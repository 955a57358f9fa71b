//! Costs of this crate per request: level lookup, admission, metrics and rights. Run with
//! `cargo bench -p access`.

#[path = "../tests/access/common.rs"]
mod common;

use std::time::Duration;

use access::Login;
use common::{PASSWORD, Server};
use engine::{Action, Target};
use workload::{Admission, Kind};

const ROUNDS: u32 = 1_000_000;

fn measure(what: &str, mut once: impl FnMut()) {
    (0..ROUNDS / 10).for_each(|_| once());
    let begin = lanes::time::now();
    (0..ROUNDS).for_each(|_| once());
    let taken: Duration = begin.elapsed();
    println!("{what:55} {:7.1} ns", taken.as_nanos() as f64 / f64::from(ROUNDS));
}

fn main() {
    let server = Server::start(None);
    for text in [
        "CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true",
        "CREATE SERVICE LEVEL a WITH shares = 7",
        "ATTACH SERVICE LEVEL a TO ann",
        "GRANT SELECT ON ALL KEYSPACES TO ann",
    ] {
        assert_eq!(server.run(0, "admin", text), "ok");
    }
    server.on(0, |access| async move {
        let begin = lanes::time::now();
        for _ in 0..100 {
            let _ = access.authenticate("ann", PASSWORD).await;
        }
        println!(
            "{:55} {:7.0} us",
            "authenticate (4096 iterations, heavy lane)",
            begin.elapsed().as_micros() as f64 / 100.0
        );
        let login: Login = access.authenticate("ann", PASSWORD).await.expect("logs in");
        let admission = Admission::new(0);
        let target = [Target { keyspace: "ks".into(), table: Some("t".into()), action: Action::Select }];
        measure("effective: level lookup", || drop(std::hint::black_box(access.effective(&login))));
        measure("authorize: one table, not a superuser", || access.authorize(&login, &target).expect("may"));
        let mut ns = 0;
        measure("effective, admit, end, record", || {
            let effective = access.effective(&login);
            let admitted = admission.admit(&effective, 0, 0);
            ns = (ns + 977) % 10_000;
            effective.level.record(0, Kind::Read, ns, 100, false);
            drop(admitted);
        });
    });
    server.stop();
}
