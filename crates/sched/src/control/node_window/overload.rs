//! Timeouts that a node reports as coordinator, as a part of its answers.

use super::super::{MILLI, PPM, scale};

/// Part of timeouts from which on a node is overloaded, in millionths.
const TIMEOUTS_PPM: u64 = 10_000;
/// Part of the sums that a tick forgets, as a divisor: they cover 1.6 s.
const FORGET: u64 = 16;

/// Recent answers of a node. Over a single tick, one timeout among fewer than a hundred answers
/// would be above 1 %, and a node with few requests would rest at the lowest window.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Timeouts {
    /// In thousandths, decayed.
    timeouts_milli: u64,
    answers_milli: u64,
}

impl Timeouts {
    /// Counts the answers of a tick. Returns true if at least two timeouts are recent, and more
    /// than 1 % of the answers.
    pub(super) fn is_overload(&mut self, timeouts: u64, answers: u64) -> bool {
        for (milli, new) in [(&mut self.timeouts_milli, timeouts), (&mut self.answers_milli, answers)] {
            *milli = (*milli - *milli / FORGET).saturating_add(new.saturating_mul(MILLI));
        }
        let part_ppm = scale(self.timeouts_milli, PPM, self.answers_milli);
        self.timeouts_milli > MILLI && part_ppm > TIMEOUTS_PPM
    }
}
