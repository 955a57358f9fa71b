//! P7: commands held and operations in flight stay within bounds. [`crate::store::Sim`] asserts the
//! latter in each test.

use batcher::{Limits, Strategy};

use crate::executor::now_us;
use crate::history::{Change, HistoryRun};
use crate::order::strategies;
use crate::seeds::seeds;
use crate::store::Sim;
use testkit::Random;

#[test]
fn push_waits_while_the_batcher_is_full() {
    seeds(50, |seed| {
        let mut random = Random::new(seed);
        for strategy in strategies(&mut random) {
            let commands_max = 1 + random.below(20) as usize;
            let limits = Limits { commands_max, iops_in_flight: 4, ..Limits::default() };
            let store = Sim::<true>::new(seed, 4);
            // The store does not answer before this time.
            store.0.borrow_mut().fixed_us = 1_000_000;
            let changes: Vec<Change> = (0..100).map(|number| Change::new(number, &[1], &[1])).collect();
            let mut run = HistoryRun::new(&store, limits, strategy, changes, 0);
            run.executor.run(|| now_us() > 0);
            assert_eq!(run.pushed.get(), 2 * commands_max, "{strategy:?}");
            let answers = run.answers.clone();
            let pushed = run.pushed.clone();
            let mut last_us = 0;
            run.executor.run(|| {
                // When the clock has moved, all tasks have seen their answers.
                if now_us() > last_us {
                    last_us = now_us();
                    assert!(pushed.get() <= answers.borrow().len() + 2 * commands_max);
                }
                false
            });
            run.finish(100);
        }
    });
}

/// Returns a limit with each strategy that batches.
fn both(limit: usize) -> [(usize, Strategy<u32>); 2] {
    [(limit, Strategy::Pipelined), (limit, Strategy::Phases)]
}

#[test]
fn operations_use_the_whole_limit() {
    for (iops_in_flight, strategy) in [1, 7, 64].into_iter().flat_map(both) {
        let limits = Limits { iops_in_flight, ..Limits::default() };
        let store = Sim::<true>::new(1, iops_in_flight);
        let changes =
            (0..1000).map(|number| Change::new(number, &[number as u32], &[number as u32])).collect();
        HistoryRun::new(&store, limits, strategy, changes, 0).finish(1000);
        assert_eq!(store.0.borrow().in_flight_most, iops_in_flight);
    }
}

#[test]
fn few_slots_run_at_once() {
    for (iops_max, strategy) in [1, 4, 10, 100].into_iter().flat_map(both) {
        let limits = Limits { iops_max, iops_in_flight: 1000, ..Limits::default() };
        let store = Sim::<true>::new(1, 1000);
        let slots = |number: u32| [3 * number, 3 * number + 1, 3 * number + 2];
        let change = |number: u32| Change::new(number as usize, &slots(number)[..2], &slots(number)[1..]);
        HistoryRun::new(&store, limits, strategy, (0..300).map(change).collect(), 0).finish(300);
        // Each command has two reads and two writes.
        assert_eq!(store.0.borrow().in_flight_most, 2 * (iops_max / 4).max(1));
    }
}
