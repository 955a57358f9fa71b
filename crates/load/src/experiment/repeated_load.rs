//! Loads that experiments repeat, and the concurrencies that they can reach.

use super::Pace;
use crate::LoadError;
use crate::spec::{Pacing, RateStep, Spec, Workload};
use crate::sql::{PIPELINE_MAX, SqlSpec};

/// Load that an experiment repeats. Its pacing is replaced.
#[derive(Clone, Debug)]
pub enum RepeatedLoad {
    /// Requests over the native protocol.
    Cql(Spec),
    /// Queries over the Postgres protocol, sent in a pipeline where there are more in flight than
    /// connections.
    Sql(SqlSpec),
}

/// Description of a load for reports.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The load.
    pub(crate) load: String,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) warmup_s: f64,
}

impl RepeatedLoad {
    /// Returns the least concurrency: each thread has one request in flight.
    pub(crate) fn least(&self) -> usize {
        match self {
            RepeatedLoad::Cql(spec) => spec.threads,
            RepeatedLoad::Sql(_) => 1,
        }
    }

    /// Returns the largest concurrency that the connections and --max-in-flight allow.
    pub(crate) fn most(&self) -> usize {
        match self {
            RepeatedLoad::Cql(spec) => spec.max_in_flight.min(self.most_pipelined()),
            RepeatedLoad::Sql(_) => self.most_pipelined(),
        }
    }

    /// Returns the largest concurrency that the connections allow.
    pub(crate) fn most_pipelined(&self) -> usize {
        match self {
            RepeatedLoad::Cql(spec) => spec.connections * spec.streams,
            RepeatedLoad::Sql(spec) => spec.concurrency * PIPELINE_MAX,
        }
    }

    /// Returns the flags that limit the concurrency.
    pub(crate) fn limits(&self) -> &'static str {
        match self {
            RepeatedLoad::Cql(_) => "--threads, --connections × --streams, --max-in-flight",
            RepeatedLoad::Sql(_) => "--concurrency",
        }
    }

    pub(crate) fn hosts(&self) -> &[String] {
        match self {
            RepeatedLoad::Cql(spec) => &spec.hosts,
            RepeatedLoad::Sql(spec) => &spec.hosts,
        }
    }

    /// Returns the description.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for a prefill, which writes each row once.
    pub(crate) fn described(&self) -> Result<Described, LoadError> {
        match self {
            RepeatedLoad::Cql(spec) if spec.workload == Workload::Prefill => Err(LoadError::Usage(
                "workload `prefill` has no capacity to find; use read, write, mixed or slice".into(),
            )),
            RepeatedLoad::Cql(spec) => {
                let name = Workload::ALL.iter().find(|(workload, ..)| *workload == spec.workload);
                let name = name.map_or("", |(_, name, _)| name);
                Ok(Described {
                    load: format!("{name} over {} keys", spec.keys.population),
                    connections: spec.connections,
                    threads: spec.threads,
                    warmup_s: spec.warmup_s,
                })
            }
            RepeatedLoad::Sql(spec) => Ok(Described {
                load: format!("{} queries", spec.queries.len()),
                connections: spec.concurrency,
                threads: 1,
                warmup_s: spec.warmup_s,
            }),
        }
    }
}

impl Pace {
    /// Returns a load over CQL at this pace.
    pub(super) fn of_cql(self, spec: &Spec, seconds: f64) -> Spec {
        let pacing = self.pacing(seconds);
        match self {
            Pace::Concurrency(_) => Spec { pacing, in_turn: true, ..spec.clone() },
            Pace::Rate { in_flight_max, .. } => Spec { pacing, max_in_flight: in_flight_max, ..spec.clone() },
        }
    }

    /// Returns a load of queries at this pace.
    pub(super) fn of_sql(self, spec: &SqlSpec, seconds: f64) -> SqlSpec {
        let (Pace::Concurrency(in_flight) | Pace::Rate { in_flight_max: in_flight, .. }) = self;
        let pipeline = in_flight.div_ceil(spec.concurrency);
        SqlSpec { pacing: self.pacing(seconds), pipeline, rounds: 0, ..spec.clone() }
    }

    fn pacing(self, seconds: f64) -> Pacing {
        match self {
            Pace::Concurrency(in_flight) => Pacing::Closed { in_flight, seconds },
            Pace::Rate { per_s, .. } => Pacing::Open(vec![RateStep { rate_per_s: per_s, seconds }]),
        }
    }
}
