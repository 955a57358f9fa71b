//! The adaptive limit on operations in flight: finds the end of the linear region of a database.
//!
//! Throughput is a function X(N) of the operations in flight, N. It rises in proportion, then
//! flattens, and may fall. Its **elasticity** e = d ln X ÷ d ln N tells the regions apart: it is 1
//! while throughput is proportional, 0 at the peak, and negative beyond. By Little's law X = N ÷ R,
//! R the mean response time, so that e = 1 − d ln R ÷ d ln N: response times are sufficient.
//!
//! 1. Run with a limit below the centre, then with one above it, in turn.
//! 2. Take the mean response time of [`OPERATIONS_MIN`] operations or of twice the limit, whichever
//!    is more. The first operations after a change are not counted, nor are those that began while
//!    the limit was not reached. An unused limit therefore never changes.
//! 3. Compare the last three samples, the middle one with the mean of the others. So a steady drift
//!    of the database cancels out.
//! 4. Multiply the centre by exp([`GAIN`] · (e − [`TARGET`])).
//!
//! A comparison with earlier or least response times would be simpler. But a database that serves
//! several workloads by shares becomes slower when another one wakes, without being overloaded by
//! this one. The elasticity is that of the present.

use std::collections::VecDeque;

/// Elasticity to hold. In the Universal Scalability Law with contention only, throughput is e
/// times proportional. The linear region ends at 0.8. A little beyond it, a limit that is too low
/// is corrected faster.
const TARGET: f64 = 0.75;
/// Step towards the target. With e − [`TARGET`] = 0.25 the limit doubles in ten samples.
const GAIN: f64 = 0.3;
/// Difference from the target that is taken as a fault of the measurement.
const ERROR_MAX: f64 = 1.0;
/// Factor from the centre to the upper limit, and from the lower limit to the centre.
const SPREAD: f64 = 1.25;
/// Operations of a sample. With exponential response times the mean has an error of 4.4 %, and the
/// elasticity one of 0.12.
const OPERATIONS_MIN: usize = 512;
/// The first centre.
const START: f64 = 16.0;
/// A sample in which more than one in this number of operations fails is one of an overloaded
/// database, whatever its response times: refusals are quick.
const FAILURES_ONE_IN: usize = 100;

/// Mean response time at a limit, both as logarithms.
#[derive(Clone, Copy, Debug)]
struct Sample {
    limit: f64,
    response: f64,
}

/// The controller. It is pure: it takes response times and returns limits.
#[derive(Debug)]
pub(crate) struct Concurrency {
    max: usize,
    centre: f64,
    is_upper: bool,
    limit: usize,
    /// Operations that still count for no sample.
    skip: usize,
    ended: usize,
    failed: usize,
    response_us: f64,
    samples: VecDeque<Sample>,
}

impl Concurrency {
    /// Creates a controller of limits from 1 to `max`.
    pub(crate) fn new(max: usize) -> Concurrency {
        let mut created = Concurrency {
            max,
            centre: START.min(max as f64),
            is_upper: false,
            limit: 1,
            skip: 0,
            ended: 0,
            failed: 0,
            response_us: 0.0,
            samples: VecDeque::new(),
        };
        created.begin_sample();
        created
    }

