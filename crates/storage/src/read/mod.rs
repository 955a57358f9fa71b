//! Point reads: what memory knows of a key, merged with what files know.
//!
//! A read of one row unpacks only the columns that will be looked at. Whether a row is alive may hang on the others, though, where
//! it has no marker or what it has was deleted since: then, and only then, it is read again with all of them.

pub(crate) mod before;
pub(crate) mod lookup;
pub(crate) mod merge;
pub(crate) mod slice;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::StorageError;
use crate::model::TableId;
use crate::model::partition::Partition;
use crate::model::view::{PartitionView, RowView};
use crate::read::lookup::Lookup;
use crate::shard::Shard;
use crate::table::cache::Cache;
use crate::table::part::{Ask, Block};
use crate::world::LocalBoxFuture;

/// A read: done at once when all it needs is in memory, otherwise a future.
pub enum Read<T> {
    /// The answer.
    Ready(T),
    /// The answer once blocks have been read from disk.
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

/// A whole partition that is read takes at most this part of the cache, or none of it.
const PARTITION_PART: usize = 8;

/// A point read in progress.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pub(crate) found: Option<Partition>,
    /// A row was read without some of its columns.
    pub(crate) partial: bool,
    /// Where sources stopped that have more of a slice.
    pub(crate) frontiers: Vec<Bytes>,
    pub(crate) lookups: Vec<Lookup>,
}

impl Gather {
    pub(crate) fn add(&mut self, partition: Partition) {
        self.found = Some(match self.found.take() {
            None => partition,
            Some(found) => found.merge(partition),
        });
    }

    /// Goes on as far as the cache allows, starting with the block asked for last. Answers with the block that has to
    /// be read from disk, or `None` at the end.
    pub(crate) fn advance(
        &mut self,
        cache: &RefCell<Cache>,
        mut fetched: Option<Block>,
    ) -> Result<Option<usize>, StorageError> {
        let partition_max = cache.borrow().bytes_max() / PARTITION_PART;
        while let Some(lookup) = self.lookups.last_mut() {
            let Some(index) = lookup.needs() else {
                let lookup = self.lookups.pop().expect("the last one was seen");
                self.partial |= lookup.partial;
                self.frontiers.extend(lookup.frontier);
                lookup.found.into_iter().for_each(|partition| self.add(partition));
                continue;
            };
            let block = match fetched.take() {
                Some(block) => block,
                None => match cache.borrow_mut().get(lookup.file.id, index) {
                    Some(block) => block,
                    None => return Ok(Some(index)),
                },
            };
            if let Err(error) = lookup.take(&block) {
                // The disk may have it better than the cache.
                cache.borrow_mut().forget(lookup.file.id);
                return Err(error);
            }
            // Only now is it known how much of it was unpacked.
            if !lookup.bypasses(partition_max) {
                cache.borrow_mut().keep(lookup.file.id, index, &block);
            }
        }
        Ok(None)
    }

    /// Reads what the cache lacks. `missing` is what `advance` answered.
    pub(crate) async fn finish(
        &mut self,
        cache: &RefCell<Cache>,
        missing: usize,
    ) -> Result<(), StorageError> {
        let mut missing = Some(missing);
        while let Some(index) = missing {
            let file = self.lookups.last().expect("a block is missing for a lookup").file.clone();
            let block = file.read_block(index).await?;
            missing = self.advance(cache, Some(block))?;
        }
        Ok(())
    }
}

/// What of a row is wanted, and whether the cache is to keep what had to be read for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pick<'a> {
    /// The columns that will be looked at, in ascending order; of others the answer may or may not have cells. `None`: all of them.
    pub columns: Option<&'a [u32]>,
    /// Blocks that are not in the cache are read past it.
    pub bypass_cache: bool,
}

impl Pick<'static> {
    /// All columns, by way of the cache.
    pub const ALL: Pick<'static> = Pick { columns: None, bypass_cache: false };
}

impl<'a> Pick<'a> {
    /// These columns, by way of the cache.
    #[must_use]
    pub fn columns(columns: &'a [u32]) -> Pick<'a> {
        Pick { columns: Some(columns), bypass_cache: false }
    }
}

/// Where a partition is, and when it is read.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) table: TableId,
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    pub(crate) now_s: u32,
}

impl Shard {
    /// The partition with this key as it is now; `None` when nothing was ever written to it. `now_s` (Unix seconds)
    /// decides what has expired.
    pub fn read_partition(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        now_s: u32,
    ) -> Read<Option<PartitionView>> {
        let target = Target { table, token, key: Bytes::copy_from_slice(key), now_s };
        let see = move |gather: Gather| gather.found.map(|p| PartitionView::new(p, now_s));
        self.gather_and(&target, Ask::All, see)
    }

