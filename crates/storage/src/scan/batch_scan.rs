//! A scan that yields Arrow record batches: the rows of ranges of tokens, by column, partitions in no particular order.
//!
//! Sources are the memtables and files of a snapshot, each at its next partition of a range. Again and again:
//!
//! 1. Blocks are read until of every source all partitions below some token, the window's end, are at hand. A block that cannot satisfy the
//!    conditions is passed over unread, if no other source overlaps it.
//! 2. Tokens that several sources have in the window are found: those partitions are merged and go row by row. So do those of blocks with static
//!    cells or deletions of more than a cell, and of files of which not all counts here.
//! 3. What lies between them nobody else knows of: it is taken as it lies, source by source and column by column. Rows that are dead are left
//!    out run by run; values that are dead or expired are nulls.
//!
//! ```text
//!  file 1   a   c c   f f f │ j …        b is merged out of file 2 and the memtable,
//!  file 2     b   c c       │ g g …      c out of both files; a, d e and f f f are taken as they lie;
//!  memory     b     d e     │ h …        │ is the window's end: file 2 has no more at hand
//! ```
//!
//! A partition that goes on over blocks ends no window. It is taken block by block if nobody else knows of it, and merged if not, by
//! stretches where it is large (batch_wide.rs).
//!
//! The fragments of a run are one source: a step of the scan costs what there are runs, however many files they are in.
//!
//! To be run on a heavy lane: it gives way about every millisecond, not every few microseconds. Blocks are read past the
//! block cache, by way of that of scans.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::error::StorageError;
use crate::memtable::Memtable;
use crate::model::TableId;
use crate::scan::batch_request::BatchRequest;
use crate::scan::file_source::{FileSource, Place};
use crate::scan::gather::Gather;
use crate::scan::memory_source::MemorySource;
use crate::scan::wide::Pending;
use crate::shard::{Shard, Table};
use crate::table::columnar::bounds::ValueRange;
use crate::table::file::TableFile;
use crate::table::runs::Files;
use crate::table::scan_cache::ScanCache;
use crate::world::World;

/// Blocks read, and partitions that go row by row, between looks at the scheduler: 10 × 64 KiB at a GB/s, 256 × 2 µs.
const BLOCKS_A_TURN: u32 = 10;
const PARTITIONS_A_TURN: u32 = 256;

/// What a table held when this was taken, to be scanned any number of times. May be sent to another thread; while it is kept, so are the
/// files and memtables it is made of.
#[derive(Clone, Debug)]
pub struct BatchSnapshot {
    pub(crate) world: Arc<dyn World>,
    pub(crate) memory: Vec<Memtable>,
    pub(crate) files: Files,
    cache: Arc<ScanCache>,
    pub(crate) now_s: u32,
}

/// A scan in progress. May be sent to another thread.
#[derive(Debug)]
pub struct BatchScan {
    pub(crate) snapshot: BatchSnapshot,
    pub(crate) gather: Gather,
    /// The first batch was asked for.
    has_begun: bool,
    /// The range of tokens it is at; beyond the last one at its end.
    range: usize,
    pub(crate) memory: Vec<MemorySource>,
    /// One for each run.
    pub(crate) files: Vec<FileSource>,
    /// The partition that the last batch ended in.
    pub(crate) pending: Option<Pending>,
    /// Sources have numbers: those of `files` come first. Which of them have which tokens in the window; and those that are to be merged.
    tokens: Vec<(i64, usize)>,
    apart: Vec<(i64, usize)>,
    pub(crate) turns: (u32, u32),
    /// The token it has come to in the range; `None` before the first.
    reached: Option<i64>,
}

impl Shard {
    /// What the table holds at `now_s`, which is now.
    pub fn batch_snapshot(&self, table: TableId, now_s: u32) -> BatchSnapshot {
        let state = self.state.borrow();
        let table = state.tables.get(&table);
        BatchSnapshot {
            world: self.world.clone(),
            memory: table.map(Table::snapshot).unwrap_or_default(),
            files: table.map(|table| table.files.clone()).unwrap_or_default(),
            cache: self.scan_cache.clone(),
            now_s,
        }
    }
}

/// What it takes, roughly, to look a partition up in files, in blocks gone through, and rows of memtables that take as long as a block.
const BLOCKS_A_LOOK_UP: usize = 2;
const PARTITIONS_A_BLOCK: usize = 256;

