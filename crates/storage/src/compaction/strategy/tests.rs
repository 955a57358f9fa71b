use super::*;
use testkit::Random;

fn options(strategy: Strategy) -> TableOptions {
    TableOptions { strategy, ..TableOptions::default() }
}

fn check(options: TableOptions, megabytes: &[u64], expected: Option<&[usize]>) {
    let runs: Vec<RunSize> = megabytes.iter().map(|mb| RunSize { bytes: mb << 20, newest: 0 }).collect();
    let mut chosen = compaction(&options, &runs, 0).map(|chosen| chosen.runs);
    chosen.iter_mut().for_each(|runs| runs.sort_unstable());
    assert_eq!(chosen.as_deref(), expected, "{options:?} {megabytes:?}");
}

#[test]
fn tiers_of_four_similar_runs_are_compacted() {
    let tiered = options(Strategy::SizeTiered);
    check(tiered, &[], None);
    check(tiered, &[5, 5, 5], None);
    check(tiered, &[5, 5, 5, 5], Some(&[0, 1, 2, 3]));
    check(tiered, &[100, 5, 9, 6, 10], Some(&[1, 2, 3, 4]));
    check(tiered, &[1, 3, 9, 27, 81], None);
    check(tiered, &[1, 300, 300, 310, 320], Some(&[1, 2, 3, 4]));
    check(tiered, &[0, 0, 0, 0, 500], Some(&[0, 1, 2, 3]));
    check(TableOptions { min_threshold: 2, ..tiered }, &[5, 5], Some(&[0, 1]));
}

#[test]
fn space_goal_compacts_all_runs_before_sizes_do() {
    let goal = TableOptions { space_amplification_goal: Some(1500), ..options(Strategy::Incremental) };
    check(goal, &[100, 30, 10], None);
    check(goal, &[100, 30, 21], Some(&[0, 1, 2]));
    check(goal, &[100], None);
    check(options(Strategy::Incremental), &[100, 30, 21], None);
}

#[test]
fn levels_are_ten_times_apart() {
    let leveled = options(Strategy::Leveled);
    check(leveled, &[1, 1, 1, 100], None);
    check(leveled, &[1, 1, 1, 1, 39, 1000], Some(&[0, 1, 2, 3, 4]));
    check(leveled, &[1, 1, 1, 1, 41, 1000], Some(&[0, 1, 2, 3]));
    check(leveled, &[1, 1, 1, 1, 39, 400], Some(&[0, 1, 2, 3, 4, 5]));
}

#[test]
fn finished_windows_are_compacted_one_by_one() {
    let options = options(Strategy::TimeWindow { window_s: 60 });
    let at = |seconds: i64| RunSize { bytes: 1 << 20, newest: seconds * 1_000_000 };
    let chosen =
        |now: i64, runs: &[RunSize]| compaction(&options, runs, now * 1_000_000).map(|chosen| chosen.runs);
    assert_eq!(chosen(5, &[at(1), at(2)]), None, "the latest is still written");
    assert_eq!(chosen(5000, &[at(1), at(2)]), None, "also if no write came since");
    assert_eq!(chosen(75, &[at(1), at(70), at(2)]), Some(vec![0, 2]));
    assert_eq!(chosen(119, &[at(1), at(61), at(62), at(63), at(119)]), Some(vec![1, 2, 3, 4]));
    assert_eq!(chosen(5, &[at(-1), at(1)]), None);
}

/// A run dated far ahead once became the latest window, so that today's window was compacted at
/// every flush.
#[test]
fn run_dated_ahead_leaves_the_latest_window_alone() {
    let options = options(Strategy::TimeWindow { window_s: 60 });
    let at = |seconds: i64| RunSize { bytes: 1 << 20, newest: seconds * 1_000_000 };
    let chosen =
        |now: i64, runs: &[RunSize]| compaction(&options, runs, now * 1_000_000).map(|chosen| chosen.runs);
    let ahead = at(1_000_000);
    assert_eq!(chosen(75, &[ahead, at(70), at(71), at(72)]), None);
    assert_eq!(chosen(75, &[ahead, at(70), at(71), at(72), at(73)]), Some(vec![1, 2, 3, 4]));
    assert_eq!(chosen(75, &[ahead; 3]), None);
    assert_eq!(chosen(75, &[ahead; 4]), Some(vec![0, 1, 2, 3]));
}

