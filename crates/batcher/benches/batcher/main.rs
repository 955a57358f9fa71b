//! Throughput and latency of the strategies over a simulated database, in virtual time. Results
//! repeat exactly and do not depend on the machine.
//!
//! 1. Open loop: commands at a fixed rate that the database can serve at 1,000,000 keys. The number
//!    of keys changes during one run, then the skew.
//! 2. Closed loop: as many commands as the batcher takes. Fewer keys mean less I/O, and so more
//!    commands a second.
//! 3. Partitions in parallel: throughput over the number of active keys.
//!
//! Real time with a real server is measured by `fairlane demo batching`.
//!
//! `cargo bench -p batcher`

mod database;
#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/properties/executor.rs"]
mod executor;
mod run;
mod server;

use batcher::{Limits, Strategy};

use run::{Keys, Load, StepResults, run};
use server::{PEAK_N, PEAK_PER_S, RESPONSE_US};

/// Commands a second of the open loop: twice as many operations are half of the most that the
/// database can do.
const RATE_PER_S: f64 = PEAK_PER_S / 4.0;
/// Length of a step, seconds of virtual time.
const STEP_S: u64 = 10;
/// Operations in flight with a limit: in the linear region, up to 0.8 × proportional.
const IN_FLIGHT: usize = 96;
/// Largest deviation of a step from the offered rate.
const DEVIATION_MAX: f64 = 0.1;

const STEPS: [Keys; 9] = [
    Keys { count: 100_000, theta: 0.0 },
    Keys { count: 100, theta: 0.0 },
    Keys { count: 10, theta: 0.0 },
    Keys { count: 1, theta: 0.0 },
    Keys { count: 1_000_000, theta: 0.0 },
    Keys { count: 100_000, theta: 0.0 },
    Keys { count: 100_000, theta: 0.8 },
    Keys { count: 100_000, theta: 0.99 },
    Keys { count: 100_000, theta: 1.2 },
];

fn per_partition(threads: usize) -> Strategy<u32> {
    Strategy::PerPartition { threads, partition: |slot| u64::from(*slot) }
}

/// Returns the configurations: names, strategies and limits.
fn configurations() -> [(&'static str, Strategy<u32>, Limits); 9] {
    // Fewer commands are held than by default, so that the backlog of a slow step is bounded.
    let limits = Limits { commands_max: 1024, iops_in_flight: IN_FLIGHT, ..Limits::default() };
    let unlimited = Limits { iops_in_flight: 16 << 10, ..limits };
    [
        ("Sequential", Strategy::Sequential, limits),
        ("PerPartition, 64 threads", per_partition(64), limits),
        ("PerPartition, 1,024 threads, no limit", per_partition(1024), unlimited),
        ("Phases, 96 in flight", Strategy::Phases, limits),
        ("Phases, adaptive limit", Strategy::Phases, Limits { is_adaptive: true, ..unlimited }),
        ("Phases, no limit", Strategy::Phases, unlimited),
        ("Pipelined, 96 in flight", Strategy::Pipelined, limits),
        ("Pipelined, adaptive limit", Strategy::Pipelined, Limits { is_adaptive: true, ..unlimited }),
        ("Pipelined, no limit", Strategy::Pipelined, unlimited),
    ]
}

fn print(step: &StepResults, offered: f64) {
    let deviation = (step.per_s / offered - 1.0) * 100.0;
    println!(
        "  {:>9} keys, θ {:<4}  {:>7.0}/s ({deviation:+6.1} %)  p50 {:>8.1} ms  p99 {:>8.1} ms  I/O done ÷ asked \
         {:>5.1} %  N mean {:>5.0}, most {:>5}",
        step.keys.count,
        step.keys.theta,
        step.per_s,
        step.p50_us as f64 / 1e3,
        step.p99_us as f64 / 1e3,
        100.0 * step.iops_part,
        step.n_mean,
        step.n_most
    );
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn open_loop() {
    println!("Open loop, {RATE_PER_S:.0} commands a second, steps of {STEP_S} s in one run.\n");
    for (name, strategy, limits) in configurations() {
        println!("{name}");
        let steps = run(strategy, limits, &STEPS, STEP_S, Load::Open { per_s: RATE_PER_S });
        steps.iter().for_each(|step| print(step, RATE_PER_S));
        let worst = steps.iter().map(|step| (step.per_s / RATE_PER_S - 1.0).abs()).fold(0.0, f64::max);
        let is_met = worst <= DEVIATION_MAX;
        println!("  largest deviation {:.1} %, goal 10 %: {}\n", 100.0 * worst, verdict(is_met));
    }
}

fn closed_loop() {
    println!(
        "Closed loop. The peak of the database is {PEAK_PER_S:.0} operations a second at N = {PEAK_N:.0}."
    );
    println!("Percentages compare with the first step.\n");
    for (name, strategy, limits) in configurations() {
        println!("{name}");
        let steps = run(strategy, limits, &STEPS[..5], STEP_S, Load::Closed);
        steps.iter().for_each(|step| print(step, steps[0].per_s));
        let most = steps.last().map_or(0, |step| step.n_most);
        let side = if most as f64 > PEAK_N { "beyond" } else { "below" };
        println!("  at 1,000,000 keys N reaches {most}, {side} the peak\n");
    }
}

/// Returns the square of the correlation coefficient.
fn r_squared(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let x = mean(|point| point.0);
    let y = mean(|point| point.1);
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|at| of(at.0 - x, at.1 - y)).sum::<f64>();
    sum(&|dx, dy| dx * dy).powi(2) / (sum(&|dx, _| dx * dx) * sum(&|_, dy| dy * dy))
}

fn over_keys() {
    println!("PerPartition, closed loop, commands a second over active keys P and threads T\n");
    let mut points = Vec::new();
    for threads in [1_u32, 8, 64] {
        let mut line = format!("  T = {threads:>2}:");
        for keys in (0..=8).map(|exponent| 1_u32 << exponent) {
            let limits = Limits { commands_max: 1024, ..Limits::default() };
            let steps = [Keys { count: keys, theta: 0.0 }];
            let step = run(per_partition(threads as usize), limits, &steps, 4, Load::Closed)[0];
            points.push((f64::from(keys.min(threads)), step.per_s));
            line += &format!(" {:>7.0}", step.per_s);
        }
        println!("{line}");
    }
    let found = r_squared(&points);
    println!(
        "  P = 1, 2, 4 … 256. Proportional to min(P, T): r² = {found:.4}, goal 0.95: {}",
        verdict(found >= 0.95)
    );
}

fn main() {
    println!("A database with R = {RESPONSE_US} µs, of which S = {} µs.", RESPONSE_US / 10);
    open_loop();
    closed_loop();
    over_keys();
}
