//! Turns of flows ([`sched::Rounds`]) against their bounds, by seeded histories.

use std::collections::HashMap;

use proptest::prelude::*;
use sched::{NO_FLOW, Rounds};
use testkit::Random;

mod common;

const QUANTUM: u64 = 50;
/// Largest cost of an item.
const ITEM_MAX: u64 = 60;

/// An item: its flow, its number in the flow, and its cost.
type Item = (u64, u64, u64);

/// Flows with a queue, and the work that each has used.
struct Core {
    rounds: Rounds<Item>,
    used: HashMap<u64, u64>,
    next: HashMap<u64, u64>,
    taken: HashMap<u64, u64>,
}

impl Core {
    fn new() -> Core {
        let rounds = Rounds::new(QUANTUM as u32);
        Core { rounds, used: HashMap::new(), next: HashMap::new(), taken: HashMap::new() }
    }

    fn push(&mut self, flow: u64, cost: u64) {
        let next = self.next.entry(flow).or_default();
        self.rounds.push(flow, (flow, *next, cost));
        *next += 1;
    }

    fn run(&mut self) -> Option<Item> {
        let before = self.rounds.len();
        let (flow, number, cost) = self.rounds.pop()?;
        assert_eq!(self.rounds.len(), before - 1);
        self.rounds.charge(cost);
        let taken = self.taken.entry(flow).or_default();
        assert_eq!(number, *taken, "items of a flow keep their order");
        *taken += 1;
        *self.used.entry(flow).or_default() += cost;
        Some((flow, number, cost))
    }
}

/// Returns the work of others between a polite flow's only item and its turn, at most, when
/// `others` flows have `items` items each.
fn longest_wait(others: u64, items: u64, random: &mut Random) -> u64 {
    let mut core = Core::new();
    let polite = others + 1;
    for flow in 1..=others {
        (0..items).for_each(|_| core.push(flow, 1 + random.below(ITEM_MAX)));
    }
    let mut longest = 0;
    for _ in 0..20 {
        // Others may run before it comes, and pour on.
        for _ in 0..random.below(2 * others) {
            let Some((flow, ..)) = core.run() else { break };
            core.push(flow, 1 + random.below(ITEM_MAX));
        }
        core.push(polite, 1 + random.below(QUANTUM));
        let mut waited = 0;
        loop {
            let (flow, _, cost) = core.run().expect("it waits");
            if flow == polite {
                break;
            }
            waited += cost;
            core.push(flow, 1 + random.below(ITEM_MAX));
        }
        longest = longest.max(waited);
    }
    longest
}

