//! A scan that yields Arrow record batches: the rows of token ranges, by column. Partitions arrive
//! in no particular order, unless the request asks for theirs.
//!
//! The sources are the memtables and runs of a snapshot, each at its next partition of a range. The
//! scan repeats these steps:
//!
//! 1. Load blocks until every source has all its partitions below some token in memory: the *end*
//!    of the window. Skip a block that cannot satisfy the conditions, if no other source overlaps
//!    it.
//! 2. Find the tokens in the window that need a merge, row by row: those that several sources have,
//!    those of blocks with static cells or deletions of more than a cell, and those of files that
//!    other shards own too.
//! 3. Only one source has the partitions between them. Copy those in their stored layout, source by
//!    source and column by column. Leave out runs of dead rows. Dead or expired values become
//!    nulls.
//!
//! ```text
//!  file 1   a   c c   f f f │ j …        b is merged from file 2 and the memtable, c from both files;
//!  file 2     b   c c       │ g g …      a, d e and f f f are copied by column;
//!  memory     b     d e     │ h …        │ is the window's end: file 2 has loaded no more
//! ```
//!
//! A partition that continues over blocks does not extend a window. It is copied block by block if
//! only one source has it. Otherwise it is merged, and a large one by stretches of rows
//! (`wide.rs`).
//!
//! In order, step 3 copies the next stretch of one source at a time, up to the first partition of
//! another one.
//!
//! The fragments of a run are one source: a step of the scan costs the number of runs, not of
//! files.
//!
//! The scan runs on a heavy lane: it yields about every millisecond, not every few microseconds. It
//! reads blocks through the scan cache and bypasses the block cache.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::env::Env;
use crate::error::StorageError;
use crate::memtable::Memtable;
use crate::scan::batch_request::BatchRequest;
use crate::scan::file_source::{FileSource, Position};
use crate::scan::gather::{Gather, Visited};
use crate::scan::memory_source::MemorySource;
use crate::scan::wide::Pending;
use crate::table::columnar::bounds::ValueRange;
use crate::table::file::TableFile;
use crate::table::runs::Files;
use crate::table::scan_cache::ScanCache;

/// Work between yields: 10 blocks of 64 KiB at 1 GB/s, or 256 merged partitions of 2 µs each, are
/// about half a millisecond.
const BLOCKS_BETWEEN_YIELDS: u32 = 10;
const PARTITIONS_BETWEEN_YIELDS: u32 = 256;

/// The contents of a table at one moment, which may be scanned any number of times. May be sent to
/// another thread. While it exists, so do its files and memtables.
#[derive(Clone, Debug)]
pub struct BatchSnapshot {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) memory: Vec<Memtable>,
    pub(crate) files: Files,
    pub(crate) cache: Arc<ScanCache>,
    pub(crate) now_s: u32,
}

/// A scan in progress. May be sent to another thread.
#[derive(Debug)]
pub struct BatchScan {
    pub(crate) snapshot: BatchSnapshot,
    pub(crate) gather: Gather,
    /// True after the first call of `next`.
    has_begun: bool,
    /// The index of the current token range, or the number of ranges at the end.
    range: usize,
    pub(crate) memory: Vec<MemorySource>,
    /// One for each run.
    pub(crate) files: Vec<FileSource>,
    /// The partition in which the last batch ended.
    pub(crate) pending: Option<Pending>,
    /// (token, source) of all partitions in the window. Sources are numbered, `files` first.
    tokens: Vec<(i64, usize)>,
    /// The subset of `tokens` that needs a merge.
    to_merge: Vec<(i64, usize)>,
    /// Blocks and merged partitions since the last yield.
    pub(crate) since_yield: (u32, u32),
    /// The token reached in the range; `None` before the first.
    reached: Option<i64>,
    in_making: Arc<AtomicU64>,
}

/// The approximate cost of looking up a partition in files, in blocks scanned.
const BLOCKS_A_LOOK_UP: usize = 2;
/// Partitions of memtables that cost as much as a block to scan.
const PARTITIONS_A_BLOCK: usize = 256;

