//! Steps of one load, measured one after another: concurrencies for `usl`, rates for `sweep`.
//!
//! ```text
//!   Experiment + Pace of each step ──► run (CQL) · sql::run ──► MeasuredStep ─┬─► Rung (usl)
//!                                        server (metrics page)                └─► SweepRun (sweep)
//! ```
//!
//! Connections and threads are the same at each step, since they are variables of their own. The
//! seed of the requests differs, so that no step finds the keys of the last in a cache.

mod repeated_load;
mod server;

use serde::{Deserialize, Serialize};

pub use repeated_load::RepeatedLoad;
pub use server::ServerUse;

use crate::run::StopFlag;
use crate::timeline::Second;
use crate::{LoadError, StepReport};
use server::Samples;

/// Warning about reads without a row, which cost less than those with one.
const EMPTY_READS: &str = "reads found nothing; was the key space filled (`prefill`, same --keys)?";

/// A load to measure at several paces.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Load to repeat.
    pub load: RepeatedLoad,
    /// Measured time of each step, seconds.
    pub seconds: f64,
    /// Seed of the requests, their order and times, and of the intervals of results.
    pub seed: u64,
    /// HOST:PORT of the server's metrics.
    pub metrics: Option<String>,
}

/// Times at which the requests of a step are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// A closed loop with this number of requests in flight.
    Concurrency(usize),
    /// An open loop.
    Rate {
        /// Requests a second.
        per_s: f64,
        /// Most requests in flight. Without a bound a generator runs out of memory beyond the peak.
        in_flight_max: usize,
    },
}

/// Conditions of an experiment, the same at each step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Description of the load.
    pub load: String,
    /// HOST:PORT of each server.
    pub hosts: Vec<String>,
    /// Connections.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Measured time of each step, seconds.
    pub seconds: f64,
    /// Warm-up of each step, seconds.
    pub warmup_s: f64,
    /// Seed of the requests, their order and times, and of the intervals of results.
    pub seed: u64,
}

/// Progress of an experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExperimentEvent<'a> {
    /// The step with this index begins.
    Begins(usize),
    /// A second has ended.
    Second(&'a Second),
}

/// Measurement of one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeasuredStep {
    /// Results of the client. The default: nothing was measured.
    pub(crate) step: StepReport,
    /// True if it was stopped early.
    pub(crate) stopped: bool,
    pub(crate) server: ServerUse,
    /// Measured seconds, without the warm-up.
    pub(crate) seconds: Vec<MeasuredSecond>,
}

/// One second by the client and by the server.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredSecond {
    pub(crate) client: Second,
    pub(crate) server: ServerUse,
}

/// Results of an experiment.
#[derive(Debug)]
pub(crate) struct Gathered<P> {
    /// A point for each step that was begun.
    pub(crate) points: Vec<P>,
    /// Reasons to doubt them, as sentences, each once.
    pub(crate) warnings: Vec<String>,
}

impl Experiment {
    /// Returns the conditions.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for a prefill, which writes each row once.
    pub(crate) fn conditions(&self) -> Result<Conditions, LoadError> {
        let described = self.load.described()?;
        Ok(Conditions {
            load: described.load,
            hosts: self.load.hosts().to_vec(),
            connections: described.connections,
            threads: described.threads,
            seconds: self.seconds,
            warmup_s: described.warmup_s,
            seed: self.seed,
        })
    }

    /// Measures a step for each pace. `point` turns the measurement of the step with this index
    /// into a point. A stop ends the step in progress and skips the others.
    ///
    /// # Errors
    /// Those of the load.
    pub(crate) fn gather<P>(
        &self,
        paces: &[Pace],
        stop: &StopFlag,
        mut observer: impl FnMut(ExperimentEvent<'_>),
        point: impl Fn(usize, MeasuredStep) -> P,
    ) -> Result<Gathered<P>, LoadError> {
        let mut gathered = Gathered { points: Vec::new(), warnings: Vec::new() };
        for (index, pace) in paces.iter().enumerate() {
            if stop.is_set() {
                break;
            }
            observer(ExperimentEvent::Begins(index));
            let mut samples = Samples::new(self.metrics.clone());
            let mut seconds = Vec::new();
            let observe = |second: &Second| {
                let server = samples.second(second);
                if second.step == 0 {
                    seconds.push(MeasuredSecond { client: second.clone(), server });
                }
                observer(ExperimentEvent::Second(second));
            };
            let (step, stopped) = self.run(index, *pace, stop, observe)?;
            let empty = step.reads.as_ref().is_some_and(|reads| reads.empty > 0);
            let empty = empty.then(|| EMPTY_READS.to_string());
            gathered
                .points
                .push(point(index, MeasuredStep { step, stopped, server: samples.between(), seconds }));
            for warning in empty.into_iter().chain(samples.failure) {
                if !gathered.warnings.contains(&warning) {
                    gathered.warnings.push(warning);
                }
            }
        }
        Ok(gathered)
    }

    /// Runs the load at a pace. Returns its step, and true if it was stopped.
    fn run(
        &self,
        index: usize,
        pace: Pace,
        stop: &StopFlag,
        observer: impl FnMut(&Second),
    ) -> Result<(StepReport, bool), LoadError> {
        let seed = self.seed.wrapping_add(index as u64);
        match &self.load {
            RepeatedLoad::Cql(spec) => {
                let mut spec = pace.of_cql(spec, self.seconds);
                spec.seed = seed;
                spec.create = spec.create && index == 0;
                let report = crate::run::run(&spec, stop, observer)?;
                Ok((report.steps.into_iter().next().unwrap_or_default(), report.stopped))
            }
            RepeatedLoad::Sql(spec) => {
                let mut spec = pace.of_sql(spec, self.seconds);
                spec.seed = seed;
                let report = crate::sql::run(&spec, stop, observer)?;
                let step = report.steps.into_iter().next().map(|step| step.all);
                Ok((step.unwrap_or_default(), report.stopped))
            }
        }
    }
}
