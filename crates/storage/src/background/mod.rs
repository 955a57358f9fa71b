//! What goes on behind reads and writes: flushing memtables (flush.rs), merging files (compaction.rs), removing what is dead.
//!
//! Tasks live on the fast lane: for flushes, some for compactions, for their pace (pacing.rs) and for the clock (expiry.rs). They only decide and wait; merging,
//! encoding and compressing run on the heavy lane over snapshots. A file becomes visible to readers and to the manifest in this
//! order: written, synced, named in the manifest, swapped in. Between the last two lies no wait, so that no reader ever sees
//! a memtable and its file both gone, and seeing both does no harm, because merging is idempotent.

pub(crate) mod flush;
pub(crate) mod pacing;
pub(crate) mod progress;
pub(crate) mod reports;
pub(crate) mod retry;
pub(crate) mod shares;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::background::retry::backoff;
use crate::compaction::strategy::need::MERGES_MAX;
use crate::error::StorageError;
use crate::event::{Event, FlushReason};
use crate::log::bound::FREE_IDLE;
use crate::log::{Log, RETRY_FULL};
use crate::manifest::Edit;
use crate::memtable::Memtable;
use crate::memtable::token_map::FreeInChunks;
use crate::model::TableId;
use crate::shard::{FROZEN_MAX, Shard, Stats};
use crate::table::file::TableFile;
use crate::world::Work;

/// Flushes that fail in a row, of which the last refuses writes: three seconds after the first.
const REFUSED_AFTER: u32 = 3;

/// Allocations that are freed before the fast lane is looked at, each a cache miss or two: well within 50 µs together.
const PIECE: usize = 64;

/// Between pieces of what scans have kept of a file that is gone.
const SCAN_CACHE_REST: Duration = Duration::from_millis(1);

/// The name of a table file.
pub(crate) fn table_name(file: u64) -> String {
    format!("{file:016x}.table")
}

impl Shard {
    /// Starts the tasks.
    pub(crate) fn start_upkeep(self: &Rc<Self>) {
        self.state.borrow_mut().busy += 2 + MERGES_MAX as u32;
        let shard = self.clone();
        self.world.spawn(Work::Flush, Box::pin(async move { shard.flush_loop().await }));
        let shard = self.clone();
        self.world.spawn(Work::Control, Box::pin(async move { shard.pace_loop().await }));
        for _ in 0..MERGES_MAX {
            let shard = self.clone();
            self.world.spawn(Work::Compaction, Box::pin(async move { shard.compaction_loop().await }));
        }
        self.start_clock();
    }

    pub(crate) fn leave(&self) {
        self.state.borrow_mut().busy -= 1;
        self.progress.wake();
    }

    pub(crate) fn fail(&self, error: StorageError) {
        let error = Arc::new(error);
        if let Some(log) = &self.log {
            log.fail(error.clone());
        }
        self.state.borrow_mut().failed.get_or_insert(error);
    }

