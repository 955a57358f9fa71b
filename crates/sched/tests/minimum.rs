//! Tests of the bounds of minimums that `docs/scheduler.md` proves. The minimum and the share of
//! the rest are exact. No group starves while minimums are below 100 %. A sleeper gains no more
//! than the bound.

mod common;

use common::{Recorded, SAVED_NS, config};
use proptest::prelude::*;
use sched::{Class, LAG_NS_MAX, NodeSpec, SLICE_NS, Tree};
use testkit::Random;

/// Rounding of one clock, ns: a unit of a minimum's clock is 1 µs of its parent's CPU.
const ROUNDING: f64 = 1_000.0;

fn with_minimum(shares: u32, min_ppm: u32) -> NodeSpec {
    NodeSpec { min_ppm, ..NodeSpec::new(shares, Class::Normal) }
}

/// Creates a parent and children with random specifications, whose minimums add up to at most
/// `sum_ppm`.
fn family(random: &mut Random, children: usize, sum_ppm: u32) -> Recorded {
    let mut recorded = Recorded::new();
    let parent = recorded.add(0, NodeSpec::new(1000, Class::Normal));
    let mut left_ppm = sum_ppm;
    for _ in 0..children {
        let min_ppm = if random.one_in(3) { 0 } else { random.within(0, u64::from(left_ppm) + 1) as u32 };
        left_ppm -= min_ppm;
        let spec = NodeSpec { min_ppm, ..common::spec(random) };
        recorded.add(parent, spec);
    }
    recorded
}

/// Changes a random child that is not in `spared`. Minimums stay.
fn disturb(recorded: &mut Recorded, random: &mut Random, spared: &[usize]) {
    let at = random.within(2, recorded.nodes.len() as u64) as usize;
    if spared.contains(&at) {
        return;
    }
    let id = recorded.nodes[at].id;
    match random.within(0, 6) {
        0 => {
            let spec = NodeSpec { min_ppm: recorded.nodes[at].spec.min_ppm, ..common::spec(random) };
            recorded.set(at, spec);
        }
        1 | 2 => recorded.tree.wake(id),
        3 => recorded.tree.idle(id),
        4 => recorded.tree.throttle(id, true),
        _ => recorded.tree.throttle(id, false),
    }
}

/// Returns (CPU time − minimum of the parent's CPU time) ÷ shares.
fn served_by_shares(recorded: &Recorded, at: usize) -> f64 {
    let node = &recorded.nodes[at];
    let minimum_ns = recorded.nodes[1].charged_ns as f64 * f64::from(node.spec.min_ppm) / 1e6;
    (node.charged_ns as f64 - minimum_ns) / f64::from(node.spec.shares)
}

/// Returns the most by which [`served_by_shares`] may differ from that of a sibling. It is the
/// bound without minimums, and the most that a node may lag behind its minimum or be ahead of it.
/// `lag_ns` is the lag that it may repay.
fn reach(recorded: &Recorded, at: usize, lag_ns: u64) -> f64 {
    let minimums = recorded.nodes.iter().filter(|node| node.spec.min_ppm > 0).count() as f64;
    let longest = recorded.nodes[1].longest_ns as f64;
    let node = &recorded.nodes[at];
    let minimum_ns = match node.spec.min_ppm {
        0 => 0.0,
        _ => minimums * (SLICE_NS as f64 + longest + ROUNDING) + longest,
    };
    recorded.reach(at, SLICE_NS + lag_ns) + minimum_ns / f64::from(node.spec.shares)
}

/// Checks two siblings that are backlogged from some moment on, whatever the others do. Over any
/// interval each gets its minimum, and both divide the rest by shares.
fn check_exact(seed: u64, children: usize) {
    let mut random = Random::new(seed);
    let sum_ppm = random.pick(&[1_000_000, 900_000, 300_000]);
    let mut recorded = family(&mut random, children, sum_ppm);
    let longest = random.pick(&[5_000, 500_000, 20_000_000]);
    for _ in 0..random.within(0, 300) {
        disturb(&mut recorded, &mut random, &[]);
        let ran_ns = common::slice_ns(&mut random, longest);
        recorded.run_while(ran_ns, |recorded| disturb(recorded, &mut random, &[]));
    }
    let kept = [2, 3];
    for leaf in kept {
        recorded.tree.throttle(recorded.nodes[leaf].id, false);
        recorded.tree.wake(recorded.nodes[leaf].id);
    }
    let [a, b] = kept;
    let lag_ns = kept.map(|at| recorded.tree.lag_ns(recorded.nodes[at].id));
    let (mut least, mut most) = (0.0_f64, 0.0_f64);
    let start = served_by_shares(&recorded, a) - served_by_shares(&recorded, b);
    for _ in 0..2_000 {
        disturb(&mut recorded, &mut random, &kept);
        let ran_ns = common::slice_ns(&mut random, longest);
        recorded.run_while(ran_ns, |recorded| disturb(recorded, &mut random, &kept)).expect("two are awake");
        let ahead = served_by_shares(&recorded, a) - served_by_shares(&recorded, b) - start;
        (least, most) = (least.min(ahead), most.max(ahead));
        let bound = reach(&recorded, a, lag_ns[0]) + reach(&recorded, b, lag_ns[1]) + ROUNDING;
        assert!(most - least <= bound, "{} > {bound}", most - least);
    }
}

