//! The Universal Scalability Law: throughput X with N requests in flight,
//!
//! ```text
//!              λ·N
//! X(N) = ────────────────────────      N* = √((1−σ) ÷ κ)      X* = X(N*)
//!        1 + σ·(N−1) + κ·N·(N−1)
//! ```
//!
//! λ is the throughput of one request in flight. σ is the serial part (contention), κ the cost of
//! coordination (coherence). With κ > 0 there is a peak at N*, beyond which throughput falls. The
//! thresholds of the regions are our own, since the law has none.

use serde::{Deserialize, Serialize};

/// Least part of λ·N that counts as linear.
pub(super) const LINEAR_PART: f64 = 0.8;
/// Least part of the peak that counts as saturated.
const SATURATED_PART: f64 = 0.95;

/// A law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Answers a second with one request in flight.
    pub lambda: f64,
    /// Contention, 0 to 1.
    pub sigma: f64,
    /// Coherence, 0 or more.
    pub kappa: f64,
}

impl Usl {
    /// Returns the answers a second with `n` requests in flight.
    pub fn throughput(&self, n: f64) -> f64 {
        self.lambda * n / self.delay(n)
    }

    /// Returns the response time with `n` requests in flight, as a multiple of that with one.
    fn delay(&self, n: f64) -> f64 {
        1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0)
    }

    /// Returns N*, the number of requests in flight with the highest throughput, at least 1.
    /// `None`: throughput never falls.
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }

    /// Returns the end of the linear region: the largest N with X ≥ 0.8·λ·N, at least 1. Infinite
    /// for σ = κ = 0. After a superlinear start, `from` is the first N that follows the law, and
    /// X(`from`) ÷ `from` takes the place of λ.
    pub fn linear_end(&self, from: f64) -> f64 {
        // delay(N) ≤ delay(from) ÷ 0.8, that is κ·N² + (σ − κ)·N + 1 − σ − that ≤ 0.
        let bound = self.delay(from) / LINEAR_PART;
        let (_, end) = roots(self.kappa, self.sigma - self.kappa, 1.0 - self.sigma - bound);
        end.max(1.0)
    }

    /// Returns the ends of the saturated region, where X ≥ 0.95·X*. Without a peak it begins at
    /// 0.95·λ/σ and is endless.
    pub fn saturated(&self) -> (f64, f64) {
        let highest = match self.peak() {
            Some(peak) => self.throughput(peak),
            None => self.lambda / self.sigma,
        };
        if !highest.is_finite() {
            return (f64::INFINITY, f64::INFINITY);
        }
        self.at_least(SATURATED_PART * highest).unwrap_or((f64::INFINITY, f64::INFINITY))
    }

    /// Returns the N of 1 or more between which throughput is at least `throughput_per_s`. The end
    /// is infinite if throughput never falls. `None`: it is lower for every N.
    pub fn at_least(&self, throughput_per_s: f64) -> Option<(f64, f64)> {
        // λ·N ≥ t·delay(N), that is t·κ·N² + (t·(σ − κ) − λ)·N + t·(1 − σ) ≤ 0.
        let t = throughput_per_s;
        let linear = t * (self.sigma - self.kappa) - self.lambda;
        if self.kappa <= 0.0 && linear >= 0.0 {
            // With σ = 1 throughput is λ for every N.
            return (t <= self.lambda).then_some((1.0, f64::INFINITY));
        }
        let (begin, end) = roots(t * self.kappa, linear, t * (1.0 - self.sigma));
        let end = if self.kappa > 0.0 { end } else { f64::INFINITY };
        (begin.is_finite() && end >= 1.0).then_some((begin.max(1.0), end))
    }
}

