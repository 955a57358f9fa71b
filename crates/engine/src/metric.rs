//! Declarations of metrics: name, kind and help of each are in one place, for the code that counts
//! and the code that exports. This module knows no export format.

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Rises from 0 at start. Its name ends in `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
}

impl MetricKind {
    /// Returns the name in the format of Prometheus.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// A metric. Its name ends in the unit: bytes, seconds, or the counted objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Name in lower case, unique in a server.
    pub name: &'static str,
    /// Kind.
    pub kind: MetricKind,
    /// Help text: one sentence.
    pub help: &'static str,
}

impl Metric {
    /// Declares a counter.
    pub const fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: MetricKind::Counter, help }
    }

    /// Declares a gauge.
    pub const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: MetricKind::Gauge, help }
    }
}

/// Value of a metric on one core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// Metric.
    pub metric: &'static Metric,
    /// Value.
    pub value: f64,
}

/// Metrics of one table, summed over all cores.
#[derive(Clone, PartialEq, Debug)]
pub struct TableMeasures {
    /// Keyspace.
    pub keyspace: String,
    /// Table.
    pub table: String,
    /// Measures: the same metrics in the same order for every table.
    pub measures: Vec<Measure>,
}
