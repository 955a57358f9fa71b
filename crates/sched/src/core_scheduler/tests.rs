//! Decisions of one core. Each test provides the time and the CPU that each leaf used.

use super::*;
use crate::{Class, LATENCY_SLICE_NS, SLICE_NS};

const NORMAL: NodeSpec = NodeSpec::new(100, Class::Normal);
const FAST: Queued = Queued { fast: true, heavy: false };
const HEAVY: Queued = Queued { fast: false, heavy: true };
const BOTH: Queued = Queued { fast: true, heavy: true };

struct Core {
    scheduler: CoreScheduler,
}

impl Core {
    fn new() -> Core {
        let spec = |shares| NodeSpec::new(shares, Class::Normal);
        Core { scheduler: CoreScheduler::new(spec(1000), spec(200)) }
    }

    fn level(&mut self, node: NodeSpec, cpu_limit_ppm: u32) -> NodeId {
        self.scheduler.add(Parent::Users, LeafSpec { node, cpu_limit_ppm })
    }

    fn background(&mut self) -> NodeId {
        let node = NodeSpec::new(200, Class::Batch);
        self.scheduler.add(Parent::System, LeafSpec { node, cpu_limit_ppm: 0 })
    }

    fn next(&mut self, now_ns: u64, queued: Queued) -> Decision {
        self.scheduler.next(now_ns, |_| queued)
    }
}

#[test]
fn idle_core_sleeps_and_empty_leaf_is_reported() {
    let mut core = Core::new();
    let level = core.level(NORMAL, 0);
    assert_eq!(core.next(0, FAST), Decision::Sleep);
    assert!(core.scheduler.woke(level) && !core.scheduler.woke(level));
    assert_eq!(core.next(0, Queued { fast: false, heavy: false }), Decision::Empty(level));
    assert_eq!(core.scheduler.mark_idle(level), 0);
    assert_eq!(core.next(0, FAST), Decision::Sleep);
}

#[test]
fn slices_are_short_while_a_latency_leaf_waits() {
    let mut core = Core::new();
    let level = core.level(NORMAL, 0);
    core.scheduler.woke(level);
    assert_eq!(core.next(0, FAST), Decision::Run(level, SLICE_NS));
    assert!(!core.scheduler.backlogged_beside(level));
    let latency = core.level(NodeSpec::new(1, Class::Latency), 0);
    core.scheduler.woke(latency);
    assert!(core.scheduler.backlogged_beside(level));
    assert!(matches!(core.next(0, FAST), Decision::Run(_, LATENCY_SLICE_NS)));
}

