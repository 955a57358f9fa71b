//! Decisions of the limiter. Levels run nothing here: their statements are counted as in flight, so
//! that what is published follows from those numbers alone.

use std::cell::RefCell;

use sched::control::{ConcurrencyLimit, LimitChange};

use super::*;
use crate::{DefaultLimit, LatencyTarget, Level, LevelSpec, SlotLimits};

const MS: u64 = 1_000_000;
/// Time limit of a level before its first statement, ns.
const TIME_LIMIT_NS: u64 = 10_000 * MS;

thread_local! {
    /// The limiter of core 0, which stays on its lane.
    static LIMITER: RefCell<Option<Limiter>> = const { RefCell::new(None) };
}

/// Two cores and their limiter.
struct Server {
    lanes: lanes::Lanes,
    levels: Arc<Levels>,
}

impl Server {
    fn new(specs: &[LevelSpec]) -> Server {
        let lanes = testkit::start_lanes(2);
        let levels = Levels::new(lanes.clone());
        specs.iter().for_each(|spec| levels.create(spec.clone()).expect("new"));
        let server = Server { lanes, levels };
        let levels = server.levels.clone();
        server.lanes.block_on(0, Group::CONTROL, move || async move {
            let limiter = Limiter {
                levels,
                time_limit_ns: TIME_LIMIT_NS,
                known: HashMap::new(),
                active: HashMap::new(),
                log: Usage::default(),
                decisions: 0,
                last_ns: lanes::time::monotonic_ns(),
                latencies: Latencies::default(),
                overload: Overload::default(),
            };
            LIMITER.set(Some(limiter));
        });
        server
    }

    /// Decides on all levels. Returns true if one of them has a limit, and the number of levels
    /// with measurements.
    fn decide(&self) -> (bool, usize) {
        self.lanes.block_on(0, Group::CONTROL, || async {
            let mut limiter = LIMITER.take().expect("it was made");
            let decided = (limiter.decide().await, limiter.known.len());
            LIMITER.set(Some(limiter));
            decided
        })
    }

    fn level(&self, name: &str) -> Arc<Level> {
        self.levels.catalog().get(name).expect("a level").level.clone()
    }

    /// Returns the part of both cores that is due to a level.
    fn entitlement(&self, name: &str) -> [u32; 2] {
        [0, 1].map(|core| self.level(name).entitlement_ppm(core))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.lanes.block_on(0, Group::CONTROL, || async { drop(LIMITER.take()) });
        self.lanes.shutdown();
    }
}

fn spec(name: &str, shares: u16) -> LevelSpec {
    LevelSpec { shares, ..LevelSpec::new(name) }
}

fn auto(name: &str, shares: u16) -> LevelSpec {
    LevelSpec { slots: SlotLimits { is_auto: true, ..SlotLimits::NONE }, ..spec(name, shares) }
}

#[test]
fn entitlement_is_by_the_shares_of_levels_with_statements() {
    let idle = LevelSpec { cpu_limit_ppm: Some(150_000), ..spec("idle", 100) };
    let server = Server::new(&[spec("a", 300), spec("b", 100), idle]);
    let (a, b) = (server.level("a"), server.level("b"));
    assert_eq!(server.entitlement("b"), [1_000_000; 2], "before the first decision");
    (0..2).for_each(|core| a.set_in_flight(core, 1));
    b.set_in_flight(0, 7);
    assert_eq!(server.decide(), (false, 0), "no level has a limit");
    assert_eq!(server.entitlement("a"), [750_000, 1_000_000]);
    // On core 1 it would get a quarter with a statement.
    assert_eq!(server.entitlement("b"), [250_000; 2]);
    assert_eq!(server.entitlement("idle"), [150_000; 2], "a fifth and a quarter, up to its limit");
    // A minimum comes before shares.
    server.levels.alter(LevelSpec { cpu_min_ppm: 200_000, ..spec("b", 100) }).expect("there");
    server.decide();
    assert_eq!((server.entitlement("a")[0], server.entitlement("b")[0]), (600_000, 400_000));
    assert_eq!(server.entitlement("b")[1], 400_000);
    // Statements that ended since the last decision count once.
    (0..7).for_each(|_| b.end(0));
    server.decide();
    assert_eq!(server.entitlement("a")[0], 600_000);
    server.decide();
    assert_eq!(server.entitlement("a")[0], 1_000_000);
}

