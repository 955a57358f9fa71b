//! Commands in order: throughput over the number of keys, and results compared with sequential
//! execution.

use super::judge::{judged, ratio};
use crate::names::{BATCHED, COMMANDS, ONE_KEY, PER_PARTITION, TEN_KEYS, THREADS, UNLIMITED};
use crate::results::{Batches, Chapter, ComparisonRow, DemoResults, Window};
use charts::numbers::{percent, rate, time};

/// Largest deviation of batches from the requested rate, whatever the keys.
const DEVIATION_MAX: f64 = 0.1;
/// Ratio of throughputs of partitions in parallel with ten keys and one, and its tolerance.
const TEN: f64 = 10.0;
const TOLERANCE: f64 = 0.2;
/// Published throughputs over the number of keys.
const PUBLISHED_BATCHED: &str = "30,000 a second on 15 cores, whatever the keys";
const PUBLISHED_PER_PARTITION: &str = "8,000 a second on 64 cores, depends on the keys";

/// Returns the name of a strategy.
fn how(id: &str) -> &'static str {
    match id {
        BATCHED => "batches",
        THREADS => "partitions, 1024 threads",
        UNLIMITED => "batches without a limit",
        _ => "partitions, 64 threads",
    }
}

fn throughput(chapter: &Chapter, window: &str) -> Option<f64> {
    chapter.window(window)?.throughput(COMMANDS)
}

/// Returns the throughputs with one key: of partitions in parallel, and of batches.
pub(crate) fn one_key(outcome: &DemoResults) -> Option<(f64, f64)> {
    let of = |id: &str| throughput(outcome.chapter(id)?, ONE_KEY);
    Some((of(PER_PARTITION)?, of(BATCHED)?))
}

/// Returns the largest deviation of a phase from the requested rate, as a fraction of it.
pub(crate) fn deviation(chapter: &Chapter) -> Option<f64> {
    let of = |window: &Window| {
        let load = window.load(COMMANDS)?;
        Some((load.throughput_per_s / load.asked_per_s? - 1.0).abs())
    };
    chapter.windows.iter().filter_map(of).reduce(f64::max)
}

fn deviation_row(chapter: &Chapter) -> Option<ComparisonRow> {
    let value = deviation(chapter)?;
    let is_judged = chapter.id == BATCHED;
    let of = |window: &Window| {
        let load = window.load(COMMANDS)?;
        let p99_us = load.latency.unwrap_or_default().p99_us;
        Some(format!("{} {} (p99 {})", window.label, rate(load.throughput_per_s), time(p99_us)))
    };
    let each: Vec<String> = chapter.windows.iter().filter_map(of).collect();
    let asked = chapter.windows.iter().find_map(|window| window.load(COMMANDS)?.asked_per_s)?;
    let row = ComparisonRow::percent(
        format!("largest deviation from the requested rate, {}", how(&chapter.id)),
        value,
    )
    .detail(format!("{} commands a second requested; {}", rate(asked), each.join(", ")))
    .published(match &*chapter.id {
        BATCHED => PUBLISHED_BATCHED.to_string(),
        PER_PARTITION => PUBLISHED_PER_PARTITION.to_string(),
        _ => String::new(),
    })
    .goal(
        if is_judged { format!("≤\u{a0}{}", percent(DEVIATION_MAX)) } else { String::new() },
        is_judged.then_some(value <= DEVIATION_MAX),
    );
    Some(judged(row, &chapter.windows.iter().collect::<Vec<&Window>>()))
}

