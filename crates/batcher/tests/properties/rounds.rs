//! P2, P10 and P11: the chains of dependencies that rules leave.

use std::collections::{BTreeMap, BTreeSet};

use batcher::{Footprint, Limits, Rules, Strategy, levels};

use crate::executor::now_us;
use crate::history::{Change, HistoryRun, Sequential, Value, random_changes};
use crate::seeds::seeds;
use crate::store::Sim;
use testkit::Random;

/// A read or write of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    command: usize,
    slot: u32,
    is_write: bool,
}

/// All operations in order. Each command reads before it writes.
fn operations(changes: &[Change]) -> Vec<Operation> {
    let mut all = Vec::new();
    for (command, change) in changes.iter().enumerate() {
        for (slots, is_write) in [(&change.reads, false), (&change.writes, true)] {
            let slots: BTreeSet<u32> = slots.iter().copied().collect();
            all.extend(slots.into_iter().map(|slot| Operation { command, slot, is_write }));
        }
    }
    all
}

/// Returns the round of each operation: one more than the largest of the operations before it that
/// it must wait for.
fn rounds(operations: &[Operation], must_wait: impl Fn(Operation, Operation) -> bool) -> Vec<usize> {
    let mut rounds: Vec<usize> = Vec::new();
    for (index, after) in operations.iter().enumerate() {
        let before = operations[..index].iter().zip(&rounds);
        let waits = before.filter(|(before, _)| must_wait(**before, *after));
        rounds.push(1 + waits.map(|(_, round)| *round).max().unwrap_or(0));
    }
    rounds
}

/// Rules 1 and 2: a read observes earlier writes, and the last write wins. Own reads come first.
fn without_rule_three(before: Operation, after: Operation) -> bool {
    let is_own = before.command == after.command && !before.is_write && after.is_write;
    is_own || before.slot == after.slot && before.is_write
}

/// Rule 3 as well: a write comes after earlier reads of its slot.
fn with_rule_three(before: Operation, after: Operation) -> bool {
    without_rule_three(before, after) || before.slot == after.slot && after.is_write
}

/// Rounds if overwritten values are not sent, and values that commands have written are known.
fn folded(changes: &[Change]) -> usize {
    /// Round after which the value of a slot is known to command `number`.
    fn known(changes: &[Change], number: usize, slot: u32) -> usize {
        match changes[..number].iter().rposition(|change| change.writes.contains(&slot)) {
            Some(writer) => computed(changes, writer),
            None => 1,
        }
    }
    fn computed(changes: &[Change], number: usize) -> usize {
        changes[number].reads.iter().map(|slot| known(changes, number, *slot)).max().unwrap_or(0)
    }
    let is_written_before =
        |number: usize, slot: u32| changes[..number].iter().any(|it| it.writes.contains(&slot));
    let mut most = 0;
    let slots: BTreeSet<u32> =
        changes.iter().flat_map(|it| it.reads.iter().chain(&it.writes)).copied().collect();
    for slot in slots {
        let mut reads = changes.iter().enumerate().filter(|(_, it)| it.reads.contains(&slot));
        let read = usize::from(reads.any(|(number, _)| !is_written_before(number, slot)));
        let writer = changes.iter().rposition(|change| change.writes.contains(&slot));
        most = most.max(writer.map_or(read, |writer| 1 + read.max(computed(changes, writer))));
    }
    most
}

#[test]
fn levels_are_the_longest_chains() {
    seeds(1000, |seed| {
        let mut random = Random::new(seed);
        let count = random.below(14) as usize;
        let changes = random_changes(&mut random, count, false);
        let footprint =
            |change: &Change| Footprint { reads: change.reads.clone(), writes: change.writes.clone() };
        let footprints: Vec<Footprint<u32>> = changes.iter().map(footprint).collect();
        let most = rounds(&operations(&changes), with_rule_three).into_iter().max().unwrap_or(0);
        let [per_partition, happens_before, least] =
            [Rules::PerPartition(|slot| u64::from(slot / 3)), Rules::HappensBefore, Rules::Folded]
                .map(|rules| levels(&footprints, rules));
        assert_eq!(happens_before, most);
        assert_eq!(least, folded(&changes));
        assert!(least <= 2 && least <= happens_before && happens_before <= per_partition);
    });
}

