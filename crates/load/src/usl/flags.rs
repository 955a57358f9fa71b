//! Flags of a ladder, shared by the loads over CQL and SQL.

use clap::Args;

use super::ladder::LadderPlan;
use crate::LoadError;
use crate::experiment::Experiment;
use crate::flag_values::{Concurrencies, size_in};

/// Measured time of a rung. With the warm-up, 13 rungs in three rounds take 6.5 minutes.
pub(crate) const SECONDS: &str = "8s";
/// Warm-up of a rung.
pub(crate) const WARMUP: &str = "2s";
/// Largest concurrency by default. Ladders to 128 miss half of the peaks, those to 4,096 a tenth.
const LAST: usize = 4096;
/// Least number of rounds that shows a drift of the machine.
const ROUNDS: usize = 3;
/// Most rounds.
const ROUNDS_MAX: usize = 100;
/// Largest concurrency.
const N_MAX: usize = 1_000_000;

/// Ladder of concurrencies.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LadderFlags {
    /// Concurrencies to measure [default: 1,2,4…4096]
    #[arg(long = "ladder", value_name = "N,N,…")]
    rungs: Option<Concurrencies>,
    /// Times that each concurrency is measured, in shuffled order
    #[arg(
        long,
        value_name = "N",
        default_value_t = ROUNDS,
        value_parser = |text: &str| size_in(text, 1..=ROUNDS_MAX)
    )]
    ladder_rounds: usize,
    /// Draw throughput and response times over concurrency
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<String>,
}

impl LadderFlags {
    /// Returns the largest concurrency of the ladder.
    pub(crate) fn last(&self) -> usize {
        self.rungs.as_ref().map_or(LAST, |rungs| rungs.0.iter().copied().max().unwrap_or(0))
    }

    /// Returns the ladder of a load. By default it has the powers of two that the load allows.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for a concurrency that the load cannot reach.
    pub(crate) fn plan(&self, experiment: Experiment) -> Result<LadderPlan, LoadError> {
        let load = &experiment.load;
        let powers = || (0..).map(|exponent| 1usize << exponent).take_while(|n| *n <= LAST);
        let default = || powers().filter(|n| (load.least()..=load.most()).contains(n)).collect();
        let mut rungs: Vec<usize> = self.rungs.clone().map_or_else(default, |rungs| rungs.0);
        rungs.sort_unstable();
        rungs.dedup();
        let least = load.least();
        let most = load.most().min(N_MAX);
        match (rungs.first(), rungs.last()) {
            (Some(first), Some(last)) if *first >= least && *last <= most => {}
            _ => {
                let limits = load.limits();
                return Err(LoadError::Usage(format!(
                    "--ladder expects concurrencies of {least} to {most} ({limits})"
                )));
            }
        }
        Ok(LadderPlan { experiment, rungs, rounds: self.ladder_rounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::RepeatedLoad;
    use crate::spec::Spec;

    fn check(flags: &LadderFlags, change: impl Fn(&mut Spec), expected: Result<(usize, usize, usize), &str>) {
        let mut spec = Spec::default();
        change(&mut spec);
        let load = RepeatedLoad::Cql(spec);
        let found = flags.plan(Experiment { load, seconds: 8.0, seed: 1, metrics: None });
        match (found, expected) {
            (Ok(plan), Ok((first, last, count))) => {
                assert_eq!(
                    (plan.rungs[0], plan.rungs[plan.rungs.len() - 1], plan.rungs.len()),
                    (first, last, count)
                );
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn ladder_stays_within_what_the_target_can_reach() {
        let plain = LadderFlags { ladder_rounds: ROUNDS, ..LadderFlags::default() };
        check(&plain, |_| {}, Ok((1, 4096, 13)));
        check(&plain, |s| (s.threads, s.connections) = (3, 4), Ok((4, 4096, 11)));
        check(&plain, |s| (s.connections, s.streams) = (2, 300), Ok((1, 512, 10)));
        let given =
            |rungs: &[usize]| LadderFlags { rungs: Some(Concurrencies(rungs.to_vec())), ..plain.clone() };
        check(&given(&[8, 1, 8]), |_| {}, Ok((1, 8, 2)));
        check(&given(&[1, 2]), |s| s.threads = 2, Err("--threads"));
        check(&given(&[1, 5000]), |s| s.max_in_flight = 4999, Err("--max-in-flight"));
        check(&given(&[0, 1]), |_| {}, Err("--ladder"));
        check(&given(&[]), |_| {}, Err("--ladder"));
    }

    #[test]
    fn number_of_rounds_is_bounded() {
        let args = ["usl", "--ladder-rounds", "0"].map(str::to_string);
        let error = crate::commands::command(&args).expect_err("no round").to_string();
        assert!(error.contains("--ladder-rounds") && error.contains("1 to 100"), "{error}");
    }
}
