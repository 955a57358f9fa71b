//! Flags of a sweep, shared by the loads over CQL and SQL.

use clap::Args;

use super::measure::{PeakRate, SweepPlan};
use crate::LoadError;
use crate::experiment::Experiment;
use crate::flag_values::{count, size_in};
use crate::usl::{Ladder, read_ladder};

/// Measured time of a run. With the warm-up, seven runs take 2.6 minutes.
pub(crate) const SECONDS: &str = "20s";
/// Warm-up of a run.
pub(crate) const WARMUP: &str = "2s";
/// Shortest measured time, seconds: a quarter then has a whole second.
const SECONDS_MIN: f64 = 4.0;
/// Most requests in flight. Without a bound a generator runs out of memory beyond the peak.
pub(crate) const BOUND: usize = 4096;
/// Runs at 100 %. The peak may hold once and not the next time.
const RUNS: usize = 5;
/// Most runs.
const RUNS_MAX: usize = 100;
/// Highest rate, requests a second.
const RATE_MAX: f64 = 1e9;

/// Rates of a sweep.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SweepFlags {
    /// JSON of `usl`, for the peak to approach
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// The peak in requests a second, instead of --from
    #[arg(long = "peak", value_name = "RATE", value_parser = count)]
    peak_per_s: Option<f64>,
    /// Runs at 100 % of the peak
    #[arg(
        long = "sweep-runs",
        value_name = "N",
        default_value_t = RUNS,
        value_parser = |text: &str| size_in(text, 1..=RUNS_MAX)
    )]
    runs: usize,
}

/// Returns the peak of a ladder, and a remark.
fn peak_of(path: &str, ladder: &Ladder) -> Result<(PeakRate, Option<String>), LoadError> {
    if let Some(peak) = ladder.scaling.as_ref().and_then(|scaling| scaling.peak) {
        let from = format!("{path}: X* at N = {:.0}", peak.n.value);
        return Ok((PeakRate { per_s: peak.throughput_per_s.value, from }, None));
    }
    let mean = |n: usize| Some((n, ladder.mean(n, |rung| Some(rung.throughput_per_s))?));
    let highest = ladder.concurrencies().into_iter().filter_map(mean).max_by(|a, b| a.1.total_cmp(&b.1));
    let (n, per_s) = highest
        .filter(|(_, per_s)| *per_s > 0.0)
        .ok_or_else(|| LoadError::NoPlan(format!("{path}: expected a valid rung, got none; give --peak")))?;
    let remark = format!(
        "{path} has no peak: 100 % is the highest measured throughput. The server may take more than that."
    );
    Ok((PeakRate { per_s, from: format!("{path}: highest throughput, at N = {n}") }, Some(remark)))
}

impl SweepFlags {
    /// Returns the sweep of a load, with at most `bound` requests in flight.
    ///
    /// # Errors
    /// [`LoadError::Usage`], naming the flag, [`LoadError::File`] and [`LoadError::NoPlan`].
    pub(crate) fn plan(&self, experiment: Experiment, bound: usize) -> Result<SweepPlan, LoadError> {
        if experiment.seconds < SECONDS_MIN {
            return Err(LoadError::Usage(format!(
                "--duration must be at least {SECONDS_MIN}s for `sweep`, since a quarter of it is judged"
            )));
        }
        let mut warnings = Vec::new();
        let peak = match (&self.from, self.peak_per_s) {
            (Some(_), Some(_)) | (None, None) => {
                return Err(LoadError::Usage(
                    "`sweep` expects the peak: give --from with the JSON of `usl`, or --peak with a rate"
                        .into(),
                ));
            }
            (None, Some(per_s)) => PeakRate { per_s, from: "--peak".to_string() },
            (Some(path), None) => {
                let ladder = read_ladder(path)?;
                let (peak, remark) = peak_of(path, &ladder)?;
                warnings.extend(remark);
                let load = experiment.load.described()?.load;
                if load != ladder.conditions.load {
                    warnings.push(format!(
                        "{path} measured another load: {} instead of {load}.",
                        ladder.conditions.load
                    ));
                }
                peak
            }
        };
        if !(peak.per_s > 0.0 && peak.per_s <= RATE_MAX) {
            return Err(LoadError::Usage(format!(
                "--peak must be above 0 and at most {RATE_MAX:.0} a second"
            )));
        }
        let most = experiment.load.most_pipelined();
        if bound > most {
            return Err(LoadError::Usage(format!(
                "`sweep` needs {bound} requests in flight, and the connections allow {most} ({})",
                experiment.load.limits()
            )));
        }
        Ok(SweepPlan { experiment, peak, runs: self.runs, bound, warnings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::RepeatedLoad;
    use crate::spec::Spec;
    use crate::usl::{Usl, synthetic};

    const LAW: Usl = Usl { lambda: 3000.0, sigma: 0.02, kappa: 0.0001 };

    #[test]
    fn peak_of_a_ladder_is_that_of_its_law() {
        let ladder = synthetic(4096, |n| LAW.throughput(n));
        let (peak, remark) = peak_of("usl.json", &ladder).expect("a peak");
        assert!((peak.per_s / 75_600.0 - 1.0).abs() < 0.02, "{peak:?}");
        assert!(peak.from.starts_with("usl.json: X* at N = ") && remark.is_none(), "{peak:?}");
    }

    #[test]
    fn ladder_without_a_peak_gives_its_highest_throughput() {
        let mut ladder = synthetic(64, |n| 1000.0 * n);
        let (peak, remark) = peak_of("usl.json", &ladder).expect("a throughput");
        assert!((peak.per_s / 64_000.0 - 1.0).abs() < 0.03, "{peak:?}");
        assert!(peak.from.ends_with("at N = 64") && remark.is_some(), "{peak:?}");
        ladder.rungs.iter_mut().for_each(|rung| rung.invalid.push("it was stopped".into()));
        ladder.scaling = None;
        assert!(peak_of("usl.json", &ladder).is_err_and(|error| error.to_string().contains("--peak")));
    }

    fn check(flags: &SweepFlags, spec: Spec, seconds: f64, expected: &str) {
        let load = RepeatedLoad::Cql(spec);
        let found = flags.plan(Experiment { load, seconds, seed: 1, metrics: None }, BOUND);
        let text = found.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{text}");
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        let none = SweepFlags { from: None, peak_per_s: None, runs: RUNS };
        let peak = |peak_per_s| SweepFlags { peak_per_s: Some(peak_per_s), ..none.clone() };
        check(&peak(1e5), Spec::default(), 20.0, "");
        check(&none, Spec::default(), 20.0, "--from with the JSON of `usl`, or --peak");
        check(&SweepFlags { from: Some("x".into()), ..peak(1e5) }, Spec::default(), 20.0, "--peak");
        check(&SweepFlags { from: Some("/no/file".into()), ..none }, Spec::default(), 20.0, "/no/file");
        check(&peak(0.0), Spec::default(), 20.0, "--peak");
        check(&peak(1e5), Spec::default(), 3.0, "--duration");
        check(&peak(1e5), Spec { connections: 2, streams: 100, ..Spec::default() }, 20.0, "--streams");
        let args = ["sweep", "--sweep-runs", "0"].map(str::to_string);
        let error = crate::commands::command(&args).expect_err("no run").to_string();
        assert!(error.contains("--sweep-runs") && error.contains("1 to 100"), "{error}");
    }
}
