//! Comparisons of outcomes made for tests.

use std::collections::BTreeMap;

use load::Latency;

use super::*;
use crate::names::{BATCH, CAPPED, INTERACTIVE};
use crate::results::{Chapter, Cpu, LoadRun, Window, WindowLoad};

fn window(id: &str, loads: &[(&str, f64, f64)], cpu: &[(&str, f64)]) -> Window {
    let load = |(name, rate, p99): &(&str, f64, f64)| WindowLoad {
        load: name.to_string(),
        throughput_per_s: *rate,
        latency: (*p99 > 0.0).then(|| Latency { p99_us: *p99, ..Latency::default() }),
        ..WindowLoad::default()
    };
    let levels: BTreeMap<String, f64> = cpu.iter().map(|(name, used)| (name.to_string(), *used)).collect();
    let cpu = Cpu { levels, cores: 1, process: 1.0, busy: 1.0, ..Cpu::default() };
    Window {
        id: id.to_string(),
        label: id.to_string(),
        loads: loads.iter().map(load).collect(),
        cpu,
        ..Window::default()
    }
}

fn outcome(chapters: Vec<Chapter>) -> DemoResults {
    DemoResults { chapters, ..DemoResults::default() }
}

fn check(outcome: &DemoResults, what: &str, value: f64, met: Option<bool>) {
    let rows = compare(outcome);
    let row = rows.iter().find(|row| row.what.contains(what)).unwrap_or_else(|| panic!("{what}: {rows:?}"));
    assert!((row.value - value).abs() < 1e-9 && row.met == met, "{row:?}");
}

#[test]
fn effect_is_a_ratio_within_one_run() {
    let windows = |p99: f64, rate: f64| {
        vec![
            window("before", &[(INTERACTIVE, 1000.0, 200.0)], &[]),
            window("beside", &[(INTERACTIVE, rate, p99), (BATCH, 600.0, 9.0)], &[(INTERACTIVE, 0.4)]),
        ]
    };
    let one = Chapter { id: "one_level".into(), windows: windows(1200.0, 900.0), ..Chapter::default() };
    check(&outcome(vec![one.clone()]), "p99", 6.0, None);
    let two = Chapter { id: "two_levels".into(), windows: windows(230.0, 999.0), ..Chapter::default() };
    let mut both = outcome(vec![one, two]);
    (both.chapters[1].windows[0].cpu.process, both.chapters[1].windows[0].cpu.busy) = (0.4, 0.4);
    check(&both, "beside/alone, a level each", 1.15, Some(true));
    check(&both, "throughput kept, a level each", 0.999, Some(true));
    both.capacity.batch = Some(LoadRun { throughput_per_s: 1000.0, ..LoadRun::default() });
    check(&both, "batch throughput lost", 0.4, Some(true));
    both.capacity.batch = Some(LoadRun { throughput_per_s: 1200.0, ..LoadRun::default() });
    check(&both, "batch throughput lost", 0.5, Some(false));
}

#[test]
fn loads_behind_a_front_have_goals_of_their_own() {
    let chapter = |id: &str, p99: f64| {
        let load = |rate, p99| [(INTERACTIVE, rate, p99)];
        let mut windows =
            vec![window("before", &load(1000.0, 200.0), &[]), window("beside", &load(1000.0, p99), &[])];
        windows[0].cpu.process = 0.2;
        windows[0].cpu.busy = 0.2;
        Chapter { id: id.into(), windows, ..Chapter::default() }
    };
    let chapters =
        vec![chapter("one_level", 4000.0), chapter("two_levels", 290.0), chapter("direct", 3000.0)];
    let found = DemoResults { subject: Subject::Cluster, chapters, ..DemoResults::default() };
    check(&found, "beside/alone, one level", 20.0, None);
    check(&found, "beside/alone, a level each", 1.45, Some(true));
    check(&found, "beside/alone, no front", 15.0, None);
    let rows = compare(&found);
    assert!(rows.iter().all(|row| row.published.is_empty()), "{rows:?}");
    check(
        &DemoResults { subject: Subject::Levels, ..found },
        "beside/alone, a level each",
        1.45,
        Some(false),
    );
}

#[test]
fn disturbed_phase_has_no_verdict() {
    let mut windows = vec![
        window("before", &[(INTERACTIVE, 1000.0, 900.0)], &[]),
        window("beside", &[(INTERACTIVE, 1000.0, 220.0)], &[]),
        window("after", &[(INTERACTIVE, 1000.0, 100.0)], &[]),
    ];
    let two = |windows: &[Window]| {
        outcome(vec![Chapter { id: "two_levels".into(), windows: windows.to_vec(), ..Chapter::default() }])
    };
    check(&two(&windows), "p99", 2.2, Some(false));
    windows[1].cpu.process = 0.6;
    check(&two(&windows), "p99", 2.2, None);
}

#[test]
fn shares_are_judged_by_cpu() {
    let loads = [("load1", 100.0, 0.0), ("load2", 190.0, 0.0), ("load3", 410.0, 0.0)];
    let windows = vec![
        window("200:400", &loads, &[("load1", 0.33), ("load2", 0.66)]),
        window("200:400:800", &loads, &[("load1", 0.14), ("load2", 0.28), ("load3", 0.50)]),
    ];
    let found = outcome(vec![Chapter { id: "shares".into(), windows, ..Chapter::default() }]);
    check(&found, "200:400,", 0.0, Some(true));
    check(&found, "200:400:800,", (0.5 / 0.14 / 4.0 - 1.0f64).abs(), Some(false));
    assert_eq!(compare(&found).len(), 2, "a value that was not measured has no row");
}

#[test]
fn cap_is_a_fraction_of_all_cores() {
    let windows = vec![window("capped", &[(CAPPED, 1.0, 0.0)], &[(CAPPED, 0.505)])];
    let cap = Chapter { id: "cap".into(), windows, ..Chapter::default() };
    check(&outcome(vec![cap.clone()]), "cpu_limit", 0.505, Some(true));
    let mut wide = cap;
    wide.windows[0].cpu.cores = 2;
    check(&outcome(vec![wide]), "cpu_limit", 0.2525, Some(false));
}

#[test]
fn empty_outcome_has_no_rows() {
    assert!(compare(&DemoResults::default()).is_empty());
}
