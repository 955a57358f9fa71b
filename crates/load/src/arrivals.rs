//! Arrival times of an open loop: a Poisson process whose rate changes at each step.
//!
//! Gaps of a Poisson process are independent and exponential, and a sum of such processes is again
//! a Poisson process. So each of T threads draws its own arrivals at 1/T of the rate. The schedule
//! depends on the seed alone, never on the answers.

use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Exp1};

/// An interval of constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// Begin, nanoseconds since the run began.
    pub(crate) begin_ns: u64,
    /// End, nanoseconds since the run began.
    pub(crate) end_ns: u64,
    /// Arrivals a second. Zero for a pause.
    pub(crate) rate_per_s: f64,
}

/// Arrivals of one thread, in order.
#[derive(Debug)]
pub(crate) struct Arrivals {
    stretches: Vec<Stretch>,
    at: usize,
    /// Next arrival. Fractions are kept, since rounding would drift at high rates.
    next_ns: f64,
}

impl Arrivals {
    /// Returns the arrivals over these consecutive stretches.
    pub(crate) fn new(stretches: Vec<Stretch>, rng: &mut SmallRng) -> Arrivals {
        let begin = stretches.first().map_or(0.0, |first| first.begin_ns as f64);
        let mut arrivals = Arrivals { stretches, at: 0, next_ns: begin };
        arrivals.advance(rng);
        arrivals
    }

    /// Returns the time of the next arrival and its stretch. `None`: after the last.
    pub(crate) fn peek(&self) -> Option<(u64, usize)> {
        (self.at < self.stretches.len()).then_some((self.next_ns as u64, self.at))
    }

    /// Moves to the next arrival. The process has no memory, so that a gap across the end of a
    /// stretch is drawn anew from there, at the next rate.
    pub(crate) fn advance(&mut self, rng: &mut SmallRng) {
        while let Some(stretch) = self.stretches.get(self.at) {
            if stretch.rate_per_s > 0.0 {
                let unit: f64 = Exp1.sample(rng);
                self.next_ns += unit * 1e9 / stretch.rate_per_s;
                if self.next_ns < stretch.end_ns as f64 {
                    return;
                }
            }
            self.at += 1;
            self.next_ns = stretch.end_ns as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const SECOND: u64 = 1_000_000_000;

    fn all(stretches: &[Stretch], seed: u64) -> Vec<(u64, usize)> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut arrivals = Arrivals::new(stretches.to_vec(), &mut rng);
        let mut out = Vec::new();
        while let Some(next) = arrivals.peek() {
            out.push(next);
            arrivals.advance(&mut rng);
        }
        out
    }

    /// Accepts five standard deviations: the count of a Poisson process of mean m has deviation √m.
    fn check_count(count: usize, mean: f64) {
        assert!((count as f64 - mean).abs() < 5.0 * mean.sqrt(), "got {count} arrivals, expected {mean}");
    }

    #[test]
    fn counts_and_gaps_follow_the_rate_of_each_step() {
        let steps = [
            Stretch { begin_ns: 0, end_ns: 10 * SECOND, rate_per_s: 1000.0 },
            Stretch { begin_ns: 10 * SECOND, end_ns: 12 * SECOND, rate_per_s: 0.0 },
            Stretch { begin_ns: 12 * SECOND, end_ns: 14 * SECOND, rate_per_s: 20_000.0 },
        ];
        let arrivals = all(&steps, 7);
        for (index, step) in steps.iter().enumerate() {
            let inside: Vec<u64> = arrivals.iter().filter(|a| a.1 == index).map(|a| a.0).collect();
            let seconds = (step.end_ns - step.begin_ns) as f64 / 1e9;
            if step.rate_per_s == 0.0 {
                assert!(inside.is_empty());
                continue;
            }
            check_count(inside.len(), seconds * step.rate_per_s);
            assert!(inside.iter().all(|at| (step.begin_ns..step.end_ns).contains(at)));
            // Exponential gaps: the deviation equals the mean, and e⁻² of the gaps exceed twice the
            // mean.
            let gaps: Vec<f64> = inside.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let long = gaps.iter().filter(|gap| **gap > 2.0 * mean).count() as f64 / gaps.len() as f64;
            assert!((long - (-2.0f64).exp()).abs() < 0.02, "{long}");
        }
        assert!(arrivals.is_sorted());
    }

    #[test]
    fn equal_seeds_give_equal_arrivals() {
        let steps = [Stretch { begin_ns: 0, end_ns: SECOND, rate_per_s: 500.0 }];
        assert_eq!(all(&steps, 1), all(&steps, 1));
        assert_ne!(all(&steps, 1), all(&steps, 2));
    }

    #[test]
    fn zero_rate_gives_no_arrivals() {
        assert!(all(&[], 1).is_empty());
        assert!(all(&[Stretch { begin_ns: 0, end_ns: 9, rate_per_s: 0.0 }], 1).is_empty());
    }
}
