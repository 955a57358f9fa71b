//! Results of a demo, as data. The table, the report and the JSON file are three views of it, and
//! the first two can be rendered again from the third. A value that an older file does not contain
//! counts as not measured.

mod chapter;
mod cpu;
mod loads;
mod nodes;
mod points;

use charts::numbers::{factor, percent};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use chapter::{Chapter, Window};
pub(crate) use cpu::{Cpu, Served};
pub(crate) use loads::{Batches, Capacity, LoadRun, MostUseful, OfQuery, Offered, Paced, WindowLoad};
pub(crate) use nodes::NodeUse;
pub(crate) use points::{CpuPoint, DiskPoint, InFlight, Point, Series, SpacePoint, StoragePoint};

/// Subject of a demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    /// Transactions and analytics, without and with service levels.
    #[default]
    Levels,
    /// Writes beside flushes and compactions, and without.
    Flush,
    /// The space that a major compaction needs.
    Compaction,
    /// Queries beside queries: shares, a hard limit, latency.
    Olap,
    /// Commands in order over changing keys: partitions in parallel, and batches.
    Batching,
    /// More load than the server can do, without and with max_concurrency = 'auto'.
    Overload,
    /// Large data next to small: rates, writes, shares, levels, cache, ingest.
    Petabyte,
    /// Service levels in front of a node that has none.
    Cluster,
}

/// All results of one demo.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DemoResults {
    /// Version of the program.
    pub(crate) version: String,
    /// Command line.
    pub(crate) command: String,
    /// Start, milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// Duration, seconds.
    pub(crate) seconds: f64,
    /// True for the short form.
    pub(crate) quick: bool,
    /// Subject. Older files have none and are about service levels.
    pub(crate) subject: Subject,
    /// `slices` (the default) or `published`.
    pub(crate) shape: String,
    /// Machine of the run.
    pub(crate) machine: Machine,
    /// Sentences that a reader must know before relying on the results.
    pub(crate) notes: Vec<String>,
    /// Capacity of the server for one kind of load alone.
    pub(crate) capacity: Capacity,
    /// Experiments, in their order.
    pub(crate) chapters: Vec<Chapter>,
    /// Results compared with goals and published results. Computed from the rest.
    pub(crate) comparison: Vec<ComparisonRow>,
}

impl DemoResults {
    /// True if a note calls results invalid.
    pub(crate) fn invalid(&self) -> bool {
        self.notes.iter().any(|note| note.starts_with("Invalid"))
    }

    /// Returns the chapter with this id.
    pub(crate) fn chapter(&self, id: &str) -> Option<&Chapter> {
        self.chapters.iter().find(|chapter| chapter.id == id)
    }
}

/// Row of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ComparisonRow {
    /// Name of the result.
    pub(crate) what: String,
    /// Measured value.
    pub(crate) seen: String,
    /// Values that it was computed from.
    pub(crate) detail: String,
    /// Value published for other systems.
    pub(crate) published: String,
    /// Goal.
    pub(crate) goal: String,
    /// Measured value as a number.
    pub(crate) value: f64,
    /// Verdict on the goal. `None` without a goal, or if the run does not allow a verdict.
    pub(crate) met: Option<bool>,
}

impl ComparisonRow {
    /// Returns a result without details.
    pub(crate) fn new(what: impl Into<String>, value: f64, seen: impl Into<String>) -> ComparisonRow {
        ComparisonRow { what: what.into(), seen: seen.into(), value, ..ComparisonRow::default() }
    }

    /// Returns a ratio.
    pub(crate) fn times(what: impl Into<String>, value: f64) -> ComparisonRow {
        ComparisonRow::new(what, value, times(value))
    }

    /// Returns a fraction.
    pub(crate) fn percent(what: impl Into<String>, value: f64) -> ComparisonRow {
        ComparisonRow::new(what, value, percent(value))
    }

    pub(crate) fn detail(self, detail: impl Into<String>) -> ComparisonRow {
        ComparisonRow { detail: detail.into(), ..self }
    }

    pub(crate) fn published(self, published: impl Into<String>) -> ComparisonRow {
        ComparisonRow { published: published.into(), ..self }
    }

    pub(crate) fn goal(self, goal: impl Into<String>, met: Option<bool>) -> ComparisonRow {
        ComparisonRow { goal: goal.into(), met, ..self }
    }

    /// Returns the verdict in words.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "not met",
            None if self.goal.is_empty() => "",
            None => "not judged",
        }
    }
}

/// Formats a ratio, such as `×1.20`.
pub(crate) fn times(value: f64) -> String {
    format!("×{}", factor(value))
}

/// Properties of the machine that explain results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// Processor model, if the system reports it.
    pub(crate) model: String,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Cores of the server.
    pub(crate) server_cores: Vec<usize>,
    /// Cores of the loads.
    pub(crate) load_cores: Vec<usize>,
    /// Cores of the front, if the subject is a cluster. The server is its node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) front_cores: Vec<usize>,
}
