//! Closed loops of growing concurrency, and the scalability law fitted to their throughput.

use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::report::Report;
use crate::run::{StopFlag, run};
use crate::spec::{Pacing, Spec, Workload};
use crate::timeline::Second;
use crate::usl::{Point, Usl, fit};

/// Default numbers of requests in flight.
pub(crate) const CONCURRENCIES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Results of a ladder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ladder {
    /// Requests in flight and throughput of each run.
    pub points: Vec<Point>,
    /// The fitted law. `None`: the points do not determine one.
    pub usl: Option<Usl>,
    /// Report of each run.
    pub reports: Vec<Report>,
}

/// Runs the load once for each number of requests in flight, for the duration of its pacing. A stop
/// skips the remaining runs.
///
/// # Errors
/// Those of [`run`], and [`LoadError::Usage`] for a prefill.
pub fn ladder(
    spec: &Spec,
    concurrencies: &[usize],
    stop: &StopFlag,
    mut observer: impl FnMut(&Second),
) -> Result<Ladder, LoadError> {
    if spec.workload == Workload::Prefill {
        return Err(LoadError::Usage(
            "workload `prefill` has no capacity to find; use read, write, mixed or slice".into(),
        ));
    }
    let seconds = spec.steps().first().map_or(10.0, |step| step.seconds);
    let mut found = Ladder { points: Vec::new(), usl: None, reports: Vec::new() };
    for &in_flight in concurrencies {
        if stop.is_set() {
            break;
        }
        let run_spec = Spec {
            pacing: Pacing::Closed { in_flight, seconds },
            connections: spec.connections.min(in_flight).max(1),
            threads: spec.threads.min(in_flight).max(1),
            ..spec.clone()
        };
        let report = run(&run_spec, stop, &mut observer)?;
        if let Some(step) = report.steps.first().filter(|_| !report.stopped) {
            found.points.push(Point { n: in_flight as f64, throughput_per_s: step.throughput_per_s });
        }
        found.reports.push(report);
    }
    found.usl = fit(&found.points);
    Ok(found)
}

impl Ladder {
    /// Formats the ladder as text.
    pub fn text(&self) -> String {
        let mut out = format!("{:>10}{:>14}{:>14}\n", "in flight", "answers/s", "by the law");
        for point in &self.points {
            let law = self.usl.map_or("-".to_string(), |usl| format!("{:.0}", usl.throughput(point.n)));
            out.push_str(&format!("{:>10}{:>14.0}{law:>14}\n", point.n, point.throughput_per_s));
        }
        match self.usl {
            None => out.push_str("the points determine no scalability law\n"),
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
                    None => out.push_str("; throughput never falls\n"),
                }
            }
        }
        for report in self.reports.iter().filter(|report| report.invalid) {
            if let Pacing::Closed { in_flight, .. } = report.spec.pacing {
                out.push_str(&format!(
                    "! the run with {in_flight} in flight is invalid: {}\n",
                    report.warnings[0]
                ));
            }
        }
        out
    }
}
