//! Throughput of the ways to run commands in order, with a real server: 64 partitions, all of them
//! with commands at any time, in a closed loop. The client has one core. The server has another one
//! and is behind a delay line of 1 ms each way.
//!
//! 1. One command at a time: the response time of a command, two round trips.
//! 2. Blocking threads, one for each partition, as usual consumers have.
//! 3. Futures: the same code on one thread. The difference is the share of the runtime.
//! 4. The library, each partition in order. The difference is the cost of one stream of commands.
//! 5. The library, batches. The difference is the share of batching.
//!
//! `FAIRLANE_BIN=$PWD/target/release/fairlane cargo bench -p batcher --bench server`, and with
//! `BENCH_RESULTS=bench/results` to write the results to that folder.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

mod client;
mod host;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use batcher::Strategy;
use result_file::{ResultRun, Section};

use client::{ClientProgress, PARTITIONS, PER_PARTITION, Way};
use host::Host;

const SECTION: Section = Section {
    file: "19-batcher",
    title: "Commands in order",
    goal: "The library `batcher` runs the same number of commands a second whatever their keys, and keeps a database \
           below its peak.",
};
const COMMAND: &str = "FAIRLANE_BIN=$PWD/target/release/fairlane cargo bench -p batcher --bench server";
/// Ways, in the order of the head of this file. Batches have `commands_max` by default, and the
/// least number with which the goal could be reached: 64 × 16.
const WAYS: [(&str, Way); 6] = [
    ("one command at a time", Way::Futures(1)),
    ("blocking threads", Way::Threads),
    ("futures", Way::Futures(PARTITIONS)),
    ("the library, each partition in order", Way::Library(PER_PARTITION, 4096)),
    ("batches", Way::Library(Strategy::Phases, 4096)),
    ("batches of at most 1,024", Way::Library(Strategy::Phases, 1024)),
];
/// Rounds over all ways. Odd, for the median.
const ROUNDS: usize = 5;
/// Time before measuring, with that for connecting.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(4);

/// Results of a way in one round.
#[derive(Clone, Copy, Debug)]
struct Measured {
    per_s: f64,
    /// Use of a core by the client, the server and the delay line, %.
    cores: [f64; 3],
    /// Response time of a command: median and 99th percentile, ms.
    response_ms: [f64; 2],
    /// Mean number of commands in flight, by Little's law.
    in_flight: f64,
    /// Mean service time of an operation, by the server's clock, µs.
    service_us: f64,
}

fn measure(way: Way, host: &Host, table: &str) -> Measured {
    let progress = ClientProgress::default();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client::run(way, &host.line.address(), table, &progress));
        let now = || {
            let service = host.service();
            (Instant::now(), progress.ended.load(Ordering::Relaxed), host.cpu_s(), service)
        };
        std::thread::sleep(WARM_UP);
        let (begin, ended_before, cpu_before_s, service_before) = now();
        progress.take_responses();
        std::thread::sleep(MEASURED);
        let responses = progress.take_responses();
        let (end, ended, cpu_s, service) = now();
        progress.is_over.store(true, Ordering::Relaxed);
        client.join().expect("results are those of running the commands in order");
        let seconds = (end - begin).as_secs_f64();
        let cores = std::array::from_fn(|part| 100.0 * (cpu_s[part] - cpu_before_s[part]) / seconds);
        let per_s = (ended - ended_before) as f64 / seconds;
        Measured {
            per_s,
            cores,
            response_ms: [responses.p50_us, responses.p99_us].map(|us| us / 1e3),
            in_flight: per_s * responses.mean_us / 1e6,
            service_us: 1e6 * service.since(&service_before).mean_s(),
        }
    })
}

fn main() {
    let Ok(program) = std::env::var("FAIRLANE_BIN") else {
        println!("The benchmark with a server is skipped: set FAIRLANE_BIN to the path of fairlane.");
        return;
    };
    let cores = host::cores();
    assert!(cores.len() > 1, "expected two cores, one of them for the client, got {cores:?}");
    host::pin_to(cores[0]);
    let host = Host::start(&program);
    host::pin_to(cores[1]);
    let mut rounds: [Vec<Measured>; WAYS.len()] = Default::default();
    for round in 0..ROUNDS {
        for (index, (name, way)) in WAYS.into_iter().enumerate() {
            let measured = measure(way, &host, &format!("round{round}_way{index}"));
            println!("  round {round}, {name}: {measured:.1?}");
            rounds[index].push(measured);
        }
    }
    report(rounds.map(|mut rounds| {
        rounds.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
        rounds[ROUNDS / 2]
    }));
}

fn report(ways: [Measured; WAYS.len()]) {
    let [one, threads, futures, stream, batches, small] = ways;
    let mut run = ResultRun::new(SECTION, COMMAND, ROUNDS as u32).note(
        "A server on one core, with a delay line of 1 ms each way that shares the core, and the client on another. A \
         command reads a row and writes it, 64 rows in turn, closed loop, through the CQL store and the driver \
         scylla. Threads and futures run the same code, a command at a time for each partition. Batches have at most \
         4,096 commands, and as many wait. Results are those of the round with the median of commands/s. All outputs \
         and tables were those of running the commands in order.",
    );
    run.row("a command alone, two round trips", &format!("{:.2}", 1e3 / one.per_s), "ms");
    let per_s = |way: &Measured| way.per_s;
    // CPU time of a part for one command, µs.
    let us = |part: usize| move |way: &Measured| 1e4 * way.cores[part] / way.per_s;
    let list = |of: &dyn Fn(&Measured) -> f64, digits: usize| {
        [&threads, &futures, &stream, &batches].map(|way| format!("{:.digits$}", of(way))).join(" · ")
    };
    let what = "64 threads · 64 futures · the library, each partition in order · batches";
    run.row(what, &list(&per_s, 0), "commands/s");
    let factor = batches.per_s / threads.per_s;
    let what = "batches over 64 blocking threads, both on one client core";
    run.row_with_goal(what, &format!("{factor:.1}"), "×", "16", factor >= 16.0);
    let steps = |of: &dyn Fn(&Measured) -> f64| {
        let steps = [[&threads, &futures], [&futures, &stream], [&stream, &batches]];
        steps.map(|[from, to]| format!("{:.2}", of(to) / of(from))).join(" · ")
    };
    run.row("of that: futures in place of threads · the library's stream · batching", &steps(&per_s), "×");
    run.row("the same of commands per second of the client's CPU", &steps(&|way| 1.0 / us(0)(way)), "×");
    let small = format!("{:.0} · {:.1}", small.per_s, small.per_s / threads.per_s);
    run.row("batches of at most 1,024 commands · over threads", &small, "commands/s · ×");
    run.row("client's CPU, the ways as above", &list(&us(0), 1), "µs/command");
    run.row("server's CPU", &list(&us(1), 1), "µs/command");
    run.row("response time of a command, median", &list(&|way| way.response_ms[0], 1), "ms");
    run.row("99th percentile", &list(&|way| way.response_ms[1], 1), "ms");
    run.row("commands in flight, by Little's law", &list(&|way| way.in_flight, 0), "commands");
    run.row("service time of an operation, by the server", &list(&|way| way.service_us, 0), "µs");
    run.row("use of the client's core", &list(&|way| way.cores[0], 0), "%");
    run.row("use of the other core", &list(&|way| way.cores[1] + way.cores[2], 0), "%");
    run.finish();
}
