//! Runs histories by seed: many, or one, which is then shortened and printed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::crashes::number;
use super::*;

/// The default number of histories: takes a few seconds.
const SEEDS: u64 = 24;

/// Steps of a history.
const STEPS: u32 = 160;

/// Attempts to shorten a failing history.
const ATTEMPTS_MAX: u32 = 300;

/// Printed lines of the trace.
const LINES_MAX: usize = 120;

/// A failed history: the step, the reason, and the trace.
struct Failure {
    step: u32,
    what: String,
    trace: Vec<String>,
    record: String,
}

/// Runs the steps of one history.
fn history(seed: u64, steps: &[u32]) -> Result<MachineCounts, Failure> {
    drop_tasks();
    let sim = Arc::new(Sim::new(seed));
    let mut machine = Machine::new(sim.clone(), seed);
    let mut at = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        machine.arm();
        while machine.sim.disk.is_down() {
            machine.recover();
        }
        let count = 1 + machine.random.below(SHARDS_MAX) as u32;
        machine.start(count);
        for number in steps {
            at = *number;
            machine.step(*number);
        }
        machine.end();
    }));
    drop_tasks();
    let Err(panic) = outcome else { return Ok(machine.counts) };
    let text = panic.downcast_ref::<String>().cloned();
    let what = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let (trace, record) = (std::mem::take(&mut machine.trace), sim.disk.record());
    Err(Failure { step: at, what: what.unwrap_or_default(), trace, record })
}

/// Leaves out steps as long as the history fails.
fn shorter(seed: u64, mut failure: Failure) -> (Vec<u32>, Failure) {
    let mut steps: Vec<u32> = (0..=failure.step).collect();
    let (mut size, mut attempts) = (steps.len().div_ceil(2), 0);
    while size > 0 {
        let mut from = 0;
        while from < steps.len() && attempts < ATTEMPTS_MAX {
            let mut fewer = steps.clone();
            fewer.drain(from..(from + size).min(steps.len()));
            attempts += 1;
            match history(seed, &fewer) {
                Err(other) => (steps, failure) = (fewer, other),
                Ok(_) => from += size,
            }
        }
        size /= 2;
    }
    (steps, failure)
}

fn report(seed: u64, first: Failure) -> String {
    let (at, first_what) = (first.step, first.what.clone());
    let (steps, last) = shorter(seed, first);
    let from = last.trace.len().saturating_sub(LINES_MAX);
    format!(
        "seed {seed} failed at step {at}: {first_what}\n\nwith steps {steps:?} alone: {}\n\n{}\n{}\n\n\
         to see it again: cargo xtask simulate --only machine --seed {seed}",
        last.what,
        last.record,
        last.trace[from..].join("\n"),
    )
}

#[test]
fn machine_loses_nothing_acknowledged_and_shows_nothing_half() {
    let from = number("FAIRLANE_FROM").unwrap_or(0);
    let asked = number("FAIRLANE_SEEDS");
    let seeds = match number("FAIRLANE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + asked.unwrap_or(SEEDS),
    };
    let total = seeds.end - seeds.start;
    let mut all = MachineCounts::default();
    for seed in seeds {
        let steps: Vec<u32> = (0..STEPS).collect();
        match history(seed, &steps) {
            Ok(counts) => all.add(counts),
            Err(failure) => panic!("{}", report(seed, failure)),
        }
        if asked.is_some() && (seed + 1).is_multiple_of(500) {
            println!("{} seeds: {all:?}", seed + 1 - from);
        }
    }
    assert!(total < SEEDS || all.crashes > 80, "too little happened: {all:?}");
}
