//! A scan that yields Arrow record batches: the rows of a token range, by column.
//!
//! Sources are the memtables and files of a snapshot, each at its next partition. Again and again:
//!
//! 1. The least place among the sources is looked for, and the least among the others.
//! 2. If only one file is there, its block is taken as it lies, column by column, up to the place of the others: nothing else knows of
//!    these partitions. Rows that are dead are left out run by run; values that are dead or expired are nulls.
//! 3. Otherwise, or where a deletion of more than a row is in the way, the one partition is merged and goes row by row.
//! 4. A block that cannot satisfy the conditions is passed over unread, if no other source overlaps it.
//!
//! To be run on a heavy lane: it gives way about every millisecond, not every few microseconds. The cache is neither asked nor filled.

use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::batch_request::BatchRequest;
use crate::columnar::bounds::{ValueRange, may_match};
use crate::error::StorageError;
use crate::file_source::{FileSource, Place};
use crate::gather::Gather;
use crate::memtable::{Entry, Memtable, ScanFrom};
use crate::model::TableId;
use crate::part::Block;
use crate::shard::Shard;
use crate::table_file::TableFile;
use crate::view::PartitionView;
use crate::world::World;

/// Entries taken from a memtable at a time.
const CHUNK: usize = 64;

/// Blocks taken, and partitions merged, between looks at the scheduler: 10 × 64 KiB at a GB/s, 256 × 2 µs.
const BLOCKS_A_TURN: u32 = 10;
const PARTITIONS_A_TURN: u32 = 256;

/// A scan in progress. May be sent to another thread.
#[derive(Debug)]
pub struct BatchScan {
    world: Arc<dyn World>,
    gather: Gather,
    now_s: u32,
    memory: Vec<MemorySource>,
    files: Vec<FileSource>,
    turns: (u32, u32),
    /// The token it has come to; `None` before the first and after the last.
    reached: Option<i64>,
    ended: bool,
}

#[derive(Debug)]
struct MemorySource {
    table: Memtable,
    from: ScanFrom,
    head: VecDeque<Entry>,
    done: bool,
}

impl MemorySource {
    fn place(&mut self, last: i64) -> Option<Place> {
        if self.head.is_empty() && !self.done {
            self.table.collect(&self.from, last, CHUNK, &mut self.head);
            self.done = self.head.len() < CHUNK;
            if let Some((token, key, _)) = self.head.back() {
                self.from = ScanFrom::After(*token, key.clone());
            }
        }
        self.head.front().map(|(token, key, _)| (*token, key.clone()))
    }
}

impl Shard {
    /// A scan of what the table holds now.
    pub fn scan_batches(self: &Rc<Self>, table: TableId, request: BatchRequest, now_s: u32) -> BatchScan {
        let state = self.state.borrow();
        let (first, last) = (*request.tokens.start(), *request.tokens.end());
        let wanted = |file: &TableFile| {
            let (least, greatest) = file.tokens();
            least <= last && first <= greatest && (first != last || file.may_contain(first))
        };
        let (memory, files) = match state.tables.get(&table).filter(|_| first <= last) {
            None => (Vec::new(), Vec::new()),
            Some(table) => {
                let from = ScanFrom::Token(first);
                let memory = table.snapshot().into_iter().map(|table| MemorySource {
                    table,
                    from: from.clone(),
                    head: VecDeque::new(),
                    done: false,
                });
                let files = table.files.iter().filter(|file| wanted(file));
                let files = files.map(|file| FileSource::new(file.clone(), first, last));
                (memory.collect(), files.collect())
            }
        };
        let world = self.world.clone();
        let gather = Gather::new(request, now_s);
        BatchScan { world, gather, now_s, memory, files, turns: (0, 0), reached: None, ended: false }
    }
}

