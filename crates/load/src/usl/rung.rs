//! One rung: the measurement of one concurrency in one round, and the reasons for which it is
//! invalid. An invalid rung is shown and never fitted.

use serde::{Deserialize, Serialize};

use crate::experiment::{MeasuredStep, ServerUse};
use crate::histogram::Latency;
use crate::report::GENERATOR_CPU_MAX;

/// Least part of the requested concurrency that was reached.
const REACHED_MIN: f64 = 0.95;
/// Most by which X·R̄ ÷ N differs from 1, as Little's law demands. A larger difference means that
/// something was not counted.
const LITTLE_MAX: f64 = 0.05;
/// Most requests without an answer or with an error, as a part of all.
const FAILED_MAX: f64 = 0.001;

/// One measurement of a ladder to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LadderStep {
    /// Round, from 1.
    pub(super) round: usize,
    /// Requests in flight.
    pub(super) n: usize,
}

/// Measurement of one concurrency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Round, from 1.
    pub round: usize,
    /// Requests in flight, as requested.
    pub n: usize,
    /// Requests in flight, mean over the measured time.
    pub n_reached: f64,
    /// Answers without error a second.
    pub throughput_per_s: f64,
    /// Response time by the client's clock.
    pub response: Latency,
    /// Service time and CPU of the server.
    #[serde(flatten)]
    pub server: ServerUse,
    /// CPU of the busiest generator thread, as a share of its core.
    pub generator_cpu: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests with an error, lost with their connection, or without an answer.
    pub failed: u64,
    /// X·R̄ ÷ N, from throughput, mean response time and the concurrency reached. Little's law
    /// demands 1.
    pub little: f64,
    /// Reasons why it is invalid. Empty: it is valid.
    pub invalid: Vec<String>,
}

impl Rung {
    /// Returns the rung of a measurement.
    pub(super) fn of(LadderStep { round, n }: LadderStep, measured: &MeasuredStep) -> Rung {
        let step = &measured.step;
        let response = step.from_sent;
        let in_flight = step.throughput_per_s * response.mean_us / 1e6;
        let mut rung = Rung {
            round,
            n,
            n_reached: step.in_flight_mean,
            throughput_per_s: step.throughput_per_s,
            response,
            server: measured.server,
            generator_cpu: step.generator_cpu,
            sent: step.sent,
            failed: step.errors + step.lost + step.unanswered,
            little: if step.in_flight_mean > 0.0 { in_flight / step.in_flight_mean } else { 0.0 },
            invalid: Vec::new(),
        };
        rung.invalid = rung.reasons(measured.stopped);
        rung
    }

    /// Returns true if the rung may be fitted.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty()
    }

    fn reasons(&self, stopped: bool) -> Vec<String> {
        let mut out = Vec::new();
        let mut refuse = |wrong: bool, reason: String| {
            if wrong {
                out.push(reason);
            }
        };
        refuse(stopped, "it was stopped".to_string());
        refuse(
            self.generator_cpu > GENERATOR_CPU_MAX,
            format!("the generator used {:.0} % of its core", self.generator_cpu * 100.0),
        );
        // An undefined number is invalid too, so that no comparison is negated.
        let reached = self.n_reached >= REACHED_MIN * self.n as f64;
        refuse(!reached, format!("it reached only {:.1} in flight", self.n_reached));
        let little = (self.little - 1.0).abs() <= LITTLE_MAX;
        refuse(!little, format!("X·R ÷ N is {:.2} instead of 1", self.little));
        let failed = self.failed as f64 / self.sent.max(1) as f64;
        refuse(failed > FAILED_MAX, format!("{:.2} % of the requests failed", failed * 100.0));
        out
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::StepReport;

    fn step(n: f64) -> StepReport {
        let response = Latency { mean_us: 1000.0, ..Latency::default() };
        StepReport {
            throughput_per_s: n * 1000.0,
            in_flight_mean: n,
            from_sent: response,
            generator_cpu: 0.5,
            sent: 100_000,
            ..StepReport::default()
        }
    }

    /// Returns a valid rung with this throughput.
    pub(in super::super) fn rung(round: usize, n: usize, throughput_per_s: f64) -> Rung {
        let mut step = step(n as f64);
        step.throughput_per_s = throughput_per_s;
        step.from_sent.mean_us = n as f64 / throughput_per_s * 1e6;
        let rung = Rung::of(LadderStep { round, n }, &MeasuredStep { step, ..MeasuredStep::default() });
        assert!(rung.is_valid(), "{rung:?}");
        rung
    }

    fn check(change: impl Fn(&mut StepReport), stopped: bool, expected: &[&str]) {
        let mut step = step(64.0);
        change(&mut step);
        let measured = MeasuredStep { step, stopped, ..MeasuredStep::default() };
        let rung = Rung::of(LadderStep { round: 1, n: 64 }, &measured);
        assert_eq!(rung.invalid.len(), expected.len(), "{rung:?}");
        for (reason, expected) in rung.invalid.iter().zip(expected) {
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn rung_is_invalid_for_each_reason_alone() {
        check(|_| {}, false, &[]);
        check(|_| {}, true, &["stopped"]);
        check(|s| s.generator_cpu = 0.81, false, &["81 %"]);
        check(|s| (s.in_flight_mean, s.throughput_per_s) = (60.0, 60_000.0), false, &["60.0 in flight"]);
        check(|s| s.from_sent.mean_us = 1060.0, false, &["1.06"]);
        check(|s| s.from_sent.mean_us = 940.0, false, &["0.94"]);
        check(|s| (s.errors, s.lost) = (90, 11), false, &["0.10 %"]);
        check(|s| s.errors = 100, false, &[]);
        check(|s| s.unanswered = 200, false, &["0.20 %"]);
    }

    #[test]
    fn rung_without_a_measurement_is_invalid() {
        let measured = MeasuredStep { stopped: true, ..MeasuredStep::default() };
        let rung = Rung::of(LadderStep { round: 1, n: 8 }, &measured);
        assert_eq!(rung.invalid.len(), 3, "{rung:?}");
        check(|s| s.from_sent.mean_us = f64::NAN, false, &["NaN"]);
    }
}