/// Compares ten keys with one: throughput of partitions in parallel is proportional to their
/// number.
fn proportion_row(chapter: &Chapter) -> Option<ComparisonRow> {
    let (one, ten) = (throughput(chapter, ONE_KEY)?, throughput(chapter, TEN_KEYS)?);
    let value = ratio(Some(ten), Some(one))?;
    let asked = chapter.window(TEN_KEYS)?.load(COMMANDS)?.asked_per_s?;
    // At the requested rate the ratio is that of the load, not that of the partitions.
    let is_limited = ten < 0.9 * asked;
    let row = ComparisonRow::times("partitions in parallel, 10 keys over 1 key", value)
        .detail(format!(
            "{} and {} commands a second: the number of active keys is the number of commands at once",
            rate(ten),
            rate(one)
        ))
        .goal(
            format!("×{TEN:.0} ± {:.0}\u{a0}%", TOLERANCE * 100.0),
            is_limited.then_some((value / TEN - 1.0).abs() <= TOLERANCE),
        );
    let windows: Vec<&Window> = [ONE_KEY, TEN_KEYS].iter().filter_map(|id| chapter.window(id)).collect();
    Some(judged(row, &windows))
}

fn one_key_row(outcome: &DemoResults) -> Option<ComparisonRow> {
    let (partitions, batches) = one_key(outcome)?;
    let value = ratio(Some(batches), Some(partitions))?;
    Some(ComparisonRow::times("with one key, batches over partitions", value).detail(format!(
        "{} and {} commands a second; batches are bounded by the requested rate",
        rate(batches),
        rate(partitions)
    )))
}

/// Compares the largest numbers of operations in flight, which a burst of new keys causes.
fn in_flight_row(outcome: &DemoResults) -> Option<ComparisonRow> {
    let most = |id: &str| outcome.chapter(id)?.batches.iter().map(|phase| phase.in_flight_most).max();
    let batches = most(BATCHED)?;
    let limit = outcome.chapter(BATCHED)?.batches.iter().map(|phase| phase.in_flight_limit).max()?;
    let others = [PER_PARTITION, UNLIMITED, THREADS].into_iter().filter_map(|id| Some((how(id), most(id)?)));
    let others: Vec<String> = others.map(|(how, most)| format!("{how}: {most}")).collect();
    Some(
        ComparisonRow::new("operations in flight at most, batches", batches as f64, batches.to_string())
            .detail(others.join("; "))
            .goal(format!("≤\u{a0}{limit}"), Some(batches <= limit)),
    )
}

/// Compares batches without a limit with N*, which they exceed in a burst and the limit does not.
/// Without a peak there is nothing to exceed.
fn peak_row(outcome: &DemoResults) -> Option<ComparisonRow> {
    let most = |id: &str| outcome.chapter(id)?.batches.iter().map(|phase| phase.in_flight_most).max();
    let (limited, unlimited) = (most(BATCHED)? as f64, most(UNLIMITED)? as f64);
    let found = outcome.chapter(UNLIMITED)?.most_useful?;
    Some(
        ComparisonRow::new(
            "operations in flight at most, batches without a limit",
            unlimited,
            rate(unlimited),
        )
        .detail(format!("{limited:.0} with a limit; the server: {}", found.label()))
        .goal(
            if found.is_peak {
                format!("> N*, and ≤\u{a0}{:.0} with a limit", found.n)
            } else {
                String::new()
            },
            found.is_peak.then_some(unlimited > found.n && limited <= found.n),
        ),
    )
}

