//! A run: commands that count their key, in steps with different keys. At the end the counts of all
//! keys must be the number of commands.

use std::cell::RefCell;
use std::rc::Rc;

use batcher::{Batcher, BatcherClock, Limits, Strategy};

use crate::database::{Count, Database};
use crate::executor::{Executor, now_us, sleep_us, spawn};
use crate::server::Scalability;
use testkit::Random;

/// Keys of a step, by Zipf's law with exponent `theta`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) count: u32,
    pub(crate) theta: f64,
}

impl Keys {
    fn draw(self, random: &mut Random) -> u32 {
        random.skewed(self.count.into(), self.theta) as u32
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A fixed rate. A command that finds the batcher full waits, and its latency counts from when
    /// it was due. What is due after the end of its step is dropped.
    Open { per_s: f64 },
    /// A command as soon as the batcher takes one. Keys take turns.
    Closed,
}

/// Results of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepResults {
    pub(crate) keys: Keys,
    /// Commands that ended during the step, a second.
    pub(crate) per_s: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Operations done, as a part of those that the commands ask for: a read and a write each.
    pub(crate) iops_part: f64,
    pub(crate) n_mean: f64,
    pub(crate) n_most: usize,
}

const CLOCK: BatcherClock = BatcherClock { wall_us: now_us, steady_us: now_us };

/// Runs the steps in one run. Returns their results.
///
/// # Panics
/// The counts in the database are not those of running the commands one after the other.
pub(crate) fn run(
    strategy: Strategy<u32>,
    limits: Limits,
    steps: &[Keys],
    seconds: u64,
    load: Load,
) -> Vec<StepResults> {
    let mut executor = Executor::new();
    let database = Database::new(Scalability);
    let batcher = Batcher::new(database.clone(), limits).with_strategy(strategy).with_clock(CLOCK);
    let (handle, drive) = batcher.start();
    executor.spawn(async move { drive.await.expect("the database never fails") });

    // Latencies of commands that have ended, since the begin of the step.
    let latencies: Rc<RefCell<Vec<u64>>> = Rc::default();
    let pushed: Rc<RefCell<u64>> = Rc::default();
    let ended = latencies.clone();
    let count = pushed.clone();
    let all = steps.to_vec();
    executor.spawn(async move {
        let mut random = Random::new(1);
        for (number, keys) in all.into_iter().enumerate() {
            let begin_us = number as u64 * seconds * 1_000_000;
            let end_us = begin_us + seconds * 1_000_000;
            for turn in 0.. {
                let (due_us, key) = match load {
                    Load::Open { per_s } => {
                        (begin_us + (f64::from(turn) / per_s * 1e6) as u64, keys.draw(&mut random))
                    }
                    Load::Closed => (now_us(), turn % keys.count),
                };
                if due_us.max(now_us()) >= end_us {
                    break;
                }
                if due_us > now_us() {
                    sleep_us(due_us - now_us()).await;
                }
                let reply = handle.push(Count(key)).await.expect("the batcher runs");
                *count.borrow_mut() += 1;
                let ended = ended.clone();
                spawn(async move {
                    reply.await.expect("the database never fails");
                    ended.borrow_mut().push(now_us() - due_us);
                });
            }
        }
    });
    let mut results = Vec::new();
    let mut done = 0;
    for (number, keys) in (1..).zip(steps) {
        let end_us = number * seconds * 1_000_000;
        // A timer at the end of the step, so that the clock stops there.
        executor.spawn(async move { sleep_us(end_us - now_us()).await });
        executor.run(|| now_us() >= end_us);
        let mut found = latencies.take();
        let observed = database.take();
        found.sort_unstable();
        done += found.len() as u64;
        let at = |part: f64| found.get((found.len() as f64 * part) as usize).copied().unwrap_or(0);
        results.push(StepResults {
            keys: *keys,
            per_s: found.len() as f64 / seconds as f64,
            p50_us: at(0.5),
            p99_us: at(0.99),
            iops_part: observed.operations as f64 / (2 * found.len().max(1)) as f64,
            n_mean: observed.integral_us / (seconds as f64 * 1e6),
            n_most: observed.in_flight_most,
        });
    }
    executor.run(|| false);
    done += latencies.borrow().len() as u64;
    let counted = database.sum();
    assert_eq!((done, counted), (*pushed.borrow(), done), "every command counts once");
    results
}
