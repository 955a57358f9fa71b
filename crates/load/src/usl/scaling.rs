//! Conclusions from the rungs: the law with its intervals, and what it does not explain.
//!
//! 1. Leave out invalid rungs. At least four different N remain, or there is no law.
//! 2. Find a superlinear start: answering requests of a deep queue together is cheaper, so that
//!    X ÷ N rises at first, as if σ were negative. The law begins after it.
//! 3. Fit the law over all rounds, and draw intervals.
//! 4. Name the rungs that differ from it by more than 10 %. The advice is then a measured rung.
//! 5. Return a peak only if the interval of κ is above 0 and N* was passed. A peak beyond the last
//!    rung would be extrapolated.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::confidence::{Estimate, Laws, draw};
use super::fit::{Point, fit};
use super::law::{LINEAR_PART, Usl};
use super::rung::Rung;

/// Least growth of X ÷ N that counts as a superlinear start. The mean of three rounds with 5 %
/// noise varies by 3 %, so that the largest of several rungs rarely exceeds the first by 15 %.
const SUPERLINEAR: f64 = 1.15;
/// X ÷ N at which a superlinear start has ended, as a part of the highest.
const SUPERLINEAR_END: f64 = 0.95;
/// Largest mean residual of a rung that the law explains.
const MISFIT: f64 = 0.10;

/// The fitted law with the intervals of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedLaw {
    /// The law.
    pub law: Usl,
    /// Interval of λ, answers a second.
    pub lambda: Estimate,
    /// Interval of σ.
    pub sigma: Estimate,
    /// Interval of κ.
    pub kappa: Estimate,
}

/// The fitted law and its consequences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The fitted law.
    #[serde(flatten)]
    pub fitted: FittedLaw,
    /// Smallest N that was fitted.
    pub from_n: usize,
    /// Largest N that was fitted.
    pub up_to_n: usize,
    /// Valid rungs below `from_n`: the superlinear start.
    pub superlinear: Vec<usize>,
    /// Rungs that the law does not explain. If there are any, the advice is `measured_end`.
    pub misfits: Vec<Misfit>,
    /// Largest of the first rungs from `from_n` on whose measured X ÷ N is at least 0.8 times that
    /// at `from_n`: the end of the linear region without a law.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_end: Option<usize>,
    /// Largest N of the linear region, at most `up_to_n`.
    pub linear_end: Estimate,
    /// Throughput by the law at each fitted N.
    pub curve: Vec<(usize, Estimate)>,
    /// The peak, and the regions around it. `None`: no retreat was seen up to `up_to_n`.
    pub peak: Option<Peak>,
    /// Without a peak: first N of the saturated region, where X ≥ 0.95·λ/σ, or 0.95·X* of a peak
    /// beyond `up_to_n`. `None`: it is beyond `up_to_n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturated_from: Option<Estimate>,
    /// Measured X ÷ N at `from_n` after a superlinear start, answers a second: what one request in
    /// flight achieves in a deep queue. `None`: there is no such start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_per_s: Option<f64>,
}

/// A rung whose throughput differs from the law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Misfit {
    /// Requests in flight.
    pub n: usize,
    /// Measured throughput ÷ that of the law − 1, mean over the rounds.
    pub residual: f64,
}

/// Peak of a law with κ > 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// N*, the concurrency with the highest throughput.
    pub n: Estimate,
    /// X*, the throughput there, answers a second.
    pub throughput_per_s: Estimate,
    /// First N of the saturated region, where X ≥ 0.95·X*.
    pub saturated_from: Estimate,
    /// First N of the retrograde region, beyond N* with X < 0.95·X*. May be beyond the last rung.
    pub retrograde_from: Estimate,
}

