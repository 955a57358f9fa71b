//! Requests of operators and of the engine: flushes, compactions, scrubs, snapshots, shutdown.

use std::ops::RangeInclusive;
use std::path::Path;

use crate::compaction::scrub::Scrubbed;
use crate::error::StorageError;
use crate::jobs::tasks::{TaskGuard, TaskKind};
use crate::manifest::layout::generation_of;
use crate::model::TableId;
use crate::recovery::snapshot::Cut;
use crate::shard::Shard;
use crate::state::progress::WorkProgress;

impl Shard {
    /// Flushes all memtables.
    ///
    /// # Errors
    /// The flush failed, and writes are refused from then on. A full disk is no error: the flush is
    /// repeated until it succeeds.
    pub fn flush_all(&self) -> lanes::LocalBoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move { self.background.flush_all().await })
    }

    /// Flushes the memtables of all tables, which share the log. After a cancel the flush
    /// continues, but is not awaited.
    ///
    /// # Errors
    /// As [`Shard::flush_all`], or [`StorageError::Cancelled`].
    pub fn flush_with<'a>(
        &'a self,
        progress: &'a WorkProgress,
    ) -> lanes::LocalBoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move { self.background.flush_with(progress).await })
    }

    /// Flushes the memtable if hardly anything was written since the last call and it has a minimum
    /// size. The caller calls this every few seconds. Scans of columns are several times as fast,
    /// files take less memory, and a restart has nothing to replay.
    pub fn flush_if_idle(&self) {
        self.background.flush_if_idle();
    }

    /// Compacts all runs of a table into one, after a flush. Waits for compactions in flight, and
    /// while background work is paused.
    ///
    /// # Errors
    /// The flush or the compaction failed; [`StorageError::Closed`].
    pub fn compact_all(&self, table: TableId) -> lanes::LocalBoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            let group = self.jobs.options.groups.compaction;
            self.compact(table, i64::MIN..=i64::MAX, group, &WorkProgress::default()).await
        })
    }

    /// Compacts all files of a table with tokens of the range into one run, after a flush. Files
    /// are compacted whole. The compaction runs in `group`, and stands still while background work
    /// is paused. It waits for compactions of the table in flight, and no other starts before it
    /// ends. Dropping the future cancels it.
    ///
    /// # Errors
    /// The flush or the compaction failed. [`StorageError::Cancelled`]: what was compacted by then
    /// stays compacted. [`StorageError::Closed`].
    pub fn compact<'a>(
        &'a self,
        table: TableId,
        tokens: RangeInclusive<i64>,
        group: lanes::Group,
        progress: &'a WorkProgress,
    ) -> lanes::LocalBoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            if self.log.is_none() {
                return Ok(());
            }
            self.background.flush_with(progress).await?;
            self.background.compactor.compact(table, tokens, group, progress).await
        })
    }

    /// Reads all files of a table, and rewrites damaged ones without the damage. Reads of the table
    /// find no damage afterwards. Writes and reads continue meanwhile. The work runs in `group`.
    /// Dropping the future cancels it.
    ///
    /// # Errors
    /// A file cannot be written. [`StorageError::Cancelled`]: files rewritten by then stay so.
    /// [`StorageError::Closed`].
    pub fn scrub<'a>(
        &'a self,
        table: TableId,
        group: lanes::Group,
        progress: &'a WorkProgress,
    ) -> lanes::LocalBoxFuture<'a, Result<Scrubbed, StorageError>> {
        Box::pin(async move { self.background.compactor.scrub(table, group, progress).await })
    }

    /// Writes this shard's part of a snapshot to the folder `to`. Use the same file system, so that
    /// files can be linked. Reads and writes continue. Shard 0 also writes the common part.
    ///
    /// # Errors
    /// The shard is closed or in memory, or a write failed; then the folder is not valid.
    pub async fn snapshot(&self, to: &Path) -> Result<(), StorageError> {
        self.flush_all().await?;
        self.cut().await?.write(to).await
    }

    /// Takes the cut of this shard: all earlier writes. The cost is one write of the log.
    ///
    /// # Errors
    /// The shard is closed or in memory, or its log has failed.
    pub async fn cut(&self) -> Result<Cut, StorageError> {
        Cut::take(&self.jobs).await
    }

    /// Returns the generation of the data: the data folder gets another one whenever the data is
    /// distributed over another number of shards. 0 for a shard in memory.
    #[must_use]
    pub fn generation(&self) -> u64 {
        let name = self.store.dir.file_name().and_then(|name| name.to_str());
        name.and_then(generation_of).unwrap_or(0)
    }

    /// Returns the folder of this shard and its stamp, a random number that only copies of the
    /// shard share. `None`: the shard is in memory. The engine keeps files of its own in the
    /// folder.
    #[must_use]
    pub fn folder(&self) -> Option<(&Path, u64)> {
        self.log.as_ref()?;
        Some((&self.store.dir, self.store.manifest().stamp))
    }

    /// Takes memory of the engine's own from the cache of this shard. An eighth of the cache is
    /// left at least. `bytes`: all that the engine uses.
    pub fn lend_cache(&self, bytes: usize) {
        self.store.cache.borrow_mut().lend(bytes);
    }

    /// Lists the building of an index of a table as a task until the guard is dropped.
    pub fn list_index_build(&self, table: TableId, progress: WorkProgress) -> TaskGuard {
        let (tasks, began_s) = (&self.jobs.tasks, self.env.now_s());
        tasks.begin(TaskKind::IndexBuild, Some(table), 0, began_s, progress)
    }

    /// Delays acknowledgements of writes, or ends the delay. Writes meanwhile are visible, and may
    /// become durable.
    pub fn hold_acks(&self, hold: bool) {
        self.background.acks.set_closed(hold);
    }

    /// Refuses further writes, flushes memtables so that the next start has no log to replay, and
    /// ends background work. Reads continue. What cannot be flushed, because the disk is full,
    /// stays in the log.
    ///
    /// # Errors
    /// The log could not be written.
    pub fn shutdown(&self) -> lanes::LocalBoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move { self.background.shutdown().await })
    }
}