impl BatchSnapshot {
    /// Returns true if looking up this number of partitions, one after the other, is faster than a
    /// scan of all.
    pub fn is_worth_looking_up(&self, partitions: usize) -> bool {
        let blocks = self.files.blocks();
        let in_memory: usize = self.memory.iter().map(Memtable::len).sum();
        let all = blocks + in_memory / PARTITIONS_A_BLOCK;
        let looked_up =
            if blocks == 0 { partitions / PARTITIONS_A_BLOCK } else { partitions * BLOCKS_A_LOOK_UP };
        partitions <= 1 || looked_up <= all
    }

    /// Starts a scan, which keeps the snapshot until its end.
    #[must_use]
    pub fn scan(&self, request: BatchRequest) -> BatchScan {
        let mut scan = BatchScan {
            snapshot: self.clone(),
            gather: Gather::new(request, self.now_s),
            has_begun: false,
            range: 0,
            memory: Vec::new(),
            files: Vec::new(),
            pending: None,
            tokens: Vec::new(),
            to_merge: Vec::new(),
            since_yield: (0, 0),
            reached: None,
            in_making: Arc::default(),
        };
        scan.open();
        scan
    }
}

impl BatchScan {
    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.gather.schema()
    }

    /// Replaces the request's conditions and bounds by these, which must imply them. The scan may
    /// then leave out rows of later blocks that cannot satisfy them.
    pub fn narrow(&mut self, conditions: Vec<ValueRange>, clustering: (Bound<Bytes>, Bound<Bytes>)) {
        self.gather.request.conditions = conditions;
        self.gather.request.clustering = clustering;
        self.files.iter_mut().for_each(FileSource::forget);
    }

    /// Opens the sources at the start of the current range, if there is one.
    fn open(&mut self) {
        (self.memory, self.files, self.reached) = (Vec::new(), Vec::new(), None);
        let Some((first, last)) = self.range().filter(|(first, last)| first <= last) else { return };
        let wanted = |file: &TableFile| first != last || file.may_contain(first);
        let BatchSnapshot { memory, files, cache, .. } = &self.snapshot;
        let cache = || (!self.gather.request.bypass_cache).then(|| cache.clone());
        self.memory = memory.iter().map(|table| MemorySource::new(table.clone(), first)).collect();
        let of_run = |fragments: &[Arc<TableFile>]| {
            let wanted = fragments.iter().filter(|file| wanted(file));
            FileSource::new(wanted.cloned().collect(), first, last, cache())
        };
        self.files = files.runs().iter().filter_map(|run| of_run(run.between(first, last))).collect();
    }

    /// Returns the current token range; `None` at the end.
    fn range(&self) -> Option<(i64, i64)> {
        self.gather.request.tokens.get(self.range).map(|range| (*range.start(), *range.end()))
    }

    /// Returns the last token of the range. Meaningful only if there are sources.
    fn last(&self) -> i64 {
        self.range().map_or(i64::MIN, |(_, last)| last)
    }

    /// Returns the bytes of the batch that [`BatchScan::next`] is making, as of its last yield. 0
    /// between batches.
    #[must_use]
    pub fn in_making(&self) -> Arc<AtomicU64> {
        self.in_making.clone()
    }

    /// Returns what was visited since the last call.
    pub fn take_visited(&mut self) -> Visited {
        self.gather.take_visited()
    }

    /// Returns the snapshot that this scan reads.
    pub fn snapshot(&self) -> &BatchSnapshot {
        &self.snapshot
    }

    /// Replaces the request's token ranges by parts of them. Has no effect after the first call of
    /// `next`.
    pub fn restrict(&mut self, tokens: Vec<RangeInclusive<i64>>) {
        if !self.has_begun {
            self.gather.request.tokens = tokens;
            self.open();
        }
    }

    /// Returns the fraction of the token ranges that is done, from 0 to 1, giving each range the
    /// same weight.
    pub fn progress(&self) -> f64 {
        let Some((first, last)) = self.range() else { return 1.0 };
        let here = match self.reached {
            Some(token) if last > first => {
                token.clamp(first, last).abs_diff(first) as f64 / last.abs_diff(first) as f64
            }
            _ => 0.0,
        };
        (self.range as f64 + here) / self.gather.request.tokens.len() as f64
    }

    /// Returns the next batch, which is never empty; `None` at the end.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        self.has_begun = true;
        let next = self.next_batch().await;
        self.in_making.store(0, Relaxed);
        if next.is_err() {
            self.files.iter().for_each(FileSource::forget_cached);
        }
        next
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        loop {
            if self.gather.is_full() {
                return self.batch().map(Some);
            }
            if self.pending.is_some() {
                self.resume_pending().await?;
                continue;
            }
            let Some(end) = self.window().await? else {
                if self.range + 1 < self.gather.request.tokens.len() {
                    self.range += 1;
                    self.open();
                    self.since_yield.1 += 1;
                    self.yield_if_due().await;
                    continue;
                }
                self.range = self.gather.request.tokens.len();
                self.open();
                return if self.gather.is_empty() { Ok(None) } else { self.batch().map(Some) };
            };
            self.find_overlaps(end)?;
            if self.tokens.is_empty() {
                self.take_least().await?;
            } else {
                if self.gather.request.in_order {
                    self.take_in_order(end).await?;
                } else {
                    self.take(end).await?;
                }
                if !self.must_stop() {
                    self.reached = self.reached.max(Some(i64::try_from(end).unwrap_or(i64::MAX)));
                }
            }
            self.yield_if_due().await;
        }
    }

    pub(crate) async fn yield_if_due(&mut self) {
        if self.since_yield.0 >= BLOCKS_BETWEEN_YIELDS || self.since_yield.1 >= PARTITIONS_BETWEEN_YIELDS {
            self.since_yield = (0, 0);
            self.in_making.store(self.gather.bytes() as u64, Relaxed);
            self.snapshot.env.heavy_yield().await;
        }
    }

    /// Loads blocks until all partitions below the window's end are in memory. Returns the end, or
    /// `None` if nothing is left.
    async fn window(&mut self) -> Result<Option<i128>, StorageError> {
        let last = self.last();
        loop {
            let mut end = i128::from(last) + 1;
            let (mut any, mut unread) = (false, None::<(i64, usize)>);
            for source in &mut self.memory {
                source.fill(last);
                any |= source.tokens().next().is_some();
                end = end.min(source.end());
            }
            for (index, file) in self.files.iter_mut().enumerate() {
                file.advance_fragment();
                if !file.plain {
                    file.skip()?;
                }
                match file.token()?.filter(|token| *token <= last) {
                    None => {}
                    Some(_) if file.is_loaded() => {
                        any = true;
                        end = end.min(file.end()?);
                    }
                    Some(token) if unread.is_none_or(|(least, _)| token < least) => {
                        unread = Some((token, index))
                    }
                    Some(_) => {}
                }
            }
            // A partition that starts at the end may be merged next. Its sources must be known
            // then.
            match unread.filter(|(token, _)| i128::from(*token) <= end) {
                Some((_, file)) if self.may_skip_block(file)? => self.files[file].next_block += 1,
                Some((_, file)) => {
                    self.files[file].load().await?;
                    self.files[file].skip()?;
                }
                None => return Ok(any.then_some(end)),
            }
            self.since_yield.0 += 1;
            self.yield_if_due().await;
        }
    }

    /// Finds the partitions below `end`, and those of them that need a merge.
    fn find_overlaps(&mut self, end: i128) -> Result<(), StorageError> {
        self.tokens.clear();
        self.to_merge.clear();
        if let Some(alone) = self.alone(end)? {
            self.tokens.push(alone);
            return Ok(());
        }
        for (source, file) in self.files.iter().enumerate() {
            let before = self.tokens.len();
            for part in file.parts_below(end)? {
                let token = file.token_of(part)?;
                if file.plain || file.file.entry.owns(token) {
                    self.tokens.push((token, source));
                }
            }
            if !file.plain {
                self.to_merge.extend_from_slice(&self.tokens[before..]);
            }
        }
        for (source, memory) in (self.files.len()..).zip(&self.memory) {
            let below = memory.tokens().take_while(|token| i128::from(*token) < end);
            self.tokens.extend(below.map(|token| (token, source)));
        }
        // The tokens of a source ascend, which makes this stable sort fast.
        self.tokens.sort();
        for same in self.tokens.chunk_by(|(one, _), (next, _)| one == next) {
            // Sorted by source, so first and last differ if any do.
            if same[0].1 != same[same.len() - 1].1 {
                self.to_merge.extend_from_slice(same);
            }
        }
        self.to_merge.sort_unstable();
        self.to_merge.dedup();
        Ok(())
    }

    /// Returns the first token of the only source with tokens below `end`, if all of it can be
    /// copied by column.
    fn alone(&self, end: i128) -> Result<Option<(i64, usize)>, StorageError> {
        let mut alone = None;
        for source in 0..self.files.len() + self.memory.len() {
            let next = match source.checked_sub(self.files.len()) {
                Some(memory) => self.memory[memory].tokens().next(),
                None => self.files[source].token()?,
            };
            if let Some(token) = next.filter(|token| i128::from(*token) < end)
                && alone.replace((token, source)).is_some()
            {
                return Ok(None);
            }
        }
        Ok(alone.filter(|(_, source)| self.files.get(*source).is_none_or(|file| file.plain)))
    }

    /// Takes the partitions below `end`, or as many as fill the batch.
    async fn take(&mut self, end: i128) -> Result<(), StorageError> {
        let to_merge = std::mem::take(&mut self.to_merge);
        for same in to_merge.chunk_by(|(one, _), (next, _)| one == next) {
            let token = same[0].0;
            for (_, source) in same {
                self.take_below(*source, i128::from(token))?;
            }
            self.merge_all(same, token).await?;
        }
        self.to_merge = to_merge;
        (0..self.files.len() + self.memory.len()).try_for_each(|source| self.take_below(source, end))
    }

    /// Merges the partitions with this token in these sources, or as many as fill the batch.
    async fn merge_all(&mut self, sources: &[(i64, usize)], token: i64) -> Result<(), StorageError> {
        // Several partitions may share a token.
        while !self.must_stop()
            && let Some(place) = self.least_of(sources, token)?
        {
            self.merge(place).await?;
            self.yield_if_due().await;
        }
        Ok(())
    }

    /// Takes the partitions below `end` as [`BatchScan::take`] does, in the order of their tokens
    /// and keys.
    async fn take_in_order(&mut self, end: i128) -> Result<(), StorageError> {
        let (tokens, to_merge) = (std::mem::take(&mut self.tokens), std::mem::take(&mut self.to_merge));
        let (mut rest, mut merges) = (&tokens[..], &to_merge[..]);
        while let Some(&(token, source)) = rest.first() {
            if merges.first().is_some_and(|(next, _)| *next == token) {
                let count = merges.partition_point(|(next, _)| *next == token);
                self.merge_all(&merges[..count], token).await?;
                merges = &merges[count..];
                rest = &rest[rest.partition_point(|(next, _)| *next == token)..];
                continue;
            }
            let bound = merges.first().map_or(end, |(next, _)| i128::from(*next));
            let is_same = |(next, of): &&(i64, usize)| *of == source && i128::from(*next) < bound;
            rest = &rest[rest.iter().take_while(is_same).count()..];
            // With a single source, `tokens` has its first one alone.
            let behind = rest.first().map_or(bound, |(next, _)| i128::from(*next).min(bound));
            self.take_below(source, behind)?;
            if self.must_stop() {
                break;
            }
        }
        (self.tokens, self.to_merge) = (tokens, to_merge);
        Ok(())
    }

    /// Returns the least position with this token in these sources.
    fn least_of(&self, sources: &[(i64, usize)], token: i64) -> Result<Option<Position>, StorageError> {
        let mut least: Option<Position> = None;
        for (_, source) in sources {
            let place = self.place(*source)?.filter(|place| place.0 == token);
            if let Some(place) = place
                && least.as_ref().is_none_or(|least| place < *least)
            {
                least = Some(place);
            }
        }
        Ok(least)
    }

    fn place(&self, source: usize) -> Result<Option<Position>, StorageError> {
        match source.checked_sub(self.files.len()) {
            Some(memory) => Ok(self.memory[memory].place()),
            None => self.files[source].place(),
        }
    }

    /// Returns true if nothing can be taken now: the batch is full, or a partition must be
    /// continued first.
    fn must_stop(&self) -> bool {
        self.pending.is_some() || self.gather.is_full()
    }

    /// Copies a source's loaded partitions below `end`, unless the batch is full.
    fn take_below(&mut self, source: usize, end: i128) -> Result<(), StorageError> {
        let stop = self.must_stop();
        let Some(file) = self.files.get_mut(source) else {
            let memory = source - self.files.len();
            while !self.must_stop()
                && let Some((token, key, partition)) = self.memory[memory].next_below(end)
            {
                self.since_yield.1 += 1;
                self.take_view(&(token, key), partition);
            }
            return Ok(());
        };
        let parts = file.parts_below(end)?;
        if parts.is_empty() || stop {
            return Ok(());
        }
        // In a file that is not plain, all owned partitions are merged.
        let wanted = file.plain && file.may_match(&self.gather.request)?;
        let damaged = file.file.malformed(file.next_block - 1);
        if let Some((block, part)) = &mut file.block {
            *part = parts.end;
            if wanted {
                self.gather.append(block, parts).map_err(damaged)?;
            }
        }
        Ok(())
    }

    /// Takes the least partition, or its loaded part if it may continue in the next block.
    async fn take_least(&mut self) -> Result<(), StorageError> {
        let last = self.last();
        let mut places: Vec<(Position, usize)> = Vec::new();
        for source in 0..self.files.len() + self.memory.len() {
            places
                .extend(self.place(source)?.filter(|(token, _)| *token <= last).map(|place| (place, source)));
        }
        places.sort();
        let Some((least, source)) = places.first() else { return Ok(()) };
        let bound = places.get(1).map(|(place, _)| place);
        self.reached = self.reached.max(Some(least.0));
        if *source < self.files.len() && bound != Some(least) && self.take_piece(*source, bound)? {
            return Ok(());
        }
        let least = least.clone();
        self.merge(least).await
    }

    /// Returns true if the next block of a file can be skipped: no row in it satisfies the
    /// conditions, no other source has its partitions, and the following block does not need it.
    fn may_skip_block(&self, index: usize) -> Result<bool, StorageError> {
        let FileSource { file, next_block, .. } = &self.files[index];
        let entry = &file.index[*next_block];
        if self.gather.request.may_match(&entry.zone_map).map_err(file.malformed(*next_block))? {
            return Ok(false);
        }
        let next = file.index.get(next_block + 1);
        let is_cut = next.is_some_and(|next| next.start.clustering.is_some());
        if is_cut && next.is_some_and(|next| !next.plain) {
            return Ok(false);
        }
        for source in (0..self.files.len() + self.memory.len()).filter(|source| *source != index) {
            let place = self.place(source)?.filter(|(token, _)| *token <= self.last());
            let Some((token, key)) = place else { continue };
            let is_behind = next.is_some_and(|next| {
                let end = (next.start.token, &next.start.key);
                if is_cut { end < (token, &key) } else { end <= (token, &key) }
            });
            if !is_behind {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies the loaded part of the partition that ends a file's block. Returns false if another
    /// source may have the partition. `bound` is the least position of the other sources.
    fn take_piece(&mut self, source: usize, bound: Option<&Position>) -> Result<bool, StorageError> {
        let file = &self.files[source];
        let Some(next) = file.file.index.get(file.next_block).filter(|_| file.plain) else {
            return Ok(false);
        };
        let (token, key) = (next.start.token, &next.start.key);
        if bound.is_some_and(|bound| (token, key) >= (bound.0, &bound.1)) {
            return Ok(false);
        }
        self.take_below(source, i128::from(token) + 1)?;
        Ok(true)
    }

    fn batch(&mut self) -> Result<RecordBatch, StorageError> {
        let path = || self.files.first().map(|file| file.file.path.clone()).unwrap_or_default();
        self.gather.finish().map_err(|what| StorageError::corrupt(path(), what))
    }
}
