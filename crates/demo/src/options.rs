//! Options of a demo, and the sizes and times that follow from them.

use std::fmt::Display;
use std::str::FromStr;

use clap::{Args, Parser, ValueEnum};

use crate::error::DemoError;
use crate::results::Subject;

/// The program that contains the demo.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// True if its server has a SQL listener.
    pub has_sql: bool,
    /// Checks a value of the server's `--commit`. The error is the expected form.
    pub check_commit: fn(&str) -> Result<(), String>,
}

/// Shows the server on this machine with real load
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "fairlane demo", args_override_self = true)]
pub(crate) struct DemoOptions {
    /// Subject of the demo
    #[arg(value_enum, default_value_t = Subject::Levels)]
    pub(crate) subject: Subject,
    /// One minute (olap: three) instead of some (levels 4, flush 15, compaction 2, olap 7,
    /// batching 4, overload 4, petabyte 22, cluster 4); coarser results
    #[arg(long, verbatim_doc_comment)]
    pub(crate) quick: bool,
    /// Loads of the demo of service levels
    #[arg(long, value_enum, default_value_t = Shape::Slices)]
    pub(crate) shape: Shape,
    /// The report, to open in a browser
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub(crate) report: String,
    /// All results, for programs
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<String>,
    /// The main figure as an SVG file (levels, batching, overload, cluster)
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<String>,
    /// Runs nothing: prints and writes the report again from results of --json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["subject", "quick", "keep"])]
    pub(crate) from: Option<String>,
    /// Keeps the temporary folder with the server's log and data
    #[arg(long)]
    pub(crate) keep: bool,
    /// Repeats published experiments.
    /// flush: 20,000 writes a second, five minutes with uncontrolled background work and five with
    /// the controllers, and both at 80 % of what the core takes, in phases that alternate
    /// (25 minutes)
    /// olap: ClickBench's Q23 for five minutes with shares 2:1 and without caches, for five minutes
    /// each under a limit of 50 % by 1, 2 and 4 connections, and short queries beside 1 to 8
    /// connections (26 minutes)
    #[arg(long, verbatim_doc_comment)]
    pub(crate) published: bool,
    /// Length of a phase.
    /// olap: phases of shares are three times as long; at most 3600 [8, quick 2]; with --published
    /// the length of each phase of Q23 [300, quick 8]
    /// flush: 5 to 120 whole seconds, less if the writes do not fit into memory [30, quick 5]
    #[arg(long, value_name = "N", verbatim_doc_comment, allow_negative_numbers = true)]
    pub(crate) seconds: Option<f64>,
    /// cluster: requests in flight at the node, at most 32768 [24]
    #[arg(long, value_name = "N", value_parser = positive(WINDOW_MAX), allow_negative_numbers = true)]
    pub(crate) node_window: Option<u32>,
    #[command(flatten)]
    pub(crate) olap: OlapOptions,
    #[command(flatten)]
    pub(crate) flush: FlushOptions,
}

impl DemoOptions {
    /// Returns the shape in the results.
    pub(crate) fn shape(&self) -> Shape {
        if self.olap.is_published { Shape::Published } else { self.shape }
    }

    /// Returns the sizes and times with the values of the flags.
    pub(crate) fn times(&self) -> Times {
        let times = self.flush.times(if self.quick { Times::QUICK } else { Times::FULL });
        Times { node_window: self.node_window.unwrap_or(times.node_window), ..times }
    }
}

/// Kinds of the two loads in the first chapters of the demo of service levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Single rows at half of the server's CPU beside reads of 100 rows a request.
    Slices,
    /// Single rows in both loads: at most 200 in flight at 20 % of capacity, beside 1800.
    Published,
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shape::Slices => "slices",
            Shape::Published => "published",
        }
    }
}