    /// Returns the number of operations that may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Counts an operation that began at this limit while the limit was reached.
    pub(crate) fn ended(&mut self, response_us: u64, is_ok: bool) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.ended += 1;
        self.failed += usize::from(!is_ok);
        self.response_us += response_us as f64;
        if self.ended >= OPERATIONS_MIN.max(2 * self.limit) {
            self.end_sample();
            self.is_upper = !self.is_upper;
            self.begin_sample();
        }
    }

    fn begin_sample(&mut self) {
        self.centre = self.centre.clamp(1.0, self.max as f64);
        let upper = ((self.centre * SPREAD).round() as usize).max(2).min(self.max);
        let lower = ((self.centre / SPREAD).round() as usize).min(upper - 1).max(1);
        self.limit = if self.is_upper { upper } else { lower };
        (self.skip, self.ended, self.failed, self.response_us) = (self.limit, 0, 0, 0.0);
    }

    fn end_sample(&mut self) {
        if self.failed * FAILURES_ONE_IN > self.ended {
            self.centre /= 2.0;
            self.samples.clear();
            return;
        }
        let response = (self.response_us / self.ended as f64).max(1.0).ln();
        self.samples.push_back(Sample { limit: (self.limit as f64).ln(), response });
        if let [before, middle, after] = *self.samples.make_contiguous() {
            let rise = middle.response - (before.response + after.response) / 2.0;
            let run = middle.limit - (before.limit + after.limit) / 2.0;
            // No difference if the maximum is 1.
            let elasticity = if run == 0.0 { TARGET } else { 1.0 - rise / run };
            self.centre *= (GAIN * (elasticity - TARGET).clamp(-ERROR_MAX, ERROR_MAX)).exp();
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Response times by the Universal Scalability Law with random errors.
    struct Law {
        sigma: f64,
        kappa: f64,
        /// Factor of all response times.
        slowness: f64,
        random: testkit::Random,
    }

    impl Law {
        fn response_us(&mut self, n: f64) -> u64 {
            let mean = 1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0);
            (2000.0 * self.slowness * mean * -self.random.fraction().ln()) as u64
        }
    }

    /// Runs `samples` samples. Returns the mean of the centre over the last quarter.
    fn run(concurrency: &mut Concurrency, law: &mut Law, samples: usize) -> f64 {
        let mut ended = 0;
        let mut sum = 0.0;
        let mut count = 0;
        let mut was_upper = concurrency.is_upper;
        while ended < samples {
            let response_us = law.response_us(concurrency.limit() as f64);
            concurrency.ended(response_us, true);
            if concurrency.is_upper != was_upper {
                was_upper = concurrency.is_upper;
                ended += 1;
                if ended * 4 > samples * 3 {
                    sum += concurrency.centre;
                    count += 1;
                }
            }
        }
        sum / f64::from(count)
    }

    fn law(sigma: f64, kappa: f64, seed: u64) -> Law {
        Law { sigma, kappa, slowness: 1.0, random: testkit::Random::new(seed) }
    }

    #[test]
    fn limit_settles_at_the_end_of_the_linear_region() {
        for seed in 1..=16 {
            // Linear up to 12 and 100, the peak at 99 and 316.
            let centre = run(&mut Concurrency::new(4096), &mut law(0.02, 0.0001, seed), 400);
            assert!((8.0..=24.0).contains(&centre), "seed {seed}: {centre}");
            let centre = run(&mut Concurrency::new(4096), &mut law(0.002, 0.00001, seed), 400);
            assert!((60.0..=180.0).contains(&centre), "seed {seed}: {centre}");
        }
    }

    #[test]
    fn limit_leaves_the_retrograde_region() {
        let mut concurrency = Concurrency::new(4096);
        concurrency.centre = 2000.0;
        let centre = run(&mut concurrency, &mut law(0.02, 0.0001, 1), 100);
        assert!(centre < 40.0, "{centre}");
    }

    #[test]
    fn slower_database_does_not_lower_the_limit() {
        let mut concurrency = Concurrency::new(4096);
        let mut law = law(0.002, 0.00001, 3);
        let before = run(&mut concurrency, &mut law, 400);
        law.slowness = 10.0;
        let after = run(&mut concurrency, &mut law, 400);
        assert!((before / after - 1.0).abs() < 0.5, "{before} {after}");
    }

    #[test]
    fn database_without_contention_is_used_up_to_the_maximum() {
        for max in [1, 2, 64, 1000] {
            let mut concurrency = Concurrency::new(max);
            let centre = run(&mut concurrency, &mut law(0.0, 0.0, 5), 200);
            assert!(centre > 0.8 * max as f64 && concurrency.limit() <= max, "{max}: {centre}");
        }
    }

    #[test]
    fn quick_failures_lower_the_limit() {
        let mut concurrency = Concurrency::new(1000);
        concurrency.centre = 500.0;
        for _ in 0..20_000 {
            concurrency.ended(1, false);
        }
        assert_eq!(concurrency.centre, 1.0);
    }
}