/// Returns the roots of a·x² + b·x + c, the smaller first, for a ≥ 0. With a = 0 both are the only
/// root. Infinite without a root.
fn roots(a: f64, b: f64, c: f64) -> (f64, f64) {
    if a <= 0.0 {
        let root = if b == 0.0 { f64::INFINITY } else { -c / b };
        return (root, root);
    }
    let discriminant = b * b - 4.0 * a * c;
    if discriminant < 0.0 {
        return (f64::INFINITY, f64::INFINITY);
    }
    // Adding numbers of equal sign loses no digits. The other root is c ÷ (a·root).
    let sum = -0.5 * (b + discriminant.sqrt().copysign(b));
    let one = sum / a;
    let other = if sum == 0.0 { 0.0 } else { c / sum };
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Usl = Usl { lambda: 3000.0, sigma: 0.02, kappa: 0.0001 };

    #[test]
    fn peak_is_the_maximum() {
        let peak = LAW.peak().expect("throughput falls");
        assert_eq!(peak.floor(), 98.0);
        assert!(LAW.throughput(peak) > LAW.throughput(peak - 5.0).max(LAW.throughput(peak + 5.0)));
        assert!((LAW.throughput(peak) / 75_600.0 - 1.0).abs() < 0.001);
        assert_eq!(Usl { kappa: 0.0, ..LAW }.peak(), None);
        assert_eq!(Usl { sigma: 1.0, ..LAW }.peak(), Some(1.0));
    }

    #[test]
    fn regions_begin_where_throughput_passes_the_thresholds() {
        assert_eq!(LAW.linear_end(1.0).floor(), 12.0);
        let (begin, end) = LAW.saturated();
        assert_eq!((begin.ceil(), end.floor() + 1.0), (63.0, 157.0));
        let highest = LAW.throughput(LAW.peak().expect("throughput falls"));
        for bound in [begin, end] {
            assert!((LAW.throughput(bound) / highest - 0.95).abs() < 1e-9);
        }
        let end = LAW.linear_end(1.0);
        assert!((LAW.throughput(end) / (LAW.lambda * end) - 0.8).abs() < 1e-9);
        let end = LAW.linear_end(8.0);
        assert!((LAW.throughput(end) / end / (LAW.throughput(8.0) / 8.0) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn throughput_is_reached_between_two_concurrencies() {
        let highest = LAW.throughput(LAW.peak().expect("throughput falls"));
        let (begin, end) = LAW.at_least(0.5 * highest).expect("half of the peak");
        for bound in [begin, end] {
            assert!((LAW.throughput(bound) / highest - 0.5).abs() < 1e-9);
        }
        assert_eq!(LAW.at_least(1.01 * highest), None);
        assert_eq!(LAW.at_least(0.5 * LAW.lambda).map(|(begin, _)| begin), Some(1.0));
        let amdahl = Usl { kappa: 0.0, ..LAW };
        assert_eq!(amdahl.at_least(amdahl.lambda / amdahl.sigma), None);
        assert!(amdahl.at_least(100_000.0).is_some_and(|(begin, end)| begin > 33.0 && end == f64::INFINITY));
        let ideal = Usl { sigma: 0.0, ..amdahl };
        assert_eq!(ideal.at_least(30_000.0), Some((10.0, f64::INFINITY)));
        let serial = Usl { sigma: 1.0, kappa: 0.0, ..LAW };
        assert_eq!((serial.at_least(3000.0), serial.at_least(3001.0)), (Some((1.0, f64::INFINITY)), None));
    }

    #[test]
    fn regions_without_a_peak_are_endless() {
        let amdahl = Usl { kappa: 0.0, ..LAW };
        assert!((amdahl.linear_end(1.0) - 13.5).abs() < 1e-9);
        let (begin, end) = amdahl.saturated();
        assert!((amdahl.throughput(begin) / (0.95 * amdahl.lambda / amdahl.sigma) - 1.0).abs() < 1e-9);
        assert_eq!(end, f64::INFINITY);
        let ideal = Usl { sigma: 0.0, ..amdahl };
        assert_eq!((ideal.linear_end(1.0), ideal.saturated().0), (f64::INFINITY, f64::INFINITY));
        let serial = Usl { sigma: 1.0, ..LAW };
        assert!(serial.linear_end(1.0) < 1.26 && serial.saturated().0 == 1.0);
    }
}
