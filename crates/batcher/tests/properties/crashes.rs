//! P5 and P8: crashes of the program, stores that fail for good, and commands that panic.

use std::collections::BTreeSet;

use batcher::{Error, Limits, Strategy};

use crate::executor::{Executor, now_us, sleep_us};
use crate::history::{Answers, Change, HistoryRun, Sequential, random_changes};
use crate::order::{random_limits, strategies};
use crate::seeds::seeds;
use crate::store::{Faults, Sim};
use testkit::Random;

/// Checks the store against the answers: what was acknowledged is there, or was overwritten by a
/// later command, and so is what an acknowledged command has read. Nothing is there of commands
/// that were not run.
fn check<const STAMPS: bool>(
    store: &Sim<STAMPS>,
    changes: &[Change],
    expected: &Sequential,
    answers: &Answers,
    acknowledged: usize,
) {
    let is_acknowledged =
        |number: usize| number < acknowledged || answers.get(&number).is_some_and(Result::is_ok);
    let values = store.values();
    for (slot, writes) in &expected.writes {
        let readers = (0..changes.len()).filter(|number| changes[*number].reads.contains(slot));
        let read = readers.filter(|number| is_acknowledged(*number)).max();
        // The last write that an acknowledged command has made or read.
        let last = writes
            .iter()
            .rposition(|(number, _)| is_acknowledged(*number) || read.is_some_and(|read| *number < read));
        let value = values.get(slot).copied();
        let later = &writes[last.unwrap_or(0)..];
        let is_there =
            later.iter().any(|(_, written)| *written == value) || last.is_none() && value.is_none();
        assert!(is_there, "slot {slot} has {value:?}, expected one of {later:?}");
    }
    for (number, answer) in answers {
        match answer {
            Ok(out) => assert_eq!(*out, expected.outs[*number]),
            Err(_) => assert!(*number >= acknowledged),
        }
    }
    let by: BTreeSet<usize> =
        store.0.borrow().applied.iter().filter_map(|(_, value)| Some((*value)?.by)).collect();
    for number in by {
        let is_not_run = matches!(answers.get(&number), Some(Err(Error::NotRun(_))));
        assert!(!is_not_run, "command {number} was not run, and has written");
    }
}

/// Lets late writes arrive.
fn settle(executor: &mut Executor) {
    executor.run(|| false);
}

fn crash<const STAMPS: bool>(seed: u64) {
    let mut random = Random::new(seed);
    for strategy in strategies(&mut random) {
        let limits = random_limits(&mut random, 2);
        let changes = random_changes(&mut random, 100, true);
        let expected = Sequential::of(&changes);
        let store = Sim::<STAMPS>::new(seed, limits.iops_in_flight);
        // In half of the runs nothing fails before the crash.
        let rate = 6 * random.below(2);
        store.0.borrow_mut().tail = (random.below(2) == 0).then_some(1.5);
        store.0.borrow_mut().faults =
            Faults { refused: rate, unknown: rate, copied: if STAMPS { 20 } else { 0 } };
        let mut run = HistoryRun::new(&store, limits, strategy, changes.clone(), random.below(2000));
        let mut steps = random.below(3000);
        run.executor.run(|| {
            steps = steps.saturating_sub(1);
            steps == 0
        });
        // The program ends here. Answers that are on their way do not count, those that it has do.
        let answers = run.answers.take();
        let acknowledged = run.handle.acknowledged_up_to() as usize;
        run.executor.cancel(run.drive);
        settle(&mut run.executor);
        check(&store, &changes, &expected, &answers, acknowledged);
    }
}

#[test]
fn acknowledged_writes_survive_a_crash() {
    seeds(500, crash::<true>);
    seeds(500, crash::<false>);
}

fn failure<const STAMPS: bool>(seed: u64) {
    let mut random = Random::new(seed);
    for strategy in strategies(&mut random) {
        let limits = random_limits(&mut random, 1);
        let changes = random_changes(&mut random, 100, true);
        let expected = Sequential::of(&changes);
        let store = Sim::<STAMPS>::new(seed, limits.iops_in_flight);
        store.0.borrow_mut().faults = Faults { refused: 5, unknown: 5, copied: 0 };
        store.0.borrow_mut().tail = (random.below(2) == 0).then_some(1.5);
        let (answers, acknowledged) =
            HistoryRun::new(&store, limits, strategy, changes.clone(), 500).finish(100);
        let prefix = answers.values().take_while(|answer| answer.is_ok()).count();
        assert_eq!(acknowledged, prefix);
        assert!(!answers.values().any(|answer| matches!(answer, Err(Error::Dropped))));
        check(&store, &changes, &expected, &answers, acknowledged);
    }
}