#[test]
fn heavy_work_of_a_leaf_is_not_starved_by_its_fast_work() {
    let mut core = Core::new();
    let level = core.level(NORMAL, 0);
    core.scheduler.woke(level);
    let mut lanes = Vec::new();
    for _ in 0..12 {
        let decision = core.next(0, BOTH);
        lanes.push(matches!(decision, Decision::Run(..)));
        match decision {
            Decision::Run(leaf, slice_ns) => core.scheduler.ran(leaf, slice_ns),
            Decision::Yield(leaf, _) => core.scheduler.used(leaf, Lane::Heavy, SLICE_NS),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(lanes.iter().filter(|&&fast| !fast).count(), 2, "one slice in five: {lanes:?}");
}

/// Regression: the slice of heavy work ended only when CPU was charged for it. Another program can
/// leave the heavy lane none, and the requests of its group then never ran.
#[test]
fn fast_work_goes_on_beside_heavy_work_that_gets_no_cpu() {
    let mut core = Core::new();
    let level = core.level(NORMAL, 0);
    core.scheduler.woke(level);
    let mut fast = 0;
    for _ in 0..12 {
        match core.next(0, BOTH) {
            Decision::Run(leaf, slice_ns) => {
                core.scheduler.ran(leaf, slice_ns);
                fast += 1;
            }
            Decision::Yield(..) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fast, 10, "four slices in five");
}

#[test]
fn capped_leaf_asks_for_a_lease_and_gives_back_the_rest() {
    let mut core = Core::new();
    let level = core.level(NORMAL, 500_000);
    core.scheduler.woke(level);
    assert_eq!(core.next(0, FAST), Decision::Lease(level, cap::LEASE_NS));
    assert_eq!(core.next(0, HEAVY), Decision::Lease(level, cap::LONG_LEASE_NS));
    core.scheduler.granted(level, cap::LEASE_NS);
    assert_eq!(core.next(0, FAST), Decision::Run(level, SLICE_NS));
    core.scheduler.ran(level, cap::LEASE_NS - 10_000);
    assert_eq!(core.next(0, HEAVY), Decision::Yield(level, LATENCY_SLICE_NS), "more than 10 µs");
    core.scheduler.used(level, Lane::Heavy, 50_000);
    assert_eq!(core.next(0, FAST), Decision::Lease(level, cap::LEASE_NS + 40_000));
    core.scheduler.throttle(level, 5_000);
    assert_eq!((core.next(0, FAST), core.scheduler.next_unthrottle_ns()), (Decision::Sleep, Some(5_000)));
    assert_eq!(core.scheduler.unthrottle(4_999), None);
    let payer = |slept, now_ns| core.scheduler.wake_up_payer(None, slept, now_ns);
    assert_eq!([payer(true, 4_999), payer(false, 5_000), payer(true, 5_000)], [None, None, Some(level)]);
    assert_eq!(core.scheduler.unthrottle(5_000), Some(level));
    core.scheduler.granted(level, 2 * cap::LEASE_NS);
    assert_eq!(core.scheduler.mark_idle(level), 2 * cap::LEASE_NS - 40_000);
}

#[test]
fn new_limit_acts_on_a_throttled_leaf() {
    let mut core = Core::new();
    let level = core.level(NORMAL, 10_000);
    core.scheduler.woke(level);
    core.scheduler.throttle(level, u64::MAX);
    core.scheduler.set(level, LeafSpec { node: NORMAL, cpu_limit_ppm: 0 });
    assert_eq!(core.scheduler.unthrottle(1), Some(level));
    assert_eq!(core.next(1, FAST), Decision::Run(level, SLICE_NS));
}

#[test]
fn waking_leaf_preempts_a_leaf_that_is_ahead_or_was_alone() {
    let mut core = Core::new();
    let [query, reads] = [0, 0].map(|limit| core.level(NORMAL, limit));
    core.scheduler.woke(query);
    let alone = core.scheduler.yield_core(query, u64::MAX, false, true, 0);
    assert!(alone.alone && alone.until_ns > SLICE_NS);
    let payer = core.scheduler.wake_up_payer(Some(&alone), false, alone.until_ns);
    assert_eq!(payer, None, "it has no limit, so that no lease ended");
    core.scheduler.used(query, Lane::Heavy, 10 * SLICE_NS);
    core.scheduler.woke(reads);
    assert!(core.scheduler.preempts(reads, true, true, &alone));
    let beside = core.scheduler.yield_core(query, u64::MAX, false, true, 0);
    assert!(!beside.alone && beside.until_ns == SLICE_NS);
    assert!(core.scheduler.preempts(reads, false, true, &beside), "it has used less");
    core.scheduler.ran(reads, 100 * SLICE_NS);
    assert!(!core.scheduler.preempts(reads, false, true, &beside));
    assert!(core.scheduler.preempts(query, false, true, &beside), "the group's own requests");
    assert!(!core.scheduler.preempts(query, false, false, &beside));
}

/// A leaf that wakes for short moments uses less than its entitlement, whatever its shares, until
/// it wants more.
#[test]
fn only_a_level_that_used_less_than_its_entitlement_lags() {
    let mut core = Core::new();
    let [light, heavy] = [0, 0].map(|limit| core.level(NORMAL, limit));
    let flush = core.background();
    core.scheduler.woke(heavy);
    let mut round = |light_ns: u64, heavy_slices: u64| {
        core.scheduler.woke(light);
        let lags = core.scheduler.lags_beside(light, heavy);
        core.scheduler.ran(light, light_ns);
        core.scheduler.mark_idle(light);
        core.scheduler.used(heavy, Lane::Heavy, heavy_slices * SLICE_NS);
        lags
    };
    assert!(!round(SLICE_NS, 4), "a newcomer");
    assert!((0..100).all(|_| round(SLICE_NS, 4)), "a fifth of the core");
    assert!((0..100).map(|_| round(4 * SLICE_NS, 1)).skip(50).all(|lags| !lags), "four fifths");
    let scheduler = &core.scheduler;
    assert!(!scheduler.lags_beside(light, flush) && !scheduler.lags_beside(flush, heavy), "levels only");
}

/// The core polls the network every 50 µs. Levels with endless work still keep the core for a whole
/// slice each. A level that wakes is picked at once.
#[test]
fn slice_lasts_until_its_end_unless_a_leaf_wakes() {
    let mut core = Core::new();
    let made = [0, 0, 0].map(|limit| core.level(NORMAL, limit));
    let mut now_ns = 1_000_000;
    made[..2].iter().for_each(|&leaf| assert!(core.scheduler.woke(leaf)));
    let mut changes = |core: &mut Core, polls: usize| {
        let mut poll = || {
            let Decision::Yield(leaf, _) = core.next(now_ns, HEAVY) else { panic!("there is work") };
            now_ns += 50_000;
            core.scheduler.used(leaf, Lane::Heavy, 50_000);
            leaf
        };
        let picked: Vec<NodeId> = (0..polls).map(|_| poll()).collect();
        let count = |leaf: NodeId| picked.iter().filter(|&&at| at == leaf).count();
        assert!(count(made[0]).abs_diff(count(made[1])) <= 10);
        picked.windows(2).filter(|pair| pair[0] != pair[1]).count()
    };
    let seen = changes(&mut core, 205);
    assert!((19..=21).contains(&seen), "{seen}");
    core.scheduler.woke(made[2]);
    assert_eq!(core.next(now_ns, HEAVY), Decision::Yield(made[2], u64::MAX));
}
