//! A scan of a token range: partitions in (token, key) order, merged from a snapshot of every memtable and file.
//!
//! The snapshot is taken when the scan starts and costs O(1): later writes are not seen. Sources are read a few
//! entries at a time, so a scan that is dropped early has cost little, and callers may yield between partitions.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::{Entry, Memtable, ScanFrom};
use crate::view::PartitionView;

/// Entries taken from a memtable at a time: enough to spread the cost of the search, few enough to stay far below
/// the bound of a piece of work (64 × about 50 ns).
const CHUNK: usize = 64;

/// A scan in progress.
#[derive(Debug)]
pub struct Scan {
    sources: Vec<MemSource>,
    now_s: u32,
}

#[derive(Debug)]
struct MemSource {
    table: Memtable,
    from: ScanFrom,
    last: i64,
    chunk: VecDeque<Entry>,
    done: bool,
}

impl MemSource {
    fn head(&mut self) -> Option<&Entry> {
        if self.chunk.is_empty() && !self.done {
            self.table.collect(&self.from, self.last, CHUNK, &mut self.chunk);
            self.done = self.chunk.len() < CHUNK;
            if let Some((token, key, _)) = self.chunk.back() {
                self.from = ScanFrom::After(*token, key.clone());
            }
        }
        self.chunk.front()
    }
}

impl Scan {
    pub(crate) fn new(tables: Vec<Memtable>, from: ScanFrom, last: i64, now_s: u32) -> Scan {
        let source =
            |table| MemSource { table, from: from.clone(), last, chunk: VecDeque::new(), done: false };
        Scan { sources: tables.into_iter().map(source).collect(), now_s }
    }

    /// The next partition that has anything alive: its token, key and contents. `None` ends the scan.
    pub async fn next(&mut self) -> Result<Option<(i64, Bytes, PartitionView)>, StorageError> {
        loop {
            let mut least: Option<(i64, Bytes)> = None;
            for source in &mut self.sources {
                if let Some((token, key, _)) = source.head()
                    && least.as_ref().is_none_or(|(t, k)| (*token, key) < (*t, k))
                {
                    least = Some((*token, key.clone()));
                }
            }
            let Some((token, key)) = least else { return Ok(None) };
            let mut merged = None;
            for source in &mut self.sources {
                if source.head().is_some_and(|(t, k, _)| *t == token && *k == key) {
                    let (_, _, partition) = source.chunk.pop_front().expect("a head was seen");
                    merged = Some(match merged {
                        None => partition,
                        Some(other) => partition.merge(other),
                    });
                }
            }
            let view = PartitionView::new(merged.expect("one source had the key"), self.now_s);
            if !view.is_empty() {
                return Ok(Some((token, key, view)));
            }
        }
    }
}
