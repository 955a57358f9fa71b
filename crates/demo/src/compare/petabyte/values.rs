//! Values of whole chapters: bandwidth of the disk, capacities, and ingest.

use super::super::judge::{judged, ratio};
use super::{Expected, expect};
use crate::names::{APPLICATION, BYPASSING, CACHED, FROM_MEMORY, USER_WRITES, USERS};
use crate::results::{Chapter, ComparisonRow, DemoResults, times};
use charts::numbers::{factor, rate, time};

/// A value of a chapter.
struct Value {
    /// Id of the chapter.
    chapter: &'static str,
    what: &'static str,
    /// Published value; empty if there is none.
    published: &'static str,
    expected: Expected,
    /// Largest value, if it is a goal.
    goal: Option<f64>,
    shown: fn(f64) -> String,
    /// Returns the value, and what it was computed from.
    of: fn(&Chapter) -> Option<(f64, String)>,
}

const INGEST: &str = "petabyte_ingest";
const TIERED: &str = "petabyte_tiered";
const REWRITTEN: &str =
    "four runs of equal size are merged at a time, and compression leaves 0.3 of the log's bytes";

/// All values.
const VALUES: [Value; 9] = [
    Value {
        chapter: "petabyte_rates",
        what: "disk bandwidth of users over the application",
        published: "about ×20",
        expected: expect(48.0, "half of the application's requests are writes, which the log pays"),
        goal: None,
        shown: times,
        of: bandwidth,
    },
    Value {
        chapter: "petabyte_bypass",
        what: "user reads a second, with the cache over BYPASS CACHE",
        published: "",
        expected: expect(1.0, "the cache has 1/39 of the rows"),
        goal: None,
        shown: times,
        of: |chapter| capacities(chapter, CACHED, BYPASSING),
    },
    Value {
        chapter: "petabyte_bypass",
        what: "user reads a second, from memory over from disk",
        published: "≤ ×4",
        expected: expect(4.0, "a read from the disk decompresses a block and passes the disk's queue"),
        goal: None,
        shown: times,
        of: |chapter| capacities(chapter, FROM_MEMORY, CACHED),
    },
    ingest(
        INGEST,
        "p99 of user writes at 90 % of capacity",
        "4 ms",
        expect(10e3, "a write waits for the disk, and ten in the queue"),
        time,
        p99,
    ),
    ingest(
        INGEST,
        "bytes of compaction over the log, incremental",
        "×6.7",
        expect(2.0, REWRITTEN),
        times,
        amplification,
    ),
    Value {
        goal: Some(1.25),
        ..ingest(
            INGEST,
            "most disk space over data, incremental",
            "≤ ×1.25",
            expect(1.3, "the goal of the table, and fragments in flight"),
            times,
            space,
        )
    },
    ingest(
        TIERED,
        "p99 of user writes at the same rate, size-tiered",
        "",
        expect(10e3, "the same"),
        time,
        p99,
    ),
    ingest(
        TIERED,
        "bytes of compaction over the log, size-tiered",
        "",
        expect(1.0, REWRITTEN),
        times,
        amplification,
    ),
    ingest(
        TIERED,
        "most disk space over data, size-tiered",
        "",
        expect(2.25, "the largest compaction has its inputs and its output on the disk"),
        times,
        space,
    ),
];

const fn ingest(
    chapter: &'static str,
    what: &'static str,
    published: &'static str,
    expected: Expected,
    shown: fn(f64) -> String,
    of: fn(&Chapter) -> Option<(f64, String)>,
) -> Value {
    Value { chapter, what, published, expected, goal: None, shown, of }
}

/// Returns the bytes that users moved on the disk over those of the application, in the phases of a
/// chapter.
fn bandwidth(chapter: &Chapter) -> Option<(f64, String)> {
    let is_inside =
        |at_s: f64| chapter.windows.iter().any(|window| (window.begin_s..window.end_s).contains(&at_s));
    let points = || chapter.disk.iter().filter(|point| is_inside(point.at_s));
    let mean = |level: &str| {
        points().filter_map(|point| point.bytes_per_s.get(level)).sum::<f64>()
            / points().count().max(1) as f64
    };
    let (users, application) = (mean(USERS), mean(APPLICATION));
    let detail =
        format!("{:.1} and {:.2} MB a second, by the server's own counters", users / 1e6, application / 1e6);
    Some((ratio(Some(users), Some(application))?, detail))
}

/// Returns the capacity of one kind of reads over that of another.
fn capacities(chapter: &Chapter, later: &str, base: &str) -> Option<(f64, String)> {
    let of = |name: &str| chapter.runs.iter().find(|run| run.load == name).map(|run| run.throughput_per_s);
    let (later, base) = (of(later)?, of(base)?);
    let detail = format!("{} and {} a second are answered in time", rate(later), rate(base));
    Some((ratio(Some(later), Some(base))?, detail))
}

/// Returns the p99 of writes, µs.
fn p99(chapter: &Chapter) -> Option<(f64, String)> {
    let load = chapter.windows.first()?.load(USER_WRITES)?;
    let latency = load.latency?;
    let detail = format!(
        "{} a second, median {}, maximum {}",
        rate(load.throughput_per_s),
        time(latency.p50_us),
        time(latency.max_us)
    );
    Some((latency.p99_us, detail))
}

