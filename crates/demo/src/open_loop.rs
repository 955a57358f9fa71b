//! Open loops: the highest rate that is answered in time, and loads that begin together with
//! statements between their steps.

use load::{Pacing, RateStep, Report, Spec, StepReport};

use crate::error::DemoError;
use crate::metrics::now_s;
use crate::stage::Stage;

/// Least part of the due requests that is answered in time, up to capacity.
const IN_TIME: f64 = 0.99;
/// Time to open all connections before loads begin together, ms.
const CONNECT_MS: f64 = 2500.0;
/// Largest difference between the begins of loads, ms.
const APART_MS_MAX: u64 = 100;

/// Rates of a search for capacity, as parts of a closed loop's.
pub(crate) struct Search {
    pub(crate) first: f64,
    /// Ratio of two neighbours.
    pub(crate) ratio: f64,
    pub(crate) count: i32,
    /// Length of each, seconds.
    pub(crate) seconds: f64,
}

impl Search {
    fn steps(&self, closed_per_s: f64) -> Vec<RateStep> {
        let rate_per_s = |n: i32| self.first * self.ratio.powi(n) * closed_per_s;
        (0..self.count).map(|n| RateStep { rate_per_s: rate_per_s(n), seconds: self.seconds }).collect()
    }
}

fn failed(reason: &str) -> DemoError {
    DemoError::Failed(reason.to_string())
}

/// Returns the highest rate of an open loop that is answered within the time limit of `spec`, per
/// second.
///
/// # Errors
/// No request was answered in time.
pub(crate) fn capacity(
    stage: &mut Stage,
    spec: Spec,
    search: &Search,
    closed_per_s: f64,
) -> Result<f64, DemoError> {
    let spec = Spec { pacing: Pacing::Open(search.steps(closed_per_s)), ..spec };
    let report = stage.run("open loop at rising rates", &spec)?;
    let per_s = in_time_per_s(&report.steps);
    (per_s >= 1.0).then_some(per_s).ok_or_else(|| failed("The server answered no requests in time."))
}

/// Returns the highest rate before the first two that were not answered in time, or what was
/// answered in time at the first, per second. One alone may be a pause of the machine: above
/// capacity, queues make all later ones late.
fn in_time_per_s(steps: &[StepReport]) -> f64 {
    let is_served = |step: &StepReport| step.in_time as f64 >= IN_TIME * step.due as f64;
    let are_late = |pair: &[StepReport]| !pair.iter().any(is_served);
    let end = steps.windows(2).position(are_late).unwrap_or(steps.len());
    let served = steps[..end].iter().rfind(|step| is_served(step));
    served.or(steps.first()).map_or(0.0, |step| step.in_time as f64 / step.seconds.max(1e-9))
}

/// Runs loads that begin together, and the statements of each step within a second after the first
/// load enters it. Returns the report of each load.
pub(crate) fn together(
    stage: &mut Stage,
    loads: &[(&str, Spec)],
    statements: impl Fn(usize) -> Vec<String>,
) -> Result<Vec<Report>, DemoError> {
    let begin_unix_ms = Some((now_s() * 1e3 + CONNECT_MS) as u64);
    let specs: Vec<Spec> = loads.iter().map(|(_, spec)| Spec { begin_unix_ms, ..spec.clone() }).collect();
    let (name, first, others) = match (loads, specs.as_slice()) {
        ([(name, _), ..], [first, others @ ..]) => (name, first, others),
        _ => return Ok(Vec::new()),
    };
    let stop = stage.stop.clone();
    let mut at = None;
    let mut fault = None;
    let reports: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> =
            others.iter().map(|spec| scope.spawn(|| load::run(spec, &stop, |_| {}))).collect();
        let first = load::run(first, &stop, |second| {
            let step = usize::try_from(second.step).ok();
            if step != at {
                at = step;
                let due = step.map(&statements).unwrap_or_default();
                let due: Vec<&str> = due.iter().map(String::as_str).collect();
                fault = stage.cql(&due).err().or(fault.take());
            }
            if second.sent > 0 {
                stage.progress(name, second);
            }
        });
        std::iter::once(Ok(first)).chain(others.into_iter().map(|other| other.join())).collect()
    });
    stage.interrupted()?;
    stage.server_check()?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    let report =
        |ended: Result<_, _>| Ok(Result::map_err(ended, |_| failed("The thread of a load failed."))??);
    let reports = reports.into_iter().map(report).collect::<Result<Vec<Report>, DemoError>>()?;
    let begun = reports.iter().map(|report| report.started_unix_ms);
    let apart_ms = begun.clone().max().zip(begun.min()).map_or(0, |(last, first)| last - first);
    match apart_ms > APART_MS_MAX {
        true => Err(failed("The loads did not begin together: connecting took too long.")),
        false => Ok(reports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_the_last_rate_before_two_late_ones() {
        let step = |due, in_time| StepReport { seconds: 2.0, due, in_time, ..StepReport::default() };
        let (first, second, late) = (step(100, 100), step(200, 198), step(300, 290));
        let all = [first.clone(), second.clone(), late.clone(), late.clone(), step(400, 400)];
        assert_eq!(in_time_per_s(&all), 99.0);
        assert_eq!(in_time_per_s(&[first, late.clone(), second, late]), 99.0);
        assert_eq!(in_time_per_s(&[step(100, 60), step(200, 100), step(300, 300)]), 30.0);
        assert_eq!(in_time_per_s(&[]), 0.0);
    }

    #[test]
    fn rates_of_a_search_rise_by_one_ratio() {
        let search = Search { first: 0.5, ratio: 2.0, count: 3, seconds: 1.5 };
        let found: Vec<f64> = search.steps(100.0).iter().map(|step| step.rate_per_s).collect();
        assert_eq!(found, [50.0, 100.0, 200.0]);
    }
}