/// Checks that while a leaf without a minimum waits, the others get at most their minimums and what
/// brings their clocks up to its clock.
fn check_no_group_starves(seed: u64, siblings: u32, sum_ppm: u32) {
    let mut random = Random::new(seed);
    let mut recorded = Recorded::new();
    let waiting = recorded.add(0, NodeSpec::new(1, Class::Batch));
    for _ in 0..siblings {
        let spec = NodeSpec { shares: 1000, min_ppm: sum_ppm / siblings, ..common::spec(&mut random) };
        recorded.add(0, spec);
    }
    recorded.tree.wake(recorded.nodes[waiting].id);
    let longest = 50_000_u64;
    let by_shares = u64::from(siblings) * (1000 * longest + SAVED_NS + longest);
    let minimums = u64::from(siblings) * (SLICE_NS + 2 * longest);
    let reach = (by_shares + minimums) as f64 / (1.0 - f64::from(sum_ppm) / 1e6);
    let (mut others_ns, mut all_ns) = (0, 0);
    while all_ns as f64 <= 3.0 * reach {
        for _ in 0..3 {
            let other = random.within(2, recorded.nodes.len() as u64) as usize;
            let id = recorded.nodes[other].id;
            if random.one_in(2) { recorded.tree.wake(id) } else { recorded.tree.idle(id) }
        }
        let before = recorded.nodes[waiting].picks;
        let ran = random.within(longest / 2, longest);
        recorded.run(ran);
        (others_ns, all_ns) = (others_ns + ran, all_ns + ran);
        if recorded.nodes[waiting].picks > before {
            others_ns = 0;
        }
        assert!(others_ns as f64 <= reach, "waited for {others_ns} > {reach}");
    }
}

