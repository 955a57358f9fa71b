//! Choice of the concurrency to operate at, from one ladder.

use serde::Serialize;

use crate::LoadError;
use crate::text::time;
use crate::usl::{Estimate, Ladder, Scaling};

/// A concurrency to operate at, with its throughput on the measured cores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operating {
    /// File of the ladder.
    pub file: String,
    /// Load that was measured.
    pub load: String,
    /// Cores of the server that was measured.
    pub cores: usize,
    /// Requests in flight.
    pub n: usize,
    /// End of the linear region. `n` is lower if the target of response times demands it.
    pub linear_end: usize,
    /// Answers a second with `n` in flight.
    pub throughput_per_s: Estimate,
    /// Concurrency at which `p99_us` was measured: the first rung at or above `n`.
    pub p99_n: usize,
    /// 99th percentile of the response time there, µs, mean over the rounds.
    pub p99_us: f64,
}

/// Chooses the concurrency: the end of the linear region if the first rung at or above it meets the
/// target, else the highest rung below that does. Response times rise with concurrency, so that the
/// rung above bounds those at the end of the region.
///
/// # Errors
/// [`LoadError::NoPlan`] if the ladder has no law or gives no advice, or no rung meets the target.
pub fn operating(
    file: &str,
    ladder: &Ladder,
    cores: usize,
    p99_target_us: Option<f64>,
) -> Result<Operating, LoadError> {
    let refused = |reason: String| LoadError::NoPlan(format!("{file}: {reason}"));
    let scaling = ladder.scaling.as_ref().ok_or_else(|| {
        refused(
            "expected a ladder with a law, got fewer than four concurrencies with a valid measurement".into(),
        )
    })?;
    let end = scaling.advice().ok_or_else(|| refused(misfits(scaling)))?;
    let p99 = |n: usize| Some((n, ladder.mean(n, |rung| Some(rung.response.p99_us))?));
    let rungs: Vec<(usize, f64)> = ladder.concurrencies().into_iter().filter_map(p99).collect();
    let meets = |p99_us: f64| p99_target_us.is_none_or(|target| p99_us <= target);
    let above = rungs.iter().find(|(n, _)| *n >= end);
    let (n, (p99_n, p99_us)) = match above.filter(|(_, p99_us)| meets(*p99_us)) {
        Some(rung) => (end, *rung),
        None => {
            let below = || rungs.iter().filter(|(n, _)| *n <= end);
            let highest = below().rfind(|(_, p99_us)| meets(*p99_us));
            let lowest = below().min_by(|a, b| a.1.total_cmp(&b.1));
            let rung = highest.ok_or_else(|| refused(too_slow(p99_target_us, end, lowest)))?;
            (rung.0, *rung)
        }
    };
    let throughput = throughput(ladder, scaling, n);
    let throughput_per_s = throughput.ok_or_else(|| refused(format!("nothing was measured at N = {n}")))?;
    Ok(Operating {
        file: file.to_string(),
        load: ladder.conditions.load.clone(),
        cores,
        n,
        linear_end: end,
        throughput_per_s,
        p99_n,
        p99_us,
    })
}

/// Returns the throughput with `n` in flight: by the law, or in a superlinear start, which has no
/// law, the mean of the rounds with the lowest and the highest. Also if the law does not explain
/// all rungs; `n` is one of them then.
fn throughput(ladder: &Ladder, scaling: &Scaling, n: usize) -> Option<Estimate> {
    if n >= scaling.from_n && scaling.is_explained() {
        return scaling.throughput_at(&ladder.rungs, ladder.conditions.seed, n as f64);
    }
    let rungs = ladder.rungs.iter().filter(|rung| rung.n == n && rung.is_valid());
    let measured: Vec<f64> = rungs.map(|rung| rung.throughput_per_s).collect();
    Some(Estimate {
        value: ladder.mean(n, |rung| Some(rung.throughput_per_s))?,
        low: measured.iter().copied().reduce(f64::min)?,
        high: measured.iter().copied().reduce(f64::max)?,
    })
}

fn misfits(scaling: &Scaling) -> String {
    let each = |misfit: &crate::usl::Misfit| format!("{} ({:+.0} %)", misfit.n, misfit.residual * 100.0);
    let named: Vec<String> = scaling.misfits.iter().map(each).collect();
    format!(
        "expected a law that explains every rung, got one that differs by more than 10 % at N = {}; measure \
         again, with more rounds (--ladder-rounds) or for longer (--duration)",
        named.join(", ")
    )
}

