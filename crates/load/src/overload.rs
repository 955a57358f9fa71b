//! Closed loops of rising concurrency. The best of them shows what a server can do, and an overload
//! is a multiple of it. Callers run and judge the loops: each watches its server in its own way.

use crate::report::Report;
use crate::spec::{Pacing, Spec};

/// A closed loop and its report.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    /// Requests in flight.
    pub in_flight: usize,
    /// Results.
    pub report: Report,
}

impl ClosedLoop {
    /// Returns the requests answered a second, zero if the loop ended before it was measured.
    pub fn throughput_per_s(&self) -> f64 {
        self.report.steps.first().map_or(0.0, |step| step.throughput_per_s)
    }
}

/// Runs `base` as a closed loop of `seconds` with each number of requests in flight.
///
/// # Errors
/// The first error of `run`.
pub fn closed_loops<E>(
    base: &Spec,
    in_flight: &[usize],
    seconds: f64,
    mut run: impl FnMut(usize, &Spec) -> Result<Report, E>,
) -> Result<Vec<ClosedLoop>, E> {
    let one = |&in_flight: &usize| {
        let pacing = Pacing::Closed { in_flight, seconds };
        let report = run(in_flight, &Spec { pacing, ..base.clone() })?;
        Ok(ClosedLoop { in_flight, report })
    };
    in_flight.iter().map(one).collect()
}

/// Returns the loop with the highest throughput. `None`: no loop was answered at least once a
/// second.
pub fn best(loops: &[ClosedLoop]) -> Option<&ClosedLoop> {
    let best = loops.iter().max_by(|a, b| a.throughput_per_s().total_cmp(&b.throughput_per_s()));
    best.filter(|best| best.throughput_per_s() >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::StepReport;

    #[test]
    fn best_loop_has_the_highest_throughput() {
        let run = |in_flight: usize, spec: &Spec| {
            assert_eq!(spec.pacing, Pacing::Closed { in_flight, seconds: 2.0 });
            let throughput_per_s = if in_flight == 16 { 90.0 } else { 80.0 };
            Ok::<_, String>(Report {
                steps: vec![StepReport { throughput_per_s, ..StepReport::default() }],
                ..report()
            })
        };
        let loops = closed_loops(&Spec::default(), &[4, 16, 64], 2.0, run).expect("no loop fails");
        assert_eq!(best(&loops).map(|best| best.in_flight), Some(16));
        let silent = ClosedLoop { in_flight: 4, report: report() };
        assert!(best(&[silent]).is_none());
    }

    fn report() -> Report {
        Report {
            spec: Spec::default(),
            started_unix_ms: 0,
            ended_unix_ms: 0,
            stopped: false,
            generator_cpu: 0.0,
            invalid: false,
            steps: Vec::new(),
            service: Vec::new(),
            warnings: Vec::new(),
            seconds: Vec::new(),
        }
    }
}
