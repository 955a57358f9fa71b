//! Memtables and files of one table as a single stream of partitions in (token, key) order, each
//! merged from all its versions. Scans, flushes and compactions use this stream on either lane.
//!
//! A partition that spans blocks of a file arrives as *pieces*, stretches of rows, so that merging
//! it needs one block of each file in memory and not all of them:
//!
//! 1. Every source offers the rows of its block.
//! 2. Sources that continue in a next block have more rows behind their last one. The least of
//!    these last rows is the end of the piece: up to it, all sources are complete.
//!
//! ```text
//!  file 1    a  c  d |  continues behind d
//!  file 2    b  c  h |  continues behind h      piece: a b c d; h waits for the next block of file 1
//! ```
//!
//! A memtable has the whole partition in memory and offers stretches of [`STRETCH_ROWS`] rows if
//! other sources have the partition too. Rows stay in the memtable, because removing them would
//! copy the rest.
//!
//! Deletions of the partition and of ranges are in the first blocks, and are part of each piece.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::{Memtable, MemtableEntry, ScanFrom};
use crate::model::Deletion;
use crate::model::SOURCES_MAX;
use crate::model::partition::{Full, Partition};
use crate::model::ranges::Ranges;
use crate::table::file::TableFile;
use crate::table::file_cursor::FileCursor;
use crate::table::runs::Files;

/// Entries collected from a memtable at a time. Enough to spread the cost of the search, and far
/// below the bound of a task poll (64 × about 50 ns).
const CHUNK: usize = 64;

/// Rows of a partition in memory that are merged with other sources at a time: at some 200 ns each,
/// 50 µs.
const STRETCH_ROWS: usize = 256;

/// The merged stream.
#[derive(Debug)]
pub(crate) struct MergeStream {
    sources: Vec<MergeSource>,
    continued: Option<Continued>,
    /// The largest row that is built of several versions, bytes.
    row_bytes_max: usize,
    /// Partitions so far, by the number of sources that had them, from 1.
    pub(crate) partitions: [u64; SOURCES_MAX],
}

/// The partition that the next piece continues.
#[derive(Debug)]
struct Continued {
    token: i64,
    key: Bytes,
    deletion: Option<Deletion>,
    ranges: Ranges,
}

/// A partition, or a stretch of its rows.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    /// The rows, and the deletions that cover them. The first piece has the static cells too.
    pub(crate) partition: Partition,
    pub(crate) first: bool,
    pub(crate) last: bool,
}

#[derive(Debug)]
struct MergeSource {
    kind: MergeInput,
    head: VecDeque<MemtableEntry>,
    /// The row behind which the first partition continues in the file, if it does.
    more: Option<Bytes>,
    /// The last row given of the first partition.
    given: Option<Bytes>,
    done: bool,
}

