//! Decisions on levels with a latency target, with given times and response times.

use std::sync::Arc;
use std::time::Duration;

use sched::control::LatencyReason;

use super::*;
use crate::{LatencyTarget, Level, RequestKind};

const MS: u64 = 1_000_000;

/// A level with a target of 2 ms.
fn spec(shares_min: u16, shares: u16, shares_max: u16) -> LevelSpec {
    let (target, bounds) = (Some(Duration::from_millis(2)), [shares_min, shares_max].map(Some));
    let latency = LatencyTarget { target, shares_min: bounds[0], shares_max: bounds[1] };
    LevelSpec { shares, latency, ..LevelSpec::new("reads") }
}

fn check(test: impl FnOnce(&mut Latencies, &Arc<Levels>, &Level)) {
    let lanes = testkit::start_lanes(1);
    let levels = Levels::new(lanes.clone());
    levels.create(spec(50, 100, 400)).expect("new");
    let level = levels.catalog().get("reads").expect("there").level.clone();
    test(&mut Latencies::default(), &levels, &level);
    lanes.shutdown();
}

/// Records statements of `service_ns` and `queue_ns` each.
fn record(level: &Level, statements: u64, service_ns: u64, queue_ns: u64) {
    (0..statements).for_each(|_| level.record(0, RequestKind::Read, service_ns, queue_ns, false));
}

#[test]
fn shares_follow_the_latency_of_each_window() {
    check(|latencies, levels, level| {
        let mut decide = |at_ms: u64| {
            latencies.decide(levels, at_ms * MS);
            level.latency_use()
        };
        record(level, 1000, 900 * MS, 0);
        assert_eq!(decide(1000), None, "the first window begins");
        record(level, 200, MS, 3 * MS);
        assert_eq!(decide(1999), None, "it is not over");
        let decided = decide(2000).expect("200 statements in a second");
        assert_eq!(decided.target_ns, 2 * MS);
        assert!((4 * MS..5 * MS).contains(&decided.p99_ns), "service and queue: {decided:?}");
        // The lane under the test uses CPU that no level pays for, so that others do not contend.
        assert_eq!((decided.reason, decided.shares), (LatencyReason::NotCpu, 100));
        record(level, 199, MS, 0);
        assert_eq!(decide(3000), Some(decided), "too few: the window goes on");
        record(level, 1, MS, 0);
        let decided = decide(4000).expect("enough");
        assert!(decided.p99_ns < 2 * MS, "of both seconds: {decided:?}");
        assert_eq!(decided.reason, LatencyReason::Met);
    });
}

#[test]
fn window_of_few_statements_ends_after_half_a_minute() {
    check(|latencies, levels, level| {
        latencies.decide(levels, 1000 * MS);
        record(level, 3, 5 * MS, 0);
        latencies.decide(levels, 30_999 * MS);
        assert_eq!(level.latency_use(), None);
        latencies.decide(levels, 32_000 * MS);
        assert_eq!(level.latency_use().map(|found| found.reason), Some(LatencyReason::FewStatements));
    });
}

#[test]
fn altered_level_begins_a_new_window() {
    check(|latencies, levels, level| {
        latencies.decide(levels, 1000 * MS);
        record(level, 300, MS, 0);
        levels.alter(spec(50, 200, 400)).expect("there");
        latencies.decide(levels, 2000 * MS);
        assert_eq!(level.latency_use(), None);
        record(level, 300, MS, 0);
        latencies.decide(levels, 3000 * MS);
        assert_eq!(level.latency_use().map(|found| found.shares), Some(200));
        // Without a target its shares are those that it was given.
        levels.alter(LevelSpec { latency: LatencyTarget::default(), ..spec(50, 200, 400) }).expect("there");
        latencies.decide(levels, 4000 * MS);
        assert_eq!((level.latency_use(), latencies.known.len()), (None, 0));
    });
}

#[test]
fn time_at_the_device_excludes_the_disk_queue() {
    let usage = |disk_wait_ns, disk_queue_ns| Usage { disk_wait_ns, disk_queue_ns, ..Usage::default() };
    assert_eq!(device_ns(&usage(100, 30), &usage(40, 10)), 40);
    assert_eq!(device_ns(&usage(0, 0), &usage(40, 10)), 0);
    let both = Usage { cpu_fast_ns: 5, cpu_heavy_ns: 7, ..Usage::default() };
    assert_eq!(cpu_ns(&both), 12);
}
