//! Point reads: versions of a key in memtables, merged with those in files.
//!
//! Files are asked from the greatest timestamp down. A read ends when nothing in the files that are
//! left can change what the reader sees: the wanted columns of its row are there, or a deletion
//! covers the rest (`settled.rs`). So a row that was overwritten costs as much as one that was
//! written once.
//!
//! Rows that were read from files are cached, and take their place in the next read
//! (`cached_row.rs`).
//!
//! A read of one row decompresses only the requested columns. If the row has no marker, or if it
//! was deleted and written again, other columns may decide whether it exists. Only then it is read
//! again with all columns.

pub(crate) mod before;
pub(crate) mod lookup;
pub(crate) mod merge;
pub(crate) mod slice;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::env::{Env, LocalBoxFuture, Work, run_heavy};
use crate::error::StorageError;
use crate::model::TableId;
use crate::model::partition::Partition;
use crate::model::reconcile::floor_of;
use crate::model::settled::settled_below;
use crate::model::view::RowView;
use crate::read::lookup::Lookup;
use crate::state::ShardTable;
use crate::table::cache::Cache;
use crate::table::cached_row::{CachedRow, RowPlace};
use crate::table::file::TableFile;
use crate::table::part::{Block, PartRequest};

/// A read: ready at once if memory has all it needs, otherwise a future.
pub enum Read<T> {
    /// The answer.
    Ready(T),
    /// The answer after blocks were read from disk.
    Pending(LocalBoxFuture<Result<T, StorageError>>),
}

impl<T> fmt::Debug for Read<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Read::Ready(_)) { "Ready" } else { "Pending" })
    }
}

impl<T> Read<T> {
    /// Waits for the answer.
    pub async fn wait(self) -> Result<T, StorageError> {
        match self {
            Read::Ready(answer) => Ok(answer),
            Read::Pending(future) => future.await,
        }
    }
}

/// A point read in progress.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    token: i64,
    key: Bytes,
    now_s: u32,
    request: PartRequest,
    /// The largest row that is built of several versions, bytes.
    row_bytes_max: usize,
    pub(crate) found: Option<Partition>,
    /// Files with lower timestamps only cannot change what the reader sees.
    settled_below: i64,
    /// True if a row was decoded without some of its columns.
    pub(crate) partial: bool,
    /// True for a read of a slice that may have rows.
    is_slice: bool,
    /// The last rows of sources that have more of a slice.
    pub(crate) frontiers: Vec<Bytes>,
    /// Files that were not asked yet, ascending by their greatest timestamps.
    left: Vec<Arc<TableFile>>,
    lookup: Option<Lookup>,
    /// True once a block was read from disk.
    from_disk: bool,
    /// The number of files that were asked.
    pub(crate) searched: usize,
    rows: RowCaching,
    /// The missing block if the cache has it: a large one, whose rows are decoded on a heavy lane.
    large: Option<Block>,
}

/// The part of a read that the cache of rows takes over.
#[derive(Debug, Default)]
struct RowCaching {
    table: Option<TableId>,
    /// See [`Cache::epoch`], and the sequence of the table's files at the start.
    epoch: u64,
    sequence: u64,
    /// The cached row in use.
    cached: Option<Arc<CachedRow>>,
    /// Files that it covers, if newer ones may unsettle what it leaves open.
    covered: Vec<Arc<TableFile>>,
    /// True if memory has a version. Otherwise all that was found is of files.
    has_memory: bool,
    /// The versions that files and the cached row had, if memory has one too.
    of_files: Option<Partition>,
    /// The greatest timestamp of files that were not asked, if there are some.
    unasked: Option<i64>,
}

