//! Measures a ladder of concurrencies. Each round visits all rungs in an order of its own. A
//! machine that becomes slower over time then does not look like contention.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use super::rung::Rung;
use super::scaling::Scaling;
use super::server::Samples;
use crate::LoadError;
use crate::run::{StopFlag, run};
use crate::spec::{Pacing, Spec, Workload};
use crate::sql::{self, PIPELINE_MAX, SqlSpec};
use crate::timeline::Second;

/// A ladder to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Load to repeat.
    pub target: Target,
    /// Concurrencies, ascending.
    pub rungs: Vec<usize>,
    /// Times that each is measured.
    pub rounds: usize,
    /// Measured time of each, seconds.
    pub seconds: f64,
    /// Seed of the order, of the requests and of the intervals.
    pub seed: u64,
    /// HOST:PORT of the server's metrics.
    pub metrics: Option<String>,
}

/// Load that a ladder repeats. Its pacing is replaced.
#[derive(Clone, Debug)]
pub enum Target {
    /// Requests over the native protocol.
    Cql(Spec),
    /// Queries over the Postgres protocol, sent in a pipeline where there are more in flight than
    /// connections.
    Sql(SqlSpec),
}

impl Target {
    /// Returns the least concurrency: each thread has one request in flight.
    pub(super) fn least(&self) -> usize {
        match self {
            Target::Cql(spec) => spec.threads,
            Target::Sql(_) => 1,
        }
    }

    /// Returns the largest concurrency that the connections and --max-in-flight allow.
    pub(super) fn most(&self) -> usize {
        match self {
            Target::Cql(spec) => spec.max_in_flight.min(self.most_pipelined()),
            Target::Sql(_) => self.most_pipelined(),
        }
    }

    /// Returns the largest concurrency that the connections allow.
    pub(crate) fn most_pipelined(&self) -> usize {
        match self {
            Target::Cql(spec) => spec.connections * spec.streams,
            Target::Sql(spec) => spec.concurrency * PIPELINE_MAX,
        }
    }

    /// Returns the flags that limit the concurrency.
    pub(crate) fn limits(&self) -> &'static str {
        match self {
            Target::Cql(_) => "--threads, --connections × --streams, --max-in-flight",
            Target::Sql(_) => "--concurrency",
        }
    }

    pub(crate) fn hosts(&self) -> &[String] {
        match self {
            Target::Cql(spec) => &spec.hosts,
            Target::Sql(spec) => &spec.hosts,
        }
    }
}

/// Description of a target for reports.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The load.
    pub(crate) load: String,
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    pub(crate) warmup_s: f64,
}

impl Target {
    /// Returns the description.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for a prefill, which writes each row once.
    pub(crate) fn described(&self) -> Result<Described, LoadError> {
        match self {
            Target::Cql(spec) if spec.workload == Workload::Prefill => Err(LoadError::Usage(
                "workload `prefill` has no capacity to find; use read, write, mixed or slice".into(),
            )),
            Target::Cql(spec) => {
                let name = Workload::ALL.iter().find(|(workload, ..)| *workload == spec.workload);
                let name = name.map_or("", |(_, name, _)| name);
                Ok(Described {
                    load: format!("{name} over {} keys", spec.keys.population),
                    connections: spec.connections,
                    threads: spec.threads,
                    warmup_s: spec.warmup_s,
                })
            }
            Target::Sql(spec) => Ok(Described {
                load: format!("{} queries", spec.queries.len()),
                connections: spec.concurrency,
                threads: 1,
                warmup_s: spec.warmup_s,
            }),
        }
    }
}

/// Results of a ladder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ladder {
    /// Description of the load.
    pub load: String,
    /// HOST:PORT of each server.
    pub hosts: Vec<String>,
    /// Connections, the same at each rung.
    pub connections: usize,
    /// Threads of the generator, the same at each rung.
    pub threads: usize,
    /// Measured time of each rung, seconds.
    pub seconds: f64,
    /// Warm-up of each rung, seconds.
    pub warmup_s: f64,
    /// Seed of the order, of the requests and of the intervals.
    pub seed: u64,
    /// Number of cores that the server runs on, from its metrics page. `None`: no metrics.
    #[serde(default)]
    pub server_core_count: Option<usize>,
    /// Measurements, in the order in which they were made.
    pub rungs: Vec<Rung>,
    /// The fitted law. `None`: fewer than four concurrencies have a valid measurement.
    pub scaling: Option<Scaling>,
    /// Reasons to doubt the results, as sentences.
    pub warnings: Vec<String>,
}