/// Sizes and times of a run; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Rows that are read by key.
    pub(crate) rows: u64,
    /// Partitions of 100 rows.
    pub(crate) partitions: u64,
    /// Each closed loop that measures capacity.
    pub(crate) capacity: f64,
    /// Each phase of the interactive load: alone, beside the batch load, alone again.
    pub(crate) mixed: f64,
    /// Pause between phases, while a load joins or leaves or a change takes effect.
    pub(crate) settle: f64,
    /// Each phase of shares, and the one of the cap.
    pub(crate) shares: f64,
    /// A setting of the published experiment with writes, and a published phase of queries.
    pub(crate) published: f64,
    /// Each phase of the demo of batches.
    pub(crate) batching: f64,
    /// Requests in flight at the node of the demo of a cluster, at most.
    pub(crate) node_window: u32,
    pub(crate) background: BackgroundTimes,
    pub(crate) petabyte: PetabyteTimes,
    pub(crate) overload: OverloadTimes,
}

/// Sizes and times of the demo of flushes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackgroundTimes {
    /// Each phase, warm-up included.
    pub(crate) phase: f64,
    /// Numbers of phases with controllers, and without.
    pub(crate) controlled: usize,
    pub(crate) uncontrolled: usize,
    /// Bytes in each column of its rows, if not the usual ones: in short phases those would not
    /// fill memtables.
    pub(crate) value_bytes: Option<usize>,
}

/// Sizes and times of the demo of large data next to small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PetabyteTimes {
    /// Rows of the users' table.
    pub(crate) user_rows: u64,
    /// Each phase.
    pub(crate) phase: f64,
    /// Pairs of phases.
    pub(crate) pairs: usize,
    /// Rows that the ingest overwrites, and for how long.
    pub(crate) ingest_rows: u64,
    pub(crate) ingest: f64,
}

/// Times of the demo of overload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverloadTimes {
    /// Each offered rate.
    pub(crate) rate: f64,
    /// The pause before it.
    pub(crate) pause: f64,
}

impl Times {
    pub(crate) const QUICK: Times = Times {
        rows: 20_000,
        partitions: 300,
        capacity: 2.0,
        mixed: 3.0,
        settle: 1.0,
        shares: 3.0,
        published: 8.0,
        batching: 3.0,
        node_window: NODE_WINDOW,
        background: BackgroundTimes { phase: 5.0, controlled: 4, uncontrolled: 2, value_bytes: Some(512) },
        petabyte: PetabyteTimes {
            user_rows: 200_000,
            phase: 1.5,
            pairs: 2,
            ingest_rows: 60_000,
            ingest: 8.0,
        },
        overload: OverloadTimes { rate: 1.5, pause: 1.6 },
    };
    pub(crate) const FULL: Times = Times {
        rows: 100_000,
        partitions: 2_000,
        capacity: 6.0,
        mixed: 16.0,
        settle: 2.0,
        shares: 14.0,
        published: 300.0,
        batching: 8.0,
        node_window: NODE_WINDOW,
        background: BackgroundTimes { phase: 30.0, controlled: 16, uncontrolled: 8, value_bytes: None },
        petabyte: PetabyteTimes {
            // 2.5 GB stored: 39 times the memory.
            user_rows: 4_200_000,
            phase: 6.0,
            pairs: 6,
            ingest_rows: 400_000,
            ingest: 40.0,
        },
        overload: OverloadTimes { rate: 2.5, pause: 1.4 },
    };
}

/// Requests in flight at the node of the demo of a cluster: the least window that keeps it full.
/// Beside the batch load, 8 left it 78 to 80 % busy, 16 88 to 93 %, and 24 95 to 97 % (2026-11-29,
/// two cores). The larger the window, the less operations follow shares.
const NODE_WINDOW: u32 = 24;

/// Requested rate of the demo of flushes, as a fraction of capacity.
const FLUSH_PART: f64 = 0.4;

/// Commit mode of the published experiment with writes, the default of its server.
const PUBLISHED_COMMIT: &str = "periodic:10000";

/// Limits of flags, beyond any use: rows that fill memory, a scale of terabytes, phases of hours.
const ROWS_MAX: u64 = 1_000_000_000;
const SCALE_MAX: f64 = 1000.0;
const PHASES_MAX: usize = 1000;
const RATE_MAX: f64 = 1e9;
/// Limit of the server's `--node-window`.
const WINDOW_MAX: u32 = 1 << 15;

