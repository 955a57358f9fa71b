//! What is counted about a server, declared: name, kind and help of each metric stand in one place, and whoever counts and
//! whoever shows them both refer to that. Nothing here knows a format.

/// How a metric moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only up, from 0 at start; its name ends in `_total`.
    Counter,
    /// Up and down.
    Gauge,
}

impl MetricKind {
    /// Its name in the format of Prometheus.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// A metric. Units are in its name: bytes, seconds, or a number of what it is named after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// In small letters, unique in a server.
    pub name: &'static str,
    /// How it moves.
    pub kind: MetricKind,
    /// A sentence.
    pub help: &'static str,
}

impl Metric {
    /// One that only goes up.
    pub const fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: MetricKind::Counter, help }
    }

    /// One that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: MetricKind::Gauge, help }
    }
}

/// A metric and what it is now, on one core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// What.
    pub metric: &'static Metric,
    /// How much.
    pub value: f64,
}

/// Metrics of one table, summed over cores.
#[derive(Clone, PartialEq, Debug)]
pub struct TableMeasures {
    /// The keyspace.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// The same metrics in the same order for every table.
    pub measures: Vec<Measure>,
}