/// Measures the ladder. A stop skips the remaining rungs. Calls `observer` with each second.
///
/// # Errors
/// Those of [`run`], and [`LoadError::Usage`] for a prefill.
pub fn ladder(plan: &Plan, stop: &StopFlag, mut observer: impl FnMut(&Second)) -> Result<Ladder, LoadError> {
    let mut found = empty(plan)?;
    for (index, (round, n)) in order(plan).into_iter().enumerate() {
        if stop.is_set() {
            break;
        }
        let mut samples = Samples::new(plan.metrics.clone());
        let observe = |second: &Second| {
            let _since_the_last = samples.second(second);
            observer(second);
        };
        let (step, stopped, warnings) = measure(plan, (index, n), stop, observe)?;
        let server = samples.between();
        found.server_core_count = server.core_count.or(found.server_core_count);
        found.rungs.push(Rung::of((round, n), step.as_ref(), server, stopped));
        for warning in warnings.into_iter().chain(samples.failure) {
            if !found.warnings.contains(&warning) {
                found.warnings.push(warning);
            }
        }
    }
    found.scaling = Scaling::of(&found.rungs, plan.seed);
    Ok(found)
}

/// Reads a ladder from the JSON of `fairlane load usl`.
///
/// # Errors
/// [`LoadError::File`].
pub(crate) fn read(path: &str) -> Result<Ladder, LoadError> {
    let wrong = |reason: String| LoadError::File { path: path.to_string(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|error| wrong(format!("expected the JSON of `fairlane load usl --json`: {error}")))
}

/// Warning about reads without a row, which cost less than those with one.
pub(crate) const EMPTY_READS: &str =
    "reads found nothing; was the key space filled (`prefill`, same --keys)?";

fn empty(plan: &Plan) -> Result<Ladder, LoadError> {
    let Described { load, connections, threads, warmup_s } = plan.target.described()?;
    Ok(Ladder {
        load,
        hosts: plan.target.hosts().to_vec(),
        connections,
        threads,
        seconds: plan.seconds,
        warmup_s,
        seed: plan.seed,
        server_core_count: None,
        rungs: Vec::new(),
        scaling: None,
        warnings: Vec::new(),
    })
}

/// Returns round and concurrency of each measurement. Each round has all rungs, shuffled.
fn order(plan: &Plan) -> Vec<(usize, usize)> {
    let mut rng = SmallRng::seed_from_u64(plan.seed);
    let round = |round: usize| {
        let mut rungs = plan.rungs.clone();
        rungs.shuffle(&mut rng);
        rungs.into_iter().map(move |n| (round, n)).collect::<Vec<_>>()
    };
    (1..=plan.rounds).flat_map(round).collect()
}

/// The step of a run if any, true if it was stopped, and remarks on its requests.
type Measured = (Option<crate::StepReport>, bool, Vec<String>);

/// Measures concurrency `n`. `index` numbers the measurements, so that each has other requests.
fn measure(
    plan: &Plan,
    (index, n): (usize, usize),
    stop: &StopFlag,
    observer: impl FnMut(&Second),
) -> Result<Measured, LoadError> {
    let pacing = Pacing::Closed { in_flight: n, seconds: plan.seconds };
    let seed = plan.seed.wrapping_add(index as u64);
    match &plan.target {
        Target::Cql(spec) => {
            let create = spec.create && index == 0;
            let spec = Spec { pacing, seed, create, in_turn: true, ..spec.clone() };
            let report = run(&spec, stop, observer)?;
            let step = report.steps.into_iter().next();
            let empty =
                step.as_ref().and_then(|step| step.reads.as_ref()).is_some_and(|reads| reads.empty > 0);
            Ok((step, report.stopped, empty.then(|| EMPTY_READS.to_string()).into_iter().collect()))
        }
        Target::Sql(spec) => {
            let pipeline = n.div_ceil(spec.concurrency);
            let spec = SqlSpec { pacing, seed, pipeline, rounds: 0, ..spec.clone() };
            let report = sql::run(&spec, stop, observer)?;
            Ok((report.steps.into_iter().next().map(|step| step.all), report.stopped, Vec::new()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_rungs_in_another_order() {
        let rungs: Vec<usize> = (0..13).map(|exponent| 1 << exponent).collect();
        let target = Target::Cql(Spec::default());
        let plan = Plan { target, rungs: rungs.clone(), rounds: 3, seconds: 1.0, seed: 1, metrics: None };
        let all = order(&plan);
        let mut orders = Vec::new();
        for round in 1..=3 {
            let visited: Vec<usize> = all.iter().filter(|(at, _)| *at == round).map(|(_, n)| *n).collect();
            let mut sorted = visited.clone();
            sorted.sort_unstable();
            assert!(sorted == rungs && visited != rungs, "{visited:?}");
            orders.push(visited);
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        assert_eq!(order(&plan), all);
        assert_ne!(order(&Plan { seed: 2, ..plan }), all);
    }
}
