//! P9 and the adaptive limit, in virtual time.

use batcher::{Limits, Strategy};

use crate::executor::now_us;
use crate::history::{Change, HistoryRun};
use crate::store::Sim;
use testkit::Random;

/// Creates commands that read and write one of `keys` slots, by Zipf's law with exponent `theta`.
fn skewed(count: usize, keys: u32, theta: f64) -> Vec<Change> {
    let mut random = Random::new(u64::from(keys));
    let mut key = || random.skewed(keys.into(), theta) as u32;
    (0..count)
        .map(|number| (number, key()))
        .map(|(number, key)| Change::new(number, &[key], &[key]))
        .collect()
}

/// Returns commands a second over a store without bounds, while the first nine tenths of them end.
/// Latencies are 2 ms, or follow Pareto's law with the exponent `tail` and this mean.
fn throughput(strategy: Strategy<u32>, keys: u32, theta: f64, tail: Option<f64>) -> f64 {
    const COUNT: usize = 10_000;
    let limits = Limits { commands_max: 500, iops_in_flight: 500, ..Limits::default() };
    let store = Sim::<true>::new(1, 500);
    let (fixed_us, random_us) = if tail.is_some() { (0, 4000) } else { (2000, 0) };
    (store.0.borrow_mut().fixed_us, store.0.borrow_mut().random_us) = (fixed_us, random_us);
    store.0.borrow_mut().tail = tail;
    let mut run = HistoryRun::new(&store, limits, strategy, skewed(COUNT, keys, theta), 0);
    let answers = run.answers.clone();
    run.executor.run(|| answers.borrow().len() >= COUNT / 10 * 9);
    let per_s = answers.borrow().len() as f64 / now_us() as f64 * 1e6;
    run.finish(COUNT);
    per_s
}

#[test]
fn throughput_is_independent_of_keys() {
    // 500 commands in two round trips of 2 ms.
    for keys in [1, 10, 100, 10_000, 1_000_000] {
        let got = throughput(Strategy::Phases, keys, 0.0, None);
        assert!((got / 125_000.0 - 1.0).abs() < 0.05, "{got} a second with {keys} keys");
        // A slot that is in use is not read again.
        let got = throughput(Strategy::Pipelined, keys, 0.0, None);
        assert!(got > 0.95 * 125_000.0, "{got} a second with {keys} keys, pipelined");
    }
    for theta in [0.5, 0.8, 0.99, 1.2, 1.5] {
        let got = throughput(Strategy::Phases, 1_000_000, theta, None);
        assert!((got / 125_000.0 - 1.0).abs() < 0.05, "{got} a second with exponent {theta}");
        let got = throughput(Strategy::Pipelined, 1_000_000, theta, None);
        assert!(got > 0.95 * 125_000.0, "{got} a second with exponent {theta}, pipelined");
    }
    // By contrast, partitions in parallel depend on the keys: min(keys, threads) ÷ two round trips,
    // less where chance favours some of the keys.
    let by_partition = Strategy::PerPartition { threads: 64, partition: |slot: &u32| u64::from(*slot) };
    for (keys, expected) in [(1, 250.0), (8, 2000.0), (1_000_000, 16_000.0)] {
        let got = throughput(by_partition, keys, 0.0, None);
        assert!((got / expected - 1.0_f64).abs() < 0.25, "{got} a second with {keys} keys");
    }
}

#[test]
fn long_response_times_of_some_operations_do_not_lower_the_throughput() {
    for (tail, of_batches_max) in [(1.5, 0.1), (2.0, 0.2), (3.0, 0.5)] {
        let got = |strategy| {
            throughput(strategy, 1_000_000, 0.0, Some(tail)) / throughput(strategy, 1_000_000, 0.0, None)
        };
        let batches = got(Strategy::Phases);
        let pipelined = got(Strategy::Pipelined);
        assert!(batches < of_batches_max, "batches keep {batches} with exponent {tail}");
        assert!(pipelined > 0.7, "{pipelined} is kept with exponent {tail}");
    }
}

/// Runs commands over a store that follows the Universal Scalability Law. Returns commands a second
/// and the last limit.
fn over_law(strategy: Strategy<u32>, law: (f64, f64), limits: Limits) -> (f64, usize) {
    const COUNT: usize = 100_000;
    let store = Sim::<true>::new(1, limits.iops_in_flight);
    store.0.borrow_mut().law = Some(law);
    let run = HistoryRun::new(&store, limits, strategy, skewed(COUNT, 1_000_000, 0.0), 0);
    let handle = run.handle.clone();
    let mut run = run;
    let answers = run.answers.clone();
    run.executor.run(|| answers.borrow().len() == COUNT);
    (COUNT as f64 / now_us() as f64 * 1e6, handle.iops_in_flight())
}

#[test]
fn adaptive_limit_keeps_a_store_out_of_retreat() {
    for strategy in [Strategy::Pipelined, Strategy::Phases] {
        // Linear up to 12 operations in flight, the peak at 99.
        let law = (0.02, 0.0001);
        let limits = Limits { iops_in_flight: 2000, ..Limits::default() };
        let (fixed, _) = over_law(strategy, law, limits);
        let (adaptive, limit) = over_law(strategy, law, Limits { is_adaptive: true, ..limits });
        assert!((6..40).contains(&limit), "{strategy:?}: the limit is {limit}");
        assert!(adaptive > 1.5 * fixed, "{adaptive} a second, {fixed} without the limit");
        // A store that bears 2,000 operations is used.
        let (_, limit) = over_law(strategy, (0.0, 0.0), Limits { is_adaptive: true, ..limits });
        assert!(limit > 100, "{strategy:?}: the limit is {limit}");
    }
}