    /// Tries until it succeeds, or fails for another reason than a full disk, or the shard is closed. Meanwhile writes are
    /// refused: they would only fill the memory and the log.
    pub(crate) async fn with_room<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let refusal = self.log.as_ref().map(|log| log.refusal());
        loop {
            match attempt().await {
                Err(error) if error.is_full() && !self.state.borrow().closed => {
                    refusal.iter().for_each(|refusal| refusal.set(Some(Arc::new(error.clone()))));
                    // Nobody is to wait for a flush that may be hours away.
                    self.progress.wake();
                    self.world.sleep(RETRY_FULL).await;
                }
                result => return result,
            }
        }
    }

    /// As [`Shard::with_room`], for a flush: other failures of the disk pass as well, or do not, and it is tried again less and less
    /// often. Writes go on meanwhile, as beside any flush that takes long, but are refused from the third failure in a row on.
    pub(crate) async fn persistently<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let refusal = self.log.as_ref().map(|log| log.refusal());
        let mut failures = 0;
        loop {
            match self.with_room(&attempt).await {
                Err(error) if error.is_retryable() && !self.state.borrow().closed => {
                    failures += 1;
                    self.state.borrow_mut().counts.flushes_failed += 1;
                    let again = backoff(failures);
                    self.options.teller.tell(&Event::FlushFailed { error: error.clone(), again });
                    if failures >= REFUSED_AFTER {
                        refusal.iter().for_each(|refusal| refusal.set(Some(Arc::new(error.clone()))));
                        self.progress.wake();
                    }
                    self.world.sleep(again).await;
                }
                result => return result,
            }
        }
    }

    /// Removes dead files that no reader uses any more. Not while a table is being truncated: what memory has given up, the manifest
    /// may still name.
    pub(crate) async fn sweep(&self) {
        let dead: Vec<_> = {
            let state = &mut *self.state.borrow_mut();
            let settled = state.truncating == 0;
            state.obsolete.extract_if(.., |file| settled && TableFile::is_unused(file)).collect()
        };
        for file in dead {
            self.cache.borrow_mut().forget(file.id);
            while !self.scan_cache.forget_some(file.id) {
                self.world.sleep(SCAN_CACHE_REST).await;
            }
            // A file that cannot be removed is in no one's way: the next start tries again.
            let _ = self.world.remove(&file.path).await;
        }
    }

    /// Frees flushed memtables that nobody reads any more, in so many pieces at most. Not on the heavy lane: what another thread than its own
    /// frees the allocator takes back later, all of it at once, and a write would wait for that.
    pub(crate) async fn free(&self, pieces: usize) {
        for _ in 0..pieces {
            {
                let flushed = &mut self.state.borrow_mut().flushed;
                let Some(at) = flushed.iter().position(Memtable::is_unused) else { return };
                if !flushed[at].free_chunk(&mut { PIECE }) {
                    flushed.swap_remove(at);
                }
            }
            self.world.heavy_yield().await;
        }
    }

    /// Removes everything a table holds, durably.
    ///
    /// # Errors
    /// The log or the manifest could not be written.
    pub async fn truncate(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        let Some(log) = &self.log else {
            self.state.borrow_mut().tables.remove(&table);
            return Ok(());
        };
        // What a record would still write after this is older than it: a restart would not replay
        // it.
        self.progress.wait(|| self.state.borrow().applying.is_empty().then_some(())).await;
        let last = log.last_record();
        let gone = {
            let state = &mut *self.state.borrow_mut();
            let gone = state.tables.remove(&table);
            state.truncating += u32::from(gone.is_some());
            gone
        };
        let Some(mut gone) = gone else {
            // Another truncation may have emptied it, and not be durable yet.
            let settled = || {
                let state = self.state.borrow();
                let failed = state.failed.as_ref().map(|error| Err(StorageError::clone(error)));
                failed.or_else(|| (state.truncating == 0).then_some(Ok(())))
            };
            return self.progress.wait(settled).await;
        };
        if let Err(error) = self.name_truncation(log, table, last).await {
            // Memory no longer says what the disk does: a restart brings the table back.
            self.fail(error.clone());
            return Err(error);
        }
        {
            let state = &mut *self.state.borrow_mut();
            state.truncating -= 1;
            state.obsolete.append(&mut gone.files.take());
            state.flushed.extend(gone.frozen.into_iter().map(|(_, memtable)| memtable).chain([gone.active]));
        }
        self.progress.wake();
        self.work.wake();
        self.sweep().await;
        Ok(())
    }

    async fn name_truncation(&self, log: &Log, table: TableId, last: u64) -> Result<(), StorageError> {
        // What the truncation covers must be in the log before it is named, or numbers would be given out twice.
        log.sync().await?;
        let name = |_: &Shard, edit: &mut Edit| edit.truncate(table, last);
        self.with_room(async || self.edit(name).await).await
    }

    /// Forgets a table and everything it holds, durably.
    ///
    /// # Errors
    /// As [`Shard::truncate`].
    pub async fn drop_table(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        self.truncate(table).await?;
        let state = &mut *self.state.borrow_mut();
        state.configured.remove(&table);
        state.names.remove(&table);
        Ok(())
    }

    /// Writes everything in memory to table files.
    ///
    /// # Errors
    /// Why the flush failed; writes are refused from then on. On a full disk it is tried again until it succeeds.
    pub async fn flush_all(self: &Rc<Self>) -> Result<(), StorageError> {
        let Some(log) = &self.log else { return Ok(()) };
        let failed = || log.failure().map(|error| StorageError::clone(&error));
        let room = || failed().map(Err).or_else(|| (self.pressure().0 < FROZEN_MAX).then_some(Ok(())));
        self.progress.wait(room).await?;
        {
            let state = &mut *self.state.borrow_mut();
            if state.closed {
                return Err(StorageError::Closed);
            }
            if state.tables.values().any(|table| table.active.len() > 0) {
                state.freeze(log.last_record(), log.length(), FlushReason::Asked);
                self.bound_log(state);
            }
        }
        self.pacing.waiting.set(self.pacing.waiting.get() + 1);
        self.decide();
        self.work.wake();
        let all = || failed().map(Err).or_else(|| (self.pressure().0 == 0).then_some(Ok(())));
        let result = self.progress.wait(all).await;
        self.pacing.waiting.set(self.pacing.waiting.get() - 1);
        result
    }

    /// Refuses further writes, flushes what is in memory so that the next start has no log to read, and ends the background work.
    /// Reads go on. What cannot be flushed, for want of space, stays in the log.
    ///
    /// # Errors
    /// The log could not be written.
    pub async fn shutdown(self: &Rc<Self>) -> Result<(), StorageError> {
        let result = match &self.log {
            Some(log) => log.close().await,
            None => Ok(()),
        };
        if self.state.borrow().closed {
            return result;
        }
        if let Some(log) = self.log.as_ref().filter(|_| result.is_ok()) {
            self.flush_rest(log).await;
        }
        self.state.borrow_mut().closed = true;
        self.decide();
        self.work.wake();
        self.progress.wake();
        let Some(log) = &self.log else { return Ok(()) };
        self.progress.wait(|| (self.state.borrow().busy == 0).then_some(())).await;
        if result.is_ok() {
            self.end_log(log).await;
        }
        self.sweep().await;
        self.lock.borrow_mut().take();
        result
    }
}

