//! Ratios of neighbouring phases of the demo in the shape of a petabyte, next to the published ones
//! and to what is expected. The expectation of a chapter is written before the chapter runs.

mod values;

use load::Latency;

use super::judge::{Labels, judged, median, median_of, ratios, spread};
use crate::names::{APPLICATION, APPLICATION_WRITES, BYPASSING, CACHED, USERS};
use crate::results::{ComparisonRow, DemoResults, Window, times};
use charts::numbers::time;

/// Compared quantile of latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantile {
    P50,
    P99,
}

impl Quantile {
    fn name(self) -> &'static str {
        match self {
            Quantile::P50 => "p50",
            Quantile::P99 => "p99",
        }
    }

    fn of(self, latency: Latency) -> f64 {
        match self {
            Quantile::P50 => latency.p50_us,
            Quantile::P99 => latency.p99_us,
        }
    }
}

/// Phases of two settings.
#[derive(Clone, Copy, PartialEq)]
struct Phases {
    /// Id of the chapter.
    chapter: &'static str,
    labels: Labels,
}

const fn phases(chapter: &'static str, base: &'static str, later: &'static str) -> Phases {
    Phases { chapter, labels: Labels { base, later } }
}

/// Expected value, and the reason.
#[derive(Clone, Copy)]
struct Expected {
    value: f64,
    because: &'static str,
}

const fn expect(value: f64, because: &'static str) -> Expected {
    Expected { value, because }
}

impl Expected {
    /// Returns the expectation in words.
    fn text(&self, shown: fn(f64) -> String, separator: &str) -> String {
        format!("{}{separator}{}", shown(self.value), self.because)
    }
}

/// A comparison of two settings.
struct Pair {
    phases: Phases,
    what: &'static str,
    load: &'static str,
    quantile: Quantile,
    /// Published ratio; empty for claims of our own.
    published: &'static str,
    expected: Expected,
    /// Largest ratio, if it is a goal.
    goal: Option<f64>,
}

const RATES: Phases = phases("petabyte_rates", "61 %", "85 %");
const MIXED: Phases = phases("petabyte_mixed", "read-only", "80/20");
const HALF_SHARES: Phases = phases("petabyte_shares", "shares 1000", "shares 500");
const QUARTER: Phases = phases("petabyte_shares", "shares 1000", "shares 250");
const TENTH: Phases = phases("petabyte_shares", "shares 1000", "shares 100");
const BESIDE: Phases = phases("petabyte_levels", "alone", "a level each");
const ONE_LEVEL: Phases = phases("petabyte_levels", "a level each", "one level");
const BYPASS: Phases = phases("petabyte_bypass", BYPASSING, CACHED);

const OWN_QUEUE: &str = "a level waits in its own queue, so that it hardly sees the users' rate";
const PACED: &str = "flushes and compactions are paced";
const LITTLE: &str = "the application uses less than its shares with either";
const EITHER_WAY: &str = "the application needs 4 % either way";
const EVICTED: &str = "users evict rows of the application from the cache";
const FEW_HITS: &str = "the cache has 1/39 of the rows, so that most reads miss it";

impl Pair {
    const fn of(
        phases: Phases,
        load: &'static str,
        what: &'static str,
        published: &'static str,
        expected: Expected,
    ) -> Pair {
        Pair { phases, what, load, quantile: Quantile::P99, published, expected, goal: None }
    }

    const fn median(self) -> Pair {
        Pair { quantile: Quantile::P50, ..self }
    }
}

/// Reads of the application from memory, which users with the cache evict.
const EVICTING: Pair = Pair::of(
    BYPASS,
    APPLICATION,
    "application reads, users with the cache over BYPASS CACHE",
    "≤ ×1.7",
    expect(1.2, EVICTED),
);

/// All comparisons.
const PAIRS: [Pair; 17] = [
    Pair::of(
        RATES,
        APPLICATION,
        "application reads, users at 85 % over 61 %",
        "×2.96",
        expect(1.2, OWN_QUEUE),
    ),
    Pair::of(
        RATES,
        APPLICATION_WRITES,
        "application writes, users at 85 % over 61 %",
        "×1.50",
        expect(1.2, OWN_QUEUE),
    ),
    Pair::of(RATES, USERS, "user reads at 85 % over 61 %", "", expect(2.6, "M/M/1: (1 - 0.61) / (1 - 0.85)")),
    Pair::of(
        MIXED,
        APPLICATION_WRITES,
        "application writes, users 80/20 over read-only",
        "×1.80",
        expect(1.2, PACED),
    ),
    Pair::of(
        MIXED,
        APPLICATION,
        "application reads, users 80/20 over read-only",
        "×1.96",
        expect(1.2, PACED),
    ),
    Pair::of(
        HALF_SHARES,
        APPLICATION,
        "application reads, users with 500 shares over 1000",
        "×0.48",
        expect(1.0, LITTLE),
    ),
    Pair::of(HALF_SHARES, USERS, "user reads with 500 shares over 1000", "×0.82", expect(1.0, EITHER_WAY)),
    Pair::of(
        QUARTER,
        APPLICATION,
        "application reads, users with 250 shares over 1000",
        "",
        expect(1.0, LITTLE),
    ),
    Pair::of(QUARTER, USERS, "user reads with 250 shares over 1000", "rises", expect(1.0, EITHER_WAY)),
    Pair::of(
        TENTH,
        APPLICATION,
        "application reads, users with 100 shares over 1000",
        "",
        expect(1.0, LITTLE),
    ),
    Pair::of(TENTH, USERS, "user reads with 100 shares over 1000", "rises", expect(1.0, EITHER_WAY)),
    Pair {
        goal: Some(1.2),
        ..Pair::of(
            BESIDE,
            APPLICATION,
            "application reads next to users over alone, a level each",
            "",
            expect(1.2, "the goal of this project"),
        )
    },
    Pair::of(
        ONE_LEVEL,
        APPLICATION,
        "application reads in one level over a level each",
        "",
        expect(2.0, "it waits in the queue of the users"),
    ),
    EVICTING.median(),
    EVICTING,
    Pair::of(BYPASS, USERS, "user reads with the cache over BYPASS CACHE", "≤ ×1.7", expect(1.0, FEW_HITS))
        .median(),
    Pair::of(BYPASS, USERS, "user reads with the cache over BYPASS CACHE", "≤ ×1.7", expect(1.0, FEW_HITS)),
];

