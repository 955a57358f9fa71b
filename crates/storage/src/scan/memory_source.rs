//! A memtable as a source of a scan: its partitions in order, a chunk at a time.

use std::collections::VecDeque;

use crate::memtable::{Memtable, MemtableEntry, ScanFrom};
use crate::model::partition::Partition;
use crate::scan::file_source::Position;

/// Entries taken at a time.
const CHUNK: usize = 256;

#[derive(Debug)]
pub(crate) struct MemorySource {
    table: Memtable,
    from: ScanFrom,
    head: VecDeque<MemtableEntry>,
    done: bool,
}

impl MemorySource {
    /// Reads everything from the token `first` on.
    pub(crate) fn new(table: Memtable, first: i64) -> MemorySource {
        MemorySource { table, from: ScanFrom::Token(first), head: VecDeque::new(), done: false }
    }

    /// Collects more partitions up to the token `last`, unless two are collected. All below the
    /// last collected one are then present.
    pub(crate) fn fill(&mut self, last: i64) {
        if self.head.len() < 2 && !self.done {
            let (before, wanted) = (self.head.len(), self.head.len() + CHUNK);
            self.table.collect(&self.from, last, wanted, &mut self.head);
            // Partitions are scattered in memory. Prefetching them together takes a fraction of the
            // time of one miss after the other.
            self.head.range(before..).for_each(|(.., partition)| partition.prefetch());
            self.head.range(before..).for_each(|(.., partition)| partition.prefetch_rows());
            self.done = self.head.len() < wanted;
            if let Some((token, key, _)) = self.head.back() {
                self.from = ScanFrom::After(*token, key.clone());
            }
        }
    }

    /// Returns the collected tokens, ascending.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = i64> {
        self.head.iter().map(|(token, ..)| *token)
    }

    /// Returns the token below which all partitions are collected.
    pub(crate) fn end(&self) -> i128 {
        match self.head.back() {
            Some((token, ..)) if !self.done => i128::from(*token),
            _ => i128::MAX,
        }
    }

    /// Returns the position of the next partition.
    pub(crate) fn place(&self) -> Option<Position> {
        self.head.front().map(|(token, key, _)| (*token, key.clone()))
    }

    /// Takes the next partition, if its token is below `end`.
    pub(crate) fn next_below(&mut self, end: i128) -> Option<MemtableEntry> {
        let is_below = self.head.front().is_some_and(|(token, ..)| i128::from(*token) < end);
        if is_below { self.head.pop_front() } else { None }
    }

    /// Takes the next partition, if it is at this position.
    pub(crate) fn take(&mut self, place: &Position) -> Option<Partition> {
        let is_there = self.head.front().is_some_and(|(token, key, _)| (*token, key) == (place.0, &place.1));
        if is_there { self.head.pop_front().map(|(.., partition)| partition) } else { None }
    }
}