impl Gather {
    /// Merges the versions in memory and cached blocks. Returns the block that is missing, if any,
    /// for [`Gather::finish`].
    pub(crate) fn start(
        table: &ShardTable,
        cache: &RefCell<Cache>,
        target: &ReadTarget,
        request: PartRequest,
        row_bytes_max: usize,
    ) -> Result<(Gather, Option<usize>), StorageError> {
        let is_slice = match &request {
            // Readers of a slice without rows want its static cells at once.
            PartRequest::Slice(slice) => !slice.is_empty(),
            // A whole partition is read of small tables of the server only.
            PartRequest::All => true,
            PartRequest::Row { .. } => false,
        };
        let ReadTarget { token, key, now_s, .. } = target.clone();
        let mut gather = Gather {
            token,
            key,
            now_s,
            request,
            row_bytes_max,
            is_slice,
            settled_below: i64::MIN,
            ..Gather::default()
        };
        let newest_first = table.memtables_newest_first();
        for partition in newest_first.filter_map(|memtable| memtable.get(target.token, &target.key)) {
            let known = match &gather.request {
                PartRequest::All => partition,
                PartRequest::Row { clustering, .. } => partition.only(clustering),
                PartRequest::Slice(slice) => {
                    let given = slice::of_partition(&partition, slice, slice.rows);
                    gather.frontiers.extend(given.last.filter(|_| given.more));
                    given.partition
                }
            };
            gather.add(known)?;
        }
        gather.settle();
        gather.rows.has_memory = gather.found.is_some();
        if !table.files.is_empty() && table.files.greatest_timestamp() >= gather.settled_below {
            gather.take_cached(table, cache, target)?;
            gather.choose_files(table);
        }
        let missing = gather.advance(cache, None)?;
        Ok((gather, missing))
    }

    /// Takes the cached row as a source, if there is one that settles what files would.
    fn take_cached(
        &mut self,
        table: &ShardTable,
        cache: &RefCell<Cache>,
        target: &ReadTarget,
    ) -> Result<(), StorageError> {
        let PartRequest::Row { clustering, columns, bypass_cache: false } = &self.request else {
            return Ok(());
        };
        let place = RowPlace { table: target.table, token: self.token, key: &self.key, clustering };
        let (columns, now_s) = (columns.clone(), self.now_s);
        let mut cache = cache.borrow_mut();
        let cached = cache.row(place, |row| row.is_for(place, columns.as_deref(), now_s));
        self.rows.table = Some(target.table);
        self.rows.epoch = cache.epoch();
        self.rows.sequence = table.files.version();
        let Some(cached) = cached else {
            cache.count_row(false);
            return Ok(());
        };
        let (found, below) = (self.found.clone(), self.settled_below);
        self.add(cached.partition.clone())?;
        self.settle();
        let is_used = !cached.leaves_open(self.settled_below);
        cache.count_row(is_used);
        if !is_used {
            (self.found, self.settled_below) = (found, below);
            return Ok(());
        }
        self.partial |= cached.columns.is_some();
        self.keep_of_files(&cached.partition);
        self.rows.unasked = cached.unasked;
        self.rows.cached = Some(cached);
        Ok(())
    }

    /// Collects the files that may change what the reader sees.
    fn choose_files(&mut self, table: &ShardTable) {
        let sequence = self.rows.cached.as_ref().map(|cached| cached.sequence);
        let is_covered =
            |file: &&Arc<TableFile>| sequence.is_some_and(|sequence| file.sequence() <= sequence);
        for file in table.files.spanning(self.token).filter(|file| !is_covered(file)) {
            if file.greatest_timestamp() < self.settled_below {
                self.rows.unasked = self.rows.unasked.max(Some(file.greatest_timestamp()));
            } else if file.may_contain(self.token) {
                self.left.push(file.clone());
            }
        }
        self.left.sort_unstable_by_key(|file| file.greatest_timestamp());
        if !self.left.is_empty() && self.rows.cached.as_ref().is_some_and(|cached| cached.unasked.is_some()) {
            let covered = table.files.spanning(self.token).filter(is_covered);
            self.rows.covered = covered.filter(|file| file.may_contain(self.token)).cloned().collect();
        }
    }

