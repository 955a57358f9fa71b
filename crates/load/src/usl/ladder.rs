//! Measures a ladder of concurrencies. Each round visits all rungs in an order of its own. A
//! machine that becomes slower over time then does not look like contention.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use super::rung::{LadderStep, Rung};
use super::scaling::Scaling;
use crate::LoadError;
use crate::experiment::{Conditions, Experiment, ExperimentEvent, MeasuredStep, Pace};
use crate::run::StopFlag;
use crate::timeline::Second;

/// A ladder to measure.
#[derive(Clone, Debug)]
pub struct LadderPlan {
    /// Load to repeat.
    pub experiment: Experiment,
    /// Concurrencies, ascending.
    pub rungs: Vec<usize>,
    /// Times that each is measured.
    pub rounds: usize,
}

/// Results of a ladder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ladder {
    /// Conditions of each rung.
    #[serde(flatten)]
    pub conditions: Conditions,
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
/// Those of [`crate::run`], and [`LoadError::Usage`] for a prefill.
pub fn ladder(
    plan: &LadderPlan,
    stop: &StopFlag,
    mut observer: impl FnMut(&Second),
) -> Result<Ladder, LoadError> {
    let conditions = plan.experiment.conditions()?;
    let order = order(plan);
    let paces: Vec<Pace> = order.iter().map(|step| Pace::Concurrency(step.n)).collect();
    let observe = |event: ExperimentEvent<'_>| {
        if let ExperimentEvent::Second(second) = event {
            observer(second);
        }
    };
    let rung = |index: usize, measured: MeasuredStep| (Rung::of(order[index], &measured), measured.server);
    let gathered = plan.experiment.gather(&paces, stop, observe, rung)?;
    let core_count = gathered.points.iter().rev().find_map(|(_, server)| server.core_count);
    let rungs: Vec<Rung> = gathered.points.into_iter().map(|(rung, _)| rung).collect();
    Ok(Ladder {
        scaling: Scaling::of(&rungs, conditions.seed),
        conditions,
        server_core_count: core_count,
        rungs,
        warnings: gathered.warnings,
    })
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

/// Returns each measurement. Each round has all rungs, shuffled.
fn order(plan: &LadderPlan) -> Vec<LadderStep> {
    let mut rng = SmallRng::seed_from_u64(plan.experiment.seed);
    let round = |round: usize| {
        let mut rungs = plan.rungs.clone();
        rungs.shuffle(&mut rng);
        rungs.into_iter().map(move |n| LadderStep { round, n }).collect::<Vec<_>>()
    };
    (1..=plan.rounds).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::RepeatedLoad;
    use crate::spec::Spec;

    #[test]
    fn each_round_has_all_rungs_in_another_order() {
        let rungs: Vec<usize> = (0..13).map(|exponent| 1 << exponent).collect();
        let load = RepeatedLoad::Cql(Spec::default());
        let experiment = Experiment { load, seconds: 1.0, seed: 1, metrics: None };
        let mut plan = LadderPlan { experiment, rungs: rungs.clone(), rounds: 3 };
        let all = order(&plan);
        let mut orders = Vec::new();
        for round in 1..=3 {
            let visited: Vec<usize> =
                all.iter().filter(|step| step.round == round).map(|step| step.n).collect();
            let mut sorted = visited.clone();
            sorted.sort_unstable();
            assert!(sorted == rungs && visited != rungs, "{visited:?}");
            orders.push(visited);
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        assert_eq!(order(&plan), all);
        plan.experiment.seed = 2;
        assert_ne!(order(&plan), all);
    }
}
