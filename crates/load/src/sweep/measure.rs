//! Measures a sweep: one run after another, from the lowest rate to the highest.

use serde::{Deserialize, Serialize};

use super::run::{Conditions, Run, SweepSecond};
use super::verdict::Verdict;
use crate::LoadError;
use crate::run::{StopFlag, run};
use crate::spec::{Pacing, Spec, Step};
use crate::sql::{self, SqlSpec};
use crate::timeline::Second;
use crate::usl::{Samples, Target};

/// Rates as parts of the peak.
pub(super) const LOW: f64 = 0.04;
pub(super) const MIDDLE: f64 = 0.4;
pub(super) const HIGH: f64 = 1.0;

/// A sweep to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Load to repeat. Its pacing is replaced.
    pub target: Target,
    /// Rate of 100 %, requests a second.
    pub peak_per_s: f64,
    /// Source of the peak, as a text.
    pub peak_from: String,
    /// Runs at 100 %.
    pub runs: usize,
    /// Measured time of each run, seconds.
    pub seconds: f64,
    /// Most requests in flight.
    pub bound: usize,
    /// Seed of the requests and their times.
    pub seed: u64,
    /// HOST:PORT of the server's metrics.
    pub metrics: Option<String>,
    /// Remarks on the plan, as sentences.
    pub warnings: Vec<String>,
}

/// Results of a sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// Description of the load.
    pub load: String,
    /// HOST:PORT of each server.
    pub hosts: Vec<String>,
    /// Connections, the same in each run.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Rate of 100 %, requests a second.
    pub peak_per_s: f64,
    /// Source of the peak, as a text.
    pub peak_from: String,
    /// Runs that were to be made.
    pub planned: usize,
    /// Measured time of each run, seconds.
    pub seconds: f64,
    /// Warm-up of each run, seconds.
    pub warmup_s: f64,
    /// Most requests in flight.
    pub bound: usize,
    /// Seed of the requests and their times.
    pub seed: u64,
    /// Runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// Conclusions.
    pub verdict: Verdict,
    /// Reasons to doubt the results, as sentences.
    pub warnings: Vec<String>,
}

impl Sweep {
    /// Returns true if all runs were made and describe the server.
    pub fn is_complete(&self) -> bool {
        self.runs.len() == self.planned && self.runs.iter().all(Run::is_valid)
    }
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A run begins: its number from 1, the number of runs, and its rate as a part of the peak and
    /// in requests a second.
    Begins {
        /// Number of the run, from 1.
        run: usize,
        /// Number of runs.
        of: usize,
        /// Rate as a part of the peak.
        part: f64,
        /// Rate, requests a second.
        rate_per_s: f64,
    },
    /// A second has ended.
    Second(&'a Second),
}

/// Measures the sweep. A stop ends the run in progress, which is then invalid, and skips the
/// others.
///
/// # Errors
/// Those of [`run`], and [`LoadError::Usage`] for a prefill.
pub fn sweep(
    plan: &Plan,
    stop: &StopFlag,
    mut observer: impl FnMut(Progress<'_>),
) -> Result<Sweep, LoadError> {
    let described = plan.target.described()?;
    let parts = parts(plan.runs);
    let mut found = Sweep {
        load: described.load,
        hosts: plan.target.hosts().to_vec(),
        connections: described.connections,
        threads: described.threads,
        peak_per_s: plan.peak_per_s,
        peak_from: plan.peak_from.clone(),
        planned: parts.len(),
        seconds: plan.seconds,
        warmup_s: described.warmup_s,
        bound: plan.bound,
        seed: plan.seed,
        runs: Vec::new(),
        verdict: Verdict::default(),
        warnings: plan.warnings.clone(),
    };
    for (index, (part, number)) in parts.iter().enumerate() {
        if stop.is_set() {
            break;
        }
        let rate_per_s = part * plan.peak_per_s;
        observer(Progress::Begins { run: index + 1, of: parts.len(), part: *part, rate_per_s });
        let (run, warnings) = measure(plan, (index, *part, *number), stop, &mut observer)?;
        found.runs.push(run);
        for warning in warnings {
            if !found.warnings.contains(&warning) {
                found.warnings.push(warning);
            }
        }
    }
    found.verdict = Verdict::of(&found.runs);
    Ok(found)
}

/// Returns part and number of each run.
fn parts(runs: usize) -> Vec<(f64, usize)> {
    let high = (1..=runs).map(|number| (HIGH, number));
    [(LOW, 1), (MIDDLE, 1)].into_iter().chain(high).collect()
}

/// Measures one run. `index` numbers the runs, so that each has other requests.
fn measure(
    plan: &Plan,
    (index, part, number): (usize, f64, usize),
    stop: &StopFlag,
    observer: &mut impl FnMut(Progress<'_>),
) -> Result<(Run, Vec<String>), LoadError> {
    let rate_per_s = part * plan.peak_per_s;
    let pacing = Pacing::Open(vec![Step { rate_per_s, seconds: plan.seconds }]);
    let seed = plan.seed.wrapping_add(index as u64);
    let mut samples = Samples::new(plan.metrics.clone());
    let mut seconds: Vec<SweepSecond> = Vec::new();
    let mut begin_s = None;
    let observe = |second: &Second| {
        let server = samples.second(second);
        if second.step == 0 {
            let begin_s = *begin_s.get_or_insert(second.at_s);
            seconds.push(SweepSecond::of(second, begin_s, server));
        }
        observer(Progress::Second(second));
    };
    let (step, stopped, mut warnings) = match &plan.target {
        Target::Cql(spec) => {
            let create = spec.create && index == 0;
            let spec = Spec { pacing, seed, create, max_in_flight: plan.bound, ..spec.clone() };
            let report = run(&spec, stop, observe)?;
            (report.steps.into_iter().next(), report.stopped, Vec::new())
        }
        Target::Sql(spec) => {
            let pipeline = plan.bound.div_ceil(spec.concurrency);
            let spec = SqlSpec { pacing, seed, pipeline, rounds: 0, ..spec.clone() };
            let report = sql::run(&spec, stop, observe)?;
            (report.steps.into_iter().next().map(|step| step.all), report.stopped, Vec::new())
        }
    };
    if step.as_ref().and_then(|step| step.reads.as_ref()).is_some_and(|reads| reads.empty > 0) {
        warnings.push(crate::usl::EMPTY_READS.to_string());
    }
    warnings.extend(samples.failure.take());
    let conditions = Conditions { part, number, rate_per_s, bound: plan.bound, stopped };
    Ok((Run::of(conditions, step.as_ref(), samples.between(), seconds), warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_from_the_lowest_rate_to_the_highest() {
        assert_eq!(parts(2), [(0.04, 1), (0.4, 1), (1.0, 1), (1.0, 2)]);
    }
}