fn too_slow(target_us: Option<f64>, end: usize, lowest: Option<&(usize, f64)>) -> String {
    let lowest = lowest.map_or("nothing was measured there".to_string(), |(n, p99_us)| {
        format!("the lowest is {} at N = {n}", time(*p99_us))
    });
    let target = target_us.map_or(String::new(), |us| format!(" of at most {}", time(us)));
    format!("expected a rung with a p99{target} up to the end of the linear region, N = {end}; {lowest}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::usl::{Usl, synthetic};

    pub(in super::super) const LAW: Usl = Usl { lambda: 3000.0, sigma: 0.02, kappa: 0.0001 };

    /// Returns a ladder of a law. The p99 of a rung is three times its mean response time.
    pub(in super::super) fn ladder(law: Usl, last: usize) -> Ladder {
        let mut ladder = synthetic(last, |n| law.throughput(n));
        ladder.rungs.iter_mut().for_each(|rung| rung.response.p99_us = 3.0 * rung.response.mean_us);
        ladder
    }

    fn check(ladder: &Ladder, p99_us: Option<f64>, expected: Result<(usize, usize), &str>) {
        match (operating("x.json", ladder, 2, p99_us), expected) {
            (Ok(found), Ok(expected)) => assert_eq!((found.n, found.p99_n), expected, "{found:?}"),
            (Err(error), Err(text)) => {
                let error = error.to_string();
                assert!(error.contains(text) && error.starts_with("x.json: "), "{error}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn end_of_the_linear_region_is_the_default() {
        check(&ladder(LAW, 4096), None, Ok((12, 16)));
        // Throughput of a linear server ends with its last rung.
        check(&ladder(Usl { sigma: 0.0, kappa: 0.0, ..LAW }, 64), None, Ok((64, 64)));
    }

    #[test]
    fn target_of_response_times_lowers_the_concurrency() {
        // The mean response time is 1 ms × delay(N) ÷ 3: 0.37 ms at 8 and 0.44 ms at 16 in flight.
        let ladder = ladder(LAW, 4096);
        check(&ladder, Some(1400.0), Ok((12, 16)));
        check(&ladder, Some(1200.0), Ok((8, 8)));
        check(&ladder, Some(1040.0), Ok((2, 2)));
        check(
            &ladder,
            Some(900.0),
            Err("a p99 of at most 900 µs up to the end of the linear region, N = 12"),
        );
        check(&ladder, Some(900.0), Err("the lowest is 1.00 ms at N = 1"));
    }

    #[test]
    fn throughput_is_that_of_the_law_with_its_interval() {
        let found = operating("x.json", &ladder(LAW, 4096), 2, None).expect("a law");
        let Estimate { value, low, high } = found.throughput_per_s;
        assert!((value / LAW.throughput(12.0) - 1.0).abs() < 0.02, "{found:?}");
        assert!(low < value && value < high && high / low < 1.05, "{found:?}");
    }

    #[test]
    fn rung_of_a_superlinear_start_has_its_measured_throughput() {
        let start = |n: f64| if n < 16.0 { 0.5 + 0.5 * (n - 1.0) / 15.0 } else { 1.0 };
        let mut ladder = synthetic(4096, |n| LAW.throughput(n) * start(n));
        ladder.rungs.iter_mut().for_each(|rung| rung.response.p99_us = rung.n as f64 * 100.0);
        let found = operating("x.json", &ladder, 2, Some(800.0)).expect("a rung");
        let measured = LAW.throughput(8.0) * start(8.0);
        let Estimate { value, low, high } = found.throughput_per_s;
        assert!(found.n == 8 && low < value && value < high, "{found:?}");
        assert!((value / measured - 1.0).abs() < 0.011 && low > 0.97 * measured, "{found:?}");
    }

    #[test]
    fn ladder_without_advice_gives_no_plan() {
        let mut without = ladder(LAW, 4096);
        without.scaling = None;
        check(&without, None, Err("fewer than four"));
        let mut misfit = misfit();
        misfit.scaling.as_mut().expect("a law").measured_end = None;
        check(&misfit, None, Err("64 (-3"));
    }

    fn misfit() -> Ladder {
        synthetic(4096, |n| LAW.throughput(n) * if n == 64.0 { 0.6 } else { 1.0 })
    }

    #[test]
    fn ladder_that_the_law_does_not_explain_plans_with_a_measured_rung() {
        check(&misfit(), None, Ok((8, 8)));
        let found = operating("x.json", &misfit(), 2, None).expect("a rung");
        let Estimate { value, low, high } = found.throughput_per_s;
        assert!((value / LAW.throughput(8.0) - 1.0).abs() < 0.02, "{found:?}");
        assert!(low <= value && value <= high, "{found:?}");
    }
}