/// Returns a parser of numbers above 0, up to `limit`.
fn positive<N>(limit: N) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync
where
    N: FromStr + PartialOrd + Default + Display + Copy + Send + Sync,
{
    move |text| {
        let found = text.parse::<N>().ok().filter(|found| *found > N::default() && *found <= limit);
        found.ok_or_else(|| format!("expected a number above 0, at most {limit}"))
    }
}

fn phases(text: &str) -> Result<usize, String> {
    let (least, found) = (FlushOptions::PHASES_MIN, positive(PHASES_MAX)(text)?);
    if found < least { Err(format!("expected at least {least}, a pair to compare")) } else { Ok(found) }
}

/// Options of the demo of flushes.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "flush")]
pub(crate) struct FlushOptions {
    /// Length of a phase, seconds.
    #[arg(skip)]
    pub(crate) seconds: Option<f64>,
    /// Phases with controllers, 2 to 1000; without them half as many [16, quick 4]
    #[arg(long, value_name = "N", value_parser = phases, allow_negative_numbers = true)]
    pub(crate) phases: Option<usize>,
    /// --commit of the server; with periodic:MS no write waits for the disk, so that only the CPU
    /// of flushes and compactions counts [batch, with --published periodic:10000 as published]
    #[arg(long, value_name = "MODE", verbatim_doc_comment)]
    pub(crate) commit: Option<String>,
    /// Writes a second, at most 1e9 [40 % of what the server takes for long, measured first]
    #[arg(long = "rate", value_name = "N", value_parser = positive(RATE_MAX), allow_negative_numbers = true)]
    pub(crate) rate_per_s: Option<f64>,
    /// Repeat the published experiment.
    #[arg(skip)]
    pub(crate) is_published: bool,
}

impl FlushOptions {
    /// Least number of phases: a pair.
    pub(crate) const PHASES_MIN: usize = 2;

    /// Returns `times` with the values of the flags. Numbers of phases are rounded up to pairs.
    pub(crate) fn times(&self, times: Times) -> Times {
        let mut background = times.background;
        // Each setting has two phases.
        let usual = if self.is_published { times.published / 2.0 } else { background.phase };
        background.phase = self.seconds.unwrap_or(usual);
        if let Some(phases) = self.phases {
            background.controlled = phases.next_multiple_of(2);
            background.uncontrolled = phases.div_ceil(2).next_multiple_of(2);
        }
        Times { background, ..times }
    }

    /// Returns the value of the servers' `--commit`, if not their default. The published server
    /// acknowledged writes before they were on disk.
    pub(crate) fn commit(&self) -> Option<String> {
        self.commit.clone().or(self.is_published.then(|| PUBLISHED_COMMIT.to_string()))
    }

    /// Returns the writes a second to send. Errors if a rate of at least `capacity_per_s` was
    /// requested: the queue would grow without end.
    pub(crate) fn rate_per_s(&self, capacity_per_s: f64) -> Result<f64, DemoError> {
        match self.rate_per_s {
            Some(rate) if rate >= capacity_per_s => Err(DemoError::Failed(format!(
                "--rate: expected less than the {capacity_per_s:.0} writes a second that the server takes for \
                 long, got {rate:.0}."
            ))),
            Some(rate) => Ok(rate),
            None => Ok(capacity_per_s * FLUSH_PART),
        }
    }
}

/// Experiments of the demo of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OlapPart {
    Shares,
    Cap,
    Latency,
}

/// Options of the demo of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "olap")]
pub(crate) struct OlapOptions {
    /// Rows of the table in the shape of ClickBench's, at most 1e9 [200000, quick 50000]
    #[arg(long, value_name = "N", value_parser = positive(ROWS_MAX), allow_negative_numbers = true)]
    pub(crate) rows: Option<u64>,
    /// Scale of TPC-H, at most 1000 [0.05, quick 0.01]
    #[arg(long, value_name = "N", value_parser = positive(SCALE_MAX), allow_negative_numbers = true)]
    pub(crate) scale: Option<f64>,
    #[arg(skip)]
    pub(crate) seconds: Option<f64>,
    /// Runs one experiment
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) only: Option<OlapPart>,
    /// Repeat the published experiments.
    #[arg(skip)]
    pub(crate) is_published: bool,
}