proptest! {
    #![proptest_config(common::config(64))]

    #[test]
    fn polite_flow_waits_for_one_quantum_of_each_other(others in 1_u64..40, seed: u64) {
        let mut random = Random::new(seed);
        let bound = others * (QUANTUM + ITEM_MAX);
        // Ten thousand items in a flow delay it no more than one.
        for items in [1, 2, 250] {
            let waited = longest_wait(others, items, &mut random);
            prop_assert!(waited <= bound, "{waited} > {bound} beside {others} flows with {items} items");
        }
    }

    #[test]
    fn busy_flows_use_the_same_work(flows in 2_u64..12, seed: u64) {
        let mut random = Random::new(seed);
        let mut core = Core::new();
        // The size of items differs by flow, and so does the number that waits.
        let cost = |flow: u64, random: &mut Random| 1 + random.below(1 + ITEM_MAX * flow / flows);
        for flow in 1..=flows {
            (0..flow * flow).for_each(|_| core.push(flow, 1 + random.below(ITEM_MAX)));
        }
        let mut before: Vec<u64> = vec![0; flows as usize];
        for step in 0..4000 {
            let (flow, ..) = core.run().expect("all flows have items");
            let next = cost(flow, &mut random);
            core.push(flow, next);
            // Over the whole time, and from a moment in the middle.
            let used = |flow: u64| core.used.get(&flow).copied().unwrap_or(0);
            if step == 1000 {
                before = (1..=flows).map(used).collect();
            }
            let since = (1..=flows).map(|flow| used(flow) - before[flow as usize - 1]);
            let (least, most) = (since.clone().min().unwrap_or(0), since.max().unwrap_or(0));
            let bound = (QUANTUM + ITEM_MAX) * if step < 1000 { 1 } else { 2 };
            prop_assert!(most - least <= bound, "{least} to {most} at step {step}");
        }
    }

    /// Flows come and go, so that some are forgotten and others get their places.
    #[test]
    fn any_number_finds_the_place_of_a_flow(seed: u64) {
        let mut random = Random::new(seed);
        let (mut found, mut searched) = (Rounds::new(QUANTUM as u32), Rounds::new(QUANTUM as u32));
        let mut places: HashMap<u64, u32> = HashMap::new();
        for step in 0..5000 {
            let flow = 1 + step / 20 + random.below(100);
            let before = match random.below(3) {
                0 => random.below(300) as u32,
                _ => places.get(&flow).copied().unwrap_or(0),
            };
            let place = found.place_of(flow, before);
            places.insert(flow, place);
            found.push_to(place, (flow, step));
            searched.push(flow, (flow, step));
            let cost = random.below(2 * QUANTUM);
            for _ in 0..random.below(3) {
                prop_assert_eq!(found.pop(), searched.pop());
                found.charge(cost);
                searched.charge(cost);
            }
        }
        prop_assert_eq!(found.take_all(), searched.take_all());
    }

    #[test]
    fn every_item_is_taken_once(seed: u64) {
        let mut random = Random::new(seed);
        let mut core = Core::new();
        let mut left = 0;
        for _ in 0..2000 {
            match random.below(5) {
                0..=2 => {
                    core.push(random.below(6), random.below(10 * QUANTUM));
                    left += 1;
                }
                3 => left -= usize::from(core.run().is_some()),
                _ => {
                    let front = core.rounds.front().copied();
                    prop_assert_eq!(front.is_some(), left > 0);
                    prop_assert_eq!(core.run(), front);
                    left -= usize::from(front.is_some());
                }
            }
            prop_assert_eq!(core.rounds.len(), left);
        }
        prop_assert_eq!(core.rounds.take_all().len(), left);
        prop_assert!(core.rounds.is_empty() && core.run().is_none());
    }
}

#[test]
fn items_of_no_flow_keep_their_places() {
    let mut rounds = Rounds::new(QUANTUM as u32);
    for (flow, item) in [(1, 'a'), (NO_FLOW, 'x'), (1, 'b'), (2, 'c'), (NO_FLOW, 'y'), (1, 'd')] {
        rounds.push(flow, item);
    }
    let order: String = std::iter::from_fn(|| {
        let item = rounds.pop()?;
        rounds.charge(QUANTUM);
        Some(item)
    })
    .collect();
    assert_eq!(order, "axcybd");
}

/// An item of four quanta: others get as much before its flow has another turn.
#[test]
fn overrun_is_repaid_before_the_next_turn() {
    let mut rounds = Rounds::new(QUANTUM as u32);
    for _ in 0..10 {
        rounds.push(1, (1, 4 * QUANTUM));
        (0..10).for_each(|_| rounds.push(2, (2, QUANTUM / 2)));
    }
    let mut used = [0, 0];
    for _ in 0..40 {
        let (flow, cost): (u64, u64) = rounds.pop().expect("both have items");
        rounds.charge(cost);
        used[flow as usize - 1] += cost;
    }
    assert!(used[0].abs_diff(used[1]) <= 5 * QUANTUM, "{used:?}");
}

/// A pause of the machine in an item delays its flow by four turns, not by thousands.
#[test]
fn debt_is_bounded_and_forgiven_when_no_item_waits() {
    let mut rounds = Rounds::new(QUANTUM as u32);
    rounds.push(1, 'p');
    assert_eq!(rounds.pop(), Some('p'));
    rounds.charge(1_000_000);
    rounds.push(1, 'q');
    (0..100).for_each(|_| rounds.push(2, 'o'));
    let mut others = 0;
    while rounds.pop() != Some('q') {
        rounds.charge(QUANTUM);
        others += 1;
    }
    assert!(others <= 5, "{others}");
    rounds.charge(1_000_000);
    rounds.take_all();
    assert_eq!(rounds.pop(), None);
    rounds.push(1, 'r');
    rounds.push(2, 's');
    assert_eq!(rounds.pop(), Some('r'), "its debt is forgiven");
}
