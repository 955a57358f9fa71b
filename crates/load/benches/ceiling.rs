//! Request rate of one generator core: prepared reads over 16 connections with 16 in flight each,
//! against a server that answers every EXECUTE with the same row. The relevant result is requests
//! per second of generator CPU. The rate by wall clock depends on other work of the machine.
//!
//! Open loops then show the delay by the generator itself, which is part of every latency it
//! reports.
//!
//! `cargo bench -p load`, and with `BENCH_RESULTS=bench/results` to write the results to that
//! folder.
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

#[path = "../tests/fake/mod.rs"]
mod fake;

use load::{Pacing, RateStep, Spec, StopFlag, Workload};
use result_file::{ResultRun, Section};

const PARTS: Section = Section {
    file: "06-parts-of-a-request",
    title: "Parts of a request",
    goal: "The cost of each step of a request on one core is known.",
};

fn main() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || fake::serve_fast(&listener));
    let mut run = ResultRun::new(PARTS, "cargo bench -p load", 1).note(
        "The generator over 16 connections, against a server that always sends the same answer. Delays of sending \
         are part of every latency that it reports.",
    );
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
        let what = format!("the load generator, a {workload:?} with {in_flight} in flight").to_lowercase();
        run.row(&what, &format!("{:.2}", step.generator_us_per_request), "µs of its CPU");
        let used = format!("{:.0} · {:.0}", step.throughput_per_s, 100.0 * step.generator_cpu);
        run.row(&format!("{what}: rate and use of its core"), &used, "a second · %");
    }
    for rate_per_s in [4_000.0, 40_000.0, 200_000.0] {
        let spec = Spec {
            hosts: vec![address.clone()],
            pacing: Pacing::Open(vec![RateStep { rate_per_s, seconds: 3.0 }]),
            warmup_s: 0.5,
            ..Spec::default()
        };
        let report = load::run(&spec, &StopFlag::new(), |_| {}).expect("it runs");
        let step = &report.steps[0];
        let latency = step.reads.clone().unwrap_or_default().latency;
        let what = format!("open loop of {rate_per_s:.0} requests a second");
        let percentiles = format!("{:.0} · {:.0} · {:.0}", latency.p50_us, latency.p99_us, latency.p999_us);
        run.row(&format!("{what}: p50, p99 and p99.9"), &percentiles, "µs");
        let sent = format!("{:.0} · {:.0}", step.generator_lag_p99_us, 100.0 * step.generator_cpu);
        run.row(&format!("{what}: p99 of the delay of sending, use of its core"), &sent, "µs · %");
    }
    run.finish();
}