impl Scaling {
    /// Returns the conclusions. `None`: the valid rungs do not determine a law.
    pub(super) fn of(rungs: &[Rung], seed: u64) -> Option<Scaling> {
        let valid: Vec<&Rung> = rungs.iter().filter(|rung| rung.is_valid()).collect();
        let from_n = first_after_superlinear(&means(&valid))?;
        let superlinear: Vec<usize> =
            means(&valid).into_iter().map(|(n, _)| n).filter(|n| *n < from_n).collect();
        let points = points(rungs, from_n);
        let law = fit(&points)?;
        let laws = draw(&points, law, seed);
        let up_to_n = valid.iter().map(|rung| rung.n).max()?;
        let kappa = laws.estimate(|law| law.kappa);
        let peak =
            (kappa.low > 0.0).then(|| peak(&laws)).flatten().filter(|peak| peak.n.value <= up_to_n as f64);
        let saturated = laws.estimate(|law| law.saturated().0);
        let each = |(n, x): (usize, f64)| x / n as f64;
        let each_per_s = means(&valid).into_iter().find(|mean| mean.0 == from_n).map(each);
        let at = |n: usize| (n, laws.estimate(|law| law.throughput(n as f64)));
        Some(Scaling {
            fitted: FittedLaw {
                law,
                lambda: laws.estimate(|law| law.lambda),
                sigma: laws.estimate(|law| law.sigma),
                kappa,
            },
            from_n,
            up_to_n,
            each_per_s: each_per_s.filter(|_| !superlinear.is_empty()),
            superlinear,
            misfits: misfits(&valid, from_n, &law),
            measured_end: measured_end(&valid, from_n),
            linear_end: laws.estimate(|law| law.linear_end(from_n as f64)).at_most(up_to_n as f64),
            curve: means(&valid).into_iter().map(|(n, _)| n).filter(|n| *n >= from_n).map(at).collect(),
            saturated_from: Some(saturated)
                .filter(|found| peak.is_none() && found.value < up_to_n as f64)
                .map(|found| found.at_most(up_to_n as f64)),
            peak,
        })
    }

    /// Returns the throughput with `n` requests in flight by the law that these rungs determine,
    /// with its interval. `rungs` and `seed` are those of the ladder, so that the law is that of
    /// [`Scaling::of`]. `None`: they determine no law.
    pub(crate) fn throughput_at(&self, rungs: &[Rung], seed: u64, n: f64) -> Option<Estimate> {
        let points = points(rungs, self.from_n);
        let law = fit(&points)?;
        Some(draw(&points, law, seed).estimate(|law| law.throughput(n)))
    }

    /// Returns the concurrency to stay at: by the law, or a measured rung if the law does not
    /// explain all rungs. `None`: no rung says so either.
    pub fn advice(&self) -> Option<usize> {
        if self.is_explained() { Some(self.linear_end.value as usize) } else { self.measured_end }
    }

    /// Returns true if the law explains all rungs.
    pub fn is_explained(&self) -> bool {
        self.misfits.is_empty()
    }

    /// Returns the regions within the rungs: name, begin and end.
    pub fn regions(&self) -> Vec<(&'static str, f64, f64)> {
        let first = 1.0;
        let last = self.up_to_n as f64;
        let linear = self.linear_end.value;
        let bounds = match &self.peak {
            None => {
                let saturated = self.saturated_from.map_or(last, |found| found.value);
                vec![
                    ("linear", first, linear),
                    ("transition", linear, saturated),
                    ("saturated", saturated.max(linear), last),
                ]
            }
            Some(peak) => {
                let saturated = peak.saturated_from.value;
                let retrograde = peak.retrograde_from.value;
                vec![
                    ("linear", first, linear),
                    ("transition", linear, saturated),
                    ("saturated", saturated.max(linear), retrograde),
                    ("retrograde", retrograde, last),
                ]
            }
        };
        let within = |(name, begin, end): (&'static str, f64, f64)| (name, begin.max(first), end.min(last));
        bounds.into_iter().map(within).filter(|(_, begin, end)| begin < end).collect()
    }
}

/// Returns the valid rungs from `from_n` on.
fn points(rungs: &[Rung], from_n: usize) -> Vec<Point> {
    let fitted = rungs.iter().filter(|rung| rung.is_valid() && rung.n >= from_n);
    fitted.map(|rung| Point { n: rung.n as f64, throughput_per_s: rung.throughput_per_s }).collect()
}

fn peak(laws: &Laws) -> Option<Peak> {
    // With the interval of κ above 0, the percentiles of these are finite.
    let at = |law: &Usl| law.peak().unwrap_or(f64::INFINITY);
    let highest = |law: &Usl| law.peak().map_or(f64::INFINITY, |peak| law.throughput(peak));
    let found = Peak {
        n: laws.estimate(at),
        throughput_per_s: laws.estimate(highest),
        saturated_from: laws.estimate(|law| law.saturated().0),
        retrograde_from: laws.estimate(|law| law.saturated().1),
    };
    [found.n, found.throughput_per_s, found.retrograde_from]
        .iter()
        .all(|e| e.high.is_finite())
        .then_some(found)
}

/// Returns the mean throughput of each N, ascending.
pub(super) fn means(valid: &[&Rung]) -> Vec<(usize, f64)> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for rung in valid {
        let (sum, count) = sums.entry(rung.n).or_default();
        *sum += rung.throughput_per_s;
        *count += 1.0;
    }
    sums.into_iter().map(|(n, (sum, count))| (n, sum / count)).collect()
}