    /// Caches what files had of the row, if some were asked.
    pub(crate) fn keep_row(&mut self, cache: &RefCell<Cache>) {
        let RowCaching { table: Some(table), epoch, sequence, unasked, .. } = self.rows else { return };
        let PartRequest::Row { clustering, columns, .. } = &self.request else { return };
        if self.searched == 0 {
            return;
        }
        let of_files = if self.rows.has_memory { self.rows.of_files.take() } else { self.found.clone() };
        let Some(of_files) = of_files else { return };
        let place = RowPlace { table, token: self.token, key: &self.key, clustering };
        let columns = columns.clone().filter(|_| self.partial);
        if let Some(row) = CachedRow::new(place, of_files, columns, epoch, sequence, unasked, self.now_s) {
            cache.borrow_mut().keep_row(place, Arc::new(row), self.from_disk);
        }
    }

    /// Updates how far what was found is settled. Large rows are opened only once, at the end.
    fn settle(&mut self) {
        let Some(found) = &self.found else { return };
        self.settled_below = match &self.request {
            PartRequest::Row { clustering, columns, .. } if found.opens_at_once() => {
                let row = found.row(clustering);
                let floor = found.floor(clustering);
                settled_below(row, floor, columns.as_deref(), self.now_s)
            }
            PartRequest::Row { clustering, .. } => {
                settled_below(None, found.floor(clustering), None, self.now_s)
            }
            PartRequest::All | PartRequest::Slice(_) => {
                settled_below(None, floor_of(found.deletion()), None, self.now_s)
            }
        };
    }

    /// Returns true if what was found may be opened within a task poll. Rows of a slice are opened
    /// one by one, as readers come to them.
    pub(crate) fn opens_at_once(&self) -> bool {
        self.is_slice || self.found.as_ref().is_none_or(Partition::opens_at_once)
    }

    /// Adds a version. Newer ones should come first: a deletion shadows older versions, and a row
    /// that is too large ends the read before the rest of it is in memory.
    fn add(&mut self, partition: Partition) -> Result<(), StorageError> {
        let Some(found) = self.found.take() else {
            self.found = Some(partition);
            return Ok(());
        };
        let (merged, largest) = found.merge_measured(partition);
        let (token, limit) = (self.token, self.row_bytes_max);
        if largest > limit && merged.has_large_rows(limit) {
            return Err(StorageError::RowTooLarge { token, limit });
        }
        self.found = Some(merged);
        Ok(())
    }

    /// Continues as far as the cache allows. `fetched` is the block whose number the last call
    /// returned. Returns the next block to read from disk, or `None` at the end.
    pub(crate) fn advance(
        &mut self,
        cache: &RefCell<Cache>,
        mut fetched: Option<Block>,
    ) -> Result<Option<usize>, StorageError> {
        loop {
            let Some(lookup) = &mut self.lookup else {
                let Some(file) = self.left.pop().or_else(|| self.next_covered()) else { return Ok(None) };
                if file.greatest_timestamp() >= self.settled_below {
                    self.searched += 1;
                    let request = self.request.clone();
                    self.lookup = Some(Lookup::new(file, self.token, self.key.clone(), request));
                } else {
                    self.rows.unasked = self.rows.unasked.max(Some(file.greatest_timestamp()));
                }
                continue;
            };
            let Some(index) = lookup.needs() else {
                let lookup = self.lookup.take().expect("it was seen");
                self.partial |= lookup.partial;
                self.frontiers.extend(lookup.frontier);
                if let Some(partition) = lookup.found {
                    self.keep_of_files(&partition);
                    self.add(partition)?;
                    self.settle();
                }
                continue;
            };
            let block = match fetched.take() {
                Some(block) => {
                    self.from_disk = true;
                    block
                }
                None => match cache.borrow_mut().get(lookup.file.id, index) {
                    Some(block) => block,
                    None => return Ok(Some(index)),
                },
            };
            if block.is_large() {
                self.large = Some(block);
                return Ok(Some(index));
            }
            let taken = lookup.take(&block);
            lookup.took(cache, index, &block, taken)?;
        }
    }

