//! Raw histograms in files, and the merge of those of several generators. Each line is a histogram:
//!
//! ```text
//! fairlane-load 1
//! <step> <read|write> <begin, unix ms> <seconds> <V2 DEFLATE histogram of nanoseconds, base64>
//! ```
//!
//! Percentiles of several generators follow from their counts, not from their percentiles. Steps
//! with the same number are merged, so that the generators must start together.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::histogram::{Latency, OpKind, histogram};
use crate::report::StepReport;

const FIRST_LINE: &str = "fairlane-load 1";

/// Merged results of one step and kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Number of the step, from 0.
    pub step: usize,
    /// Reads or writes.
    pub kind: OpKind,
    /// Number of merged histograms.
    pub generators: usize,
    /// Requests answered.
    pub count: u64,
    /// Answers a second, summed over the generators.
    pub per_second: f64,
    /// Latency.
    pub latency: Latency,
}

/// Encodes the raw histograms of a report's steps as the text of a file.
///
/// # Errors
/// [`LoadError::System`] if a histogram cannot be encoded.
pub(crate) fn log<'s>(steps: impl Iterator<Item = &'s StepReport>) -> Result<String, LoadError> {
    let mut out = format!("{FIRST_LINE}\n");
    let mut serializer = V2DeflateSerializer::new();
    for (index, step) in steps.enumerate() {
        for kind in OpKind::ALL {
            let raw = step.latencies.of(kind);
            if raw.is_empty() {
                continue;
            }
            let mut bytes = Vec::new();
            serializer
                .serialize(raw, &mut bytes)
                .map_err(|error| LoadError::System(format!("a histogram cannot be encoded: {error}")))?;
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "{index} {} {} {:.3} {}",
                kind.name(),
                step.begin_unix_ms,
                step.seconds,
                STANDARD.encode(&bytes)
            );
        }
    }
    Ok(out)
}

struct Line {
    step: usize,
    kind: OpKind,
    seconds: f64,
    histogram: Histogram<u64>,
}

fn line(text: &str) -> Option<Line> {
    let mut words = text.split_ascii_whitespace();
    let step = words.next()?.parse().ok()?;
    let name = words.next()?;
    let kind = OpKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let _begin_unix_ms: u64 = words.next()?.parse().ok()?;
    let seconds: f64 = words.next()?.parse().ok()?;
    let bytes = STANDARD.decode(words.next()?).ok()?;
    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
    Some(Line { step, kind, seconds, histogram })
}

/// Sum of one step and kind.
struct Sum {
    kind: OpKind,
    generators: usize,
    per_second: f64,
    histogram: Histogram<u64>,
}

/// Merges files of raw histograms, given as path and text.
///
/// # Errors
/// [`LoadError::File`] for an unreadable text, with the line.
pub fn merge(files: &[(String, String)]) -> Result<Vec<Merged>, LoadError> {
    let mut sums: BTreeMap<(usize, &'static str), Sum> = BTreeMap::new();
    for (path, text) in files {
        let wrong = |number: usize, what: &str| LoadError::File {
            path: path.clone(),
            reason: format!("line {number}: {what}"),
        };
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, FIRST_LINE)) => {}
            _ => return Err(wrong(1, "expected raw histograms of `fairlane load --hdr`")),
        }
        for (number, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let line = line(text).ok_or_else(|| wrong(number + 1, "expected a histogram"))?;
            let sum = sums.entry((line.step, line.kind.name())).or_insert_with(|| Sum {
                kind: line.kind,
                generators: 0,
                per_second: 0.0,
                histogram: histogram(),
            });
            sum.histogram.add(&line.histogram).map_err(|error| wrong(number + 1, &error.to_string()))?;
            sum.generators += 1;
            if line.seconds > 0.0 {
                sum.per_second += line.histogram.len() as f64 / line.seconds;
            }
        }
    }
    let merged = sums.into_iter().map(|((step, _), sum)| Merged {
        step,
        kind: sum.kind,
        generators: sum.generators,
        count: sum.histogram.len(),
        per_second: sum.per_second,
        latency: Latency::of(&sum.histogram),
    });
    Ok(merged.collect())
}

/// Formats merged histograms as text.
pub(crate) fn text(merged: &[Merged]) -> String {
    let mut out = format!(
        "{:<6}{:<7}{:>6}{:>12}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
        "step",
        "kind",
        "files",
        "count",
        "per second",
        "mean µs",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "p99.99",
        "max"
    );
    for row in merged {
        let l = &row.latency;
        let _ = writeln!(
            out,
            "{:<6}{:<7}{:>6}{:>12}{:>12.0}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}",
            row.step + 1,
            row.kind.name(),
            row.generators,
            row.count,
            row.per_second,
            l.mean_us,
            l.p50_us,
            l.p95_us,
            l.p99_us,
            l.p999_us,
            l.p9999_us,
            l.max_us
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;

    fn step(values_us: std::ops::Range<u64>) -> StepReport {
        let mut latencies = Latencies::default();
        values_us.clone().for_each(|us| latencies.record(OpKind::Read, us * 1000));
        latencies.record(OpKind::Write, values_us.start * 1000);
        StepReport { seconds: 2.0, latencies, ..StepReport::default() }
    }

    #[test]
    fn merged_percentiles_come_from_all_counts() {
        let logs =
            [step(1..1001), step(9001..10_001)].map(|step| log([&step].into_iter()).expect("it encodes"));
        let files: Vec<_> =
            logs.into_iter().enumerate().map(|(i, text)| (format!("{i}.hdr"), text)).collect();
        let merged = merge(&files).expect("two good files");
        let [reads, writes] = &merged[..] else { panic!("{merged:?}") };
        assert_eq!((reads.kind, reads.count, reads.generators), (OpKind::Read, 2000, 2));
        assert_eq!((writes.kind, writes.count), (OpKind::Write, 2));
        assert!((reads.per_second - 1000.0).abs() < 1e-9);
        // The median is between the two populations. An average of medians would be 5,000.
        assert!((reads.latency.p50_us - 1000.0).abs() < 2.0, "{reads:?}");
        assert!((reads.latency.p95_us / 9900.0 - 1.0).abs() < 2e-3, "{reads:?}");
        assert!((reads.latency.mean_us / 5000.5 - 1.0).abs() < 2e-3, "{reads:?}");
        assert!(text(&merged).contains("2000"));
    }

    #[test]
    fn unreadable_file_is_rejected_by_line() {
        let check = |text: &str, expected: &str| {
            let error = merge(&[("a.hdr".into(), text.into())]).expect_err(text).to_string();
            assert!(error.contains("a.hdr") && error.contains(expected), "{error}");
        };
        check("", "line 1");
        check("{\"json\": true}", "line 1");
        check("fairlane-load 1\n0 read 0 1.0 bm90IGEgaGlzdG9ncmFt\n", "line 2");
        check("fairlane-load 1\n\n0 other 0 1.0 AAAA\n", "line 3");
    }
}
