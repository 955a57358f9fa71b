//! Keys of a load: random numbers of the population or a slice of it, encoded as eight big-endian
//! bytes.

use std::ops::Range;

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, StandardNormal, Zipf};
use serde::{Deserialize, Serialize};

use crate::LoadError;

/// Default skew of YCSB.
const ZIPFIAN_THETA: f64 = 0.99;

/// Distribution of keys over the population.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Equal probability for each key.
    Uniform,
    /// Normal around the middle, with the ends three deviations away, as in cassandra-stress.
    Gaussian,
    /// Rank k with probability ∝ 1 ⁄ k^theta. The first keys are the hot ones.
    Zipfian(
        /// The skew, above 0.
        f64,
    ),
    /// All keys in order, again and again.
    Sequential,
}

impl Distribution {
    /// Parses `uniform`, `gaussian`, `zipfian`, `zipfian:1.2` or `sequential`.
    ///
    /// # Errors
    /// [`LoadError::Usage`].
    pub fn parse(text: &str) -> Result<Distribution, LoadError> {
        let usage = || {
            LoadError::Usage(format!(
                "expected uniform, gaussian, zipfian, zipfian:THETA or sequential, got `{text}`"
            ))
        };
        match text.split_once(':') {
            None => match text {
                "uniform" => Ok(Distribution::Uniform),
                "gaussian" => Ok(Distribution::Gaussian),
                "zipfian" => Ok(Distribution::Zipfian(ZIPFIAN_THETA)),
                "sequential" => Ok(Distribution::Sequential),
                _ => Err(usage()),
            },
            Some(("zipfian", theta)) => match theta.parse::<f64>() {
                Ok(theta) if theta > 0.0 && theta.is_finite() => Ok(Distribution::Zipfian(theta)),
                _ => Err(usage()),
            },
            Some(_) => Err(usage()),
        }
    }
}

/// Draws keys for one thread.
#[derive(Debug)]
pub(crate) struct KeySource {
    begin: u64,
    count: u64,
    draw: Draw,
}

/// A worker's share of numbers that the workers take in turn: `first`, then every `step`-th.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    pub(crate) first: u64,
    pub(crate) step: u64,
}

#[derive(Debug)]
enum Draw {
    Uniform,
    Gaussian,
    Zipfian(Zipf<f64>),
    Sequential { next: u64, step: u64 },
}

/// Returns slice `index` of `of` (from 1) of `0..population`.
pub(crate) fn slice(population: u64, index: u64, of: u64) -> Range<u64> {
    let edge = |i: u64| (u128::from(population) * u128::from(i) / u128::from(of)) as u64;
    edge(index - 1)..edge(index)
}

impl KeySource {
    /// Returns a source of keys of a range that is not empty. `stride` is for sequential keys.
    pub(crate) fn new(distribution: Distribution, range: Range<u64>, stride: Stride) -> KeySource {
        let count = range.end.saturating_sub(range.start).max(1);
        let draw = match distribution {
            Distribution::Uniform => Draw::Uniform,
            Distribution::Gaussian => Draw::Gaussian,
            Distribution::Zipfian(theta) => match Zipf::new(count as f64, theta) {
                Ok(zipf) => Draw::Zipfian(zipf),
                // Unreachable: count is at least 1, and `Distribution::parse` checks theta.
                Err(_) => Draw::Uniform,
            },
            Distribution::Sequential => Draw::Sequential { next: stride.first, step: stride.step },
        };
        KeySource { begin: range.start, count, draw }
    }

    /// Returns the next key.
    pub(crate) fn next(&mut self, rng: &mut SmallRng) -> u64 {
        let last = self.count - 1;
        let offset = match &mut self.draw {
            Draw::Uniform => rng.random_range(0..self.count),
            Draw::Gaussian => loop {
                let deviations: f64 = StandardNormal.sample(rng);
                // 0.3 % fall outside three deviations and are drawn again.
                if deviations.abs() < 3.0 {
                    let share = (deviations + 3.0) / 6.0;
                    break ((share * self.count as f64) as u64).min(last);
                }
            },
            Draw::Zipfian(zipf) => (zipf.sample(rng) as u64).saturating_sub(1).min(last),
            Draw::Sequential { next, step } => {
                let offset = *next % self.count;
                *next = next.wrapping_add(*step);
                offset
            }
        };
        self.begin + offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn draw(distribution: &str, range: Range<u64>, count: usize) -> Vec<u64> {
        let distribution = Distribution::parse(distribution).expect("a known distribution");
        let mut source = KeySource::new(distribution, range.clone(), Stride { first: 0, step: 1 });
        let mut rng = SmallRng::seed_from_u64(42);
        let keys: Vec<u64> = (0..count).map(|_| source.next(&mut rng)).collect();
        assert!(keys.iter().all(|key| range.contains(key)), "a key outside its range");
        keys
    }

    /// Returns the share of keys below `below`.
    fn share(keys: &[u64], below: u64) -> f64 {
        keys.iter().filter(|key| **key < below).count() as f64 / keys.len() as f64
    }

    fn check(distribution: &str, below: u64, expected: f64) {
        let keys = draw(distribution, 0..1000, 50_000);
        let share = share(&keys, below);
        assert!((share - expected).abs() < 0.012, "{distribution}: {share} of the keys below {below}");
    }

    #[test]
    fn distributions_match_their_probabilities() {
        check("uniform", 100, 0.1);
        check("uniform", 500, 0.5);
        // One deviation below the middle of a normal distribution cut at three deviations:
        // half of 0.6827 ⁄ 0.9973.
        check("gaussian", 500, 0.5);
        check("gaussian", 333, 0.5 - 0.3423);
        // Harmonic sums H(1) ⁄ H(1000) and H(10) ⁄ H(1000) at theta 1.
        check("zipfian:1", 1, 1.0 / 7.4855);
        check("zipfian:1", 10, 2.9290 / 7.4855);
    }

    #[test]
    fn sequential_threads_interleave_their_keys() {
        assert_eq!(draw("sequential", 10..14, 6), [10, 11, 12, 13, 10, 11]);
        let mut second = KeySource::new(Distribution::Sequential, 0..10, Stride { first: 1, step: 3 });
        let mut rng = SmallRng::seed_from_u64(0);
        assert_eq!([second.next(&mut rng), second.next(&mut rng), second.next(&mut rng)], [1, 4, 7]);
    }

    #[test]
    fn largest_and_smallest_ranges_are_supported() {
        for distribution in ["uniform", "gaussian", "zipfian", "sequential"] {
            draw(distribution, 0..u64::MAX, 1000);
            assert!(draw(distribution, 7..8, 10).iter().all(|key| *key == 7));
        }
    }

    #[test]
    fn slices_cover_the_population_once() {
        for (population, of) in [(10, 3), (1_000_001, 7), (u64::MAX, 4)] {
            let slices: Vec<_> = (1..=of).map(|i| slice(population, i, of)).collect();
            assert_eq!(slices[0].start, 0);
            assert_eq!(slices[of as usize - 1].end, population);
            assert!(slices.windows(2).all(|w| w[0].end == w[1].start));
        }
    }

    #[test]
    fn unknown_distributions_are_rejected() {
        for text in ["", "normal", "zipfian:", "zipfian:-1", "zipfian:inf", "uniform:3"] {
            assert!(Distribution::parse(text).is_err(), "{text}");
        }
    }
}