/// The inputs are those of the level, and the limit is that of `sched` for them.
#[test]
fn limit_is_published_for_each_core() {
    let target = LatencyTarget { target: Some(Duration::from_millis(20)), ..LatencyTarget::default() };
    let interactive = Some(WorkloadType::Interactive);
    let reads = LevelSpec { latency: target, workload_type: interactive, ..auto("reads", 100) };
    let server = Server::new(&[reads, auto("scans", 300), spec("free", 1)]);
    let reads = server.level("reads");
    let scans = server.level("scans");
    let free = server.level("free");
    let expected = |entitlement_ppm, elsewhere, running, input: ConcurrencyInput| -> ConcurrencyLimit {
        let measured =
            ConcurrencyInput { interval_ns: INTERVAL_NS, entitlement_ppm, elsewhere, running, ..input };
        Concurrency::default().decide(measured)
    };
    let bounds = |time_limit_ns, latency_target_ns, limit_max| LevelBounds {
        time_limit_ns,
        latency_target_ns,
        limit_max,
    };
    let of_reads = ConcurrencyInput {
        bounds: bounds(TIME_LIMIT_NS, Some(20 * MS), INTERACTIVE_IN_FLIGHT_MAX),
        busiest_ppm: 1_000_000,
        ..ConcurrencyInput::default()
    };
    let of_scans = ConcurrencyInput { bounds: bounds(TIME_LIMIT_NS, None, LEVEL_IN_FLIGHT_MAX), ..of_reads };
    reads.set_in_flight(0, 3);
    reads.set_in_flight(1, 5);
    assert_eq!(server.decide(), (true, 2));
    assert_eq!(reads.limit(0).get(), Some(expected(1_000_000, 5, 8, of_reads)));
    assert_eq!(reads.limit(1).get(), Some(expected(1_000_000, 3, 8, of_reads)));
    assert_eq!(scans.limit(0).get(), Some(expected(750_000, 0, 0, of_scans)));
    assert_eq!(free.limit(0).get(), None);
    assert_eq!(scans.limit_of_cores().1, [0; LimitChange::ALL.len()], "the first limit is no change");

    // Statements of `scans` on core 0 take three quarters of it, and one of them may take a minute.
    scans.set_in_flight(0, 1);
    scans.note_time_limit_ns(0, 60_000 * MS);
    scans.note_time_limit_ns(1, 1);
    scans.add_refusal_ns(0, MS);
    server.decide();
    let of_a_minute = bounds(60_000 * MS, None, LEVEL_IN_FLIGHT_MAX);
    let refused = ConcurrencyInput { bounds: of_a_minute, refusal_ns: MS, ..of_scans };
    assert_eq!(scans.limit(0).get(), Some(expected(750_000, 0, 1, refused)));
    assert_eq!(scans.limit(1).get(), Some(expected(750_000, 1, 1, refused)));
    assert_eq!(reads.limit(0).get(), Some(expected(250_000, 5, 8, of_reads)));
    assert_eq!(reads.limit(1).get(), Some(expected(1_000_000, 3, 8, of_reads)), "it is alone there");
    let mut changes = [0; LimitChange::ALL.len()];
    changes[LimitChange::Entitlement as usize] = 1;
    assert_eq!(reads.limit_of_cores().1, changes);
    let both = [0, 1].map(|core| reads.limit(core).get().expect("a limit").statements);
    assert_eq!(
        reads.limit_use().expect("a limit").statements,
        both.iter().map(|n| u64::from(*n)).sum::<u64>()
    );

    // A level that was dropped is forgotten. Levels without their own option follow the server's.
    server.levels.drop_level("scans").expect("there");
    server.levels.set_default_limit(DefaultLimit::Auto);
    assert_eq!(server.decide(), (true, 4), "`default`, `driver`, `free` and `reads`");
    server.levels.set_default_limit(DefaultLimit::Off);
    assert_eq!((server.decide(), free.limit(0).get()), ((true, 1), None));
}

