//! Reads of a shard: points, slices and scans.

use std::future::poll_fn;
use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;
use std::sync::Arc;
use std::task::ready;

use bytes::Bytes;

use crate::env::{Work, run_heavy};
use crate::error::StorageError;
use crate::memtable::ScanFrom;
use crate::model::TableId;
use crate::model::view::{PartitionView, RowView};
use crate::read::before::{RowBefore, StaticsBefore, newest_in};
use crate::read::merge::MergeStream;
use crate::read::slice::Sliced;
use crate::read::{Gather, Pick, Read, ReadTarget, see_row};
use crate::scan::Scan;
use crate::scan::batch_scan::BatchSnapshot;
use crate::shard::Shard;
use crate::state::ShardTable;
use crate::table::cached_row::RowPlace;
use crate::table::part::{PartRequest, Slice};
use crate::table::runs::Files;

impl Shard {
    /// Reads the partition with this key; `None` if it was never written. `now_s` (Unix seconds)
    /// decides which cells have expired.
    pub fn read_partition(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        now_s: u32,
    ) -> Read<Option<PartitionView>> {
        let target = ReadTarget { table, token, key: Bytes::copy_from_slice(key), now_s };
        let see = move |gather: Gather| gather.found.map(|p| PartitionView::new(p, now_s));
        self.gather_and(&target, PartRequest::All, see)
    }

