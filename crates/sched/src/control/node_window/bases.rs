//! Times of the classes of requests at half of the window, and the comparison with them.

use super::super::PPM;
use super::sample::{CLASSES, NodeSample, Sum};
use crate::log2::{divide_by_exp2, exp2};

/// Answers of a known base.
const ANSWERS_MIN: u64 = 16;
/// Answers of earlier measurements that a new one keeps, unless it has more. The mean of 256
/// exponential times is within 8 %.
const ANSWERS_KEPT: u64 = 256;
/// Bases of the classes.
#[derive(Clone, Debug)]
pub(super) struct Bases {
    sums: Box<[Sum]>,
    /// Window at which they were measured. 0: they were not.
    pub(super) window: u32,
}

impl Default for Bases {
    fn default() -> Bases {
        Bases { sums: vec![Sum::default(); CLASSES].into(), window: 0 }
    }
}

impl Bases {
    /// Merges the answers into the bases.
    pub(super) fn measure(&mut self, sample: &NodeSample) {
        for (class, new) in sample.sums() {
            let base = &mut self.sums[class];
            let kept = base.answers.min(new.answers.max(ANSWERS_KEPT));
            *base = Sum { answers: kept + new.answers, logs: base.mean() * kept + new.logs };
        }
    }

    /// Returns `r`, the ratio of bases to times, in millionths, at most 1. `None`: no class has a
    /// base.
    pub(super) fn r_ppm(&self, sample: &NodeSample) -> Option<u64> {
        let excess = self.excess(sample)?.max(0);
        Some(divide_by_exp2(PPM, u64::try_from(excess).unwrap_or(u64::MAX)))
    }

    /// Returns the number of equal answers whose mean is as exact as that of the sample: the
    /// squared sum of weights divided by the sum of their squares (Kish, Survey Sampling, 1965).
    pub(super) fn effective(&self, sample: &NodeSample) -> u64 {
        let (mut weights, mut squares) = (0_u128, 0_u128);
        for (class, sum) in sample.sums() {
            let base = self.sums[class];
            let weight = u128::from(weight(if base.answers > 0 { base } else { sum }));
            weights += u128::from(sum.answers) * weight;
            squares += u128::from(sum.answers) * weight * weight;
        }
        u64::try_from(weights.saturating_mul(weights) / squares.max(1)).unwrap_or(u64::MAX)
    }

    /// Returns the mean logarithm of time ÷ base over the answers. `None`: no class has a base.
    fn excess(&self, sample: &NodeSample) -> Option<i128> {
        let (mut weights, mut excess) = (0_i128, 0_i128);
        for (class, sum) in sample.sums() {
            let base = self.sums[class];
            if base.answers >= ANSWERS_MIN {
                let weight = i128::from(sum.answers) * i128::from(weight(base));
                weights += weight;
                excess += weight * (i128::from(sum.mean()) - i128::from(base.mean()));
            }
        }
        excess.checked_div(weights)
    }
}

/// Returns the weight of an answer: the root of the time of its class. Weighted with the time, a
/// few pages of scans decide, and their mean is noise. Weighted alike, many short reads hide that
/// scans wait, which hold the places. At most 2^32.
fn weight(base: Sum) -> u64 {
    exp2(base.mean() / 2)
}
