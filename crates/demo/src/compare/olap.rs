//! Comparisons of queries beside queries: throughput of two clients, CPU and latency of a capped
//! client, and the latency of short queries over their latency alone. The published experiments add
//! the published values. Those are words more than numbers: the text of the article has no table.

use load::Latency;

use super::judge::{judged, median, ratio};
use crate::names::{ALONE, CAPPED, CONNECTIONS, DASHBOARD, LEVELS, ONE_LEVEL, REPORTS, SHORT};
use crate::options::Shape;
use crate::results::{Chapter, ComparisonRow, DemoResults, OfQuery, Window, times};
use charts::numbers::{factor, percent, rate, time};

/// Configured shares and limit, and the tolerances of results.
const SHARES: f64 = 2.0;
const SHARES_OFF_MAX: f64 = 0.03;
const CAP: f64 = 0.5;
const CAP_OFF_MAX: f64 = 0.01;
/// Goal: latency of short queries beside eight connections over that beside one.
const GROWTH_MAX: f64 = 1.1;

/// Returns the throughput of the first client over that of the second.
pub(crate) fn throughputs(window: &Window) -> Option<f64> {
    ratio(window.throughput(DASHBOARD), window.throughput(REPORTS))
}

/// Returns the CPU of the first client's level over that of the second's.
pub(crate) fn cpu_ratio(window: &Window) -> Option<f64> {
    ratio(window.cpu.levels.get(DASHBOARD).copied(), window.cpu.levels.get(REPORTS).copied())
}

/// Latency of queries over their latency alone: the median over the queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OverAlone {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

fn queries<'a>(window: &'a Window, load: &str) -> Option<&'a [OfQuery]> {
    window.load(load).map(|load| load.queries.as_slice())
}

