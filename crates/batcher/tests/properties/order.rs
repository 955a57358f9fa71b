//! P1, P3, P6: the result is that of sequential execution, whatever the store does.

use std::collections::BTreeSet;

use batcher::{Limits, Strategy};

use crate::executor::now_us;
use crate::history::{Change, HistoryRun, Sequential, random_changes};
use crate::seeds::seeds;
use crate::store::{Faults, Sim};
use testkit::Random;

/// All strategies, for slots of which three share a partition.
pub(crate) fn strategies(random: &mut Random) -> [Strategy<u32>; 4] {
    let threads = 1 + random.below(8) as usize;
    let partition = |slot: &u32| u64::from(slot / 3);
    let by_partition = Strategy::PerPartition { threads, partition };
    [Strategy::Pipelined, Strategy::Phases, by_partition, Strategy::Sequential]
}

pub(crate) fn random_limits(random: &mut Random, retries: u32) -> Limits {
    Limits {
        commands_max: 1 + random.below(40) as usize,
        iops_max: 1 + random.below(60) as usize,
        iops_in_flight: 1 + random.below(20) as usize,
        is_adaptive: random.below(100) < 30,
        retries,
    }
}

/// Runs a random history with faults that do not make the batcher give up.
fn check<const STAMPS: bool>(seed: u64, faults: Faults) {
    let mut random = Random::new(seed);
    for strategy in strategies(&mut random) {
        let limits = random_limits(&mut random, 100);
        let count = random.below(120) as usize;
        let changes = random_changes(&mut random, count, true);
        let expected = Sequential::of(&changes);
        let store = Sim::<STAMPS>::new(seed, limits.iops_in_flight);
        store.0.borrow_mut().faults = faults;
        // In half of the runs single operations take far longer than others.
        store.0.borrow_mut().tail = (random.below(2) == 0).then_some(1.5);
        let pause_us = random.below(3000);
        let (answers, acknowledged) =
            HistoryRun::new(&store, limits, strategy, changes, pause_us).finish(count);
        let outs: Vec<u64> = answers.into_values().map(Result::unwrap).collect();
        assert_eq!(outs, expected.outs, "{strategy:?}");
        assert_eq!(acknowledged, count);
        assert_eq!(store.values(), expected.state, "{strategy:?}");
    }
}

#[test]
fn any_strategy_equals_sequential_execution() {
    seeds(300, |seed| check::<true>(seed, Faults::default()));
    seeds(300, |seed| check::<false>(seed, Faults::default()));
}

#[test]
fn faults_do_not_change_the_result() {
    seeds(300, |seed| check::<true>(seed, Faults { refused: 10, unknown: 20, copied: 20 }));
    // Without stamps, writes of unknown outcome end the batcher.
    seeds(300, |seed| check::<false>(seed, Faults { refused: 30, ..Faults::default() }));
}

#[test]
fn batch_uses_each_slot_once_in_two_phases() {
    seeds(300, |seed| {
        let mut random = Random::new(seed);
        let count = 1 + random.below(200) as usize;
        let mut changes = random_changes(&mut random, count, false);
        // Each batch reads and writes, so that kinds of operations tell its phases apart.
        for change in &mut changes {
            change.reads.push(0);
            change.writes.push(1);
        }
        let limits = Limits { iops_max: usize::MAX, ..random_limits(&mut random, 0) };
        let store = Sim::<true>::new(seed, limits.iops_in_flight);
        HistoryRun::new(&store, limits, Strategy::Phases, changes, 0).finish(count);
        let mut phases = 0;
        let mut is_write = None;
        let mut used = BTreeSet::new();
        for operation in &store.0.borrow().sent {
            if is_write != Some(operation.is_write) {
                (is_write, phases) = (Some(operation.is_write), phases + 1);
                used.clear();
            }
            assert!(used.insert(operation.slot), "slot {} is used twice in a phase", operation.slot);
        }
        // All commands wait from the start, so that only the last batch is not full.
        assert!(phases <= 2 * count.div_ceil(limits.commands_max), "{phases} phases");
    });
}

#[test]
fn slots_left_out_cost_one_more_phase_of_reads() {
    seeds(300, |seed| {
        let changes = random_changes(&mut Random::new(seed), 100, true);
        let store = Sim::<true>::new(seed, 256);
        store.0.borrow_mut().random_us = 0;
        HistoryRun::new(&store, Limits::default(), Strategy::Phases, changes, 0).finish(100);
        let content = store.0.borrow();
        let starts_us: BTreeSet<u64> = content.sent.iter().map(|sent| sent.at_us).collect();
        assert!(starts_us.len() <= 3, "phases begin at {starts_us:?}");
        let used: BTreeSet<_> = content.sent.iter().map(|sent| (sent.slot, sent.is_write)).collect();
        assert_eq!(used.len(), content.sent.len(), "a slot is read or written twice");
    });
}

#[test]
fn pipelined_slot_is_read_once_and_written_for_all_that_wait() {
    seeds(100, |seed| {
        let mut random = Random::new(seed);
        let count = 1 + random.below(200) as usize;
        let changes = (0..count).map(|number| Change::new(number, &[7], &[7])).collect();
        let store = Sim::<true>::new(seed, 256);
        // All commands wait from the start.
        HistoryRun::new(&store, Limits::default(), Strategy::Pipelined, changes, 0).finish(count);
        let sent: Vec<bool> = store.0.borrow().sent.iter().map(|sent| sent.is_write).collect();
        assert_eq!(sent, [false, true]);
    });
}

#[test]
fn pipelined_command_waits_for_its_own_slots_only() {
    // The operations of slot 0 take 100 times as long as those of the others.
    let changes = (0..100).map(|number| Change::new(number, &[number as u32 % 10], &[number as u32 % 10]));
    let store = Sim::<true>::new(1, 256);
    (store.0.borrow_mut().fixed_us, store.0.borrow_mut().random_us) = (1000, 0);
    store.0.borrow_mut().slow = Some((0, 100_000));
    let mut run = HistoryRun::new(&store, Limits::default(), Strategy::Pipelined, changes.collect(), 0);
    run.executor.run(|| now_us() > 50_000);
    let early: Vec<usize> = run.answers.borrow().keys().copied().collect();
    assert_eq!(early, (0..100).filter(|number| number % 10 != 0).collect::<Vec<_>>());
    assert_eq!(run.handle.acknowledged_up_to(), 0, "the first command has not ended");
    let (_, acknowledged) = run.finish(100);
    assert_eq!(acknowledged, 100);
}

#[test]
fn writes_win_after_the_clock_stepped_back() {
    seeds(100, |seed| {
        let mut random = Random::new(seed);
        let mut changes = random_changes(&mut random, 100, false);
        for change in &mut changes {
            // A slot that is written without having been read remains at risk.
            change.reads.extend(change.writes.clone());
        }
        let expected = Sequential::of(&changes);
        let later = changes.split_off(50);
        let store = Sim::<true>::new(seed, 256);
        HistoryRun::new(&store, Limits::default(), Strategy::Pipelined, changes, 500).finish(50);
        // Each run begins at time 0, and with stamps from there.
        HistoryRun::new(&store, Limits::default(), Strategy::Pipelined, later, 500).finish(50);
        assert_eq!(store.values(), expected.state);
    });
}