impl Shard {
    /// Flushes what is in memory when nothing more is written, unless the disk does not take it.
    async fn flush_rest(&self, log: &Log) {
        {
            let state = &mut *self.state.borrow_mut();
            if state.tables.values().any(|table| table.active.len() > 0) {
                state.freeze(log.last_record(), log.length(), FlushReason::Shutdown);
            }
        }
        self.pacing.waiting.set(self.pacing.waiting.get() + 1);
        self.decide();
        self.work.wake();
        let ended = || {
            let state = self.state.borrow();
            let is_over = state.frozen.is_empty() || state.failed.is_some() || log.failure().is_some();
            is_over.then_some(())
        };
        self.progress.wait(ended).await;
        self.pacing.waiting.set(self.pacing.waiting.get() - 1);
    }

    /// Marks the log as empty, if it is. Where that fails the next start reads it, for nothing.
    async fn end_log(&self, log: &Log) {
        let last = log.last_record();
        let is_flushed = || {
            let state = self.state.borrow();
            let in_memory =
                state.tables.values().any(|table| table.active.len() > 0 || !table.frozen.is_empty());
            state.failed.is_none() && !in_memory && state.applying.is_empty()
        };
        if !is_flushed() {
            return;
        }
        let name = |_: &Shard, edit: &mut Edit| {
            edit.flushed(last);
            edit.log((Vec::new(), last));
        };
        if self.edit(name).await.is_ok() {
            log.release(&[]);
            log.trim(Some(FREE_IDLE)).await;
        }
    }
}

/// The counts a shard starts with.
pub(crate) fn counts(replayed: u64) -> Stats {
    Stats { replayed, ..Stats::default() }
}