    /// Returns a file that the cached row covers, once newer ones have unsettled what it left open.
    fn next_covered(&mut self) -> Option<Arc<TableFile>> {
        let cached = self.rows.cached.as_ref()?;
        cached.leaves_open(self.settled_below).then(|| self.rows.covered.pop())?
    }

    /// Merges what a file had for the cache of rows.
    fn keep_of_files(&mut self, partition: &Partition) {
        if self.rows.table.is_some() && self.rows.has_memory {
            self.rows.of_files = Some(match self.rows.of_files.take() {
                Some(own) => own.merge(partition.clone()),
                None => partition.clone(),
            });
        }
    }

    /// Reads the blocks that the cache lacks, and decodes large ones on the heavy lane, in the
    /// group of the reader. `missing` is the result of `advance`.
    pub(crate) async fn finish(
        &mut self,
        env: &dyn Env,
        cache: &RefCell<Cache>,
        missing: usize,
    ) -> Result<(), StorageError> {
        let mut missing = Some(missing);
        while let Some(index) = missing {
            let Some(block) = self.large.take() else {
                let file = self.lookup.as_ref().expect("a block is missing for a lookup").file.clone();
                let block = file.read_block(index).await?;
                missing = self.advance(cache, Some(block))?;
                continue;
            };
            let mut lookup = self.lookup.take().expect("the block is for a lookup");
            let take = async move {
                let taken = lookup.take(&block);
                (lookup, block, taken)
            };
            let (lookup, block, taken) = run_heavy(env, Work::Requested(lanes::current_group()), take).await;
            lookup.took(cache, index, &block, taken)?;
            self.lookup = Some(lookup);
            missing = self.advance(cache, None)?;
        }
        Ok(())
    }
}

/// The wanted columns of a row, and the use of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick<'a> {
    /// The columns that the caller needs, ascending. The answer has their cells, and exists if the
    /// row does. It may or may not have cells of others and a marker, and these may be outdated.
    /// `None`: all columns.
    pub columns: Option<&'a [u32]>,
    /// Blocks that are not cached are read and not cached.
    pub bypass_cache: bool,
}

impl Pick<'static> {
    /// All columns, with caching.
    pub const ALL: Pick<'static> = Pick { columns: None, bypass_cache: false };
}

impl<'a> Pick<'a> {
    /// Requests these columns, with caching.
    #[must_use]
    pub fn columns(columns: &'a [u32]) -> Pick<'a> {
        Pick { columns: Some(columns), bypass_cache: false }
    }
}

/// The partition to read, and the time of the read.
#[derive(Clone, Debug)]
pub(crate) struct ReadTarget {
    pub(crate) table: TableId,
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    pub(crate) now_s: u32,
}

/// Returns the row as the reader sees it. The outer `None` means that columns left out decide
/// whether the row exists. Memory may have a cell of such a column that a file deletes. So only the
/// marker and the `picked` columns prove that the row exists.
pub(crate) fn see_row(
    gather: &Gather,
    clustering: &[u8],
    picked: Option<&[u32]>,
    now_s: u32,
) -> Option<Option<RowView>> {
    let Some(partition) = &gather.found else { return Some(None) };
    let Some(row) = partition.row(clustering) else { return Some(None) };
    let view = RowView::new(row.clone(), partition.floor(clustering), now_s);
    let Some(picked) = picked.filter(|_| gather.partial) else { return Some(view) };
    let view = view?;
    let is_visible = view.liveness().is_some() || view.cells().any(|cell| picked.contains(&cell.column));
    is_visible.then_some(Some(view))
}
