//! Measures a sweep: one run after another, from the lowest rate to the highest.

use serde::{Deserialize, Serialize};

use super::run::{RequestedRate, SweepRun};
use super::verdict::Verdict;
use crate::LoadError;
use crate::experiment::{Conditions, Experiment, ExperimentEvent, MeasuredStep, Pace};
use crate::run::StopFlag;
use crate::timeline::Second;

/// Rates as parts of the peak.
pub(super) const LOW: f64 = 0.04;
pub(super) const MIDDLE: f64 = 0.4;
pub(super) const HIGH: f64 = 1.0;

/// A sweep to measure.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    /// Load to repeat.
    pub experiment: Experiment,
    /// Rate of 100 %.
    pub peak: PeakRate,
    /// Runs at 100 %.
    pub runs: usize,
    /// Most requests in flight.
    pub bound: usize,
    /// Remarks on the plan, as sentences.
    pub warnings: Vec<String>,
}

/// Rate of 100 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakRate {
    /// Requests a second.
    #[serde(rename = "peak_per_s")]
    pub per_s: f64,
    /// Source, as a text.
    #[serde(rename = "peak_from")]
    pub from: String,
}

/// Results of a sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// Conditions of each run.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Rate of 100 %.
    #[serde(flatten)]
    pub peak: PeakRate,
    /// Runs that were to be made.
    pub planned: usize,
    /// Most requests in flight.
    pub bound: usize,
    /// Runs, in the order in which they were made.
    pub runs: Vec<SweepRun>,
    /// Conclusions.
    pub verdict: Verdict,
    /// Reasons to doubt the results, as sentences.
    pub warnings: Vec<String>,
}

impl Sweep {
    /// Returns true if all runs were made and describe the server.
    pub fn is_complete(&self) -> bool {
        self.runs.len() == self.planned && self.runs.iter().all(SweepRun::is_valid)
    }
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub enum SweepEvent<'a> {
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
/// Those of [`crate::run`], and [`LoadError::Usage`] for a prefill.
pub fn sweep(
    plan: &SweepPlan,
    stop: &StopFlag,
    mut observer: impl FnMut(SweepEvent<'_>),
) -> Result<Sweep, LoadError> {
    let conditions = plan.experiment.conditions()?;
    let rates = rates(plan.runs, plan.peak.per_s);
    let pace = |rate: &RequestedRate| Pace::Rate { per_s: rate.rate_per_s, in_flight_max: plan.bound };
    let paces: Vec<Pace> = rates.iter().map(pace).collect();
    let observe = |event: ExperimentEvent<'_>| match event {
        ExperimentEvent::Begins(index) => {
            let RequestedRate { part, rate_per_s, .. } = rates[index];
            observer(SweepEvent::Begins { run: index + 1, of: rates.len(), part, rate_per_s });
        }
        ExperimentEvent::Second(second) => observer(SweepEvent::Second(second)),
    };
    let run = |index: usize, measured: MeasuredStep| SweepRun::of(rates[index], plan.bound, &measured);
    let gathered = plan.experiment.gather(&paces, stop, observe, run)?;
    Ok(Sweep {
        conditions,
        peak: plan.peak.clone(),
        planned: rates.len(),
        bound: plan.bound,
        verdict: Verdict::of(&gathered.points),
        runs: gathered.points,
        warnings: plan.warnings.iter().cloned().chain(gathered.warnings).collect(),
    })
}

/// Returns the rate of each run.
fn rates(runs: usize, peak_per_s: f64) -> Vec<RequestedRate> {
    let rate = |part: f64, number: usize| RequestedRate { part, number, rate_per_s: part * peak_per_s };
    let high = (1..=runs).map(|number| rate(HIGH, number));
    [rate(LOW, 1), rate(MIDDLE, 1)].into_iter().chain(high).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_from_the_lowest_rate_to_the_highest() {
        let rates = rates(2, 50.0);
        let parts: Vec<_> = rates.iter().map(|rate| (rate.part, rate.number)).collect();
        assert_eq!(parts, [(0.04, 1), (0.4, 1), (1.0, 1), (1.0, 2)]);
        assert_eq!((rates[0].rate_per_s, rates[3].rate_per_s), (2.0, 50.0));
    }
}