/// Who is next.
enum Next {
    End,
    /// A file alone, up to the place of the others.
    Alone(usize, Option<Place>),
    /// Several, or memory.
    Merge(Place),
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
    }

    /// How much of the range of tokens is done, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let tokens = &self.gather.request.tokens;
        let (first, last) = (*tokens.start() as f64, *tokens.end() as f64);
        match self.reached {
            _ if self.ended => 1.0,
            Some(token) if last > first => ((token as f64 - first) / (last - first)).clamp(0.0, 1.0),
            _ => 0.0,
        }
    }

    /// The next batch; `None` at the end. Never empty.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        loop {
            if self.gather.is_full() {
                return self.batch().map(Some);
            }
            match self.choose().await? {
                Next::End => {
                    self.ended = true;
                    return if self.gather.is_empty() { Ok(None) } else { self.batch().map(Some) };
                }
                Next::Alone(file, bound) => {
                    if !self.take_block(file, bound.as_ref())? {
                        let place = self.files[file].place()?.expect("a part is at hand");
                        self.merge(place).await?;
                    }
                    self.turns.0 += 1;
                }
                Next::Merge(place) => {
                    self.merge(place).await?;
                    self.turns.1 += 1;
                }
            }
            if self.turns.0 >= BLOCKS_A_TURN || self.turns.1 >= PARTITIONS_A_TURN {
                self.turns = (0, 0);
                self.world.heavy_yield().await;
            }
        }
    }

    /// Finds the least place, reading blocks that are not to be passed over.
    async fn choose(&mut self) -> Result<Next, StorageError> {
        let last = *self.gather.request.tokens.end();
        loop {
            let mut places: Vec<(Place, Option<usize>)> = Vec::new();
            for source in &mut self.memory {
                places.extend(source.place(last).map(|place| (place, None)));
            }
            for (index, file) in self.files.iter().enumerate() {
                places.extend(file.place()?.map(|place| (place, Some(index))));
            }
            places.retain(|((token, _), _)| *token <= last);
            places.sort();
            let Some((least, who)) = places.first() else { return Ok(Next::End) };
            self.reached = Some(least.0);
            // Blocks not read yet may start before what they hold counts.
            let unread = places
                .iter()
                .take_while(|(place, _)| place == least)
                .filter_map(|(_, who)| *who)
                .find(|file| !self.files[*file].is_loaded());
            if let Some(file) = unread {
                let others =
                    places.iter().find(|(_, who)| *who != Some(file)).map(|(place, _)| place.clone());
                if self.may_pass_over(file, others.as_ref())? {
                    self.files[file].next_block += 1;
                } else {
                    self.files[file].load().await?;
                    self.files[file].skip()?;
                }
                continue;
            }
            if let Some(file) = *who
                && self.files[file].skip()?
            {
                continue;
            }
            let bound = places.get(1).map(|(place, _)| place.clone());
            return Ok(match who {
                Some(file) if bound.as_ref() != Some(least) => Next::Alone(*file, bound),
                _ => Next::Merge(least.clone()),
            });
        }
    }

    /// Whether the next block of a file can be left unread: nothing in it satisfies the conditions, nothing else knows of its
    /// partitions, and what comes behind does not need it.
    fn may_pass_over(&self, file: usize, others: Option<&Place>) -> Result<bool, StorageError> {
        let FileSource { file, next_block, .. } = &self.files[file];
        let entry = &file.index[*next_block];
        let request = &self.gather.request;
        if request.conditions.is_empty() && !request.is_bounded() || entry.bounds.is_empty() {
            return Ok(false);
        }
        let alone = match (file.index.get(next_block + 1), others) {
            (Some(next), _) if next.start.clustering.is_some() && !next.plain => false,
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(next), Some((token, key))) => {
                let end = (next.start.token, &next.start.key);
                if next.start.clustering.is_some() { end < (*token, key) } else { end <= (*token, key) }
            }
        };
        let damaged = file.malformed(*next_block);
        let clustering = request.clustering();
        Ok(alone && !may_match(&entry.bounds, clustering, &request.conditions).map_err(damaged)?)
    }

    /// Takes partitions of the block at hand as they lie, up to `bound`; false if not even one could be.
    fn take_block(&mut self, file: usize, bound: Option<&Place>) -> Result<bool, StorageError> {
        let FileSource { file: table, next_block, block, .. } = &self.files[file];
        let (table, next_block) = (table.clone(), *next_block);
        let damaged = table.malformed(next_block - 1);
        let next = table.index.get(next_block).map(|entry| (entry.start.token, &entry.start.key));
        let Some((Block::Columns(block), part)) = block else { return Ok(false) };
        if block.has_heads() || !table.entry.owners.is_empty() {
            return Ok(false);
        }
        // A partition that goes on from a block with a deletion never comes here: it was merged whole.
        let last = *self.gather.request.tokens.end();
        let inside = |place: (i64, &bytes::Bytes)| {
            place.0 <= last && bound.is_none_or(|(token, key)| place < (*token, key))
        };
        let end = match next {
            Some(next) if inside(next) => block.parts,
            _ => {
                let keys = block.keys().map_err(&damaged)?;
                let past = last.checked_add(1).map_or(block.parts, |token| keys.lower_bound(token, &[]));
                bound.map_or(past, |(token, key)| past.min(keys.lower_bound(*token, key)))
            }
        };
        let parts = *part..end;
        if parts.is_empty() {
            return Ok(false);
        }
        let block = block.clone();
        let taken = self.gather.append(&block, parts.clone()).map_err(&damaged)?;
        if taken && let Some((_, part)) = &mut self.files[file].block {
            *part = parts.end;
        }
        Ok(taken)
    }

    /// Merges the partition at this place out of all sources that have it, and appends its rows.
    async fn merge(&mut self, place: Place) -> Result<(), StorageError> {
        let mut merged = None;
        let mut add = |partition: crate::partition::Partition| {
            merged = Some(match merged.take() {
                None => partition,
                Some(other) => partition.merge(other),
            });
        };
        for source in &mut self.memory {
            if source.head.front().is_some_and(|(token, key, _)| (*token, key) == (place.0, &place.1)) {
                source.head.pop_front().into_iter().for_each(|(_, _, partition)| add(partition));
            }
        }
        for file in &mut self.files {
            if file.is_loaded() && file.place()?.as_ref() == Some(&place) {
                add(file.partition().await?);
            }
        }
        let Some(merged) = merged else { return Ok(()) };
        self.gather.append_view(&place, &PartitionView::new(merged, self.now_s));
        Ok(())
    }

    fn batch(&mut self) -> Result<RecordBatch, StorageError> {
        let path = || self.files.first().map(|file| file.file.path.clone()).unwrap_or_default();
        self.gather.finish().map_err(|what| StorageError::corrupt(path(), what))
    }
}
