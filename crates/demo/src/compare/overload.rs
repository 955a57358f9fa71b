//! Overload: goodput, response times, the other level and the cost, with the limiter and without.
//! Rates that the generator limited are left out.

use super::judge::{judged, ratio};
use crate::results::{Chapter, ComparisonRow, DemoResults, Offered, Window};
use crate::trust::GENERATOR_MAX;
use charts::numbers::{factor, percent, rate, time};

/// Least goodput with the limiter, as a fraction of the best, or of what is due if that is less.
const GOODPUT_MIN: f64 = 0.95;
/// Largest p99 of what is answered, over that at the lowest rate.
const P99_MAX: f64 = 3.0;
/// Largest p99 of the other level, over that alone.
const STEADY_MAX: f64 = 1.2;
/// Most additional CPU at the lowest rate.
const CPU_MAX: f64 = 0.01;
/// The lowest rate, as a fraction of capacity.
const LOW: f64 = 0.4;
/// Target of queue delay: the time of eight statements at half of the core, at least 5 ms, at most
/// a quarter of the time limit of 100 ms (`docs/scheduler.md`, section 7). µs.
const TARGET_STATEMENTS: f64 = 8.0 / 0.5;
const TARGET_US: (f64, f64) = (5000.0, 25_000.0);

/// Returns true if the generator was not the limit.
fn is_valid(offered: &Offered) -> bool {
    offered.generator_cpu <= GENERATOR_MAX
}

/// Returns the valid results with or without the limiter, without those of the steady load alone.
fn of(chapter: &Chapter, is_limited: bool) -> impl Iterator<Item = &Offered> {
    let is_of = move |found: &&Offered| found.is_limited == is_limited && found.part > 0.0;
    chapter.offered.iter().filter(is_of).filter(|found| is_valid(found))
}

