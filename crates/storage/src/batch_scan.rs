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
use std::ops::{Bound, Range, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::batches::{ColumnOut, ColumnType};
use crate::codec::Malformed;
use crate::columnar;
use crate::columnar::bounds::{ValueRange, may_match};
use crate::error::StorageError;
use crate::file_source::{FileSource, Place};
use crate::memtable::{Entry, Memtable, ScanFrom};
use crate::model::TableId;
use crate::part::Block;
use crate::shard::Shard;
use crate::view::PartitionView;
use crate::world::World;

/// A batch is closed at so many bytes of one column, whatever rows were asked for: offsets are 32 bits.
const COLUMN_BYTES_MAX: usize = 64 << 20;

/// Entries taken from a memtable at a time.
const CHUNK: usize = 64;

/// Blocks taken, and partitions merged, between looks at the scheduler: 10 × 64 KiB at a GB/s, 256 × 2 µs.
const BLOCKS_A_TURN: u32 = 10;
const PARTITIONS_A_TURN: u32 = 256;

/// A column of the batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanColumn {
    /// The token of the partition.
    Token,
    /// The partition's key.
    Key,
    /// The clustering encoding; null for a partition that has nothing but static cells.
    Clustering,
    /// The cells of a column of the rows. Elements of collections are not among them.
    Cell(u32, ColumnType),
    /// A static cell, said again with each row.
    Static(u32, ColumnType),
}

impl ScanColumn {
    fn kind(self) -> ColumnType {
        match self {
            ScanColumn::Token => ColumnType::Int64,
            ScanColumn::Key | ScanColumn::Clustering => ColumnType::Binary,
            ScanColumn::Cell(_, kind) | ScanColumn::Static(_, kind) => kind,
        }
    }

    fn field(self) -> Field {
        match self {
            ScanColumn::Token => Field::new("token", DataType::Int64, false),
            ScanColumn::Key => Field::new("key", DataType::Binary, false),
            ScanColumn::Clustering => Field::new("clustering", DataType::Binary, true),
            ScanColumn::Cell(column, kind) | ScanColumn::Static(column, kind) => {
                Field::new(format!("column {column}"), kind.data_type(), true)
            }
        }
    }
}

/// What is to be scanned.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The columns of the batches.
    pub columns: Vec<ScanColumn>,
    /// The range of tokens.
    pub tokens: RangeInclusive<i64>,
    /// Conditions that the consumer applies: rows that cannot satisfy all of them may be left out.
    pub conditions: Vec<ValueRange>,
    /// About how many rows a batch has; a block's worth more at most.
    pub rows: usize,
}

