//! Confidence intervals by residual bootstrap.
//!
//! 1. The residual of a point is log(X ÷ fitted X). A fit of three parameters makes residuals too
//!    small, so that they are stretched by √(n ÷ (n−3)).
//! 2. Draw residuals with replacement onto the fitted curve, and fit again, [`DRAWS`] times.
//! 3. The interval of a quantity is from its 2.5th to its 97.5th percentile over those fits.
//!
//! Drawing points instead would lose rungs, and drawing within a rung underestimates the noise.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::fit::{Point, fit_within};
use super::law::Usl;

/// Number of fits. At 1,000 the percentiles are the 25th value from each end.
const DRAWS: usize = 1000;

/// A quantity with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Value of the fitted law.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Returns true if the interval contains `value`.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns this estimate with no number above `bound`.
    pub(super) fn at_most(self, bound: f64) -> Estimate {
        Estimate { value: self.value.min(bound), low: self.low.min(bound), high: self.high.min(bound) }
    }
}

/// Laws fitted to redrawn measurements.
pub(super) struct Laws {
    fitted: Usl,
    drawn: Vec<Usl>,
}

/// Fits [`DRAWS`] laws to redrawn measurements. `points` are positive, and `law` is their fit.
pub(super) fn draw(points: &[Point], law: Usl, seed: u64) -> Laws {
    let count = points.len() as f64;
    let stretch = (count / (count - 3.0).max(1.0)).sqrt();
    let factor = |point: &Point| (point.throughput_per_s / law.throughput(point.n)).powf(stretch);
    let factors: Vec<f64> = points.iter().map(factor).collect();
    let curve: Vec<(f64, f64)> = points.iter().map(|point| (point.n, law.throughput(point.n))).collect();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut again = |_| {
        let drawn = curve.iter().map(|(n, x)| (*n, x * factors[rng.random_range(0..factors.len())]));
        fit_within(drawn)
    };
    let drawn = (0..DRAWS).filter_map(&mut again).collect();
    Laws { fitted: law, drawn }
}

impl Laws {
    /// Returns a quantity of the law with its interval.
    pub(super) fn estimate(&self, quantity: impl Fn(&Usl) -> f64) -> Estimate {
        let value = quantity(&self.fitted);
        let mut drawn: Vec<f64> = self.drawn.iter().map(&quantity).collect();
        drawn.sort_by(f64::total_cmp);
        let cut = drawn.len() / 40;
        match drawn.get(cut..drawn.len() - cut) {
            Some([low, .., high]) => Estimate { value, low: *low, high: *high },
            _ => Estimate { value, low: value, high: value },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usl::fit;
    use rand_distr::{Distribution as _, StandardNormal};

    const LAWS: usize = 200;
    const NOISE: f64 = 0.05;
    /// The 13 rungs of the default ladder, three rounds.
    const RUNGS: u32 = 13;
    const ROUNDS: usize = 3;

    type Quantity = fn(&Usl) -> f64;

    /// Returns a law: each parameter is uniform in its logarithm.
    fn law(rng: &mut SmallRng) -> Usl {
        let mut between = |low: f64, high: f64| low * (high / low).powf(rng.random::<f64>());
        Usl { lambda: between(1e3, 1e5), sigma: between(1e-3, 0.2), kappa: between(1e-6, 1e-3) }
    }

    fn noisy(law: &Usl, rungs: u32, rng: &mut SmallRng) -> Vec<Point> {
        let mut out = Vec::new();
        for n in (0..rungs).map(|exponent| f64::from(1 << exponent)) {
            for _ in 0..ROUNDS {
                let noise: f64 = StandardNormal.sample(rng);
                out.push(Point { n, throughput_per_s: law.throughput(n) * (NOISE * noise).exp() });
            }
        }
        out
    }

    #[test]
    fn intervals_contain_the_truth_in_90_to_98_percent() {
        let quantities: [(&str, Quantity); 8] = [
            ("λ", |law| law.lambda),
            ("σ", |law| law.sigma),
            ("κ", |law| law.kappa),
            ("N*", |law| law.peak().unwrap_or(f64::INFINITY)),
            ("X*", |law| law.peak().map_or(f64::INFINITY, |peak| law.throughput(peak))),
            ("end of the linear region", |law| law.linear_end(1.0)),
            ("begin of the saturated region", |law| law.saturated().0),
            ("begin of the retrograde region", |law| law.saturated().1),
        ];
        let mut rng = SmallRng::seed_from_u64(1);
        let mut held = [0usize; 8];
        for seed in 0..LAWS {
            let truth = law(&mut rng);
            let points = noisy(&truth, RUNGS, &mut rng);
            let laws = draw(&points, fit(&points).expect("thirteen different N"), seed as u64);
            for ((_, quantity), held) in quantities.iter().zip(&mut held) {
                *held += usize::from(laws.estimate(quantity).contains(quantity(&truth)));
            }
        }
        for ((name, _), held) in quantities.iter().zip(held) {
            let part = held as f64 / LAWS as f64;
            assert!((0.90..=0.98).contains(&part), "{name}: {held} of {LAWS}, all {held:?}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_intervals() {
        let truth = Usl { lambda: 1000.0, sigma: 0.02, kappa: 1e-5 };
        let points = noisy(&truth, RUNGS, &mut SmallRng::seed_from_u64(3));
        let fitted = fit(&points).expect("a law");
        let interval = |seed| draw(&points, fitted, seed).estimate(|law| law.kappa);
        assert_eq!(interval(1), interval(1));
        assert_ne!(interval(1), interval(2));
    }
}
