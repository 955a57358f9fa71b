//! Ranges and keys that a scan has not begun to read. Pure.
//!
//! ```text
//!  begin     the whole part ─probe─▶ its ranges ─┐
//!                                                ├─▶ keys of a dynamic filter in these ranges
//!  a dynamic filter names the partition keys ────┘
//! ```
//!
//! A join that has read its other side may name the partition keys that it still needs. Then those
//! keys are read in place of the ranges that are open, if that is less work. Ranges that were begun
//! are read to their end.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::scan::TableStatistics;

use crate::scan::PAGE_BYTES;
use crate::scan::page::PageOf;
use crate::scan::pushed::Key;
use crate::scan::ranges::{RANGES_MIN, TokenRange, cut};
use crate::topology::Ring;

/// Keys that are as much work as one page of a range, about: a page has thousands of rows.
const KEYS_PER_PAGE: u64 = 4;

/// Work of a scan. The head of this file describes it.
pub(crate) struct Todo {
    ring: Arc<Ring>,
    /// Either ranges, ascending, or keys.
    open: VecDeque<PageOf>,
    /// Number of ranges or keys, for the progress.
    units: usize,
    /// True until the first page of the whole part was read.
    probes: bool,
    /// Partition keys that dynamic filters leave, by token.
    keys: Option<Vec<Key>>,
    keys_max: usize,
}

impl Todo {
    /// Creates the work for a part of the tokens. `expected`: estimate of the table.
    pub(crate) fn of_range(
        part: Option<TokenRange>,
        ring: Arc<Ring>,
        expected: Option<TableStatistics>,
        cores: usize,
    ) -> Todo {
        let pages = expected.map_or(0, |expected| expected.bytes / PAGE_BYTES / cores as u64);
        let keys_max = usize::try_from(pages.max(RANGES_MIN).saturating_mul(KEYS_PER_PAGE));
        let open = part.map(|range| PageOf::Range { range, is_of_one_token: false });
        Todo {
            ring,
            units: open.iter().len(),
            probes: open.is_some(),
            open: open.into_iter().collect(),
            keys: None,
            keys_max: keys_max.unwrap_or(usize::MAX),
        }
    }

    /// Creates the work for keys.
    pub(crate) fn of_keys(keys: impl Iterator<Item = Key>, ring: Arc<Ring>) -> Todo {
        let mut todo = Todo::of_range(None, ring, None, 1);
        todo.open = keys.map(page_of).collect();
        todo.units = todo.open.len();
        todo
    }

    /// Removes the next range or key.
    pub(crate) fn next(&mut self) -> Option<PageOf> {
        self.open.pop_front()
    }

    /// Returns true for the first page of the whole part, once.
    pub(crate) fn takes_probe(&mut self) -> bool {
        std::mem::take(&mut self.probes)
    }

    /// Adds the ranges of the whole part, which its first page did not contain.
    pub(crate) fn begin_ranges(&mut self, range: TokenRange) {
        let ranges = cut(range, self.ring.tokens()).into_iter();
        self.open = ranges.map(|range| PageOf::Range { range, is_of_one_token: true }).collect();
        self.units = self.open.len();
        self.replace_ranges();
    }

    /// Restricts the work to these keys. Their number is bounded by the caller.
    pub(crate) fn narrow(&mut self, keys: Vec<Key>) {
        if keys.len() > self.keys_max {
            return;
        }
        self.keys = Some(keys);
        // A small table is one page: this shows when it is there.
        if !self.probes {
            self.replace_ranges();
        }
    }

    /// Replaces open ranges by the keys in them.
    fn replace_ranges(&mut self) {
        let Some(keys) = &self.keys else { return };
        let range = |of: &PageOf| match of {
            PageOf::Range { range, .. } => Some(*range),
            PageOf::Key { .. } => None,
        };
        let ranges: Vec<TokenRange> = self.open.iter().filter_map(range).collect();
        if ranges.is_empty() {
            return;
        }
        let is_open = |key: &&Key| {
            let at = ranges.partition_point(|range| range.to < key.token);
            ranges.get(at).is_some_and(|range| range.contains(key.token))
        };
        self.open = keys.iter().filter(is_open).cloned().map(page_of).collect();
        self.units = self.units - ranges.len() + self.open.len();
    }

    /// Returns the progress, from 0 to 1. `begun`: ranges and keys that are being read.
    pub(crate) fn progress(&self, begun: usize) -> f64 {
        if self.units == 0 {
            return 1.0;
        }
        1.0 - ((self.open.len() + begun).min(self.units) as f64 / self.units as f64)
    }
}

fn page_of(key: Key) -> PageOf {
    PageOf::Key { token: key.token, parts: key.parts }
}

#[cfg(test)]
mod tests {
    use schema::Token;

    use super::*;

    fn key(token: Token) -> Key {
        Key { token, parts: Vec::new() }
    }

    /// Returns the work for the tokens 1 to 64, whose first page was read.
    fn ranges() -> Todo {
        let part = TokenRange { after: 0, to: 64 };
        let mut todo = Todo::of_range(Some(part), Arc::default(), None, 2);
        assert!(todo.next().is_some() && todo.takes_probe() && !todo.takes_probe());
        todo.begin_ranges(part);
        todo
    }

    fn tokens(todo: &mut Todo) -> Vec<Token> {
        let next = std::iter::from_fn(|| todo.next());
        let token = |of| match of {
            PageOf::Key { token, .. } => token,
            PageOf::Range { range, .. } => panic!("a range: {range:?}"),
        };
        next.map(token).collect()
    }

    #[test]
    fn keys_replace_the_ranges_that_were_not_begun() {
        let mut todo = ranges();
        // Tokens 1 to 4.
        assert!(todo.next().is_some() && todo.next().is_some());
        todo.narrow([-3, 1, 4, 5, 40, 64, 65].map(key).to_vec());
        assert_eq!(todo.progress(2), 0.0, "two ranges and three keys");
        assert_eq!(tokens(&mut todo), [5, 40, 64]);
        assert_eq!(todo.progress(0), 1.0);
    }

    #[test]
    fn keys_that_are_known_first_wait_for_the_first_page() {
        let part = TokenRange { after: 0, to: 64 };
        let mut todo = Todo::of_range(Some(part), Arc::default(), None, 2);
        todo.narrow(vec![key(7), key(70)]);
        assert!(matches!(todo.next(), Some(PageOf::Range { range, .. }) if range == part));
        assert!(todo.takes_probe());
        todo.begin_ranges(part);
        assert_eq!(tokens(&mut todo), [7]);
    }

    #[test]
    fn many_keys_do_not_replace_a_scan() {
        let with = |expected, count: Token| {
            let part = TokenRange { after: 0, to: 1_000 };
            let mut todo = Todo::of_range(Some(part), Arc::default(), expected, 2);
            todo.takes_probe();
            todo.narrow((1..=count).map(key).collect());
            matches!(todo.next(), Some(PageOf::Key { .. }))
        };
        assert!(with(None, 128) && !with(None, 129), "four for each of 32 ranges");
        let large = Some(TableStatistics { rows: 1, bytes: PAGE_BYTES * 2 * 200 });
        assert!(with(large, 800) && !with(large, 801), "four for each of 200 pages");
    }

    #[test]
    fn no_keys_end_the_scan() {
        let mut todo = ranges();
        todo.narrow(Vec::new());
        assert_eq!((todo.next(), todo.progress(0)), (None, 1.0));
    }
}
