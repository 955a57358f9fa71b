//! Conclusions of a sweep: stable runs at the peak, and growth of S and R from the lowest rate to
//! the middle one. The limits are those of a published system, whose response time grew from 1.5 to
//! 2.5 ms between 4 and 40 % of its peak with an unchanged service time.

use serde::{Deserialize, Serialize};

use super::measure::{HIGH, LOW, MIDDLE};
use super::run::SweepRun;

/// Most by which S may differ from 4 to 40 % of the peak.
const SERVICE_MAX: f64 = 0.20;
/// Most growth of R from 4 to 40 % of the peak: 2.5 ÷ 1.5.
const RESPONSE_MAX: f64 = 1.67;

/// A quantity at 40 % ÷ the same at 4 % of the peak.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The ratio.
    pub ratio: f64,
    /// True if it is within its limit.
    pub met: bool,
}

/// Conclusions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Stable runs at 100 % of the peak.
    pub stable: usize,
    /// Valid runs at 100 % of the peak.
    pub valid: usize,
    /// Mean service time: within 20 %. `None`: not measured, or a run is invalid.
    pub service: Option<Compared>,
    /// Mean response time: at most × 1.67. `None`: a run is missing or invalid.
    pub response: Option<Compared>,
}

impl Verdict {
    /// Returns the conclusions.
    pub(super) fn of(runs: &[SweepRun]) -> Verdict {
        let valid = |part: f64| runs.iter().filter(move |run| run.requested.part == part && run.is_valid());
        let mean = |part: f64, quantity: fn(&SweepRun) -> Option<f64>| {
            let values: Vec<f64> = valid(part).map(quantity).collect::<Option<_>>()?;
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (mean > 0.0).then_some(mean)
        };
        let ratio = |quantity| Some(mean(MIDDLE, quantity)? / mean(LOW, quantity)?);
        let response = |run: &SweepRun| Some(run.response.mean_us);
        Verdict {
            stable: valid(HIGH).filter(|run| run.is_stable()).count(),
            valid: valid(HIGH).count(),
            service: ratio(|run| run.server.service_us)
                .map(|ratio| Compared { ratio, met: (ratio - 1.0).abs() <= SERVICE_MAX }),
            response: ratio(response).map(|ratio| Compared { ratio, met: ratio <= RESPONSE_MAX }),
        }
    }

    /// Returns the conclusions as sentences. Each is true, false or undecided.
    pub fn sentences(&self) -> Vec<(String, Option<bool>)> {
        let decided = |name: &str, limit: String, compared: Option<Compared>| match compared {
            Some(Compared { ratio, met }) => {
                let verdict = if met { "met" } else { "missed" };
                (format!("{name} from 4 to 40 %: ×{ratio:.2}, {verdict} ({limit})"), Some(met))
            }
            None => (format!("{name} from 4 to 40 %: not measured ({limit})"), None),
        };
        let stable = match self.valid {
            0 => ("no valid run at 100 %".to_string(), None),
            valid => {
                let text = format!("stable in {} of {valid} runs at 100 %", self.stable);
                (text, Some(self.stable == valid))
            }
        };
        vec![
            stable,
            decided("S", format!("within {:.0} %", SERVICE_MAX * 100.0), self.service),
            decided("R", format!("at most ×{RESPONSE_MAX}"), self.response),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::tests::{TestRun, run};
    use super::*;

    fn check(runs: &[SweepRun], expected: [&str; 3]) {
        let sentences = Verdict::of(runs).sentences();
        let found: Vec<&str> = sentences.iter().map(|(text, _)| text.as_str()).collect();
        assert!(found.iter().zip(expected).all(|(found, words)| found.contains(words)), "{found:?}");
    }

    #[test]
    fn growth_of_s_and_r_is_met_or_missed() {
        let pair = |response_us: f64, service_us: f64| {
            [run(0.04, 1, 1000.0, 20.0), run(0.4, 1, response_us, service_us)]
        };
        check(
            &pair(1660.0, 23.0),
            ["no valid run", "S from 4 to 40 %: ×1.15, met", "R from 4 to 40 %: ×1.66, met"],
        );
        check(&pair(1690.0, 25.0), ["no valid run", "×1.25, missed (within 20 %)", "missed (at most ×1.67)"]);
        check(&pair(1000.0, 15.0), ["no valid run", "×0.75, missed", "×1.00, met"]);
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        check(
            &[],
            ["no valid run at 100 %", "S from 4 to 40 %: not measured", "R from 4 to 40 %: not measured"],
        );
        let mut pair = [run(0.04, 1, 1000.0, 20.0), run(0.4, 1, 1000.0, 20.0)];
        pair[1].server.service_us = None;
        check(&pair, ["no valid run", "S from 4 to 40 %: not measured", "met"]);
        pair[0].invalid.push("it was stopped".into());
        check(&pair, ["no valid run", "not measured", "R from 4 to 40 %: not measured"]);
    }

    #[test]
    fn stable_runs_are_counted_among_the_valid() {
        let full = |number, held_back, cpu| {
            let change = |step: &mut crate::report::StepReport| {
                (step.held_back, step.generator_cpu) = (held_back, cpu)
            };
            TestRun { number, response_us: 900.0, ..TestRun::default() }.changed(change)
        };
        let runs = [full(1, 0, 0.5), full(2, 7, 0.5), full(3, 0, 0.9), full(4, 0, 0.5)];
        check(&runs, ["stable in 2 of 3 runs at 100 %", "not measured", "not measured"]);
        assert_eq!(Verdict::of(&runs[..1]).sentences()[0].1, Some(true));
        assert_eq!(Verdict::of(&runs).sentences()[0].1, Some(false));
    }
}
