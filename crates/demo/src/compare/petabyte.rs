//! Ratios of neighbouring phases of the demo in the shape of a petabyte, next to the published ones
//! and to what is expected. The expectation of a chapter is written before the chapter runs.

use super::judge::{judged, median, ratio};
use crate::names::{APPLICATION, APPLICATION_WRITES, USERS};
use crate::results::{Chapter, Outcome, Row, Window};
use crate::units::{factor, time};

/// A comparison of two settings.
pub(crate) struct Pair {
    /// Id of the chapter.
    chapter: &'static str,
    what: &'static str,
    load: &'static str,
    /// Labels of the phases: the later is compared with the base.
    base: &'static str,
    later: &'static str,
    /// Published ratio of p99; `None` for claims of our own.
    published: Option<f64>,
    /// Expected ratio, and the reason.
    expected: f64,
    because: &'static str,
    /// Largest ratio, if it is a goal.
    goal: Option<f64>,
}

const OWN_QUEUE: &str = "a level waits in its own queue, so that it hardly sees the users' rate";

/// All comparisons.
pub(crate) const PAIRS: [Pair; 9] = [
    Pair {
        chapter: "petabyte_rates",
        what: "application reads, users at 85 % over 61 %",
        load: APPLICATION,
        base: "61 %",
        later: "85 %",
        published: Some(2.96),
        expected: 1.2,
        because: OWN_QUEUE,
        goal: None,
    },
    Pair {
        chapter: "petabyte_rates",
        what: "application writes, users at 85 % over 61 %",
        load: APPLICATION_WRITES,
        base: "61 %",
        later: "85 %",
        published: Some(1.5),
        expected: 1.2,
        because: OWN_QUEUE,
        goal: None,
    },
    Pair {
        chapter: "petabyte_rates",
        what: "user reads at 85 % over 61 %",
        load: USERS,
        base: "61 %",
        later: "85 %",
        published: None,
        expected: 2.6,
        because: "M/M/1: (1 - 0.61) / (1 - 0.85)",
        goal: None,
    },
    Pair {
        chapter: "petabyte_mixed",
        what: "application writes, users 80/20 over read-only",
        load: APPLICATION_WRITES,
        base: "read-only",
        later: "80/20",
        published: Some(1.8),
        expected: 1.2,
        because: "flushes and compactions are paced",
        goal: None,
    },
    Pair {
        chapter: "petabyte_mixed",
        what: "application reads, users 80/20 over read-only",
        load: APPLICATION,
        base: "read-only",
        later: "80/20",
        published: Some(1.96),
        expected: 1.2,
        because: "flushes and compactions are paced",
        goal: None,
    },
    Pair {
        chapter: "petabyte_shares",
        what: "application reads, users with 500 shares over 1000",
        load: APPLICATION,
        base: "shares 1000",
        later: "shares 500",
        published: Some(0.48),
        expected: 1.0,
        because: "the application uses less than its shares with either",
        goal: None,
    },
    Pair {
        chapter: "petabyte_shares",
        what: "user reads with 500 shares over 1000",
        load: USERS,
        base: "shares 1000",
        later: "shares 500",
        published: Some(0.82),
        expected: 1.0,
        because: "the application needs 4 % either way",
        goal: None,
    },
    Pair {
        chapter: "petabyte_levels",
        what: "application reads next to users over alone, a level each",
        load: APPLICATION,
        base: "alone",
        later: "a level each",
        published: None,
        expected: 1.2,
        because: "the goal of this project",
        goal: Some(1.2),
    },
    Pair {
        chapter: "petabyte_levels",
        what: "application reads in one level over a level each",
        load: APPLICATION,
        base: "a level each",
        later: "one level",
        published: None,
        expected: 2.0,
        because: "it waits in the queue of the users",
        goal: None,
    },
];

/// Returns what is expected of a chapter, in lines.
pub(crate) fn expected(chapter: &str) -> String {
    let of = PAIRS.iter().filter(|pair| pair.chapter == chapter);
    of.map(|pair| format!("p99 of {}: ×{}, because {}\n", pair.what, factor(pair.expected), pair.because))
        .collect()
}

impl Pair {
    fn p99(&self, window: &Window) -> Option<f64> {
        window.latency(self.load).map(|latency| latency.p99_us)
    }