#[derive(Debug)]
enum MergeInput {
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

impl MergeSource {
    async fn fill(&mut self) -> Result<(), StorageError> {
        if self.done || !self.head.is_empty() {
            return Ok(());
        }
        if let (Some(after), MergeInput::Run { cursor, .. }) = (self.more.take(), &mut self.kind) {
            let (entry, more) = cursor.resume(&after).await?;
            self.head.push_back(entry);
            self.more = more;
            return Ok(());
        }
        match &mut self.kind {
            MergeInput::Memory { table, from, last } => {
                table.collect(from, *last, CHUNK, &mut self.head);
                self.done = self.head.len() < CHUNK;
                if let Some((token, key, _)) = self.head.back() {
                    *from = ScanFrom::After(*token, key.clone());
                }
            }
            MergeInput::Run { cursor, rest, last } => loop {
                if let Some((entry, more)) = cursor.next().await? {
                    self.head.push_back(entry);
                    self.more = more;
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

impl MergeSource {
    fn is_at(&self, token: i64, key: &Bytes) -> bool {
        self.head.front().is_some_and(|(own, own_key, _)| *own == token && own_key == key)
    }

    /// Returns the last row offered of the first partition, if the source has more behind it.
    /// `beside` is true if other sources have the partition as well.
    fn offered_end(&self, beside: bool) -> Option<Bytes> {
        if self.more.is_some() || !beside {
            return self.more.clone();
        }
        let (MergeInput::Memory { .. }, Some((_, _, Partition::Full(full)))) =
            (&self.kind, self.head.front())
        else {
            return None;
        };
        if full.rows.len() <= STRETCH_ROWS {
            return None;
        }
        let start = self.given.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = full.rows.range(start, Bound::Unbounded);
        let last = rows.nth(STRETCH_ROWS - 1)?;
        rows.next().map(|_| Bytes::copy_from_slice(last.clustering()))
    }

    /// Takes the offered rows of the first partition, up to the row `end` if given.
    fn take(&mut self, end: Option<&Bytes>) -> Partition {
        let given = self.given.take();
        let (_, _, partition) = self.head.front().expect("a head was seen");
        let Partition::Full(full) = partition else {
            return self.head.pop_front().expect("a head was seen").2;
        };
        let beyond = end.filter(|end| full.rows.last().is_some_and(|row| row.clustering() > &end[..]));
        if beyond.is_none() && given.is_none() {
            return self.head.pop_front().expect("a head was seen").2;
        }
        let start = given.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let rows = full.rows.part(start, beyond.map_or(Bound::Unbounded, |end| Bound::Included(&end[..])));
        let (deletion, statics, ranges) = match &given {
            None => (full.deletion, full.statics.clone(), full.ranges.clone()),
            // Deletions and static cells came with the first rows.
            Some(_) => (None, None, Ranges::default()),
        };
        let taken = Partition::Full(Arc::new(Full { deletion, statics, ranges, rows }));
        match beyond {
            Some(end) => self.given = Some(end.clone()),
            None => _ = self.head.pop_front(),
        }
        taken
    }

    /// Skips the source's part of a partition.
    fn skip(&mut self, token: i64, key: &Bytes) {
        if self.is_at(token, key) {
            self.head.pop_front();
            self.given = None;
        }
        if let (Some(_), MergeInput::Run { cursor, .. }) = (self.more.take(), &mut self.kind) {
            cursor.skip(token, key);
        }
    }
}

impl MergeStream {
    /// Streams everything from `from` to the token `last`.
    pub(crate) fn new(
        tables: impl IntoIterator<Item = Memtable>,
        files: &Files,
        from: ScanFrom,
        last: i64,
    ) -> MergeStream {
        let memory = tables.into_iter().map(|table| MergeInput::Memory { table, from: from.clone(), last });
        let (ScanFrom::Token(first) | ScanFrom::After(first, _)) = from;
        let runs = files.runs().iter().filter_map(|run| {
            let (first, rest) = run.between(first, last).split_first()?;
            let cursor = Box::new(FileCursor::new(first.clone(), from.clone(), last));
            Some(MergeInput::Run { cursor, rest: rest.iter().cloned().collect(), last })
        });
        let source = |kind| MergeSource { kind, head: VecDeque::new(), more: None, given: None, done: false };
        let sources = memory.chain(runs).map(source).collect();
        MergeStream { sources, continued: None, row_bytes_max: usize::MAX, partitions: [0; SOURCES_MAX] }
    }

    /// Sets the largest row that is built of several versions, in bytes.
    pub(crate) fn with_row_max(self, row_bytes_max: usize) -> MergeStream {
        MergeStream { row_bytes_max, ..self }
    }

    /// Returns the next whole partition, dead or alive.
    pub(crate) async fn next(&mut self) -> Result<Option<MemtableEntry>, StorageError> {
        let Some(Piece { token, key, mut partition, mut last, .. }) = self.next_piece().await? else {
            return Ok(None);
        };
        while !last {
            let piece = self.next_piece().await?.expect("it goes on");
            partition = partition.merge(piece.partition);
            last = piece.last;
        }
        Ok(Some((token, key, partition)))
    }

    /// Returns the next partition, or the next piece of the current one.
    pub(crate) async fn next_piece(&mut self) -> Result<Option<Piece>, StorageError> {
        for source in &mut self.sources {
            source.fill().await?;
        }
        let continued = self.continued.take();
        let first = continued.is_none();
        let place = match &continued {
            Some(continued) => Some((continued.token, continued.key.clone())),
            None => self.least(),
        };
        let Some((token, key)) = place else { return Ok(None) };
        let here = || self.sources.iter().filter(|source| source.is_at(token, &key));
        let count = here().count();
        let beside = count > 1;
        if first {
            self.partitions[count.clamp(1, SOURCES_MAX) - 1] += 1;
        }
        let end = here().filter_map(|source| source.offered_end(beside)).min();
        let covered = continued.as_ref().map(|continued| {
            let deletion = continued.deletion;
            let ranges = continued.ranges.clone();
            Partition::Full(Arc::new(Full { deletion, ranges, ..Full::default() }))
        });
        let here = self.sources.iter_mut().filter(|source| source.is_at(token, &key));
        let taken = here.map(|source| source.take(end.as_ref()));
        let mut largest = 0;
        let partition = covered.into_iter().chain(taken).reduce(|merged, version| {
            let (merged, row_bytes) = merged.merge_measured(version);
            largest = largest.max(row_bytes);
            merged
        });
        let partition = partition.expect("one source had the key");
        if largest > self.row_bytes_max && partition.has_large_rows(self.row_bytes_max) {
            return Err(StorageError::RowTooLarge { token, limit: self.row_bytes_max });
        }
        if end.is_some() {
            let (deletion, ranges) = match (continued, &partition) {
                (Some(continued), _) => (continued.deletion, continued.ranges),
                (None, Partition::Full(full)) => (full.deletion, full.ranges.clone()),
                (None, Partition::Single(_)) => (None, Ranges::default()),
            };
            self.continued = Some(Continued { token, key: key.clone(), deletion, ranges });
            return Ok(Some(Piece { token, key, partition, first, last: false }));
        }
        Ok(Some(Piece { token, key, partition, first, last: true }))
    }

    /// Skips the rest of the current partition, without reading its blocks.
    pub(crate) fn skip_rest(&mut self) {
        if let Some(Continued { token, key, .. }) = self.continued.take() {
            self.sources.iter_mut().for_each(|source| source.skip(token, &key));
        }
    }

    fn least(&self) -> Option<(i64, Bytes)> {
        let heads = self.sources.iter().filter_map(|source| source.head.front());
        let least = heads.map(|(token, key, _)| (*token, key)).min()?;
        Some((least.0, least.1.clone()))
    }
}