/// Returns the mean of a value over the valid results at a rate.
pub(crate) fn mean_of(
    chapter: &Chapter,
    part: f64,
    is_limited: bool,
    value: impl Fn(&Offered) -> f64,
) -> Option<f64> {
    let values: Vec<f64> = of(chapter, is_limited).filter(|found| found.part == part).map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the best goodput of all rates, with or without the limiter.
pub(crate) fn best(chapter: &Chapter) -> Option<f64> {
    let all = chapter.offered.iter().filter(|found| is_valid(found));
    all.map(|found| found.goodput_per_s).reduce(f64::max).filter(|best| *best > 0.0)
}

/// Returns the offered rates of a chapter, each once.
pub(crate) fn parts(chapter: &Chapter) -> Vec<f64> {
    let mut parts: Vec<f64> =
        chapter.offered.iter().map(|found| found.part).filter(|part| *part > 0.0).collect();
    parts.sort_by(f64::total_cmp);
    parts.dedup();
    parts
}

/// Returns a value at each rate with and without the limiter, in words.
fn each(chapter: &Chapter, value: fn(&Offered) -> f64, text: fn(f64) -> String) -> String {
    let at = |part: &f64| {
        let shown = |is_limited| mean_of(chapter, *part, is_limited, value).map_or("–".to_string(), text);
        format!("{:.0}\u{a0}%: {} off, {} on", part * 100.0, shown(false), shown(true))
    };
    parts(chapter).iter().map(at).collect::<Vec<String>>().join("; ")
}

/// Returns the phases of results that decide a row.
fn windows(chapter: &Chapter, decides: impl Fn(&Offered) -> bool) -> Vec<&Window> {
    let both = chapter.windows.iter().zip(&chapter.offered);
    both.filter(|(_, offered)| decides(offered)).map(|(window, _)| window).collect()
}

/// Returns a row with a verdict, unless a disturbance forbids it.
fn verdict(
    chapter: &Chapter,
    row: ComparisonRow,
    goal: String,
    is_met: bool,
    decides: impl Fn(&Offered) -> bool,
) -> ComparisonRow {
    judged(ComparisonRow { goal, met: Some(is_met), ..row }, &windows(chapter, decides))
}

fn goodput(chapter: &Chapter) -> Option<ComparisonRow> {
    let best = best(chapter)?;
    let over = |found: &&Offered| found.part >= 1.0;
    let part = |found: &Offered| found.goodput_per_s / best.min(found.due_per_s).max(1e-9);
    let least = |is_limited| of(chapter, is_limited).filter(over).map(part).reduce(f64::min);
    let value = least(true)?;
    let without = least(false).map_or(String::new(), |least| format!("{} without; ", percent(least)));
    let row = ComparisonRow::percent(
        format!("{}: least goodput from 100 %, of what is possible", chapter.title),
        value,
    )
    .detail(format!(
        "{without}answers in time a second at {}",
        each(chapter, |found| found.goodput_per_s, rate)
    ));
    let goal = format!("≥\u{a0}{}", percent(GOODPUT_MIN));
    Some(verdict(chapter, row, goal, value >= GOODPUT_MIN, |found| found.part >= 1.0))
}

fn p99(chapter: &Chapter) -> Option<ComparisonRow> {
    let low_us = mean_of(chapter, LOW, true, |found| found.latency.p99_us)?;
    let worst = of(chapter, true).max_by(|a, b| a.latency.p99_us.total_cmp(&b.latency.p99_us))?;
    let target_us = (TARGET_STATEMENTS * worst.cpu_us).clamp(TARGET_US.0, TARGET_US.1);
    let limit_us = (P99_MAX * low_us).max(low_us + 2.0 * target_us);
    let p99_us = worst.latency.p99_us;
    let row = ComparisonRow::new(
        format!("{}: highest p99 of answers with the limiter", chapter.title),
        p99_us,
        time(p99_us),
    )
    .detail(format!("at {}", each(chapter, |found| found.latency.p99_us, time)));
    Some(verdict(chapter, row, format!("≤\u{a0}{}", time(limit_us)), p99_us <= limit_us, |found| {
        found.is_limited
    }))
}

fn steady(chapter: &Chapter) -> Option<ComparisonRow> {
    let alone_us = chapter.offered.iter().find(|found| found.part <= 0.0)?.steady.p99_us;
    let worst = |is_limited| of(chapter, is_limited).map(|found| found.steady.p99_us).reduce(f64::max);
    let value = ratio(worst(true), Some(alone_us))?;
    let row = ComparisonRow::times(format!("{}: p99 of the other level, over alone", chapter.title), value)
        .detail(format!("alone {}; at {}", time(alone_us), each(chapter, |found| found.steady.p99_us, time)));
    let goal = format!("≤\u{a0}×{}", factor(STEADY_MAX));
    Some(verdict(chapter, row, goal, value <= STEADY_MAX, |found| found.is_limited || found.part <= 0.0))
}

fn cpu(chapter: &Chapter) -> Option<ComparisonRow> {
    let of = |is_limited| mean_of(chapter, LOW, is_limited, |found| found.cpu_us);
    let (off, on) = (of(false)?, of(true)?);
    let value = ratio(Some(on), Some(off))? - 1.0;
    let row =
        ComparisonRow::percent(format!("{}: additional CPU of the limiter at 40 %", chapter.title), value)
            .detail(format!("{off:.2} µs an answer off, {on:.2} µs on, all groups of the server together"));
    let goal = format!("≤\u{a0}{}", percent(CPU_MAX));
    Some(verdict(chapter, row, goal, value <= CPU_MAX, |found| found.part == LOW))
}

fn refusals(chapter: &Chapter) -> Option<ComparisonRow> {
    let value = mean_of(chapter, LOW, true, |found| {
        found.refused_per_s + found.turned_away_per_s + found.failed_per_s
    })?;
    let row = ComparisonRow::new(
        format!("{}: refusals a second with the limiter at 40 %", chapter.title),
        value,
        format!("{value:.1}"),
    )
    .detail(format!(
        "refused, or not sent after a refusal, at {}",
        each(chapter, |found| found.refused_per_s + found.turned_away_per_s, rate)
    ));
    let is_deciding = |found: &Offered| found.part == LOW && found.is_limited;
    Some(verdict(chapter, row, "0".to_string(), value <= 0.0, is_deciding))
}

/// Lists the rates at which the generator was the limit.
fn left_out(chapter: &Chapter) -> Option<ComparisonRow> {
    let out = chapter.offered.iter().filter(|found| !is_valid(found));
    let out: Vec<String> =
        out.map(|found| format!("{} ({})", found.label(), percent(found.generator_cpu))).collect();
    (!out.is_empty()).then(|| {
        ComparisonRow::new(
            format!("{}: left out, the generator was the limit", chapter.title),
            out.len() as f64,
            out.len().to_string(),
        )
        .detail(format!("CPU of its core: {}", out.join(", ")))
    })
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    for chapter in outcome.chapters.iter().filter(|chapter| !chapter.offered.is_empty()) {
        let all = [
            goodput(chapter),
            p99(chapter),
            steady(chapter),
            cpu(chapter),
            refusals(chapter),
            left_out(chapter),
        ];
        rows.extend(all.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(part: f64, is_limited: bool, goodput_per_s: f64, p99_us: f64) -> Offered {
        let latency = |p99_us| load::Latency { p99_us, ..load::Latency::default() };
        let (latency, steady, due_per_s) = (latency(p99_us), latency(500.0), 1000.0 * part);
        Offered {
            part,
            due_per_s,
            is_limited,
            goodput_per_s,
            latency,
            steady,
            cpu_us: 10.0,
            ..Offered::default()
        }
    }

    fn check(change: impl Fn(&mut Vec<Offered>), expected: &[(&str, f64, Option<bool>)]) {
        let mut all = vec![
            offered(0.0, false, 0.0, 0.0),
            offered(0.4, false, 400.0, 1000.0),
            offered(0.4, true, 400.0, 1000.0),
            offered(1.0, false, 1000.0, 9000.0),
            offered(1.0, true, 980.0, 2900.0),
            offered(10.0, true, 960.0, 3000.0),
            offered(10.0, false, 1.0, 900_000.0),
        ];
        change(&mut all);
        let chapter = Chapter { title: "Reads".into(), offered: all, ..Chapter::default() };
        let mut found = Vec::new();
        rows(&DemoResults { chapters: vec![chapter], ..DemoResults::default() }, &mut found);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (row, (what, value, met)) in found.iter().zip(expected) {
            let is_same = row.what.contains(what) && (row.value - value).abs() < 1e-9 && row.met == *met;
            assert!(is_same, "{row:?}, not {what} {value} {met:?}");
        }
    }

    #[test]
    fn limiter_is_judged_by_goodput_times_and_cost() {
        check(
            |_| {},
            &[
                ("goodput", 0.96, Some(true)),
                ("p99 of answers", 3000.0, Some(true)),
                ("other level", 1.0, Some(true)),
                ("CPU", 0.0, Some(true)),
                ("refusals", 0.0, Some(true)),
            ],
        );
    }

    #[test]
    fn missed_goals_are_not_met() {
        check(
            |all| {
                (all[5].goodput_per_s, all[5].latency.p99_us, all[5].steady.p99_us) =
                    (700.0, 12_000.0, 650.0);
                (all[2].cpu_us, all[2].refused_per_s) = (10.2, 3.0);
            },
            &[
                ("goodput", 0.7, Some(false)),
                ("p99 of answers", 12_000.0, Some(false)),
                ("other level", 1.3, Some(false)),
                ("CPU", 0.02, Some(false)),
                ("refusals", 3.0, Some(false)),
            ],
        );
    }

    #[test]
    fn rate_that_the_generator_limited_is_left_out() {
        check(
            |all| (all[5].goodput_per_s, all[5].generator_cpu) = (100.0, 0.9),
            &[
                ("goodput", 0.98, Some(true)),
                ("p99 of answers", 2900.0, Some(true)),
                ("other level", 1.0, Some(true)),
                ("CPU", 0.0, Some(true)),
                ("refusals", 0.0, Some(true)),
                ("left out", 1.0, None),
            ],
        );
    }
}