/// Returns the first N after a superlinear start, or the first of all.
fn first_after_superlinear(means: &[(usize, f64)]) -> Option<usize> {
    let each = |(n, x): &(usize, f64)| x / *n as f64;
    let highest = means.iter().map(each).fold(0.0, f64::max);
    let first = means.first()?;
    if highest < SUPERLINEAR * each(first) {
        return Some(first.0);
    }
    means.iter().find(|mean| each(mean) >= SUPERLINEAR_END * highest).map(|mean| mean.0)
}

/// Returns [`Scaling::measured_end`].
fn measured_end(valid: &[&Rung], from_n: usize) -> Option<usize> {
    let each = |(n, x): (usize, f64)| (n, x / n as f64);
    let mut rungs = means(valid).into_iter().filter(|(n, _)| *n >= from_n).map(each).peekable();
    let least = LINEAR_PART * rungs.peek()?.1;
    rungs.take_while(|(_, each)| *each >= least).last().map(|(n, _)| n)
}

fn misfits(valid: &[&Rung], from_n: usize, law: &Usl) -> Vec<Misfit> {
    let residual = |(n, x): (usize, f64)| Misfit { n, residual: x / law.throughput(n as f64) - 1.0 };
    let fitted = means(valid).into_iter().filter(|(n, _)| *n >= from_n).map(residual);
    fitted.filter(|misfit| misfit.residual.abs() > MISFIT).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rung::tests::rung;
    use super::*;

    const LAW: Usl = Usl { lambda: 3000.0, sigma: 0.02, kappa: 0.0001 };

    /// Returns rungs 1, 2, 4 … `last` in three rounds, 2 % above, at and below `throughput`.
    fn rungs(last: usize, throughput: impl Fn(f64) -> f64) -> Vec<Rung> {
        let mut out = Vec::new();
        for round in 1..=3 {
            for (index, n) in (0..).map(|exponent| 1usize << exponent).take_while(|n| *n <= last).enumerate()
            {
                let noise = 0.02 * ((round + index) % 3) as f64 - 0.02;
                out.push(rung(round, n, throughput(n as f64) * (1.0 + noise)));
            }
        }
        out
    }

    fn scaling(rungs: &[Rung]) -> Scaling {
        Scaling::of(rungs, 1).expect("a law")
    }

    #[test]
    fn known_law_gives_its_regions() {
        let found = scaling(&rungs(4096, |n| LAW.throughput(n)));
        assert!(
            found.curve.iter().all(|(n, estimate)| estimate.contains(found.fitted.law.throughput(*n as f64)))
        );
        assert_eq!(found.curve.len(), 13);
        let peak = found.peak.expect("κ is above 0");
        assert!(peak.n.contains(99.0) && peak.throughput_per_s.contains(75_600.0), "{peak:?}");
        assert!(peak.saturated_from.contains(62.5) && peak.retrograde_from.contains(156.5), "{peak:?}");
        assert!(found.linear_end.contains(12.5) && found.misfits.is_empty(), "{found:?}");
        let names: Vec<&str> = found.regions().iter().map(|region| region.0).collect();
        assert_eq!(names, ["linear", "transition", "saturated", "retrograde"]);
        assert!(found.regions().windows(2).all(|pair| pair[0].2 == pair[1].1));
        assert!((11..=14).contains(&found.advice().expect("no misfit")));
    }

    #[test]
    fn law_without_coherence_has_no_peak() {
        let found = scaling(&rungs(4096, |n| Usl { kappa: 0.0, ..LAW }.throughput(n)));
        assert_eq!(found.peak, None);
        let names: Vec<&str> = found.regions().iter().map(|region| region.0).collect();
        assert_eq!(names, ["linear", "transition", "saturated"]);
        // 0.95·λ/σ is 142,500/s.
        assert!(found.saturated_from.is_some_and(|from| from.contains(931.0)), "{found:?}");
        let short = scaling(&rungs(256, |n| Usl { kappa: 0.0, ..LAW }.throughput(n)));
        assert_eq!((short.saturated_from, short.regions().len()), (None, 2));
    }

    #[test]
    fn peak_beyond_the_last_rung_is_not_returned() {
        let law = Usl { sigma: 0.001, kappa: 1e-5, ..LAW };
        let found = scaling(&rungs(256, |n| law.throughput(n)));
        assert!(law.peak().is_some_and(|peak| peak > 300.0));
        assert_eq!((found.peak, found.up_to_n), (None, 256));
        let passed = scaling(&rungs(4096, |n| law.throughput(n)));
        assert!(passed.peak.is_some_and(|peak| peak.n.contains(316.0)), "{passed:?}");
    }

    #[test]
    fn linear_server_is_linear_up_to_the_last_rung() {
        let found = scaling(&rungs(64, |n| 1000.0 * n));
        assert_eq!((found.linear_end.value, found.advice()), (64.0, Some(64)));
        assert_eq!(found.regions(), [("linear", 1.0, 64.0)]);
        serde_json::to_string(&found).map(|text| assert!(!text.contains("null,"), "{text}")).expect("JSON");
    }

    #[test]
    fn forged_numbers_in_an_invalid_rung_change_nothing() {
        let mut given = rungs(1024, |n| LAW.throughput(n));
        let invalid = |throughput_per_s: f64, n: usize| {
            let mut forged = rung(2, n, throughput_per_s);
            forged.invalid = vec!["the generator used 95 % of its core".into()];
            forged
        };
        let honest = scaling(&given);
        given.extend([invalid(1.0, 16), invalid(1e9, 512), invalid(1e9, 8192)]);
        assert_eq!(scaling(&given), honest);
    }

    #[test]
    fn too_few_valid_rungs_determine_no_law() {
        let mut given = rungs(8, |n| LAW.throughput(n));
        assert!(Scaling::of(&given, 1).is_some());
        given.iter_mut().filter(|rung| rung.n == 8).for_each(|rung| rung.invalid.push("stopped".into()));
        assert_eq!(Scaling::of(&given, 1), None);
        assert_eq!(Scaling::of(&[], 1), None);
    }

    #[test]
    fn superlinear_start_is_left_out_and_named() {
        // In deep queues a request costs half.
        let start = |n: f64| if n < 16.0 { 0.5 + 0.5 * (n - 1.0) / 15.0 } else { 1.0 };
        let found = scaling(&rungs(4096, |n| LAW.throughput(n) * start(n)));
        assert_eq!((found.from_n, &found.superlinear[..]), (16, &[1, 2, 4, 8][..]));
        let each = LAW.throughput(16.0) / 16.0;
        assert!(found.each_per_s.is_some_and(|x| (x / each - 1.0).abs() < 0.03), "{found:?}");
        assert!(
            found.misfits.is_empty() && found.peak.is_some_and(|peak| peak.n.contains(99.0)),
            "{found:?}"
        );
        assert!(found.linear_end.value > 16.0, "{found:?}");
    }

    #[test]
    fn rung_that_the_law_does_not_explain_is_named() {
        let found = scaling(&rungs(4096, |n| LAW.throughput(n) * if n == 64.0 { 0.6 } else { 1.0 }));
        assert!(found.misfits.iter().any(|misfit| misfit.n == 64 && misfit.residual < -0.2), "{found:?}");
        assert!(!found.is_explained());
        // By the law, X ÷ N falls below 0.8 times the first at 12.
        assert_eq!((found.advice(), found.measured_end), (Some(8), Some(8)));
    }
}
