//! Point reads: versions of a key in memtables, merged with those in files.
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

use bytes::Bytes;

use crate::env::{Env, LocalBoxFuture, Work, run_heavy};
use crate::error::StorageError;
use crate::model::TableId;
use crate::model::partition::Partition;
use crate::model::view::RowView;
use crate::read::lookup::Lookup;
use crate::state::Table;
use crate::table::cache::Cache;
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
    /// The largest row that is built of several versions, bytes.
    row_bytes_max: usize,
    pub(crate) found: Option<Partition>,
    /// True if a row was decoded without some of its columns.
    pub(crate) partial: bool,
    /// True for a read of a slice that may have rows.
    is_slice: bool,
    /// The last rows of sources that have more of a slice.
    pub(crate) frontiers: Vec<Bytes>,
    pub(crate) lookups: Vec<Lookup>,
    /// The missing block if the cache has it: a large one, whose rows are decoded on a heavy lane.
    large: Option<Block>,
}

impl Gather {
    /// Merges the versions in memory and cached blocks. Returns the block that is missing, if any,
    /// for [`Gather::finish`].
    pub(crate) fn start(
        table: &Table,
        cache: &RefCell<Cache>,
        target: &Target,
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
        let mut gather = Gather { token: target.token, row_bytes_max, is_slice, ..Gather::default() };
        let newest_first = table.memtables_newest_first();
        for partition in newest_first.filter_map(|memtable| memtable.get(target.token, &target.key)) {
            let known = match &request {
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
        for file in table.files.holding(target.token) {
            gather.lookups.push(Lookup::new(file.clone(), target.token, target.key.clone(), request.clone()));
        }
        table.searched.count(gather.lookups.len());
        let missing = gather.advance(cache, None)?;
        Ok((gather, missing))
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
        while let Some(lookup) = self.lookups.last_mut() {
            let Some(index) = lookup.needs() else {
                let lookup = self.lookups.pop().expect("the last one was seen");
                self.partial |= lookup.partial;
                self.frontiers.extend(lookup.frontier);
                if let Some(partition) = lookup.found {
                    self.add(partition)?;
                }
                continue;
            };
            let block = match fetched.take() {
                Some(block) => block,
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
        Ok(None)
    }

    /// Reads the blocks that the cache lacks, and decodes large ones on the heavy lane, in the
    /// group of the reader. `missing` is the result of `advance`.
    pub(crate) async fn finish(
        &mut self,
        (env, cache): (&dyn Env, &RefCell<Cache>),
        missing: usize,
    ) -> Result<(), StorageError> {
        let mut missing = Some(missing);
        while let Some(index) = missing {
            let Some(block) = self.large.take() else {
                let file = self.lookups.last().expect("a block is missing for a lookup").file.clone();
                let block = file.read_block(index).await?;
                missing = self.advance(cache, Some(block))?;
                continue;
            };
            let mut lookup = self.lookups.pop().expect("the block is for a lookup");
            let take = async move {
                let taken = lookup.take(&block);
                (lookup, block, taken)
            };
            let (lookup, block, taken) = run_heavy(env, Work::Requested(lanes::current_group()), take).await;
            lookup.took(cache, index, &block, taken)?;
            self.lookups.push(lookup);
            missing = self.advance(cache, None)?;
        }
        Ok(())
    }
}

/// The wanted columns of a row, and the use of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick<'a> {
    /// The columns that the caller needs, ascending. The answer may or may not have cells of
    /// others. `None`: all columns.
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
pub(crate) struct Target {
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
