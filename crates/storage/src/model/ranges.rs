//! Range deletions of a partition, as a step function over clustering positions.
//!
//! ```text
//!   position   before a      before c      after d      before f
//!   deletion   ts 5          ts 9          ts 5         none
//!              |---- 5 ------|----- 9 -----|---- 5 -----|
//! ```
//!
//! The steps are normalised (neighbours differ). So their number is bounded by the ranges that are
//! deleted, however often a range is deleted again. A lookup is one search, and the map is copied
//! on write.

use std::ops::Bound;

use bytes::Bytes;
use imbl::OrdMap;

use crate::model::Deletion;

/// A position between rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Position {
    /// Just before (`false`) or just after (`true`) the row with this clustering.
    At(Bytes, bool),
    /// After every row.
    End,
}

impl Position {
    /// Returns the position at which a range with this start bound starts.
    pub(crate) fn of_start(bound: &Bound<Bytes>) -> Position {
        match bound {
            Bound::Included(key) => Position::At(key.clone(), false),
            Bound::Excluded(key) => Position::At(key.clone(), true),
            Bound::Unbounded => Position::At(Bytes::new(), false),
        }
    }

    /// Returns the position at which a range with this end bound ends.
    pub(crate) fn of_end(bound: &Bound<Bytes>) -> Position {
        match bound {
            Bound::Included(key) => Position::At(key.clone(), true),
            Bound::Excluded(key) => Position::At(key.clone(), false),
            Bound::Unbounded => Position::End,
        }
    }
}

/// The range deletions of a partition. Cloning is O(1).
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Ranges {
    /// The deletion from each position up to the next one.
    steps: OrdMap<Position, Option<Deletion>>,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the number of steps, at most twice the number of separate ranges.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns the deletion that covers the row with this clustering.
    pub(crate) fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        if self.steps.is_empty() {
            return None;
        }
        self.at(&Position::At(Bytes::copy_from_slice(clustering), false))
    }

    fn at(&self, position: &Position) -> Option<Deletion> {
        self.steps.get_prev(position).and_then(|(_, deletion)| *deletion)
    }

    /// Returns the ranges between two bounds, cut there. The cost depends on the steps in between.
    pub(crate) fn between(&self, start: &Bound<Bytes>, end: &Bound<Bytes>) -> Ranges {
        let (start, end) = (Position::of_start(start), Position::of_end(end));
        if self.steps.is_empty() || start >= end {
            return Ranges::default();
        }
        let mut steps = OrdMap::new();
        if let Some(deletion) = self.at(&start) {
            steps.insert(start.clone(), Some(deletion));
        }
        let inside = self.steps.range((Bound::Excluded(start), Bound::Excluded(end.clone())));
        steps.extend(inside.map(|(at, deletion)| (at.clone(), *deletion)));
        if steps.get_max().is_some_and(|(_, deletion)| deletion.is_some()) {
            steps.insert(end, None);
        }
        Ranges { steps }
    }

    /// Deletes the rows from `start` up to `end`. The cost depends on the steps in between.
    pub(crate) fn insert(&mut self, start: Position, end: Position, deletion: Deletion) {
        if start >= end {
            return;
        }
        let before = self.steps.range(..start.clone()).next_back().and_then(|(_, d)| *d);
        let from = self.at(&start);
        let after = self.at(&end);
        self.steps.insert(start.clone(), from);
        self.steps.insert(end.clone(), after);
        let inside: Vec<_> = self
            .steps
            .range(start..end.clone())
            .map(|(at, was)| (at.clone(), (*was).max(Some(deletion))))
            .collect();
        let mut last = before;
        for (at, now) in inside {
            if now == last {
                self.steps.remove(&at);
            } else {
                self.steps.insert(at, now);
            }
            last = now;
        }
        if after == last {
            self.steps.remove(&end);
        }
    }

    /// Adds the ranges of another version of the partition.
    pub(crate) fn merge(&mut self, other: &Ranges) {
        if self.steps.is_empty() {
            self.steps = other.steps.clone();
            return;
        }
        for (start, end, deletion) in other.iter() {
            self.insert(start.clone(), end.clone(), deletion);
        }
    }

    /// Returns the separate ranges in order: start, end, deletion.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Position, &Position, Deletion)> {
        let ends = self.steps.iter().skip(1);
        self.steps
            .iter()
            .zip(ends)
            .filter_map(|((start, deletion), (end, _))| deletion.map(|d| (start, end, d)))
    }

    /// Returns the ranges whose deletion satisfies `keep`.
    pub(crate) fn filtered(&self, keep: impl Fn(Deletion) -> bool) -> Ranges {
        let mut kept = Ranges::default();
        for (start, end, deletion) in self.iter().filter(|(_, _, deletion)| keep(*deletion)) {
            kept.insert(start.clone(), end.clone(), deletion);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(timestamp: i64) -> Deletion {
        Deletion { timestamp, deleted_at_s: 0 }
    }

    #[test]
    fn steps_agree_with_a_list_of_ranges() {
        let mut random = testkit::Random::new(7);
        let mut next = |below: u64| random.below(below);
        for _ in 0..300 {
            let mut ranges = Ranges::default();
            let mut list = Vec::new();
            for _ in 0..next(12) {
                let mut bound = |unbounded: bool| {
                    let key = Bytes::from(vec![next(8) as u8]);
                    match next(if unbounded { 5 } else { 4 }) {
                        0 | 1 => Bound::Included(key),
                        2 | 3 => Bound::Excluded(key),
                        _ => Bound::Unbounded,
                    }
                };
                let start = Position::of_start(&bound(true));
                let end = Position::of_end(&bound(true));
                let deletion = deletion(next(5) as i64);
                ranges.insert(start.clone(), end.clone(), deletion);
                list.push((start, end, deletion));
            }
            for row in 0..9u8 {
                let key = Bytes::from(vec![row]);
                let at = Position::At(key.clone(), false);
                let covers = |start: &Position, end: &Position| *start <= at && at < *end;
                let expected = list.iter().filter(|(s, e, _)| covers(s, e)).map(|(_, _, d)| *d).max();
                assert_eq!(ranges.covering(&key), expected, "{list:?}");
            }
            let mut bound = || Bound::Included(Bytes::from(vec![next(9) as u8]));
            let (start, end) = (bound(), bound());
            let cut = ranges.between(&start, &end);
            for row in 0..9u8 {
                let key = Bytes::from(vec![row]);
                let inside = std::ops::RangeBounds::<Bytes>::contains(&(start.clone(), end.clone()), &key);
                let expected = if inside { ranges.covering(&key) } else { None };
                assert_eq!(cut.covering(&key), expected, "{start:?} to {end:?} of {ranges:?}");
            }
            let mut again = Ranges::default();
            again.merge(&ranges.filtered(|_| true));
            assert_eq!(again, ranges);
            let values: Vec<_> = ranges.steps.values().collect();
            assert!(values.windows(2).all(|pair| pair[0] != pair[1]), "not normalised: {ranges:?}");
        }
    }
}
