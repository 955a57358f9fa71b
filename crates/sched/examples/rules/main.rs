//! Comparison of a simulated core under typical loads, with all rules and with each rule switched
//! off in turn: `cargo run --release -p sched --example rules`.
//! `docs/decisions/0003-scheduler-rules.md` has the results of the last run. An argument selects
//! the loads whose names contain it.

mod core;
mod loads;

use sched::Policy;

use crate::core::{Core, SECOND};
use crate::loads::Scenario;

/// Simulated time of each run, ns.
const RUN_NS: u64 = if cfg!(test) { SECOND } else { 5 * SECOND };

struct Row {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Part of the core that requests and queries of the batch group used, percent.
    batch: f64,
    /// Part of the core spent on polls, lane switches and cold caches, percent.
    lost: f64,
    /// Deviation from the ratio of shares, percent.
    share_error: Option<f64>,
    switches: u64,
    polls: u64,
}

fn measure(policy: Policy, scenario: &Scenario) -> Row {
    let mut totals = Core::new(policy, &scenario.groups, 7).run(RUN_NS);
    let percent = |ns: u64| ns as f64 * 100.0 / totals.lasted_ns as f64;
    let useful_ns: u64 = totals.groups.iter().map(|group| group.useful_ns).sum();
    let share_error = scenario.by_shares.map(|(a, b)| {
        let served = |at: usize| totals.groups[at].cpu_ns as f64 / f64::from(scenario.groups[at].node.shares);
        (served(a) / served(b) - 1.0) * 100.0
    });
    let batch = percent(totals.groups[scenario.batch].useful_ns);
    let lost = percent(totals.lasted_ns - totals.idle_ns.min(totals.lasted_ns)) - percent(useful_ns);
    let seconds = totals.lasted_ns / SECOND;
    let (switches, polls) = (totals.lane_switches / seconds, totals.polls / seconds);
    let group = &mut totals.groups[scenario.interactive];
    let [p50_us, p99_us, max_us] = [500, 990, 1000].map(|thousandths| group.latency_us(thousandths));
    Row { p50_us, p99_us, max_us, batch, lost, share_error, switches, polls }
}

