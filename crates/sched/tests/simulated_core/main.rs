//! A simulated core under loads that show each rule of the scheduler. Bounds are what the core
//! reaches without the rule: `docs/decisions/0003-scheduler-rules.md` has the comparison that chose
//! the rules.

mod core;
mod loads;

use crate::core::{Core, Group, SECOND, Totals};

fn run(groups: &[Group]) -> Totals {
    Core::new(groups, 7).run(SECOND)
}

/// Returns the part of the core that requests and queries of a group used, percent.
fn useful(totals: &Totals, group: usize) -> f64 {
    totals.groups[group].useful_ns as f64 * 100.0 / totals.lasted_ns as f64
}

#[test]
fn same_seed_gives_the_same_results() {
    let run = || {
        let mut totals = run(&loads::reads_beside_batch());
        (totals.groups[0].p99_us(), useful(&totals, 1), totals.lane_switches, totals.polls)
    };
    assert_eq!(run(), run());
}

/// Checks that p99 of the first group is clearly lower than without a rule.
fn check_p99(groups: &[Group], without_us: f64) {
    let p99_us = run(groups).groups[0].p99_us();
    assert!(1.5 * p99_us < without_us, "{p99_us} µs, without the rule {without_us}");
}

/// Checks that requests and queries of a group use more of the core than without a rule.
fn check_useful(groups: &[Group], group: usize, without_percent: f64) {
    let percent = useful(&run(groups), group);
    assert!(percent > without_percent + 0.5, "{percent} %, without the rule {without_percent}");
}

#[test]
fn slices_are_short_for_latency_and_long_for_throughput() {
    check_p99(&loads::rare_reads_beside_busy_reads(), 517.9);
    check_useful(&loads::three_levels_of_queries(), 0, 18.5);
}

#[test]
fn waking_group_has_credit() {
    check_p99(&loads::reads_beside_batch(), 722.7);
}

#[test]
fn lag_is_repaid_at_half_price() {
    let groups = loads::busy_reads_beside_queries_that_pause();
    check_useful(&groups, 1, 35.0); // without lag
    check_p99(&groups, 11_222.6); // 20 ms of credit
}

#[test]
fn slice_outlasts_a_poll() {
    check_useful(&loads::two_busy_levels_and_rare_reads(), 0, 45.5);
}

#[test]
fn recently_active_group_is_polled_for() {
    check_p99(&loads::rare_reads_beside_busy_reads(), 517.9);
}

#[test]
fn polls_are_coalesced_and_sooner_for_a_lagging_level() {
    check_useful(&loads::writes_beside_flush(), 2, 17.4);
    check_p99(&loads::reads_beside_batch(), 169.7); // a tenth for all
    check_p99(&loads::capped_reads_beside_queries(), 76.8); // nothing free
}

#[test]
fn capped_heavy_work_has_long_leases() {
    check_useful(&loads::capped_queries_alone(), 1, 49.2);
}

/// Regression: heavy work whose lease had less time left than a lane switch costs never ran,
/// was never charged and was picked for ever.
#[test]
fn rest_of_a_lease_is_used_up() {
    let percent = useful(&run(&loads::capped_queries_beside_reads()), 1);
    assert!((48.0..50.1).contains(&percent), "{percent} %");
}

/// A group with endless fast-lane work does not keep its own heavy work from running.
#[test]
fn heavy_work_runs_alongside_fast_work_of_its_group() {
    let queries = run(&loads::reads_and_queries_of_one_level()).groups[0].queries;
    assert!(queries >= 5, "one slice in five is a fifth of the core: {queries}");
}
