//! A histogram of the times at which the cells of a file die (expire, or were deleted), small
//! enough for a footer.
//!
//! A bin counts the deaths up to its second. When bins run out, the bin with the least product of
//! count and distance is merged into the next later bin. So `before` never counts a cell that is
//! alive, and may miss some dead ones.

use crate::model::codec::{Malformed, Reader, put_u32, put_u64};

/// Bins of a file. 16 bins resolve times spread evenly over a day to 1.5 hours.
const BINS: usize = 16;

/// Bytes of a histogram in a footer.
pub(crate) const BYTES: usize = BINS * 12;

/// The histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deaths {
    /// (Unix seconds, count), ascending. Bins from `len` on are zero.
    bins: [(u32, u64); BINS],
    len: usize,
}

impl Default for Deaths {
    fn default() -> Deaths {
        Deaths { bins: [(0, 0); BINS], len: 0 }
    }
}

impl Deaths {
    /// Counts `count` cells that die at second `at_s`.
    pub(crate) fn add(&mut self, at_s: u32, count: u64) {
        let place = self.bins[..self.len].partition_point(|(second, _)| *second < at_s);
        if place < self.len && self.bins[place].0 == at_s {
            self.bins[place].1 = self.bins[place].1.saturating_add(count);
            return;
        }
        if self.len < BINS {
            self.bins.copy_within(place..self.len, place + 1);
            self.bins[place] = (at_s, count);
            self.len += 1;
            return;
        }
        // With the new bin there is one too many.
        let mut all = [(0, 0); BINS + 1];
        all[..place].copy_from_slice(&self.bins[..place]);
        all[place] = (at_s, count);
        all[place + 1..].copy_from_slice(&self.bins[place..]);
        let moved = |at: &usize| u128::from(all[*at].1) * u128::from(all[at + 1].0 - all[*at].0);
        let least = (0..BINS).min_by_key(moved).expect("there are several bins");
        all[least + 1].1 = all[least + 1].1.saturating_add(all[least].1);
        self.bins[..least].copy_from_slice(&all[..least]);
        self.bins[least..].copy_from_slice(&all[least + 1..]);
    }

    pub(crate) fn merge(&mut self, other: &Deaths) {
        other.bins[..other.len].iter().for_each(|(at_s, count)| self.add(*at_s, *count));
    }

    /// Returns a lower bound of the number of cells that died before a second.
    pub(crate) fn before(&self, second: u32) -> u64 {
        let dead = self.bins[..self.len].iter().take_while(|(at_s, _)| *at_s < second);
        dead.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for (at_s, count) in self.bins {
            put_u32(out, at_s);
            put_u64(out, count);
        }
    }

    pub(crate) fn read(reader: &mut Reader) -> Result<Deaths, Malformed> {
        let mut deaths = Deaths::default();
        for _ in 0..BINS {
            let (at_s, count) = (reader.u32()?, reader.u64()?);
            if count > 0 {
                deaths.add(at_s, count);
            }
        }
        Ok(deaths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    #[test]
    fn counts_never_exceed_the_dead() {
        let mut random = Random::new(7);
        let (mut deaths, mut all) = (Deaths::default(), Vec::new());
        for _ in 0..3000 {
            let at_s = 1000 + random.below(50_000) as u32;
            deaths.add(at_s, 1);
            all.push(at_s);
        }
        for second in (0..60_000).step_by(500) {
            let exact = all.iter().filter(|at_s| **at_s < second).count() as u64;
            assert!(deaths.before(second) <= exact, "before {second}");
        }
        assert_eq!((deaths.before(0), deaths.before(51_001)), (0, 3000));
        assert!(deaths.before(26_000) > 1000, "about half of them are dead by then");
    }

    #[test]
    fn histogram_round_trips() {
        let mut deaths = Deaths::default();
        [(5, 1), (9, 2), (5, 7), (u32::MAX, 1)].iter().for_each(|(at, count)| deaths.add(*at, *count));
        let mut bytes = Vec::new();
        deaths.put(&mut bytes);
        assert_eq!(bytes.len(), BYTES);
        assert_eq!(Deaths::read(&mut Reader::new(bytes.into())), Ok(deaths));
        assert_eq!((deaths.before(6), deaths.before(u32::MAX)), (8, 10));
    }
}