/// Returns what is expected of a chapter, in lines.
pub(crate) fn expected(chapter: &str) -> String {
    let of = PAIRS.iter().filter(|pair| pair.phases.chapter == chapter);
    let lines: String =
        of.map(|pair| format!("{}: {}\n", pair.name(), pair.expected.text(times, ", because "))).collect();
    lines + &values::expected(chapter)
}

impl Pair {
    fn name(&self) -> String {
        format!("{} of {}", self.quantile.name(), self.what)
    }

    fn value(&self, window: &Window) -> Option<f64> {
        window.latency(self.load).map(|latency| self.quantile.of(latency))
    }

    fn row(&self, outcome: &DemoResults) -> Option<ComparisonRow> {
        let chapter = outcome.chapter(self.phases.chapter)?;
        let labels = self.phases.labels;
        let ratios = ratios(chapter, labels, |window| self.value(window));
        let value = median(ratios.clone())?;
        let labelled =
            |label: &str| time(median_of(chapter, label, |window| self.value(window)).unwrap_or_default());
        let row = ComparisonRow::times(self.name(), value)
            .detail(format!(
                "expected {}; {} over {}, medians; {}",
                self.expected.text(times, ": "),
                labelled(labels.later),
                labelled(labels.base),
                spread(ratios)
            ))
            .published(self.published)
            .goal(
                self.goal.map_or(String::new(), |most| format!("≤\u{a0}×{most}")),
                self.goal.map(|most| value <= most),
            );
        let compared = |window: &&Window| [labels.base, labels.later].contains(&&*window.label);
        Some(judged(row, &chapter.windows.iter().filter(compared).collect::<Vec<_>>()))
    }
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    rows.extend(PAIRS.iter().filter_map(|pair| pair.row(outcome)));
    values::rows(outcome, rows);
}

/// Returns the p99 of application reads beside users over alone, and in one level over a level
/// each.
pub(crate) fn isolation(outcome: &DemoResults) -> Option<[f64; 2]> {
    let value = |of: Phases| {
        let pair = PAIRS.iter().find(|pair| pair.phases == of)?;
        pair.row(outcome).map(|row| row.value)
    };
    Some([value(BESIDE)?, value(ONE_LEVEL)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Chapter, WindowLoad};

    fn window(label: &str, p99_us: f64) -> Window {
        let latency = Some(Latency { p99_us, ..Latency::default() });
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
        let outcome = DemoResults { chapters: vec![chapter], ..DemoResults::default() };
        let mut found = Vec::new();
        rows(&outcome, &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!((found[0].value - 1.15).abs() < 1e-9 && found[0].met == Some(true), "{:?}", found[0]);
        assert_eq!((found[1].value, found[1].met), (2.0, None));
        assert!(found[0].detail.contains("expected ×1.20: the goal of this project"), "{}", found[0].detail);
        assert_eq!(isolation(&outcome).map(|[_, one]| one), Some(2.0));
    }

    #[test]
    fn median_and_p99_of_one_pair_are_two_rows() {
        let phase = |label: &str, p50_us: f64, p99_us: f64| {
            let latency = Some(Latency { p50_us, p99_us, ..Latency::default() });
            let load = WindowLoad { load: USERS.into(), latency, ..WindowLoad::default() };
            Window { label: label.into(), loads: vec![load], ..Window::default() }
        };
        let windows = vec![phase(BYPASSING, 10.0, 100.0), phase(CACHED, 15.0, 120.0)];
        let chapter = Chapter { id: "petabyte_bypass".into(), windows, ..Chapter::default() };
        let mut found = Vec::new();
        rows(&DemoResults { chapters: vec![chapter], ..DemoResults::default() }, &mut found);
        let of: Vec<(&str, f64)> = found.iter().map(|row| (&row.what[..3], row.value)).collect();
        assert_eq!(of, [("p50", 1.5), ("p99", 1.2)]);
    }

    #[test]
    fn every_chapter_has_an_expectation() {
        let chapters = ["rates", "mixed", "shares", "levels", "bypass", "ingest", "tiered"];
        for chapter in chapters.map(|name| format!("petabyte_{name}")) {
            assert!(expected(&chapter).contains("because"), "{chapter}");
        }
        assert_eq!(expected("other"), "");
    }
}