/// Tenant A has slots 0 to 2, tenant B the others.
fn example() -> Vec<Change> {
    vec![Change::new(0, &[0], &[1]), Change::new(1, &[2], &[1]), Change::new(2, &[3], &[4])]
}

#[test]
fn worked_example_takes_two_rounds() {
    let rounds_of = |strategy, changes: Vec<Change>| {
        let count = changes.len();
        let store = Sim::<true>::new(1, 256);
        (store.0.borrow_mut().fixed_us, store.0.borrow_mut().random_us) = (1000, 0);
        HistoryRun::new(&store, Limits::default(), strategy, changes, 0).finish(count);
        (now_us() / 1000, store.0.borrow().sent.len())
    };
    let partition = |slot: &u32| u64::from(*slot > 2);
    assert_eq!(rounds_of(Strategy::PerPartition { threads: 8, partition }, example()), (4, 6));
    assert_eq!(rounds_of(Strategy::Phases, example()), (2, 5));
    assert_eq!(rounds_of(Strategy::Pipelined, example()), (3, 6));
    // The value that a command needs is one that a command before it has written.
    let synthesised = vec![Change::new(0, &[], &[1]), Change::new(1, &[1], &[4])];
    assert_eq!(rounds_of(Strategy::Phases, synthesised), (1, 2));
}

/// Runs all operations round by round, in each round the writes before the reads. Returns true if
/// state and outputs are those of sequential execution.
fn is_sequential(changes: &[Change], must_wait: impl Fn(Operation, Operation) -> bool) -> bool {
    let operations = operations(changes);
    let rounds = rounds(&operations, must_wait);
    let mut state: BTreeMap<u32, Value> = BTreeMap::new();
    let mut read: BTreeMap<(usize, u32), Option<Value>> = BTreeMap::new();
    for round in 1..=rounds.iter().copied().max().unwrap_or(0) {
        for is_write in [true, false] {
            let now =
                operations.iter().zip(&rounds).filter(|(it, of)| **of == round && it.is_write == is_write);
            for (operation, _) in now {
                let Operation { command, slot, .. } = *operation;
                let change = &changes[command];
                if is_write {
                    let (_, writes) = change.run(change.reads.iter().map(|slot| read[&(command, *slot)]));
                    let value =
                        writes.iter().rfind(|(written, _)| *written == slot).and_then(|(_, value)| *value);
                    state.insert(slot, value.expect("these commands delete nothing"));
                } else {
                    read.insert((command, slot), state.get(&slot).copied());
                }
            }
        }
    }
    let expected = Sequential::of(changes);
    let out = |number: usize| {
        changes[number].run(changes[number].reads.iter().map(|slot| read[&(number, *slot)])).0
    };
    state == expected.state && (0..changes.len()).map(out).collect::<Vec<u64>>() == expected.outs
}

#[test]
fn missing_rule_three_is_seen() {
    // With a = 0, b = 1 and c = 2: { write a }, { read a; write c := f(a) }, { write a }.
    let counterexample = [Change::new(0, &[], &[0]), Change::new(1, &[0], &[2]), Change::new(2, &[], &[0])];
    assert!(is_sequential(&counterexample, with_rule_three));
    assert!(!is_sequential(&counterexample[1..], without_rule_three));
    let mut wrong = 0;
    seeds(500, |seed| {
        let changes = random_changes(&mut Random::new(seed), 10, false);
        assert!(is_sequential(&changes, with_rule_three));
    });
    for seed in 1..=500 {
        let changes = random_changes(&mut Random::new(seed), 10, false);
        wrong += u32::from(!is_sequential(&changes, without_rule_three));
    }
    assert!(wrong > 100, "only {wrong} of 500 histories need rule 3");
}