    /// Returns the ratios of neighbouring phases, each phase in one pair.
    fn ratios(&self, chapter: &Chapter) -> Vec<f64> {
        let mut ratios = Vec::new();
        let mut windows = &chapter.windows[..];
        while let [first, second, ..] = windows {
            let found = [first, second].map(|window| &*window.label);
            let value = match found {
                [a, b] if (a, b) == (self.base, self.later) => ratio(self.p99(second), self.p99(first)),
                [a, b] if (a, b) == (self.later, self.base) => ratio(self.p99(first), self.p99(second)),
                _ => None,
            };
            ratios.extend(value);
            windows = &windows[if value.is_some() { 2 } else { 1 }..];
        }
        ratios
    }

    fn row(&self, outcome: &Outcome) -> Option<Row> {
        let chapter = outcome.chapter(self.chapter)?;
        let mut ratios = self.ratios(chapter);
        let value = median(ratios.clone())?;
        ratios.sort_by(f64::total_cmp);
        let labelled = |label: &str| {
            let of = chapter.windows.iter().filter(|window| window.label == label);
            time(median(of.filter_map(|window| self.p99(window)).collect()).unwrap_or_default())
        };
        let row = Row {
            what: format!("p99 of {}", self.what),
            seen: format!("×{}", factor(value)),
            detail: format!(
                "expected ×{}: {}; {} over {}, medians; {} pairs from ×{} to ×{}",
                factor(self.expected),
                self.because,
                labelled(self.later),
                labelled(self.base),
                ratios.len(),
                factor(ratios[0]),
                factor(ratios[ratios.len() - 1])
            ),
            published: self.published.map_or(String::new(), |ratio| format!("×{}", factor(ratio))),
            goal: self.goal.map_or(String::new(), |most| format!("≤\u{a0}×{most}")),
            value,
            met: self.goal.map(|most| value <= most),
        };
        let compared = |window: &&Window| [self.base, self.later].contains(&&*window.label);
        Some(judged(row, &chapter.windows.iter().filter(compared).collect::<Vec<_>>()))
    }
}

pub(super) fn rows(outcome: &Outcome, rows: &mut Vec<Row>) {
    rows.extend(PAIRS.iter().filter_map(|pair| pair.row(outcome)));
}

/// Returns the p99 of application reads beside users over alone, and in one level over a level
/// each.
pub(crate) fn isolation(outcome: &Outcome) -> Option<[f64; 2]> {
    let value = |pair: &Pair| pair.row(outcome).map(|row| row.value);
    let [.., own, one] = &PAIRS;
    Some([value(own)?, value(one)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::WindowLoad;

    fn window(label: &str, p99_us: f64) -> Window {
        let latency = Some(load::Latency { p99_us, ..load::Latency::default() });
        let load = WindowLoad { load: APPLICATION.into(), latency, ..WindowLoad::default() };
        Window { label: label.into(), loads: vec![load], ..Window::default() }
    }

    #[test]
    fn neighbours_are_compared_once() {
        let phases = [
            ("alone", 100.0),
            ("a level each", 110.0),
            ("a level each", 120.0),
            ("alone", 100.0),
            ("one level", 500.0),
            ("a level each", 250.0),
            ("one level", 900.0),
        ];
        let windows = phases.map(|(label, p99_us)| window(label, p99_us)).to_vec();
        let chapter = Chapter { id: "petabyte_levels".into(), windows, ..Chapter::default() };
        let outcome = Outcome { chapters: vec![chapter], ..Outcome::default() };
        let mut found = Vec::new();
        rows(&outcome, &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!((found[0].value - 1.15).abs() < 1e-9 && found[0].met == Some(true), "{:?}", found[0]);
        assert_eq!((found[1].value, found[1].met), (2.0, None));
        assert!(found[0].detail.contains("expected ×1.20: the goal of this project"), "{}", found[0].detail);
        assert_eq!(isolation(&outcome).map(|[_, one]| one), Some(2.0));
    }

    #[test]
    fn every_chapter_has_an_expectation() {
        for chapter in ["petabyte_rates", "petabyte_mixed", "petabyte_shares", "petabyte_levels"] {
            assert!(expected(chapter).contains("because"), "{chapter}");
        }
        assert_eq!(expected("other"), "");
    }
}
