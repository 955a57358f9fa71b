//! Memtables and files of one table as a single stream of partitions in (token, key) order, each the merge of
//! all its versions. Scans, flushes and compactions are this stream with different ends; either lane may run it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::{Entry, Memtable, ScanFrom};
use crate::table_file::{FileCursor, TableFile};

/// Entries taken from a memtable at a time: enough to spread the cost of the search, few enough to stay far below
/// the bound of a piece of work (64 × about 50 ns).
const CHUNK: usize = 64;

/// The merged stream.
#[derive(Debug)]
pub(crate) struct MergeStream {
    sources: Vec<Source>,
}

#[derive(Debug)]
struct Source {
    kind: Kind,
    head: VecDeque<Entry>,
    done: bool,
}

#[derive(Debug)]
enum Kind {
    Memory {
        table: Memtable,
        from: ScanFrom,
        last: i64,
    },
    /// A run: the fragment being read, and those after it.
    Run {
        cursor: Box<FileCursor>,
        rest: VecDeque<Arc<TableFile>>,
        last: i64,
    },
}

impl Source {
    async fn fill(&mut self) -> Result<(), StorageError> {
        if self.done || !self.head.is_empty() {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Memory { table, from, last } => {
                table.collect(from, *last, CHUNK, &mut self.head);
                self.done = self.head.len() < CHUNK;
                if let Some((token, key, _)) = self.head.back() {
                    *from = ScanFrom::After(*token, key.clone());
                }
            }
            Kind::Run { cursor, rest, last } => loop {
                if let Some(entry) = cursor.next().await? {
                    self.head.push_back(entry);
                    break;
                }
                let Some(next) = rest.pop_front() else {
                    self.done = true;
                    break;
                };
                **cursor = FileCursor::new(next, ScanFrom::Token(i64::MIN), *last);
            },
        }
        Ok(())
    }
}

impl MergeStream {
    /// Everything from `from` to the token `last`.
    pub(crate) fn new(
        tables: impl IntoIterator<Item = Memtable>,
        files: &[Arc<TableFile>],
        from: ScanFrom,
        last: i64,
    ) -> MergeStream {
        let memory = tables.into_iter().map(|table| Kind::Memory { table, from: from.clone(), last });
        let run = |mut rest: VecDeque<Arc<TableFile>>| {
            let first = rest.pop_front().expect("a run has a fragment");
            Kind::Run { cursor: Box::new(FileCursor::new(first, from.clone(), last)), rest, last }
        };
        let disk = runs_from(files, &from, last).into_iter().map(run);
        let source = |kind| Source { kind, head: VecDeque::new(), done: false };
        MergeStream { sources: memory.chain(disk).map(source).collect() }
    }

    /// The next partition, dead or alive.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, StorageError> {
        let mut least: Option<(i64, Bytes)> = None;
        for source in &mut self.sources {
            source.fill().await?;
            if let Some((token, key, _)) = source.head.front()
                && least.as_ref().is_none_or(|(t, k)| (*token, key) < (*t, k))
            {
                least = Some((*token, key.clone()));
            }
        }
        let Some((token, key)) = least else { return Ok(None) };
        let mut merged = None;
        for source in &mut self.sources {
            if source.head.front().is_some_and(|(t, k, _)| *t == token && *k == key) {
                let (_, _, partition) = source.head.pop_front().expect("a head was seen");
                merged = Some(match merged {
                    None => partition,
                    Some(other) => partition.merge(other),
                });
            }
        }
        Ok(Some((token, key, merged.expect("one source had the key"))))
    }
}

/// The fragments of each run that a stream from `from` to the token `last` has to read, in order.
fn runs_from(files: &[Arc<TableFile>], from: &ScanFrom, last: i64) -> Vec<VecDeque<Arc<TableFile>>> {
    let (ScanFrom::Token(first) | ScanFrom::After(first, _)) = from;
    let mut runs: BTreeMap<u64, Vec<&Arc<TableFile>>> = BTreeMap::new();
    for file in files {
        let (start, end) = file.tokens();
        if start <= last && end >= *first {
            runs.entry(file.entry.run).or_default().push(file);
        }
    }
    let mut chains = Vec::new();
    for mut run in runs.into_values() {
        run.sort_by_key(|file| file.tokens());
        let mut chain: VecDeque<Arc<TableFile>> = VecDeque::new();
        for file in run {
            // Fragments of a run do not overlap; where a version of the format does not tell its last token, they might.
            if chain.back().is_some_and(|before| before.tokens().1 >= file.tokens().0) {
                chains.push(std::mem::take(&mut chain));
            }
            chain.push_back(file.clone());
        }
        chains.push(chain);
    }
    chains
}
