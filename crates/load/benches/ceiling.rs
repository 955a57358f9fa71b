//! How much one generator core can send: prepared reads, 16 connections × 16 in flight, against a server that
//! answers every EXECUTE with the same canned row. The figure that counts is requests for each second of the
//! generator's own CPU; the wall figure depends on what else the machine does.
//!
//! `cargo bench -p load`
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

#[path = "../tests/fake/mod.rs"]
mod fake;

use load::{Pacing, Spec, StopFlag, Workload};

fn main() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || fake::serve_fast(&listener));
    for (workload, in_flight) in [(Workload::Read, 256), (Workload::Write, 256), (Workload::Read, 16)] {
        let spec = Spec {
            workload,
            hosts: vec![address.clone()],
            pacing: Pacing::Closed { in_flight, seconds: 3.0 },
            warmup_s: 0.5,
            ..Spec::default()
        };
        let report = load::run(&spec, &StopFlag::new(), |_| {}).expect("it runs");
        let step = &report.steps[0];
        println!(
            "{workload:?}, 16 connections, {in_flight} in flight: {:.0} a second on the wall, {:.2} µs of generator CPU \
             each, so {:.0} a second from one core ({:.0} % of it used)",
            step.throughput_per_s,
            step.generator_us_per_request,
            1e6 / step.generator_us_per_request,
            100.0 * step.generator_cpu,
        );
    }
}