/// Compares rows and outputs with sequential execution.
fn results_row(outcome: &DemoResults) -> Option<ComparisonRow> {
    let phases: Vec<&Batches> = outcome.chapters.iter().flat_map(|chapter| &chapter.batches).collect();
    let (rows, wrong) = phases.iter().fold((0, 0), |sum, of| (sum.0 + of.rows, sum.1 + of.wrong));
    if rows == 0 {
        return None;
    }
    Some(
        ComparisonRow::new("wrong rows and outputs, all strategies", wrong as f64, rate(wrong as f64))
            .detail(format!(
                "{} rows compared after {} phases, each with all changes in their order",
                rate(rows as f64),
                phases.len()
            ))
            .goal("0", Some(wrong == 0)),
    )
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    rows.extend(outcome.chapter(BATCHED).and_then(deviation_row));
    rows.extend(outcome.chapter(PER_PARTITION).and_then(deviation_row));
    rows.extend(outcome.chapter(THREADS).and_then(deviation_row));
    rows.extend(one_key_row(outcome));
    rows.extend(outcome.chapter(PER_PARTITION).and_then(proportion_row));
    rows.extend(in_flight_row(outcome));
    rows.extend(peak_row(outcome));
    rows.extend(results_row(outcome));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{MostUseful, WindowLoad};

    fn chapter(id: &str, done: &[(&str, f64)], wrong: u64) -> Chapter {
        let window = |(window, throughput_per_s): &(&str, f64)| {
            let load = WindowLoad {
                load: COMMANDS.into(),
                throughput_per_s: *throughput_per_s,
                asked_per_s: Some(1000.0),
                ..WindowLoad::default()
            };
            Window { id: (*window).into(), loads: vec![load], ..Window::default() }
        };
        let batches =
            Batches { rows: 100, wrong, in_flight_most: 64, in_flight_limit: 64, ..Batches::default() };
        Chapter {
            id: id.into(),
            windows: done.iter().map(window).collect(),
            batches: vec![batches],
            ..Chapter::default()
        }
    }

    fn check(chapters: Vec<Chapter>, expected: &[(&str, f64, Option<bool>)]) {
        let mut found = Vec::new();
        rows(&DemoResults { chapters, ..DemoResults::default() }, &mut found);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (row, (what, value, met)) in found.iter().zip(expected) {
            let is_same = row.what.contains(what) && (row.value - value).abs() < 1e-9 && row.met == *met;
            assert!(is_same, "{row:?}, not {what} {value} {met:?}");
        }
    }

    #[test]
    fn strategies_are_judged_by_rate_proportion_and_results() {
        check(
            vec![
                chapter(PER_PARTITION, &[("many", 1000.0), (TEN_KEYS, 95.0), (ONE_KEY, 10.0)], 0),
                chapter(BATCHED, &[("many", 990.0), (TEN_KEYS, 1000.0), (ONE_KEY, 1010.0)], 0),
            ],
            &[
                ("rate, batches", 0.01, Some(true)),
                ("rate, partitions", 0.99, None),
                ("with one key", 101.0, None),
                ("10 keys over 1 key", 9.5, Some(true)),
                ("in flight at most", 64.0, Some(true)),
                ("wrong rows", 0.0, Some(true)),
            ],
        );
    }

    #[test]
    fn batches_without_a_limit_are_judged_by_the_peak() {
        let with = |id: &str, most: u64, found: MostUseful| {
            let mut chapter = chapter(id, &[("many", 1000.0)], 0);
            (chapter.batches[0].in_flight_most, chapter.most_useful) = (most, Some(found));
            chapter
        };
        for (n, is_peak, met) in [(600.0, true, Some(true)), (32.0, true, Some(false)), (600.0, false, None)]
        {
            let found = MostUseful { n, is_peak, up_to: 4096 };
            let chapters = vec![with(BATCHED, 64, found), with(UNLIMITED, 2048, found)];
            let outcome = DemoResults { chapters, ..DemoResults::default() };
            let row = peak_row(&outcome).expect("both chapters are there");
            assert_eq!((row.value, row.met), (2048.0, met), "{row:?}");
        }
    }

    #[test]
    fn missed_rate_and_wrong_rows_are_not_met() {
        check(
            vec![chapter(BATCHED, &[("many", 850.0)], 3)],
            &[
                ("rate, batches", 0.15, Some(false)),
                ("in flight at most", 64.0, Some(true)),
                ("wrong rows", 3.0, Some(false)),
            ],
        );
    }

    #[test]
    fn proportion_is_not_judged_at_the_requested_rate() {
        check(
            vec![chapter(PER_PARTITION, &[(TEN_KEYS, 990.0), (ONE_KEY, 300.0)], 0)],
            &[
                ("rate, partitions", 0.7, None),
                ("10 keys over 1 key", 3.3, None),
                ("wrong rows", 0.0, Some(true)),
            ],
        );
    }
}