impl BatchSnapshot {
    /// Whether it is quicker to look so many partitions up, one after the other, than to go through all of them.
    pub fn is_worth_looking_up(&self, partitions: usize) -> bool {
        let blocks = self.files.blocks();
        let in_memory: usize = self.memory.iter().map(Memtable::len).sum();
        let all = blocks + in_memory / PARTITIONS_A_BLOCK;
        let looked_up =
            if blocks == 0 { partitions / PARTITIONS_A_BLOCK } else { partitions * BLOCKS_A_LOOK_UP };
        partitions <= 1 || looked_up <= all
    }

    /// A scan of it, which keeps all of it until its own end.
    #[must_use]
    pub fn scan(&self, request: BatchRequest) -> BatchScan {
        let gather = Gather::new(request, self.now_s);
        let (memory, files, tokens, apart) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let snapshot = self.clone();
        let (has_begun, range, turns, reached) = (false, 0, (0, 0), None);
        let pending = None;
        let mut scan = BatchScan {
            snapshot,
            gather,
            has_begun,
            range,
            memory,
            files,
            pending,
            tokens,
            apart,
            turns,
            reached,
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

    /// From here on these conditions and bounds hold instead of those of the request, which they are to imply: rows of blocks not taken
    /// yet that cannot satisfy them may be left out.
    pub fn narrow(&mut self, conditions: Vec<ValueRange>, clustering: (Bound<Bytes>, Bound<Bytes>)) {
        self.gather.request.conditions = conditions;
        self.gather.request.clustering = clustering;
        self.files.iter_mut().for_each(FileSource::forget);
    }

    /// Stands at the beginning of its range, if there is one.
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

    /// The range of tokens it is at; none at its end.
    fn range(&self) -> Option<(i64, i64)> {
        self.gather.request.tokens.get(self.range).map(|range| (*range.start(), *range.end()))
    }

    /// The last token of the range; to be asked where there are sources.
    fn last(&self) -> i64 {
        self.range().map_or(i64::MIN, |(_, last)| last)
    }

    /// What it is a scan of.
    pub fn snapshot(&self) -> &BatchSnapshot {
        &self.snapshot
    }

    /// Only these ranges of tokens are scanned instead of those of the request, of which they are to be parts; unless the scan has begun.
    pub fn restrict(&mut self, tokens: Vec<RangeInclusive<i64>>) {
        if !self.has_begun {
            self.gather.request.tokens = tokens;
            self.open();
        }
    }

    /// How much of the ranges of tokens is done, from 0 to 1, taking each for as much.
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

    /// The next batch; `None` at the end. Never empty.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        self.has_begun = true;
        let next = self.next_batch().await;
        if next.is_err() {
            self.files.iter().for_each(FileSource::distrust);
        }
        next
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        loop {
            if self.gather.is_full() {
                return self.batch().map(Some);
            }
            if self.pending.is_some() {
                self.go_on_pending().await?;
                continue;
            }
            let Some(end) = self.window().await? else {
                if self.range + 1 < self.gather.request.tokens.len() {
                    self.range += 1;
                    self.open();
                    self.turns.1 += 1;
                    self.give_way().await;
                    continue;
                }
                self.range = self.gather.request.tokens.len();
                self.open();
                return if self.gather.is_empty() { Ok(None) } else { self.batch().map(Some) };
            };
            self.look(end)?;
            if self.tokens.is_empty() {
                self.go_on().await?;
            } else {
                self.take(end).await?;
                if !self.must_stop() {
                    self.reached = self.reached.max(Some(i64::try_from(end).unwrap_or(i64::MAX)));
                }
            }
            self.give_way().await;
        }
    }

    pub(crate) async fn give_way(&mut self) {
        if self.turns.0 >= BLOCKS_A_TURN || self.turns.1 >= PARTITIONS_A_TURN {
            self.turns = (0, 0);
            self.snapshot.world.heavy_yield().await;
        }
    }

    /// Reads until all partitions below the window's end, which it gives, are at hand; `None` if nothing is left.
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
                file.turn_over();
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
            // A partition that starts at the end may be merged next: who has it is to be known then.
            match unread.filter(|(token, _)| i128::from(*token) <= end) {
                Some((_, file)) if self.may_pass_over(file)? => self.files[file].next_block += 1,
                Some((_, file)) => {
                    self.files[file].load().await?;
                    self.files[file].skip()?;
                }
                None => return Ok(any.then_some(end)),
            }
            self.turns.0 += 1;
            self.give_way().await;
        }
    }

    /// Finds what there is below `end`, and what of it is to be merged.
    fn look(&mut self, end: i128) -> Result<(), StorageError> {
        self.tokens.clear();
        self.apart.clear();
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
                self.apart.extend_from_slice(&self.tokens[before..]);
            }
        }
        for (source, memory) in (self.files.len()..).zip(&self.memory) {
            let below = memory.tokens().take_while(|token| i128::from(*token) < end);
            self.tokens.extend(below.map(|token| (token, source)));
        }
        // Those of a source ascend, which this sort makes use of.
        self.tokens.sort();
        for same in self.tokens.chunk_by(|(one, _), (next, _)| one == next) {
            // Sorted by their sources.
            if same[0].1 != same[same.len() - 1].1 {
                self.apart.extend_from_slice(same);
            }
        }
        self.apart.sort_unstable();
        self.apart.dedup();
        Ok(())
    }

    /// The first token of the only source that has any below `end`, if all of it can be taken as it lies.
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

    /// Takes what there is below `end`, or as much of it as fills a batch.
    async fn take(&mut self, end: i128) -> Result<(), StorageError> {
        let apart = std::mem::take(&mut self.apart);
        for same in apart.chunk_by(|(one, _), (next, _)| one == next) {
            let token = same[0].0;
            for (_, source) in same {
                self.take_below(*source, i128::from(token))?;
            }
            // Several, if their keys have the same token.
            while !self.must_stop()
                && let Some(place) = self.least_of(same, token)?
            {
                self.merge(place).await?;
                self.give_way().await;
            }
        }
        self.apart = apart;
        (0..self.files.len() + self.memory.len()).try_for_each(|source| self.take_below(source, end))
    }

    /// The least place with this token in these sources.
    fn least_of(&self, sources: &[(i64, usize)], token: i64) -> Result<Option<Place>, StorageError> {
        let mut least: Option<Place> = None;
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

    fn place(&self, source: usize) -> Result<Option<Place>, StorageError> {
        match source.checked_sub(self.files.len()) {
            Some(memory) => Ok(self.memory[memory].place()),
            None => self.files[source].place(),
        }
    }

    /// Whether nothing is to be taken now: there is a batch's worth, or a partition goes on first.
    fn must_stop(&self) -> bool {
        self.pending.is_some() || self.gather.is_full()
    }

    /// Takes as it lies what a source has at hand below `end`, unless there is a batch's worth already.
    fn take_below(&mut self, source: usize, end: i128) -> Result<(), StorageError> {
        let stop = self.must_stop();
        let Some(file) = self.files.get_mut(source) else {
            let memory = source - self.files.len();
            while !self.must_stop()
                && let Some((token, key, partition)) = self.memory[memory].next_below(end)
            {
                self.turns.1 += 1;
                self.take_view(&(token, key), partition);
            }
            return Ok(());
        };
        let parts = file.parts_below(end)?;
        if parts.is_empty() || stop {
            return Ok(());
        }
        // Of a file that is not plain all that counts is merged.
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

    /// Takes the least partition, or what is at hand of it, where it may go on in the next block.
    async fn go_on(&mut self) -> Result<(), StorageError> {
        let last = self.last();
        let mut places: Vec<(Place, usize)> = Vec::new();
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

    /// Whether the next block of a file can be left unread: nothing in it satisfies the conditions, nothing else knows of its
    /// partitions, and what comes behind does not need it.
    fn may_pass_over(&self, index: usize) -> Result<bool, StorageError> {
        let FileSource { file, next_block, .. } = &self.files[index];
        let entry = &file.index[*next_block];
        if self.gather.request.may_match(&entry.bounds).map_err(file.malformed(*next_block))? {
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

    /// Takes as it lies what is at hand of the partition that ends a file's block, unless others, the least of whose places is `bound`, may
    /// know of it.
    fn take_piece(&mut self, source: usize, bound: Option<&Place>) -> Result<bool, StorageError> {
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
