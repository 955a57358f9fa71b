//! Flags of a ladder, shared by the loads over CQL and SQL.

use super::ladder::{Plan, Target};
use crate::LoadError;
use crate::flag::{Flag, flag, usage, whole};

/// Measured time of a rung, seconds. With the warm-up, 13 rungs in three rounds take 6.5 minutes.
pub(crate) const SECONDS: f64 = 8.0;
/// Warm-up of a rung, seconds.
pub(crate) const WARMUP_S: f64 = 2.0;
/// Largest concurrency by default. Ladders to 128 miss half of the peaks, those to 4,096 a tenth.
const LAST: usize = 4096;
/// Least number of rounds that shows a drift of the machine.
const ROUNDS: usize = 3;
/// Most rounds.
const ROUNDS_MAX: usize = 100;
/// Largest concurrency.
const N_MAX: usize = 1_000_000;

/// Values of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct LadderFlags {
    /// Concurrencies to measure. `None`: powers of two.
    rungs: Option<Vec<usize>>,
    rounds: Option<usize>,
    /// File for the plot.
    pub(crate) svg: Option<String>,
}

impl AsMut<LadderFlags> for LadderFlags {
    fn as_mut(&mut self) -> &mut LadderFlags {
        self
    }
}

pub(crate) const fn ladder<O: AsMut<LadderFlags>>() -> Flag<O> {
    flag!("ladder", "N,N,…", "1,2,4…4096", "`usl`: the concurrencies to measure", |o: &mut O, v| {
        let rungs = v.split(',').map(|n| whole(n).map(|n| n as usize));
        o.as_mut().rungs = Some(rungs.collect::<Result<_, _>>()?);
        Ok(())
    })
}

pub(crate) const fn rounds<O: AsMut<LadderFlags>>() -> Flag<O> {
    let help = "`usl`: times that each concurrency is measured, in shuffled order";
    flag!("ladder-rounds", "N", "3", help, |o: &mut O, v| {
        o.as_mut().rounds = Some(whole(v)? as usize);
        Ok(())
    })
}

pub(crate) const fn svg<O: AsMut<LadderFlags>>() -> Flag<O> {
    let help = "`usl`: draw throughput and response times over concurrency";
    flag!("svg", "FILE", "none", help, |o: &mut O, v| {
        o.as_mut().svg = Some(v.to_string());
        Ok(())
    })
}

impl LadderFlags {
    /// Returns the largest concurrency of the ladder.
    pub(crate) fn last(&self) -> usize {
        self.rungs.as_ref().map_or(LAST, |rungs| rungs.iter().copied().max().unwrap_or(0))
    }

    /// Returns the ladder for a target. By default it has the powers of two that the target allows.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for a concurrency that the target cannot reach.
    pub(crate) fn plan(
        &self,
        target: Target,
        seconds: f64,
        seed: u64,
        metrics: Option<String>,
    ) -> Result<Plan, LoadError> {
        let powers = || (0..).map(|exponent| 1usize << exponent).take_while(|n| *n <= LAST);
        let default = || powers().filter(|n| (target.least()..=target.most()).contains(n)).collect();
        let mut rungs: Vec<usize> = self.rungs.clone().unwrap_or_else(default);
        rungs.sort_unstable();
        rungs.dedup();
        let rounds = self.rounds.unwrap_or(ROUNDS);
        if !(1..=ROUNDS_MAX).contains(&rounds) {
            return Err(usage(format!("--ladder-rounds must be 1 to {ROUNDS_MAX}")));
        }
        let (least, most) = (target.least(), target.most().min(N_MAX));
        match (rungs.first(), rungs.last()) {
            (Some(first), Some(last)) if *first >= least && *last <= most => {}
            _ => {
                let limits = target.limits();
                return Err(usage(format!("--ladder expects concurrencies of {least} to {most} ({limits})")));
            }
        }
        Ok(Plan { target, rungs, rounds, seconds, seed, metrics })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    fn check(flags: &LadderFlags, change: impl Fn(&mut Spec), expected: Result<(usize, usize, usize), &str>) {
        let mut spec = Spec::default();
        change(&mut spec);
        let found = flags.plan(Target::Cql(spec), SECONDS, 1, None);
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
        let plain = LadderFlags::default();
        check(&plain, |_| {}, Ok((1, 4096, 13)));
        check(&plain, |s| (s.threads, s.connections) = (3, 4), Ok((4, 4096, 11)));
        check(&plain, |s| (s.connections, s.streams) = (2, 300), Ok((1, 512, 10)));
        let given = |rungs: &[usize]| LadderFlags { rungs: Some(rungs.to_vec()), ..LadderFlags::default() };
        check(&given(&[8, 1, 8]), |_| {}, Ok((1, 8, 2)));
        check(&given(&[1, 2]), |s| s.threads = 2, Err("--threads"));
        check(&given(&[1, 5000]), |s| s.max_in_flight = 4999, Err("--max-in-flight"));
        check(&given(&[0, 1]), |_| {}, Err("--ladder"));
        check(&given(&[]), |_| {}, Err("--ladder"));
        check(&LadderFlags { rounds: Some(0), ..plain }, |_| {}, Err("--ladder-rounds"));
    }
}
