//! A ladder of closed loops: the same load with more and more in flight, and the scalability law it obeys.

use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::report::Report;
use crate::run::{StopFlag, run};
use crate::spec::{Pacing, Spec, Workload};
use crate::timeline::Second;
use crate::usl::{Point, Usl, fit};

/// The rungs climbed when none are given.
pub(crate) const RUNGS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// What a ladder found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ladder {
    /// In flight and throughput of each rung.
    pub points: Vec<Point>,
    /// The law, when the points determine one.
    pub usl: Option<Usl>,
    /// Each rung's report.
    pub reports: Vec<Report>,
}

/// Runs the load once for each number in flight, for the duration its pacing gives; the rungs after a stop
/// are left out.
///
/// # Errors
/// As [`run`]; and [`LoadError::Usage`] for a prefill.
pub fn ladder(
    spec: &Spec,
    rungs: &[usize],
    stop: &StopFlag,
    mut observer: impl FnMut(&Second),
) -> Result<Ladder, LoadError> {
    if spec.workload == Workload::Prefill {
        return Err(LoadError::Usage(
            "A prefill has no capacity to find; use read, write, mixed or slice.".into(),
        ));
    }
    let seconds = spec.steps().first().map_or(10.0, |step| step.seconds);
    let mut found = Ladder { points: Vec::new(), usl: None, reports: Vec::new() };
    for &in_flight in rungs {
        if stop.is_set() {
            break;
        }
        let rung = Spec {
            pacing: Pacing::Closed { in_flight, seconds },
            connections: spec.connections.min(in_flight).max(1),
            threads: spec.threads.min(in_flight).max(1),
            ..spec.clone()
        };
        let report = run(&rung, stop, &mut observer)?;
        if let Some(step) = report.steps.first().filter(|_| !report.stopped) {
            found.points.push(Point { n: in_flight as f64, throughput_per_s: step.throughput_per_s });
        }
        found.reports.push(report);
    }
    found.usl = fit(&found.points);
    Ok(found)
}

impl Ladder {
    /// The ladder as text.
    pub fn text(&self) -> String {
        let mut out = format!("{:>10}{:>14}{:>14}\n", "in flight", "answers/s", "by the law");
        for point in &self.points {
            let law = self.usl.map_or("-".to_string(), |usl| format!("{:.0}", usl.throughput(point.n)));
            out.push_str(&format!("{:>10}{:>14.0}{law:>14}\n", point.n, point.throughput_per_s));
        }
        match self.usl {
            None => out.push_str("These points determine no law.\n"),
            Some(usl) => {
                out.push_str(&format!(
                    "USL: λ {:.0}/s, σ {:.4}, κ {:.6}, R² {:.3}",
                    usl.lambda, usl.sigma, usl.kappa, usl.r_squared
                ));
                match usl.best() {
                    Some(best) => out.push_str(&format!(
                        "; highest at {best:.0} in flight: {:.0}/s\n",
                        usl.throughput(best)
                    )),
                    None => out.push_str("; no retreat: it only flattens\n"),
                }
            }
        }
        for report in self.reports.iter().filter(|report| report.invalid) {
            if let Pacing::Closed { in_flight, .. } = report.spec.pacing {
                out.push_str(&format!(
                    "! The rung with {in_flight} in flight is invalid: {}\n",
                    report.warnings[0]
                ));
            }
        }
        out
    }
}
