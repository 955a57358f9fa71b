//! Request rate of one generator core: prepared reads over 16 connections with 16 in flight each,
//! against a server that answers every EXECUTE with the same row. The relevant result is requests
//! per second of generator CPU. The rate by wall clock depends on other work of the machine.
//!
//! Open loops then show the delay by the generator itself, which is part of every latency it
//! reports.
//!
//! `cargo bench -p load`
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

#[path = "../tests/fake/mod.rs"]
mod fake;

use load::{Pacing, Spec, Step, StopFlag, Workload};

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
            "{workload:?}, 16 connections, {in_flight} in flight: {:.0} a second by wall clock, \
             {:.2} µs of generator CPU each, so {:.0} a second from one core ({:.0} % of it used)",
            step.throughput_per_s,
            step.generator_us_per_request,
            1e6 / step.generator_us_per_request,
            100.0 * step.generator_cpu,
        );
    }
    for rate_per_s in [4_000.0, 40_000.0, 200_000.0] {
        let spec = Spec {
            hosts: vec![address.clone()],
            pacing: Pacing::Open(vec![Step { rate_per_s, seconds: 3.0 }]),
            warmup_s: 0.5,
            ..Spec::default()
        };
        let report = load::run(&spec, &StopFlag::new(), |_| {}).expect("it runs");
        let step = &report.steps[0];
        let latency = step.reads.clone().unwrap_or_default().latency;
        println!(
            "open loop, {rate_per_s:.0} a second: p50 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs; 99 % were sent \
             within {:.0} µs of their due time; {:.0} % of a core",
            latency.p50_us,
            latency.p99_us,
            latency.p999_us,
            step.generator_lag_p99_us,
            100.0 * step.generator_cpu,
        );
    }
}