/// Returns all phases with this id.
fn phases<'a>(chapter: &'a Chapter, id: &'a str) -> impl Iterator<Item = &'a Window> {
    chapter.windows.iter().filter(move |window| window.id == id)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the result of one client in one phase. `None` if no query was answered both alone and in
/// this phase.
pub(crate) fn over_alone(chapter: &Chapter, window: &Window, load: &str) -> Option<OverAlone> {
    let alone = |window| queries(window, DASHBOARD);
    let alone: Vec<&OfQuery> = phases(chapter, ALONE).filter_map(alone).flatten().collect();
    let over = |of: fn(&Latency) -> f64| {
        let one = |query: &OfQuery| {
            let same = alone.iter().filter(|same| same.name == query.name);
            let same: Vec<f64> = same.map(|same| of(&same.latency)).collect();
            ratio(Some(of(&query.latency)), mean(&same))
        };
        median(queries(window, load)?.iter().filter_map(one).collect())
    };
    Some(OverAlone { p50: over(|latency| latency.p50_us)?, p99: over(|latency| latency.p99_us)? })
}

/// Returns the mean result of one client for each number of connections of the second, over the
/// phases whose ids start with `how`.
pub(crate) fn beside(chapter: &Chapter, how: &str, load: &str) -> Vec<(usize, OverAlone)> {
    let of = |connections: usize| {
        let id = format!("{how}-{connections}");
        let all: Vec<OverAlone> =
            phases(chapter, &id).filter_map(|window| over_alone(chapter, window, load)).collect();
        let of = |one: fn(&OverAlone) -> f64| mean(&all.iter().map(one).collect::<Vec<_>>());
        Some((connections, OverAlone { p50: of(|over| over.p50)?, p99: of(|over| over.p99)? }))
    };
    CONNECTIONS.into_iter().filter_map(of).collect()
}

fn shares_row(chapter: &Chapter, id: &str, how: &str, entitled: f64) -> Option<ComparisonRow> {
    let window = chapter.window(id)?;
    let value = throughputs(window)?;
    let per_s = |load: &str| format!("{:.2}", window.throughput(load).unwrap_or_default());
    let count = |load: &str| {
        rate(queries(window, load).unwrap_or_default().iter().map(|query| query.count as f64).sum())
    };
    let cpu = cpu_ratio(window).map_or(String::new(), |cpu| format!("; CPU {cpu:.2}"));
    let row = ComparisonRow::new(
        format!("throughput of two clients of queries, {how}"),
        value,
        format!("{value:.2}"),
    )
    .detail(format!(
        "{} and {} queries a second, {} and {} in all{cpu}",
        per_s(DASHBOARD),
        per_s(REPORTS),
        count(DASHBOARD),
        count(REPORTS)
    ))
    .goal(
        format!("{entitled:.0}\u{a0}±\u{a0}3\u{a0}%"),
        Some((value / entitled - 1.0).abs() <= SHARES_OFF_MAX),
    );
    Some(judged(row, &[window]))
}

fn cap_row(window: &Window) -> ComparisonRow {
    let value = window.cpu.server_part();
    let own = window.cpu.part(CAPPED).map_or("–".to_string(), percent);
    let row = ComparisonRow::percent(format!("cpu_limit = '50%', queries of {}", window.label), value)
        .detail(format!(
            "of its CPU by the whole server, as the kernel counts; {own} by the level, as the server counts"
        ))
        .goal("50\u{a0}±\u{a0}1\u{a0}%", Some((value - CAP).abs() <= CAP_OFF_MAX));
    judged(row, &[window])
}

/// Compares the p99 of the capped client with the most connections to that with the fewest.
fn cap_p99_row(chapter: &Chapter) -> Option<ComparisonRow> {
    let latency = |window: &Window| Some((window.label.clone(), window.latency(CAPPED)?));
    let found: Vec<(String, Latency)> = chapter.windows.iter().filter_map(latency).collect();
    let [(fewest, least), .., (most, last)] = found.as_slice() else { return None };
    let value = ratio(Some(last.p99_us), Some(least.p99_us))?;
    let list = |of: fn(&Latency) -> f64| {
        found.iter().map(|(_, latency)| time(of(latency))).collect::<Vec<_>>().join(" · ")
    };
    let row = ComparisonRow::times(format!("cpu_limit = '50%', p99 of {most} over {fewest}"), value).detail(
        format!("p99 {}; medians {}", list(|latency| latency.p99_us), list(|latency| latency.p50_us)),
    );
    Some(judged(row, &chapter.windows.iter().collect::<Vec<_>>()))
}

/// Compares short queries of a client beside the most connections with those beside the fewest.
fn short_row(chapter: &Chapter, load: &str, how: &str, label: &str) -> Option<ComparisonRow> {
    let found = beside(chapter, how, load);
    let [(fewest, least), .., (most, last)] = found.as_slice() else { return None };
    let list = |of: fn(&OverAlone) -> f64| {
        found.iter().map(|(_, over)| times(of(over))).collect::<Vec<_>>().join(" · ")
    };
    let connections: Vec<String> = found.iter().map(|(connections, _)| connections.to_string()).collect();
    let value = ratio(Some(last.p50), Some(least.p50))?;
    let judges = how == LEVELS && load == DASHBOARD;
    let growth: Vec<String> =
        found[1..].iter().filter_map(|(_, over)| ratio(Some(over.p50), Some(least.p50))).map(times).collect();
    let (medians, beside) = match load {
        DASHBOARD => ("medians", "beside"),
        _ => ("medians of the other client", "with"),
    };
    let row = ComparisonRow::times(
        format!(
            "{}, {medians} {beside} {most} over {beside} {fewest}, {label}",
            chapter.id.replace('_', " ")
        ),
        value,
    )
    .detail(format!(
        "{beside} {} over alone: medians {}, p99 {}; over the first: {}",
        connections.join(" · "),
        list(|over| over.p50),
        list(|over| over.p99),
        growth.join(" · ")
    ))
    .goal(
        if judges { format!("≤\u{a0}×{}", factor(GROWTH_MAX)) } else { String::new() },
        judges.then_some(value <= GROWTH_MAX),
    );
    let own: Vec<&Window> = chapter.windows.iter().filter(|window| window.id.starts_with(how)).collect();
    Some(judged(row, &own))
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    let is_published = outcome.shape == Shape::Published.name();
    let mut add = |row: Option<ComparisonRow>, published: &str| {
        let published = if is_published { published.to_string() } else { String::new() };
        rows.extend(row.map(|row| ComparisonRow { published, ..row }));
    };
    if let Some(chapter) = outcome.chapter("olap_shares") {
        add(shares_row(chapter, LEVELS, "shares 2:1", SHARES), "2");
        add(shares_row(chapter, ONE_LEVEL, "one level", 1.0), "1");
    }
    if let Some(chapter) = outcome.chapter("olap_cap") {
        chapter.windows.iter().for_each(|window| add(Some(cap_row(window)), "about 50\u{a0}%"));
        add(cap_p99_row(chapter), "rises");
    }
    for chapter in SHORT.iter().filter_map(|id| outcome.chapter(id)) {
        add(short_row(chapter, DASHBOARD, LEVELS, "a level each"), "much smaller");
        add(short_row(chapter, DASHBOARD, ONE_LEVEL, "one level"), "×2 to ×3");
        // Both clients were published without groups, and only the first one with them.
        add(short_row(chapter, REPORTS, LEVELS, "a level each"), "");
        add(short_row(chapter, REPORTS, ONE_LEVEL, "one level"), "×2 to ×3");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Cpu, WindowLoad};

    fn load(name: &str, throughput_per_s: f64, queries: &[(&str, f64)]) -> WindowLoad {
        let query = |(name, p50_us): &(&str, f64)| OfQuery {
            name: (*name).to_string(),
            count: 9,
            latency: Latency { p50_us: *p50_us, p99_us: 3.0 * p50_us, ..Latency::default() },
        };
        let queries = queries.iter().map(query).collect();
        WindowLoad { load: name.to_string(), throughput_per_s, queries, ..WindowLoad::default() }
    }

    fn window(id: &str, loads: Vec<WindowLoad>) -> Window {
        let cpu = Cpu { process: 1.0, busy: 1.0, cores: 2, ..Cpu::default() };
        Window { id: id.into(), label: id.into(), loads, cpu, ..Window::default() }
    }

    fn found(id: &str, windows: Vec<Window>) -> Vec<ComparisonRow> {
        let outcome = DemoResults { chapters: vec![chapter(id, windows)], ..DemoResults::default() };
        let mut found = Vec::new();
        rows(&outcome, &mut found);
        assert!(found.iter().all(|row| row.published.is_empty()), "{found:?}");
        found
    }

    fn chapter(id: &str, windows: Vec<Window>) -> Chapter {
        Chapter { id: id.into(), windows, ..Chapter::default() }
    }

    #[test]
    fn shares_are_ratios_of_what_was_done() {
        let two = |first: f64, second: f64| vec![load(DASHBOARD, first, &[]), load(REPORTS, second, &[])];
        let rows =
            found("olap_shares", vec![window(LEVELS, two(6.1, 3.0)), window(ONE_LEVEL, two(4.0, 5.0))]);
        let shown: Vec<(&str, Option<bool>)> = rows.iter().map(|row| (row.seen.as_str(), row.met)).collect();
        assert_eq!(shown, [("2.03", Some(true)), ("0.80", Some(false))]);
        assert!(found("olap_shares", vec![window(LEVELS, two(6.0, 0.0))]).is_empty());
    }

    #[test]
    fn queries_completed_and_cpu_stand_beside_the_ratio() {
        let two = vec![load(DASHBOARD, 6.0, &[("q1", 1.0), ("q2", 1.0)]), load(REPORTS, 3.0, &[("q1", 1.0)])];
        let mut window = window(LEVELS, two);
        window.cpu.levels = [(DASHBOARD.to_string(), 1.2), (REPORTS.to_string(), 0.6)].into();
        assert_eq!(cpu_ratio(&window), Some(2.0));
        let rows = found("olap_shares", vec![window]);
        assert_eq!(rows[0].detail, "6.00 and 3.00 queries a second, 18 and 9 in all; CPU 2.00");
    }

    #[test]
    fn published_words_stand_beside_each_row() {
        let capped = |id: &str, p99_us: f64| {
            let latency = Some(Latency { p99_us, p50_us: 100.0, ..Latency::default() });
            window(id, vec![WindowLoad { latency, ..load(CAPPED, 5.0, &[]) }])
        };
        let both =
            |p50_us: f64| vec![load(DASHBOARD, 1.0, &[("q1", 100.0)]), load(REPORTS, 1.0, &[("q1", p50_us)])];
        let two = vec![load(DASHBOARD, 6.0, &[]), load(REPORTS, 3.0, &[])];
        let chapters = vec![
            chapter("olap_shares", vec![window(LEVELS, two)]),
            chapter("olap_cap", vec![capped("1", 200.0), capped("4", 900.0)]),
            chapter(
                "olap_tpch",
                vec![
                    window(ALONE, vec![load(DASHBOARD, 1.0, &[("q1", 50.0)])]),
                    window("levels-1", both(100.0)),
                    window("levels-8", both(800.0)),
                    window("one_level-1", both(100.0)),
                    window("one_level-2", both(150.0)),
                    window("one_level-8", both(400.0)),
                ],
            ),
        ];
        let shape = Shape::Published.name().to_string();
        let mut found = Vec::new();
        rows(&DemoResults { chapters, shape, ..DemoResults::default() }, &mut found);
        let shown: Vec<(f64, &str, Option<bool>)> =
            found.iter().map(|row| (row.value, &*row.published, row.met)).collect();
        let expected = [
            (2.0, "2", Some(true)),
            (0.5, "about 50\u{a0}%", Some(true)),
            (0.5, "about 50\u{a0}%", Some(true)),
            (4.5, "rises", None),
            (1.0, "much smaller", Some(true)),
            (1.0, "×2 to ×3", None),
            (8.0, "", None),
            (4.0, "×2 to ×3", None),
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            found[3].detail,
            "p99 0.200\u{a0}ms · 0.900\u{a0}ms; medians 0.100\u{a0}ms · 0.100\u{a0}ms"
        );
        assert!(found[7].detail.ends_with("; over the first: ×1.50 · ×4.00"), "{}", found[7].detail);
    }

    #[test]
    fn a_cap_is_a_part_of_all_cores() {
        let mut wide = window("2", vec![load(CAPPED, 5.0, &[])]);
        (wide.cpu.process, wide.cpu.busy) = (1.1, 1.1);
        let rows = found("olap_cap", vec![window("1", vec![load(CAPPED, 5.0, &[])]), wide]);
        let shown: Vec<(f64, Option<bool>)> = rows.iter().map(|row| (row.value, row.met)).collect();
        assert_eq!(shown, [(0.5, Some(true)), (0.55, Some(false))]);
    }

    #[test]
    fn queries_are_compared_with_themselves_and_phases_by_kind() {
        let (once, again) = ([("q1", 90.0), ("q2", 10.0), ("q3", 40.0)], [("q1", 110.0), ("q3", 40.0)]);
        let beside = [("q1", 200.0), ("q3", 120.0), ("q4", 1e9)];
        let windows = || {
            vec![
                window(ALONE, vec![load(DASHBOARD, 1.0, &once)]),
                window("levels-1", vec![load(DASHBOARD, 1.0, &beside[..1]), load(REPORTS, 1.0, &once)]),
                window("levels-8", vec![load(DASHBOARD, 1.0, &beside)]),
                window("levels-8", vec![load(DASHBOARD, 1.0, &[("q1", 150.0)])]),
                window(ALONE, vec![load(DASHBOARD, 1.0, &again)]),
            ]
        };
        let rows = found("olap_tpch", windows());
        assert_eq!((rows.len(), rows[0].value, rows[0].met), (1, 1.0, Some(true)), "{rows:?}");
        assert!(rows[0].detail.contains("beside 1 · 8 over alone: medians ×2.00 · ×2.00, p99"), "{rows:?}");
        let mut longer = windows();
        longer.remove(3);
        let rows = found("olap_tpch", longer);
        assert_eq!((rows[0].value, rows[0].met), (1.25, Some(false)), "{rows:?}");
        assert!(found("olap_tpch", vec![window("levels-1", vec![load(DASHBOARD, 1.0, &once)])]).is_empty());
    }
}