#[test]
fn windows_are_counted_in_the_units_of_timestamps() {
    let table = options(Strategy::TimeWindow { window_s: 60 });
    let millis = TableOptions { timestamps_per_s: 1000, ..table };
    let at = |seconds: i64| RunSize { bytes: 1 << 20, newest: seconds * 1000 };
    let runs = [at(1), at(2), at(70)];
    let chosen = |options| compaction(options, &runs, 75_000).map(|chosen| chosen.runs);
    assert_eq!(chosen(&millis), Some(vec![0, 1]));
    assert_eq!(chosen(&table), None, "in microseconds all are of one window");
}

#[test]
fn compaction_takes_the_smallest_runs_up_to_the_maximum() {
    let table = options(Strategy::SizeTiered);
    let runs: Vec<RunSize> = (0..40).map(|at| RunSize { bytes: (140 - at) << 20, newest: 0 }).collect();
    let chosen = compaction(&table, &runs, 0).expect("forty are many");
    assert_eq!((chosen.waiting, chosen.runs.len()), (40, 32));
    assert!(chosen.runs.iter().all(|at| *at >= 8), "{chosen:?}");
    let small = TableOptions { max_threshold: 6, ..table };
    assert_eq!(compaction(&small, &runs, 0).map(|chosen| chosen.runs.len()), Some(6));
}

/// Simulates flushes of random sizes, some of them overwriting, and instant compactions. Returns
/// the maximum number of runs, and the maximum of space ÷ live data after a compaction, per mille.
fn live(options: TableOptions, seed: u64) -> (usize, u64) {
    let mut random = Random::new(seed);
    let (mut runs, mut live): (Vec<RunSize>, u64) = (Vec::new(), 0);
    let (mut most_runs, mut most_space) = (0, 0);
    for flush in 0..2000_i64 {
        let bytes = (1 + random.below(8)) << 20;
        let now = flush * 1_000_000;
        runs.push(RunSize { bytes, newest: now });
        // The table grows to 4 GiB and is overwritten then.
        live = (live + bytes).min(4 << 30);
        let mut merges = 0;
        while let Some(found) = compaction(&options, &runs, now) {
            let chosen = &found.runs;
            assert!(chosen.len() >= 2, "seed {seed}: a compaction of one run");
            assert!(backlog_bytes(&options, &runs, &found) > 0, "seed {seed}: work and no backlog");
            let merged = chosen.iter().map(|at| runs[*at].bytes).sum::<u64>().min(live);
            let newest = chosen.iter().map(|at| runs[*at].newest).max().expect("some");
            let mut at = 0;
            runs.retain(|_| {
                at += 1;
                !chosen.contains(&(at - 1))
            });
            runs.push(RunSize { bytes: merged, newest });
            merges += 1;
            assert!(merges < 100, "seed {seed}: compactions do not end");
        }
        most_runs = most_runs.max(runs.len());
        let largest = runs.iter().map(|run| run.bytes).max().expect("some");
        most_space = most_space.max(runs.iter().map(|run| run.bytes).sum::<u64>() * 1000 / largest);
    }
    (most_runs, most_space)
}

#[test]
fn runs_are_bounded_and_so_is_space() {
    for seed in 0..8 {
        // 2000 flushes are about eleven doublings of the size, and three runs of each may wait.
        let (runs, _) = live(options(Strategy::SizeTiered), seed);
        assert!(runs <= 3 * 11, "size-tiered: {runs} runs, seed {seed}");
        let (runs, _) = live(options(Strategy::Leveled), seed);
        assert!(runs <= 3 * 4 + 4, "leveled: {runs} runs, seed {seed}");
        let goal = TableOptions { space_amplification_goal: Some(1300), ..options(Strategy::Incremental) };
        let (_, space) = live(goal, seed);
        assert!(space <= 1300, "incremental: {space} per mille, seed {seed}");
        let (runs, _) = live(options(Strategy::TimeWindow { window_s: 200 }), seed);
        assert!(runs <= 10 + 3 * 8, "time windows: {runs} runs, seed {seed}");
    }
}