#[test]
fn queue_delay_is_the_mean_of_the_statements_since_the_last_decision() {
    let server = Server::new(&[auto("reads", 100)]);
    let reads = server.level("reads");
    reads.record(0, RequestKind::Read, 1, 1000 * MS, false);
    server.decide();
    let delay_ms = || reads.limit_use().expect("a limit").queue_delay_ns / MS;
    assert_eq!(delay_ms(), 0, "it ended before the first decision");
    reads.record(0, RequestKind::Read, 1, 10 * MS, false);
    reads.record(1, RequestKind::Write, 1, 30 * MS, true);
    server.decide();
    assert_eq!(delay_ms(), 20);
    server.decide();
    assert_eq!(delay_ms(), 20, "none ended");
}

#[test]
fn limit_is_at_most_twice_the_part_of_the_windows_of_nodes() {
    let server = Server::new(&[auto("reads", 100)]);
    let reads = server.level("reads");
    let decided = |node_ns: u64, places: u32| {
        for _ in 0..100 {
            reads.set_in_flight(0, 1);
            reads.end(0);
        }
        reads.set_node_use(0, node_ns, places);
        server.decide();
        let limit = reads.limit(0).get().expect("a limit");
        (limit.device_ns / MS, limit.statements)
    };
    decided(0, 0);
    assert_eq!(decided(500 * MS, 0), (5, LEVEL_IN_FLIGHT_MAX), "5 ms at a node each, and no window");
    assert_eq!(decided(1000 * MS, 20), (5, 40));
    assert_eq!(decided(1500 * MS, 3), (5, 6));
    assert_eq!(decided(0, u32::MAX).1, LEVEL_IN_FLIGHT_MAX, "a node has left, with its times");
}

fn known(cores: usize) -> Known {
    Known {
        usage: Usage::default(),
        ended: 0,
        writes: (0, 0),
        refusal_ns: 0,
        node_ns: 0,
        queue: (0, 0),
        cores: Vec::new(),
        used_ns: vec![0; cores],
        spread: Spread::new(cores),
        time_limits_ns: (0, 0),
        period_ns: 0,
        seen: 0,
    }
}

#[test]
fn time_limit_of_a_level_is_the_longest_of_one_to_two_periods() {
    let mut known = known(1);
    let second = TIME_LIMITS_NS;
    // Time in quarters of a period, the longest that arrived, and the result.
    for (quarters, arrived, expected) in [
        (1, 0, None),
        (2, 7, Some(7)),
        (3, 5, Some(7)),
        (4, 0, Some(7)), // The first period ends.
        (5, 3, Some(7)),
        (7, 0, Some(7)),
        (8, 0, Some(7)), // The second one ends, with 3 as its longest.
        (9, 1, Some(3)),
        (12, 2, Some(3)), // The third one ends, with 2.
        (13, 1, Some(2)),
        (40, 0, Some(2)), // The fourth one ends late.
        (80, 0, Some(1)), // Without statements the last value stays.
        (120, 0, Some(1)),
    ] {
        assert_eq!(known.time_limit_ns(arrived, quarters * second / 4), expected, "quarter {quarters}");
    }
}

#[test]
fn busiest_core_is_that_of_the_work_since_the_last_decision() {
    let mut known = known(2);
    assert_eq!(known.busiest_ppm(vec![100 * MS, 100 * MS], INTERVAL_NS), 500_000);
    assert_eq!(known.busiest_ppm(vec![100 * MS, 100 * MS], INTERVAL_NS), 500_000, "nothing new");
    let after = (0..50).map(|n| known.busiest_ppm(vec![100 * MS, (100 + n) * MS], INTERVAL_NS)).last();
    assert!(after > Some(700_000), "all new work is on core 1: {after:?}");
}