#[test]
fn every_command_ends() {
    seeds(500, failure::<true>);
    seeds(500, failure::<false>);
}

#[test]
fn nothing_is_sent_after_a_failure() {
    seeds(200, |seed| {
        let mut random = Random::new(seed);
        for strategy in strategies(&mut random) {
            let limits = Limits { retries: 0, ..random_limits(&mut random, 0) };
            let store = Sim::<true>::new(seed, limits.iops_in_flight);
            let changes = random_changes(&mut random, 100, false);
            let mut run = HistoryRun::new(&store, limits, strategy, changes, 0);
            let healthy_sends = random.below(100) as usize;
            run.executor.run(|| store.0.borrow().sent.len() >= healthy_sends);
            store.0.borrow_mut().faults.refused = 100;
            let before = store.0.borrow().sent.len();
            run.finish(100);
            // Operations in flight when the first one fails: each may be followed by one that
            // begins before that failure is known.
            let sent = store.0.borrow().sent.len() - before;
            assert!(sent <= 2 * limits.iops_in_flight, "{sent} operations after the failure");
        }
    });
}

#[test]
fn dropped_batcher_ends_its_commands() {
    seeds(100, |seed| {
        let mut random = Random::new(seed);
        for strategy in strategies(&mut random) {
            let limits = random_limits(&mut random, 1);
            let store = Sim::<true>::new(seed, limits.iops_in_flight);
            let mut run =
                HistoryRun::new(&store, limits, strategy, random_changes(&mut random, 100, true), 0);
            let mut steps = random.below(300);
            run.executor.run(|| {
                steps = steps.saturating_sub(1);
                steps == 0
            });
            run.executor.cancel(run.drive);
            run.finish(100);
        }
    });
}

#[test]
fn panicking_command_ends_all_commands() {
    for strategy in [Strategy::Pipelined, Strategy::Phases] {
        let store = Sim::<true>::new(1, 256);
        let mut changes: Vec<Change> = (0..20).map(|number| Change::new(number, &[1], &[2])).collect();
        changes[15] = changes[15].clone().panicking();
        let limits = Limits { commands_max: 10, ..Limits::default() };
        let mut run = HistoryRun::new(&store, limits, strategy, changes, 0);
        let run_all = std::panic::AssertUnwindSafe(|| run.executor.run(|| false));
        std::panic::catch_unwind(run_all).expect_err("the command panics");
        run.executor.cancel(run.drive);
        let (answers, acknowledged) = run.finish(20);
        let ok = answers.values().filter(|answer| answer.is_ok()).count();
        assert_eq!((ok, acknowledged), (10, 10));
    }
}

#[test]
fn commands_that_skip_older_ones_run_exactly_once() {
    seeds(200, |seed| {
        let mut random = Random::new(seed);
        let changes: Vec<Change> =
            (0..200).map(|number| Change::once(number, random.below(5) as u32)).collect();
        let expected = Sequential::of(&changes);
        let store = Sim::<true>::new(seed, 20);
        store.0.borrow_mut().faults = Faults { refused: 2, unknown: 8, copied: 20 };
        let limits = Limits { iops_in_flight: 20, ..random_limits(&mut random, 1) };
        let mut executor = Executor::new();
        let mut from = 0;
        let mut crashes = 0;
        while from < changes.len() {
            let strategy = strategies(&mut random)[random.below(4) as usize];
            let rest = changes[from..].to_vec();
            let mut run = HistoryRun::on(executor, &store, limits, strategy, rest, 100);
            let mut steps = random.below(2000) + crashes * 10;
            let handle = run.handle.clone();
            run.executor.run(|| {
                steps = steps.saturating_sub(1);
                steps == 0
            });
            // The program ends here. Its late writes arrive while the next one runs.
            from += handle.acknowledged_up_to() as usize;
            run.executor.cancel(run.drive);
            executor = run.executor;
            store.restart();
            let restart_us = now_us() + 100;
            executor.spawn(sleep_us(100));
            executor.run(|| now_us() >= restart_us);
            crashes += 1;
        }
        settle(&mut executor);
        assert_eq!(store.values(), expected.state, "after {crashes} crashes");
    });
}