/// A scan in progress. May be sent to another thread.
#[derive(Debug)]
pub struct BatchScan {
    world: Arc<dyn World>,
    request: BatchRequest,
    schema: SchemaRef,
    now_s: u32,
    memory: Vec<MemorySource>,
    files: Vec<FileSource>,
    out: Vec<ColumnOut>,
    rows: usize,
    turns: (u32, u32),
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
        let first = *request.tokens.start();
        let (memory, files) = match state.tables.get(&table) {
            None => (Vec::new(), Vec::new()),
            Some(table) => {
                let from = ScanFrom::Token(first);
                let memory = table.snapshot().into_iter().map(|table| MemorySource {
                    table,
                    from: from.clone(),
                    head: VecDeque::new(),
                    done: false,
                });
                let files = table.files.iter().map(|file| FileSource::new(file.clone(), first));
                (memory.collect(), files.collect())
            }
        };
        let fields: Vec<Field> = request.columns.iter().map(|column| column.field()).collect();
        let schema = Arc::new(Schema::new(fields));
        let world = self.world.clone();
        BatchScan { world, request, schema, now_s, memory, files, out: Vec::new(), rows: 0, turns: (0, 0) }
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
        &self.schema
    }

    /// The next batch; `None` at the end. Never empty.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        loop {
            let full = self.out.iter().any(|column| column.bytes() >= COLUMN_BYTES_MAX);
            if self.rows >= self.request.rows.max(1) || full {
                return self.batch().map(Some);
            }
            match self.choose().await? {
                Next::End if self.rows == 0 => return Ok(None),
                Next::End => return self.batch().map(Some),
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
        let last = *self.request.tokens.end();
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
        if self.request.conditions.is_empty() || entry.bounds.is_empty() {
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
        let all = (Bound::Unbounded, Bound::Unbounded);
        let possible = |Malformed| file.malformed(*next_block)(Malformed);
        Ok(alone && !may_match(&entry.bounds, all, &self.request.conditions).map_err(possible)?)
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
        let last = *self.request.tokens.end();
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
        let taken = self.append(&block, parts.clone()).map_err(&damaged)?;
        if taken && let Some((_, part)) = &mut self.files[file].block {
            *part = parts.end;
        }
        Ok(taken)
    }

    /// Appends the rows of these parts of a block; false if rows of it were deleted.
    fn append(&mut self, block: &columnar::Block, parts: Range<usize>) -> Result<bool, Malformed> {
        if block.row_count() == 0 {
            return Ok(true);
        }
        let marks = block.row_marks()?;
        if !marks.undeleted() {
            return Ok(false);
        }
        let rows = block.rows_of(parts.start)?.start..block.rows_of(parts.end - 1)?.end;
        if self.out.is_empty() {
            self.start();
        }
        let mut from = rows.start;
        while from < rows.end {
            let mut to = from;
            if block.all_marked()? {
                (from, to) = (rows.start, rows.end);
            } else {
                while to < rows.end && block.is_alive(to, self.now_s)? {
                    to += 1;
                }
            }
            if to > from {
                self.append_run(block, parts.clone(), from..to)?;
            }
            // The row that ended the run is dead.
            from = to + 1;
        }
        Ok(true)
    }

    /// Appends rows that are all alive.
    fn append_run(
        &mut self,
        block: &columnar::Block,
        parts: Range<usize>,
        rows: Range<usize>,
    ) -> Result<(), Malformed> {
        let keys = block.keys()?;
        let single = block.row_count() == block.parts && keys.one_row_each();
        for (column, out) in self.request.columns.iter().zip(&mut self.out) {
            match column {
                ScanColumn::Token if single => rows.clone().for_each(|row| {
                    out.push(Some(&keys.token(row).to_be_bytes()));
                }),
                ScanColumn::Key if single => out.push_stretch(&keys.keys, rows.clone(), None, 0),
                ScanColumn::Token | ScanColumn::Key => {
                    for part in parts.clone() {
                        let own = block.rows_of(part)?;
                        let count = own.end.min(rows.end).saturating_sub(own.start.max(rows.start));
                        match column {
                            ScanColumn::Token => out.push_repeated(&keys.token(part).to_be_bytes(), count),
                            _ => out.push_repeated(keys.keys.raw(part), count),
                        }
                    }
                }
                ScanColumn::Clustering => out.push_stretch(block.clustering()?, rows.clone(), None, 0),
                ScanColumn::Static(..) => out.push_nulls(rows.len()),
                ScanColumn::Cell(column, _) => match block.cells(*column)? {
                    Some((marks, values)) => out.push_stretch(values, rows.clone(), Some(marks), self.now_s),
                    None => out.push_nulls(rows.len()),
                },
            }
        }
        self.rows += rows.len();
        Ok(())
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
        self.append_view(&place, &PartitionView::new(merged, self.now_s));
        Ok(())
    }

    fn append_view(&mut self, (token, key): &Place, view: &PartitionView) {
        if self.out.is_empty() {
            self.start();
        }
        let mut any = false;
        for row in view.rows() {
            any = true;
            self.rows += 1;
            for (column, out) in self.request.columns.iter().zip(&mut self.out) {
                match column {
                    ScanColumn::Token => out.push(Some(&token.to_be_bytes())),
                    ScanColumn::Key => out.push(Some(key)),
                    ScanColumn::Clustering => out.push(Some(row.clustering())),
                    ScanColumn::Cell(column, _) => out.push(row.cell(*column).and_then(|cell| cell.value())),
                    ScanColumn::Static(column, _) => {
                        out.push(view.static_cell(*column).and_then(|cell| cell.value()));
                    }
                }
            }
        }
        if any || view.static_cells().next().is_none() {
            return;
        }
        self.rows += 1;
        for (column, out) in self.request.columns.iter().zip(&mut self.out) {
            match column {
                ScanColumn::Token => out.push(Some(&token.to_be_bytes())),
                ScanColumn::Key => out.push(Some(key)),
                ScanColumn::Clustering | ScanColumn::Cell(..) => out.push(None),
                ScanColumn::Static(column, _) => {
                    out.push(view.static_cell(*column).and_then(|cell| cell.value()));
                }
            }
        }
    }

    fn start(&mut self) {
        let rows = self.request.rows;
        self.out = self.request.columns.iter().map(|column| ColumnOut::new(column.kind(), rows)).collect();
    }

    fn batch(&mut self) -> Result<RecordBatch, StorageError> {
        let rows = std::mem::take(&mut self.rows);
        let columns = std::mem::take(&mut self.out);
        let arrays: Option<Vec<ArrayRef>> = columns.into_iter().map(ColumnOut::finish).collect();
        let path = self.files.first().map(|file| file.file.path.clone()).unwrap_or_default();
        let corrupt = |what: &str| StorageError::corrupt(path.clone(), what);
        let arrays =
            arrays.ok_or_else(|| corrupt("a text in it, or in another file of the table, is not UTF-8"))?;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| corrupt(&error.to_string()))
    }
}