    /// Reads a partition, from memory at once or with the disk. `see` converts the result.
    pub(crate) fn gather_and<T: Send + 'static>(
        self: &Rc<Self>,
        target: &ReadTarget,
        request: PartRequest,
        see: impl FnOnce(Gather) -> T + Send + 'static,
    ) -> Read<T> {
        match self.gather(target, request) {
            Err(error) => Read::Pending(Box::pin(async { Err(error) })),
            Ok((gather, None)) if gather.opens_at_once() => Read::Ready(see(gather)),
            Ok((gather, None)) => self.on_heavy_lane(async move { see(gather) }),
            Ok((mut gather, Some(missing))) => {
                let (shard, table) = (self.clone(), target.table);
                Read::Pending(Box::pin(async move {
                    shard.finish(table, &mut gather, missing).await?;
                    if gather.opens_at_once() {
                        return Ok(see(gather));
                    }
                    shard.on_heavy_lane(async move { see(gather) }).wait().await
                }))
            }
        }
    }

    /// Opens a large row on the heavy lane, in the group of the reader.
    fn on_heavy_lane<T: Send + 'static>(
        self: &Rc<Self>,
        open: impl Future<Output = T> + Send + 'static,
    ) -> Read<T> {
        let env = self.env.clone();
        let work = Work::Requested(lanes::current_group());
        Read::Pending(Box::pin(async move { Ok(run_heavy(&*env, work, open).await) }))
    }

    /// Reads one live row: the fast path of point reads. A row exists independently of the picked
    /// columns: if none of them is alive, the other columns are read as well.
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
            let id = table;
            let Some(table) = state.tables.get(&table) else { return Read::Ready(None) };
            let row = table.active.row(token, key, clustering);
            if table.has_only(token, row.as_ref(), pick.columns, now_s) {
                table.searched.count(0);
                let Some((placed, floor)) = row else { return Read::Ready(None) };
                if placed.opens_at_once() {
                    return Read::Ready(RowView::new(placed.row().clone(), floor, now_s));
                }
                let open = async move { RowView::new(placed.row().clone(), floor, now_s) };
                return self.on_heavy_lane(open);
            }
            if row.is_none() && !pick.bypass_cache {
                let place = RowPlace { table: id, token, key, clustering };
                if let Some(row) = table.cached_row(&self.store.cache, place, pick.columns, now_s) {
                    table.searched.count(0);
                    return Read::Ready(RowView::new(row, i64::MIN, now_s));
                }
            }
        }
        let target = ReadTarget { table, token, key: Bytes::copy_from_slice(key), now_s };
        let clustering = Bytes::copy_from_slice(clustering);
        let bypass_cache = pick.bypass_cache;
        let columns: Option<Arc<[u32]>> = pick.columns.filter(|columns| columns.is_sorted()).map(Into::into);
        let request =
            PartRequest::Row { clustering: clustering.clone(), columns: columns.clone(), bypass_cache };
        match self.gather(&target, request) {
            Err(error) => Read::Pending(Box::pin(async { Err(error) })),
            Ok((gather, None)) if gather.opens_at_once() => {
                match see_row(&gather, &clustering, columns.as_deref(), now_s) {
                    Some(seen) => Read::Ready(seen),
                    None => {
                        let shard = self.clone();
                        Read::Pending(Box::pin(async move {
                            shard.read_whole_row(target, clustering, bypass_cache).await
                        }))
                    }
                }
            }
            Ok((mut gather, missing)) => {
                let shard = self.clone();
                Read::Pending(Box::pin(async move {
                    if let Some(missing) = missing {
                        shard.finish(target.table, &mut gather, missing).await?;
                    }
                    match shard.see(gather, clustering.clone(), columns, now_s).await? {
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
        target: ReadTarget,
        clustering: Bytes,
        bypass_cache: bool,
    ) -> Result<Option<RowView>, StorageError> {
        let request = PartRequest::Row { clustering: clustering.clone(), columns: None, bypass_cache };
        let (mut gather, missing) = self.gather(&target, request)?;
        if let Some(missing) = missing {
            self.finish(target.table, &mut gather, missing).await?;
        }
        let seen = self.see(gather, clustering, None, target.now_s).await?;
        Ok(seen.expect("nothing was left out"))
    }

    /// Returns the row as [`see_row`] does. Opens a large one on the heavy lane.
    async fn see(
        self: &Rc<Self>,
        gather: Gather,
        clustering: Bytes,
        columns: Option<Arc<[u32]>>,
        now_s: u32,
    ) -> Result<Option<Option<RowView>>, StorageError> {
        if gather.opens_at_once() {
            return Ok(see_row(&gather, &clustering, columns.as_deref(), now_s));
        }
        let see = async move { see_row(&gather, &clustering, columns.as_deref(), now_s) };
        self.on_heavy_lane(see).wait().await
    }

    pub(crate) fn gather(
        &self,
        target: &ReadTarget,
        request: PartRequest,
    ) -> Result<(Gather, Option<usize>), StorageError> {
        let row_bytes_max = self.jobs.options.read_row_bytes_max();
        let state = self.state.borrow();
        let Some(table) = state.tables.get(&target.table) else { return Ok((Gather::default(), None)) };
        let (mut gather, missing) = Gather::start(table, &self.store.cache, target, request, row_bytes_max)?;
        if missing.is_none() {
            table.searched.count(gather.searched);
            gather.keep_row(&self.store.cache);
        }
        Ok((gather, missing))
    }

    /// Reads the blocks that a read lacks, and counts it.
    async fn finish(&self, table: TableId, gather: &mut Gather, missing: usize) -> Result<(), StorageError> {
        gather.finish(&*self.env, &self.store.cache, missing).await?;
        if let Some(table) = self.state.borrow().tables.get(&table) {
            table.searched.count(gather.searched);
        }
        gather.keep_row(&self.store.cache);
        Ok(())
    }

    /// Reads a part of a slice of a partition: see [`Slice`]. `None` if the partition was never
    /// written. A part may have no live rows without being the last.
    pub fn read_slice(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        slice: &Slice,
        now_s: u32,
    ) -> Read<Option<Sliced>> {
        let target = ReadTarget { table, token, key: Bytes::copy_from_slice(key), now_s };
        let slice = Arc::new(Slice { rows: slice.rows.max(1), ..slice.clone() });
        // Counted here, where nothing can yield. Callers yield between reads.
        drop(self.env.spend(1));
        self.gather_and(&target, PartRequest::Slice(slice.clone()), move |gather| {
            gather.found.map(|found| Sliced::new(found, gather.frontiers, &slice, now_s))
        })
    }

    /// Reads a row with all its columns, and the greatest timestamp that covers it.
    pub fn read_row_before(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        clustering: &[u8],
        now_s: u32,
    ) -> Read<RowBefore> {
        let target = ReadTarget { table, token, key: Bytes::copy_from_slice(key), now_s };
        let clustering = Bytes::copy_from_slice(clustering);
        let request = PartRequest::Row { clustering: clustering.clone(), columns: None, bypass_cache: false };
        self.gather_and(&target, request, move |gather| {
            RowBefore::of(gather.found.as_ref(), &clustering, now_s)
        })
    }

    /// Reads the static cells of a partition, and the greatest timestamp that covers them. Reads
    /// only the block with the partition's head of each file.
    pub fn read_statics_before(
        self: &Rc<Self>,
        table: TableId,
        token: i64,
        key: &[u8],
        now_s: u32,
    ) -> Read<StaticsBefore> {
        let target = ReadTarget { table, token, key: Bytes::copy_from_slice(key), now_s };
        let start = Bound::Included(Bytes::new());
        let end = Bound::Excluded(Bytes::new());
        let no_rows = Slice { start, end, ..Slice::all(1) };
        self.gather_and(&target, PartRequest::Slice(no_rows.into()), move |gather| {
            StaticsBefore::of(gather.found, now_s)
        })
    }

    /// Returns the greatest timestamp in a table, dead or alive; `i64::MIN` if it is empty. Reads
    /// the whole table.
    ///
    /// # Errors
    /// A file cannot be read.
    pub async fn newest_timestamp(self: &Rc<Self>, table: TableId) -> Result<i64, StorageError> {
        let stream = {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&table) else { return Ok(i64::MIN) };
            MergeStream::new(table.snapshot(), &table.files, ScanFrom::Token(i64::MIN), i64::MAX)
        };
        newest_in(stream, &*self.env).await
    }

    /// Waits until everything that readers can see now is durable, so that no crash reverts it.
    /// With a periodic log, waits until the log acknowledges it.
    ///
    /// # Errors
    /// The log failed before.
    pub async fn settled(self: &Rc<Self>) -> Result<(), StorageError> {
        let Some(log) = &self.log else { return Ok(()) };
        let last = log.last_record();
        let settled = poll_fn(|cx| {
            // A snapshot is being cut. It must not contain what a reader does after this answer.
            ready!(self.background.acks.poll_open(cx));
            log.poll_durable(last, false, cx)
        });
        settled.await.map(drop)
    }

    /// Scans the partitions of a token range in (token, key) order, starting after `start_after` if
    /// given.
    pub fn scan(
        self: &Rc<Self>,
        table: TableId,
        tokens: RangeInclusive<i64>,
        start_after: Option<(i64, Bytes)>,
        now_s: u32,
    ) -> Scan {
        let from = match start_after {
            Some((token, key)) if token >= *tokens.start() => ScanFrom::After(token, key),
            _ => ScanFrom::Token(*tokens.start()),
        };
        let state = self.state.borrow();
        let stream = match state.tables.get(&table) {
            Some(table) => MergeStream::new(table.snapshot(), &table.files, from, *tokens.end()),
            None => MergeStream::new([], &Files::default(), from, *tokens.end()),
        };
        Scan::new(stream.with_row_max(self.jobs.options.read_row_bytes_max()), now_s)
    }

    /// Returns the contents of the table now. `now_s` is the current time.
    pub fn batch_snapshot(&self, table: TableId, now_s: u32) -> BatchSnapshot {
        let state = self.state.borrow();
        let table = state.tables.get(&table);
        BatchSnapshot {
            env: self.env.clone(),
            memory: table.map(ShardTable::snapshot).unwrap_or_default(),
            files: table.map(|table| table.files.clone()).unwrap_or_default(),
            cache: self.store.scan_cache.clone(),
            now_s,
        }
    }
}