    /// Gathers, from memory at once or with the disk, and lets `see` make the answer of it.
    pub(crate) fn gather_and<T: 'static>(
        self: &Rc<Self>,
        target: &Target,
        ask: Ask,
        see: impl FnOnce(Gather) -> T + 'static,
    ) -> Read<T> {
        match self.gather(target, ask) {
            Err(error) => Read::Pending(Box::pin(async { Err(error) })),
            Ok((gather, None)) => Read::Ready(see(gather)),
            Ok((mut gather, Some(missing))) => {
                let shard = self.clone();
                Read::Pending(Box::pin(async move {
                    gather.finish(&shard.cache, missing).await?;
                    Ok(see(gather))
                }))
            }
        }
    }

    /// One live row: the fast path of point reads. A row is there whatever of it is picked: if nothing of that is alive, the rest is
    /// read as well.
    pub fn read_row(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        clustering: &[u8],
        pick: Pick<'_>,
        now_s: u32,
    ) -> Read<Option<RowView>> {
        {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&table) else { return Read::Ready(None) };
            if table.frozen.is_empty() && table.files.holding(token).next().is_none() {
                table.searched.count(0);
                let found = table.active.row(token, key, clustering);
                return Read::Ready(found.and_then(|(row, floor)| RowView::new(row, floor, now_s)));
            }
        }
        let target = Target { table, token, key: Bytes::copy_from_slice(key), now_s };
        let clustering = Bytes::copy_from_slice(clustering);
        let bypass_cache = pick.bypass_cache;
        let columns: Option<Arc<[u32]>> = pick.columns.filter(|columns| columns.is_sorted()).map(Into::into);
        let ask = Ask::Row { clustering: clustering.clone(), columns: columns.clone(), bypass_cache };
        match self.gather(&target, ask) {
            Err(error) => Read::Pending(Box::pin(async { Err(error) })),
            Ok((gather, None)) => match see_row(&gather, &clustering, columns.as_deref(), now_s) {
                Some(seen) => Read::Ready(seen),
                None => {
                    let shard = self.clone();
                    Read::Pending(Box::pin(async move {
                        shard.read_whole_row(target, clustering, bypass_cache).await
                    }))
                }
            },
            Ok((mut gather, Some(missing))) => {
                let shard = self.clone();
                Read::Pending(Box::pin(async move {
                    gather.finish(&shard.cache, missing).await?;
                    match see_row(&gather, &clustering, columns.as_deref(), now_s) {
                        Some(seen) => Ok(seen),
                        None => shard.read_whole_row(target, clustering, bypass_cache).await,
                    }
                }))
            }
        }
    }

    /// Reads a row with all its columns.
    async fn read_whole_row(
        self: &Rc<Self>,
        target: Target,
        clustering: Bytes,
        bypass_cache: bool,
    ) -> Result<Option<RowView>, StorageError> {
        let ask = Ask::Row { clustering: clustering.clone(), columns: None, bypass_cache };
        let (mut gather, missing) = self.gather(&target, ask)?;
        if let Some(missing) = missing {
            gather.finish(&self.cache, missing).await?;
        }
        Ok(see_row(&gather, &clustering, None, target.now_s).expect("nothing was left out"))
    }

    /// Gathers what memory and the cache know, and names the block that is missing.
    pub(crate) fn gather(&self, target: &Target, ask: Ask) -> Result<(Gather, Option<usize>), StorageError> {
        let mut gather = Gather::default();
        let state = self.state.borrow();
        let Some(table) = state.tables.get(&target.table) else { return Ok((gather, None)) };
        for partition in table.memtables().filter_map(|memtable| memtable.get(target.token, &target.key)) {
            let known = match &ask {
                Ask::All => partition,
                Ask::Row { clustering, .. } => partition.only(clustering),
                Ask::Slice(slice) => {
                    let given = slice::of_partition(&partition, slice, slice.rows);
                    gather.frontiers.extend(given.last.filter(|_| given.more));
                    given.partition
                }
            };
            gather.add(known);
        }
        for file in table.files.holding(target.token) {
            gather.lookups.push(Lookup::new(file.clone(), target.token, target.key.clone(), ask.clone()));
        }
        table.searched.count(gather.lookups.len());
        let missing = gather.advance(&self.cache, None)?;
        Ok((gather, missing))
    }
}

/// The row as it is seen; `None`: that cannot be said without the columns that were left out. One of those may be known from memory, and
/// what became of it from a file that was not asked: so only the marker and the columns `picked` tell that the row is there.
fn see_row(
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
    let told = view.liveness().is_some() || view.cells().any(|cell| picked.contains(&cell.column));
    told.then_some(Some(view))
}