/// Sizes and times of the demo of queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OlapSizes {
    /// Rows of ClickBench's table.
    pub(crate) rows: u64,
    /// Scale of TPC-H.
    pub(crate) scale: f64,
    /// Length of a phase, seconds.
    pub(crate) seconds: f64,
    /// Warm-up before it: connections, plans, caches. Seconds.
    pub(crate) warmup_s: f64,
    pub(crate) only: Option<OlapPart>,
    /// Length of the phases of Q23 in the published experiments, seconds. `None`: not those.
    pub(crate) published_s: Option<f64>,
}

impl OlapSizes {
    const QUICK: OlapSizes =
        OlapSizes { rows: 50_000, scale: 0.01, seconds: 2.0, warmup_s: 0.5, only: None, published_s: None };
    const FULL: OlapSizes =
        OlapSizes { rows: 200_000, scale: 0.05, seconds: 8.0, warmup_s: 1.5, ..OlapSizes::QUICK };
}

impl OlapOptions {
    /// Returns the sizes and times. In the published experiments `--seconds` is the length of the
    /// phases of Q23.
    pub(crate) fn sizes(&self, quick: bool) -> OlapSizes {
        let (default, times) =
            if quick { (OlapSizes::QUICK, Times::QUICK) } else { (OlapSizes::FULL, Times::FULL) };
        let usual_s = self.seconds.filter(|_| !self.is_published);
        OlapSizes {
            rows: self.rows.unwrap_or(default.rows),
            scale: self.scale.unwrap_or(default.scale),
            seconds: usual_s.unwrap_or(default.seconds),
            only: self.only,
            published_s: self.is_published.then(|| self.seconds.unwrap_or(times.published)),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_rate_is_a_part_of_capacity_or_the_requested_one() {
        let rate = |rate_per_s| FlushOptions { rate_per_s, ..FlushOptions::default() }.rate_per_s(50_000.0);
        assert_eq!(rate(None).expect("a part"), 20_000.0);
        assert_eq!(rate(Some(30_000.0)).expect("less than capacity"), 30_000.0);
        let refused = rate(Some(50_000.0)).expect_err("the queue would grow without end").to_string();
        assert!(refused.contains("less than the 50000 writes"), "{refused}");
    }

    #[test]
    fn published_writes_do_not_wait_for_the_disk() {
        let options = FlushOptions { is_published: true, ..FlushOptions::default() };
        assert_eq!(options.commit().as_deref(), Some("periodic:10000"));
        let batch = FlushOptions { commit: Some("batch".into()), ..options };
        assert_eq!(batch.commit().as_deref(), Some("batch"));
        assert_eq!(FlushOptions::default().commit(), None);
    }

    #[test]
    fn phases_of_flushes_are_rounded_up_to_pairs() {
        let phases = |phases| {
            let options = FlushOptions { phases: Some(phases), ..FlushOptions::default() };
            let BackgroundTimes { controlled, uncontrolled, .. } = options.times(Times::QUICK).background;
            (controlled, uncontrolled)
        };
        assert_eq!([2, 5, 16].map(phases), [(2, 2), (6, 4), (16, 8)]);
    }

    #[test]
    fn flags_override_default_sizes() {
        let options = OlapOptions { rows: Some(7), only: Some(OlapPart::Cap), ..OlapOptions::default() };
        let expected = OlapSizes { rows: 7, only: Some(OlapPart::Cap), ..OlapSizes::QUICK };
        assert_eq!(options.sizes(true), expected);
        assert_eq!(OlapOptions::default().sizes(false), OlapSizes::FULL);
    }

    #[test]
    fn published_phases_of_q23_have_a_length_of_their_own() {
        let sizes = |seconds, quick| {
            OlapOptions { seconds, is_published: true, ..OlapOptions::default() }.sizes(quick)
        };
        assert_eq!(sizes(None, false), OlapSizes { published_s: Some(300.0), ..OlapSizes::FULL });
        assert_eq!(sizes(Some(60.0), true), OlapSizes { published_s: Some(60.0), ..OlapSizes::QUICK });
    }
}
