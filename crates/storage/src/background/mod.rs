//! Background work: flushes memtables (`flush.rs`), compacts files (`compaction`) and removes dead
//! files.
//!
//! Tasks on the fast lane only decide and wait: one for flushes, some for compactions, one for
//! pacing (`pacing.rs`) and one for expiry (`expiry.rs`). Merging, encoding and compression run on
//! the heavy lane over snapshots. A file is written, synced, named in the manifest, and swapped in,
//! in this order. There is no await between the last two steps, so that a reader always sees the
//! memtable or its file. Seeing both is harmless, because merging is idempotent.

pub(crate) mod flush;
pub(crate) mod pacing;
pub(crate) mod progress;
pub(crate) mod reports;
pub(crate) mod retry;
pub(crate) mod shares;

use std::rc::Rc;
use std::sync::Arc;

use crate::background::retry::backoff;
use crate::compaction::strategy::need::COMPACTIONS_MAX;
use crate::env::Work;
use crate::error::StorageError;
use crate::event::{Event, FlushReason};
use crate::log::bound::FREE_IDLE;
use crate::log::{Log, RETRY_FULL};
use crate::manifest::Edit;
use crate::memtable::Memtable;
use crate::memtable::token_map::FreeInChunks;
use crate::model::TableId;
use crate::shard::Shard;
use crate::state::FROZEN_MAX;

/// Failures in a row after which writes are refused: three seconds after the first.
const REFUSED_AFTER: u32 = 3;

/// Allocations freed between yields to the fast lane, each a cache miss or two: well within 50 µs.
const CHUNK: usize = 64;

impl Shard {
    /// Starts the background tasks.
    pub(crate) fn start_background(self: &Rc<Self>) {
        self.state.borrow_mut().busy += 2 + COMPACTIONS_MAX as u32;
        let shard = self.clone();
        self.env.spawn(Work::Flush, Box::pin(async move { shard.flush_loop().await }));
        let shard = self.clone();
        self.env.spawn(Work::Control, Box::pin(async move { shard.pace_loop().await }));
        for _ in 0..COMPACTIONS_MAX {
            let shard = self.clone();
            self.env.spawn(Work::Compaction, Box::pin(async move { shard.compaction_loop().await }));
        }
        self.start_expiry_checks();
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

    /// Repeats `attempt` while the disk is full, until the shard closes. Writes are refused
    /// meanwhile, because they would only fill the memory and the log.
    pub(crate) async fn retry_while_full<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let refusal = self.log.as_ref().map(|log| log.refusal());
        loop {
            match attempt().await {
                Err(error) if error.is_full() && !self.state.borrow().closed => {
                    refusal.iter().for_each(|refusal| refusal.set(Some(Arc::new(error.clone()))));
                    // Callers must not wait for a flush that may be hours away.
                    self.progress.wake();
                    self.env.sleep(RETRY_FULL).await;
                }
                result => return result,
            }
        }
    }

    /// Repeats a step of a flush like [`Shard::retry_while_full`], and also after other disk
    /// errors, with increasing delays. Writes continue meanwhile, as during any long flush, but are
    /// refused from the third failure in a row on.
    pub(crate) async fn retry_flush<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let refusal = self.log.as_ref().map(|log| log.refusal());
        let mut failures = 0;
        loop {
            match self.retry_while_full(&attempt).await {
                Err(error) if error.is_retryable() && !self.state.borrow().closed => {
                    failures += 1;
                    self.state.borrow_mut().counts.flushes_failed += 1;
                    let again = backoff(failures);
                    self.options.teller.tell(&Event::FlushFailed { error: error.clone(), again });
                    if failures >= REFUSED_AFTER {
                        refusal.iter().for_each(|refusal| refusal.set(Some(Arc::new(error.clone()))));
                        self.progress.wake();
                    }
                    self.env.sleep(again).await;
                }
                result => return result,
            }
        }
    }

    /// Frees flushed memtables without readers, at most `chunks` chunks of allocations. Not on the
    /// heavy lane: memory freed by another thread returns to its owner later and all at once, and a
    /// write would wait for that.
    pub(crate) async fn free(&self, chunks: usize) {
        for _ in 0..chunks {
            {
                let flushed = &mut self.state.borrow_mut().flushed;
                let Some(at) = flushed.iter().position(Memtable::is_unused) else { return };
                if !flushed[at].free_chunk(&mut { CHUNK }) {
                    flushed.swap_remove(at);
                }
            }
            self.env.heavy_yield().await;
        }
    }

    /// Removes all data of a table, durably.
    ///
    /// # Errors
    /// The log or the manifest could not be written.
    pub async fn truncate(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        let Some(log) = &self.log else {
            self.state.borrow_mut().tables.remove(&table);
            return Ok(());
        };
        // Records in progress are older than the truncation. What they wrote after it would be lost
        // by a restart, which does not replay them.
        self.progress.wait(|| self.state.borrow().applying.is_empty().then_some(())).await;
        let last = log.last_record();
        let gone = {
            let state = &mut *self.state.borrow_mut();
            let gone = state.tables.remove(&table);
            if gone.is_some() {
                self.store.begin_truncation();
            }
            gone
        };
        let Some(mut gone) = gone else {
            // Another truncation may have emptied the table without being durable yet.
            let settled = || {
                let state = self.state.borrow();
                let failed = state.failed.as_ref().map(|error| Err(StorageError::clone(error)));
                failed.or_else(|| (!self.store.is_truncating()).then_some(Ok(())))
            };
            return self.progress.wait(settled).await;
        };
        if let Err(error) = self.name_truncation(log, table, last).await {
            // Memory and disk disagree now: a restart would restore the table.
            self.fail(error.clone());
            return Err(error);
        }
        {
            let state = &mut *self.state.borrow_mut();
            self.store.end_truncation();
            self.store.retire(gone.files.take());
            state.flushed.extend(gone.frozen.into_iter().map(|(_, memtable)| memtable).chain([gone.active]));
        }
        self.progress.wake();
        self.work.wake();
        self.store.sweep().await;
        Ok(())
    }

    async fn name_truncation(&self, log: &Log, table: TableId, last: u64) -> Result<(), StorageError> {
        // The log must contain all numbers the truncation covers before the manifest does.
        // Otherwise a restart would assign them twice.
        log.sync().await?;
        let name = |edit: &mut Edit| edit.truncate(table, last);
        self.retry_while_full(async || self.store.edit(name).await).await
    }

    /// Forgets a table and all its data, durably.
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

    /// Flushes all memtables.
    ///
    /// # Errors
    /// The flush failed, and writes are refused from then on. A full disk is no error: the flush is
    /// repeated until it succeeds.
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

    /// Refuses further writes, flushes memtables so that the next start has no log to replay, and
    /// ends background work. Reads continue. What cannot be flushed, because the disk is full,
    /// stays in the log.
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
        self.store.sweep().await;
        self.lock.borrow_mut().take();
        result
    }
}

impl Shard {
    /// Flushes memtables after the last write, unless the disk fails.
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

    /// Marks the log as empty, if it is. If that fails, the next start only reads it in vain.
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
        let name = |edit: &mut Edit| {
            edit.flushed(last);
            edit.log((Vec::new(), last));
        };
        if self.store.edit(name).await.is_ok() {
            log.release(&[]);
            log.trim(Some(FREE_IDLE)).await;
        }
    }
}
