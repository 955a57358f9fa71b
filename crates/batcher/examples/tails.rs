//! Commands a second over a database with equal, exponential and Pareto response times of the same
//! mean, in simulated time. Results depend on the seed only, never on the machine.
//!
//! The database answers any number of operations at once. So with `in_flight` operations of mean R
//! in flight, and two operations a command of other keys, no way of running commands has more than
//! `in_flight` ÷ 2R a second, and none more than `commands_max` ÷ 2R.
//!
//! `cargo run --release -p batcher --example tails`

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/properties/executor.rs"]
mod executor;

#[expect(dead_code, reason = "the benchmark uses the rest")]
#[path = "../benches/batcher/database.rs"]
mod database;

use std::cell::RefCell;
use std::rc::Rc;

use batcher::{Batcher, BatcherClock, Limits, Strategy};
use database::{Count, Database, ResponseTimes};
use executor::{Executor, now_us, spawn};
use testkit::Random;

const SEED: u64 = 1;
/// Mean response time, µs.
const MEAN_US: f64 = 2000.0;
/// A run ends after this simulated time or this number of commands.
const END_US: u64 = 5_000_000;
const COMMANDS_MAX: u64 = 200_000;

/// Distribution of response times with the mean [`MEAN_US`].
#[derive(Clone, Copy, Debug)]
enum Times {
    Equal,
    Exponential,
    /// With this exponent. The smaller it is, the longer the slowest of many operations takes.
    Pareto(f64),
}

const TIMES: [(&str, Times); 5] = [
    ("equal", Times::Equal),
    ("exponential", Times::Exponential),
    ("Pareto, α = 3", Times::Pareto(3.0)),
    ("Pareto, α = 2", Times::Pareto(2.0)),
    ("Pareto, α = 1.5", Times::Pareto(1.5)),
];

impl Times {
    fn draw_us(self, random: &mut Random) -> u64 {
        let part = random.fraction();
        let us = match self {
            Times::Equal => MEAN_US,
            Times::Exponential => MEAN_US * -part.ln(),
            Times::Pareto(alpha) => MEAN_US * (alpha - 1.0) / alpha * part.powf(-1.0 / alpha),
        };
        us.round() as u64
    }
}

/// Random response times.
#[derive(Debug)]
struct RandomTimes {
    times: Times,
    random: Random,
}

impl ResponseTimes for RandomTimes {
    fn next_us(&mut self, _in_flight: usize) -> u64 {
        self.times.draw_us(&mut self.random)
    }
}

/// Result of a run.
struct Found {
    per_s: f64,
    /// Operations sent, as a part of two for each command.
    sent: f64,
}

/// Runs a closed loop: commands of random keys as fast as the batcher takes them.
///
/// # Panics
/// The counts in the database are not those of running the commands one after the other.
fn run(strategy: Strategy<u32>, limits: Limits, times: Times, keys: u64) -> Found {
    let mut executor = Executor::new();
    let database = Database::new(RandomTimes { times, random: Random::new(SEED) });
    let clock = BatcherClock { wall_us: now_us, steady_us: now_us };
    let batcher = Batcher::new(database.clone(), limits).with_strategy(strategy).with_clock(clock);
    let (handle, drive) = batcher.start();
    executor.spawn(async move { drive.await.expect("the database never fails") });
    let done: Rc<RefCell<(u64, u64)>> = Rc::default();
    let all = done.clone();
    executor.spawn(async move {
        let mut random = Random::new(SEED);
        let mut pushed = 0;
        while now_us() < END_US && pushed < COMMANDS_MAX {
            let reply = handle.push(Count(random.below(keys) as u32)).await.expect("the batcher runs");
            pushed += 1;
            let all = all.clone();
            spawn(async move {
                reply.await.expect("the database never fails");
                all.borrow_mut().0 += 1;
            });
        }
        // The rate is that while the batcher was full.
        let ended = all.borrow().0;
        all.borrow_mut().1 = ended;
    });
    let mut end_us = 0;
    executor.run(|| {
        if end_us == 0 && done.borrow().1 > 0 {
            end_us = now_us();
        }
        false
    });
    let (ended, before) = *done.borrow();
    assert_eq!(database.sum(), ended, "every command counts once");
    let operations = database.take().operations;
    Found { per_s: before as f64 / end_us as f64 * 1e6, sent: operations as f64 / (2 * ended) as f64 }
}

fn table(strategies: &[(&str, Strategy<u32>)], commands_max: usize, in_flight: usize, keys: u64) {
    let most = commands_max.min(in_flight) as f64 / (2.0 * MEAN_US) * 1e6;
    println!(
        "\n{commands_max} commands at once, {in_flight} operations in flight, {keys} keys: {most:.0}/s possible"
    );
    for (name, strategy) in strategies {
        let limits =
            Limits { commands_max, iops_max: usize::MAX, iops_in_flight: in_flight, ..Limits::default() };
        for (label, times) in TIMES {
            let Found { per_s, sent } = run(*strategy, limits, times, keys);
            let part = per_s / most * 100.0;
            let sent = sent * 100.0;
            println!("  {name:<22} {label:<16} {per_s:>8.0}/s  {part:>6.1} %  operations sent {sent:>5.1} %");
        }
    }
}

fn main() {
    println!("Simulated time, seed {SEED}. Mean response time {:.0} ms.", MEAN_US / 1e3);
    let ways = [("batches", Strategy::Phases), ("pipelined", Strategy::Pipelined)];
    for (commands_max, in_flight) in [(64, 512), (512, 512), (4096, 64), (4096, 512), (4096, 4096)] {
        table(&ways, commands_max, in_flight, 1_000_000);
    }
    table(&ways, 512, 512, 100);
    table(&ways, 512, 512, 1);
    let partitions = Strategy::PerPartition { threads: 64, partition: |slot| u64::from(*slot) };
    table(&[("partitions, 64 threads", partitions)], 512, 512, 1_000_000);
}