/// Checks a group with a minimum that sleeps and wakes at will alongside one that is always
/// backlogged. Over the whole history it gets ahead of its minimum and its share by at most the sum
/// of both bounds.
fn check_naps_gain_at_most_the_bound(seed: u64, napper: NodeSpec, worker_shares: u32) {
    let mut random = Random::new(seed);
    let mut recorded = Recorded::new();
    let users = recorded.add(0, NodeSpec::new(1000, Class::Normal));
    let worker = recorded.add(users, NodeSpec::new(worker_shares, Class::Normal));
    let sleeper = recorded.add(users, napper);
    let id = recorded.nodes[sleeper].id;
    recorded.tree.wake(recorded.nodes[worker].id);
    let nap = random.pick(&[2, 10, 200]);
    let toggle = |recorded: &mut Recorded, now: bool| match now {
        true if recorded.tree.is_awake(id) => recorded.tree.idle(id),
        true => recorded.tree.wake(id),
        false => {}
    };
    let mut since: Vec<f64> = Vec::new();
    for _ in 0..2_000 {
        toggle(&mut recorded, random.one_in(nap));
        since.push(served_by_shares(&recorded, sleeper) - served_by_shares(&recorded, worker));
        let ran_ns = common::slice_ns(&mut random, 700_000);
        recorded.run_while(ran_ns, |recorded| toggle(recorded, random.one_in(nap)));
    }
    let bound = reach(&recorded, sleeper, LAG_NS_MAX.into()) + reach(&recorded, worker, 0) + ROUNDING;
    let mut least = f64::MAX;
    for ahead in since {
        least = least.min(ahead);
        assert!(ahead - least <= bound, "gained {} > {bound}", ahead - least);
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn minimum_and_share_of_the_rest_are_exact(seed: u64, children in 2_usize..12) {
        check_exact(seed, children);
    }

    #[test]
    fn a_sleeper_gains_at_most_the_bound(
        seed: u64,
        shares in 1_u32..=1000,
        worker_shares in 1_u32..=1000,
        min_ppm in 1_u32..=1_000_000,
        class in prop_oneof![Just(Class::Latency), Just(Class::Batch), Just(Class::Normal)],
    ) {
        check_naps_gain_at_most_the_bound(seed, NodeSpec { shares, class, min_ppm }, worker_shares);
    }
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn no_group_starves_while_minimums_are_below_the_whole(seed: u64, siblings in 1_u32..5, sum_ppm in 1_u32..950_000) {
        check_no_group_starves(seed, siblings, sum_ppm);
    }
}

/// Runs levels `(shares, minimum in percent)` under `users`, all backlogged, for 20,000 slices.
/// Returns each level's percentage of the CPU of all users.
fn percent(levels: &[(u32, u32)]) -> Vec<f64> {
    let mut recorded = Recorded::new();
    let users = recorded.add(0, NodeSpec::new(1000, Class::Normal));
    let system = recorded.add(0, NodeSpec::new(200, Class::Normal));
    let add = |&(shares, percent): &(u32, u32)| recorded.add(users, with_minimum(shares, percent * 10_000));
    let added: Vec<usize> = levels.iter().map(add).collect();
    recorded.leaves().iter().for_each(|&leaf| recorded.tree.wake(recorded.nodes[leaf].id));
    (0..24_000).for_each(|_| assert!(recorded.run(SLICE_NS).is_some()));
    assert_eq!(recorded.nodes[system].picks, 4_000, "minimums divide the CPU of the users only");
    let of =
        |&at: &usize| recorded.nodes[at].charged_ns as f64 * 100.0 / recorded.nodes[users].charged_ns as f64;
    added.iter().map(of).collect()
}

#[test]
fn minimums_are_served_first_and_the_rest_by_shares() {
    let check = |levels: &[(u32, u32)], expected: &[f64]| {
        for (got, expected) in percent(levels).into_iter().zip(expected) {
            assert!((got - expected).abs() <= 0.02, "{levels:?}: {got} % and not {expected} %");
        }
    };
    check(&[(100, 20), (300, 0)], &[20.0 + 20.0, 60.0]);
    check(&[(1, 50), (1000, 0)], &[50.0 + 50.0 / 1001.0, 50.0 * 1000.0 / 1001.0]);
    check(&[(100, 20), (100, 40), (200, 0)], &[20.0 + 10.0, 40.0 + 10.0, 20.0]);
    check(&[(100, 60), (100, 40), (1000, 0)], &[60.0, 40.0, 0.0]);
    check(&[(7, 100)], &[100.0]);
    check(&[(100, 1), (100, 0)], &[50.5, 49.5]);
}

/// A level that wakes and lags behind its minimum precedes levels that go by shares, however few
/// shares it has.
#[test]
fn level_precedes_until_it_has_had_its_minimum() {
    let mut tree = Tree::new();
    let many = tree.add(Tree::ROOT, NodeSpec::new(1000, Class::Normal));
    // The batch class has no wake-up credit, so its precedence comes from the minimum alone.
    let few = tree.add(Tree::ROOT, NodeSpec { class: Class::Batch, ..with_minimum(1, 200_000) });
    tree.wake(few);
    (0..50).for_each(|_| tree.charge(few, SLICE_NS));
    tree.idle(few);
    tree.wake(many);
    (0..200).for_each(|_| tree.charge(many, SLICE_NS));
    tree.wake(few);
    assert!(tree.precedes(few, many) && tree.pick() == Some(few));
    tree.charge(few, 2 * SLICE_NS);
    assert!(tree.precedes(many, few), "its minimum is paid 10 slices in advance, and it has one share");
    assert_eq!(tree.pick(), Some(many));
}

/// A minimum acts as soon as it is set, also on waiting levels, and ends when it is removed.
#[test]
fn new_minimum_acts_at_once() {
    let mut recorded = Recorded::new();
    let few = recorded.add(0, NodeSpec::new(1, Class::Normal));
    let many = recorded.add(0, NodeSpec::new(1000, Class::Normal));
    [few, many].iter().for_each(|&leaf| recorded.tree.wake(recorded.nodes[leaf].id));
    let mut picks_of_100 = |min_ppm: u32| {
        recorded.set(few, with_minimum(1, min_ppm));
        let before = recorded.nodes[few].picks;
        (0..100).for_each(|_| assert!(recorded.run(SLICE_NS).is_some()));
        recorded.nodes[few].picks - before
    };
    assert!(picks_of_100(0) <= 1);
    assert!((30..=31).contains(&picks_of_100(300_000)));
    assert!((59..=61).contains(&picks_of_100(600_000)));
    assert!(picks_of_100(0) <= 1);
    assert!((9..=11).contains(&picks_of_100(100_000)));
}

/// A minimum changes nothing for a level that is alone, and the CPU it used alone is no debt later.
#[test]
fn minimum_of_a_lone_level_changes_nothing() {
    let mut recorded = Recorded::new();
    let alone = recorded.add(0, with_minimum(100, 200_000));
    let other = recorded.add(0, NodeSpec::new(100, Class::Batch));
    recorded.tree.wake(recorded.nodes[alone].id);
    (0..1_000).for_each(|_| assert_eq!(recorded.run(SLICE_NS), Some(alone)));
    recorded.tree.wake(recorded.nodes[other].id);
    let before = recorded.nodes[alone].picks;
    (0..100).for_each(|_| assert!(recorded.run(SLICE_NS).is_some()));
    let picks = recorded.nodes[alone].picks - before;
    assert!((59..=61).contains(&picks), "{picks} of 100");
}
