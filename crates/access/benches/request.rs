//! Costs of this crate per request: level lookup, admission, metrics and rights. Run with
//! `cargo bench -p access`, and with `BENCH_RESULTS=bench/results` to write the results to that
//! folder.

#[path = "../tests/access/common.rs"]
mod common;

use std::time::Duration;

use access::Login;
use common::{PASSWORD, Server};
use engine::{Action, StatementTarget};
use result_file::{ResultRun, Section};
use workload::{Admission, Arrived, RequestKind};

const PARTS: Section = Section {
    file: "06-parts-of-a-request",
    title: "Parts of a request",
    goal: "The cost of each step of a request on one core is known.",
};

const ROUNDS: u32 = 1_000_000;

fn measure(run: &mut ResultRun, what: &str, mut once: impl FnMut()) {
    (0..ROUNDS / 10).for_each(|_| once());
    let begin = lanes::time::now();
    (0..ROUNDS).for_each(|_| once());
    let taken: Duration = begin.elapsed();
    run.row(what, &format!("{:.1}", taken.as_nanos() as f64 / f64::from(ROUNDS)), "ns");
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
        let mut run = ResultRun::new(PARTS, "cargo bench -p access", 1);
        let authenticate_us = begin.elapsed().as_micros() as f64 / 100.0;
        run.row(
            "check a password, 4096 iterations on the heavy lane",
            &format!("{authenticate_us:.0}"),
            "µs",
        );
        let login: Login = access.authenticate("ann", PASSWORD).await.expect("logs in");
        let admission = Admission::new(0);
        let target =
            [StatementTarget { keyspace: "ks".into(), table: Some("t".into()), action: Action::Select }];
        measure(&mut run, "look up the level of a login", || {
            drop(std::hint::black_box(access.effective(&login)))
        });
        measure(&mut run, "authorize a statement on one table", || {
            access.authorize(&login, &target).expect("may")
        });
        let mut ns = 0;
        let arrived = Arrived { since_ns: 0, time_limit_ns: 10_000_000_000, is_only: true };
        measure(&mut run, "look up the level, admit, end and record", || {
            let effective = access.effective(&login);
            let admitted = admission.enter(&effective, arrived, 0, || false);
            ns = (ns + 977) % 10_000;
            effective.level.record(0, RequestKind::Read, ns, 100, false);
            drop(admitted);
        });
        run.finish();
    });
    server.stop();
}