/// Returns the rules, each switched off in turn, with names.
fn policies() -> Vec<(&'static str, Policy)> {
    let all = Policy::DEFAULT;
    vec![
        ("all rules", all),
        ("1: slices of 500 µs only", Policy { latency_slice_ns: all.slice_ns, ..all }),
        ("1: slices of 50 µs only", Policy { slice_ns: all.latency_slice_ns, ..all }),
        ("2: no credit", Policy { credit_ns: 0, ..all }),
        ("2: credit 20 ms, no half price", Policy { credit_ns: 20_000_000, lag_max_ns: 0, ..all }),
        ("2: credit 2 ms, no half price", Policy { credit_ns: 2_000_000, lag_max_ns: 0, ..all }),
        ("2: credit 5 ms, no half price", Policy { credit_ns: 5_000_000, lag_max_ns: 0, ..all }),
        ("3: lag of 5 ms at half price", Policy { lag_max_ns: 5_000_000, ..all }),
        ("3: no lag at half price", Policy { lag_max_ns: 0, ..all }),
        ("4: slices not kept", Policy { keep_slices: false, ..all }),
        ("5: recently active off", Policy { recently_active_ns: 0, ..all }),
        ("5: recently active always", Policy { recently_active_ns: u64::MAX, ..all }),
        ("7: a poll for each event", Policy { poll_part: 0, poll_part_lagging: 0, ..all }),
        ("7: a tenth for all", Policy { poll_part_lagging: all.poll_part, ..all }),
        ("7: a quarter for all", Policy { poll_part: all.poll_part_lagging, ..all }),
        ("7: a sixth for all", Policy { poll_part: 6, poll_part_lagging: 6, ..all }),
        ("7: nothing free", Policy { poll_free_ns: 0, ..all }),
        ("8: fast always first", Policy { fast_before_heavy_ns: u64::MAX, ..all }),
        ("8: after one slice", Policy { fast_before_heavy_ns: all.slice_ns, ..all }),
        ("9: short leases", Policy { long_lease_ns: 1_000_000, ..all }),
    ]
}

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    for scenario in loads::all().iter().filter(|scenario| scenario.name.contains(&word)) {
        println!("\n### {}\n", scenario.name);
        println!(
            "| policy | p50 µs | p99 µs | max µs | batch % | lost % | share error % | switches/s | polls/s |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for (name, policy) in policies() {
            let row = measure(policy, scenario);
            let share_error = row.share_error.map_or_else(|| "–".into(), |error| format!("{error:+.2}"));
            println!(
                "| {name} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {share_error} | {} | {} |",
                row.p50_us, row.p99_us, row.max_us, row.batch, row.lost, row.switches, row.polls
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_results() {
        let scenario = &loads::all()[0];
        let run = || {
            let row = measure(Policy::DEFAULT, scenario);
            (row.p99_us, row.batch, row.switches, row.polls)
        };
        assert_eq!(run(), run());
    }

    fn load(name: &str) -> Scenario {
        loads::all().into_iter().find(|scenario| scenario.name == name).expect("a load of this name")
    }

    /// One load for each rule under which the core is clearly worse without it.
    #[test]
    fn core_is_worse_without_each_rule() {
        let all = Policy::DEFAULT;
        let check = |name: &str, without: Policy, worse: fn(&Row, &Row) -> bool| {
            let scenario = load(name);
            let rows = [without, all].map(|policy| measure(policy, &scenario));
            assert!(worse(&rows[0], &rows[1]), "{name}");
        };
        let p99 = |without: &Row, with: &Row| without.p99_us > 1.5 * with.p99_us;
        let batch = |without: &Row, with: &Row| without.batch < with.batch - 0.5;
        check("rare reads | busy reads", Policy { latency_slice_ns: all.slice_ns, ..all }, p99);
        check(
            "three levels of queries, 100 : 100 : 100, and reads",
            Policy { slice_ns: 50_000, ..all },
            batch,
        );
        check("reads | batch", Policy { credit_ns: 0, ..all }, p99);
        check("busy reads | queries that pause, 500 : 500", Policy { lag_max_ns: 0, ..all }, batch);
        check(
            "busy reads | queries that pause, 500 : 500",
            Policy { credit_ns: 20_000_000, lag_max_ns: 0, ..all },
            p99,
        );
        check("busy reads, 100 : 100, and rare reads", Policy { keep_slices: false, ..all }, batch);
        check("rare reads | busy reads", Policy { recently_active_ns: 0, ..all }, p99);
        check("writes, log | flush, compaction", Policy { poll_part: 0, poll_part_lagging: 0, ..all }, batch);
        check("reads | batch", Policy { poll_part_lagging: all.poll_part, ..all }, p99);
        check("reads capped at a fifth | queries", Policy { poll_free_ns: 0, ..all }, p99);
        check("queries capped at half, alone", Policy { long_lease_ns: 0, ..all }, batch);
    }

    /// Regression: heavy work whose lease had less time left than a lane switch costs never ran,
    /// was never charged and was picked for ever.
    #[test]
    fn rest_of_a_lease_is_used_up() {
        let scenario = load("reads | queries capped at half");
        let row = measure(Policy { credit_ns: 0, ..Policy::DEFAULT }, &scenario);
        assert!((48.0..50.1).contains(&row.batch), "{} %", row.batch);
    }

    /// A group with endless fast-lane work does not keep its own heavy work from running.
    #[test]
    fn heavy_work_runs_beside_fast_work_of_its_group() {
        let scenario = load("closed reads and queries of one level");
        let queries = |policy| Core::new(policy, &scenario.groups, 7).run(RUN_NS).groups[0].queries;
        assert!(queries(Policy::DEFAULT) >= 5, "one slice in five is a fifth of the core");
        assert_eq!(queries(Policy { fast_before_heavy_ns: u64::MAX, ..Policy::DEFAULT }), 0);
    }
}