/// Returns the bytes that compactions wrote over those of the log.
fn amplification(chapter: &Chapter) -> Option<(f64, String)> {
    let window = chapter.windows.first()?;
    let compaction = chapter.storage_sum(window, |point| point.compaction_bytes_per_s);
    let log = chapter.storage_sum(window, |point| point.log_bytes_per_s);
    let flush = chapter.storage_sum(window, |point| point.flush_bytes_per_s);
    let detail = format!(
        "{:.0} and {:.0} MB, by the server's own counters; {:.0} MB flushed, so that compactions wrote ×{} of that",
        compaction / 1e6,
        log / 1e6,
        flush / 1e6,
        factor(compaction / flush.max(1.0))
    );
    Some((ratio(Some(compaction), Some(log))?, detail))
}

/// Returns the most space of the table's files over their space at first: the data.
fn space(chapter: &Chapter) -> Option<(f64, String)> {
    let most = chapter.temporary_space()? + 1.0;
    let data = chapter.space.first()?.bytes;
    let mean = chapter.space.iter().map(|point| point.bytes / data).sum::<f64>() / chapter.space.len() as f64;
    let last = chapter.space.last()?.bytes / data;
    let detail = format!("{:.0} MB of data; mean {}, at last {}", data / 1e6, times(mean), times(last));
    Some((most, detail))
}

/// Returns what is expected of a chapter, in lines.
pub(super) fn expected(chapter: &str) -> String {
    let of = VALUES.iter().filter(|value| value.chapter == chapter);
    of.map(|value| format!("{}: {}\n", value.what, value.expected.text(value.shown, ", because "))).collect()
}

impl Value {
    fn row(&self, outcome: &DemoResults) -> Option<ComparisonRow> {
        let chapter = outcome.chapter(self.chapter)?;
        let (value, detail) = (self.of)(chapter)?;
        let row = ComparisonRow::new(self.what.to_string(), value, (self.shown)(value))
            .detail(format!("expected {}; {detail}", self.expected.text(self.shown, ": ")))
            .published(self.published)
            .goal(
                self.goal.map_or(String::new(), |most| format!("≤\u{a0}×{most}")),
                self.goal.map(|most| value <= most),
            );
        Some(judged(row, &chapter.windows.iter().collect::<Vec<_>>()))
    }
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    rows.extend(VALUES.iter().filter_map(|value| value.row(outcome)));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::results::{DiskPoint, LoadRun, SpacePoint, StoragePoint, Window, WindowLoad};

    fn check(chapter: Chapter, expected: &[(f64, Option<bool>, &str)]) {
        let mut found = Vec::new();
        rows(&DemoResults { chapters: vec![chapter], ..DemoResults::default() }, &mut found);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (row, (value, met, detail)) in found.iter().zip(expected) {
            assert!((row.value - value).abs() < 1e-9 && row.met == *met, "{row:?}, not {value}");
            assert!(row.detail.contains(detail), "{}", row.detail);
        }
    }

    #[test]
    fn bandwidth_is_that_of_the_phases() {
        let point = |at_s: f64, users: f64, application: f64| {
            let all = [(USERS, users), (APPLICATION, application)];
            let bytes_per_s = all.map(|(name, bytes)| (name.to_string(), bytes)).into_iter().collect();
            DiskPoint { at_s, bytes_per_s, queued: BTreeMap::new() }
        };
        let window = Window { begin_s: 1.0, end_s: 3.0, ..Window::default() };
        let disk = vec![point(0.5, 9e9, 0.0), point(1.5, 20e6, 1e6), point(2.5, 40e6, 2e6)];
        let chapter =
            Chapter { id: "petabyte_rates".into(), windows: vec![window], disk, ..Chapter::default() };
        check(chapter, &[(20.0, None, "30.0 and 1.50 MB")]);
    }

    #[test]
    fn capacities_are_compared_by_name() {
        let run = |name: &str, throughput_per_s: f64| LoadRun {
            load: name.into(),
            throughput_per_s,
            ..LoadRun::default()
        };
        let runs = vec![run(BYPASSING, 1000.0), run(CACHED, 1500.0), run(FROM_MEMORY, 6000.0)];
        let chapter = Chapter { id: "petabyte_bypass".into(), runs, ..Chapter::default() };
        check(chapter, &[(1.5, None, "answered in time"), (4.0, None, "answered in time")]);
    }

    #[test]
    fn ingest_has_latency_amplification_and_space() {
        let latency = Some(load::Latency { p99_us: 4e3, ..load::Latency::default() });
        let load = WindowLoad { load: USER_WRITES.into(), latency, ..WindowLoad::default() };
        let window = Window { begin_s: 0.0, end_s: 2.0, loads: vec![load], ..Window::default() };
        let second = |at_s: f64, compaction_bytes_per_s: f64| StoragePoint {
            at_s,
            compaction_bytes_per_s,
            log_bytes_per_s: 10e6,
            flush_bytes_per_s: 3e6,
            ..StoragePoint::default()
        };
        let space = [100e6, 120e6, 124e6, 110e6].map(|bytes| SpacePoint { bytes, ..SpacePoint::default() });
        let chapter = |id: &str| Chapter {
            id: id.into(),
            windows: vec![window.clone()],
            storage: vec![second(0.5, 50e6), second(1.5, 10e6), second(2.5, 9e9)],
            space: space.to_vec(),
            ..Chapter::default()
        };
        let detail = "×10.0 of that";
        check(
            chapter(INGEST),
            &[(4e3, None, "a second"), (3.0, None, detail), (1.24, Some(true), "100 MB of data")],
        );
        check(chapter(TIERED), &[(4e3, None, ""), (3.0, None, detail), (1.24, None, "at last ×1.10")]);
    }
}
