//! Background work: flushes memtables (`flush.rs`), compacts files (`compaction`) and removes dead
//! files.
//!
//! Tasks on the fast lane only decide and wait: one for flushes, some for compactions, one for
//! pacing (`pacing.rs`) and one for expiry (`expiry.rs`). Merging, encoding and compression run on
//! the heavy lane over snapshots. A file is written, synced, named in the manifest, and swapped in,
//! in this order. There is no await between the last two steps, so that a reader always sees the
//! memtable or its file. Seeing both is harmless, because merging is idempotent.

pub(crate) mod backpressure;
pub(crate) mod flush;
pub(crate) mod job;
pub(crate) mod pacing;
pub(crate) mod purge;
pub(crate) mod reports;
pub(crate) mod shares;
pub(crate) mod tasks;

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sched::control::INTERVAL_NS;

use crate::background::pacing::Pacing;
use crate::background::reports::Reports;
use crate::background::tasks::Tasks;
use crate::env::{Env, Work};
use crate::error::StorageError;
use crate::event::Event;
use crate::log::bound::LogBound;
use crate::log::reserve::Reserve;
use crate::log::{Log, RETRY_FULL};
use crate::memtable::Memtable;
use crate::model::FreeInChunks;
use crate::options::Options;
use crate::signal::{Gate, Signal};
use crate::state::State;
use crate::state::retry::backoff;
use crate::table::store::FileStore;

/// Failures in a row after which writes are refused: three seconds after the first.
const REFUSED_AFTER: u32 = 3;

/// Allocations freed between yields to the fast lane, each a cache miss or two: well within 50 µs.
const CHUNK: usize = 64;

/// Chunks of memtables freed in each interval: at most a tenth of the core's time.
const CHUNKS_AN_INTERVAL: usize = 50;

/// Background work of a shard, and the parts of the shard that it needs.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) options: Options,
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) store: Rc<FileStore>,
    /// `None`: the shard is in memory, and nothing is durable.
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) log_bound: LogBound,
    pub(crate) reserve: Rc<Reserve>,
    pub(crate) pacing: Pacing,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) reports: Reports,
    /// Wakes background work: something to flush or compact, or shutdown.
    pub(crate) work: Signal,
    /// A flush, compaction or manifest edit has ended.
    pub(crate) progress: Rc<Signal>,
    /// Closed while acknowledgements wait, see [`crate::Shard::hold_acks`].
    pub(crate) acks: Gate,
    /// The number of tasks that a shutdown waits for.
    busy: Cell<u32>,
    /// The error after which writes are refused.
    pub(crate) failed: RefCell<Option<Arc<StorageError>>>,
    /// The locks of the shard's folder.
    lock: RefCell<Option<Box<dyn Debug>>>,
}

impl Background {
    pub(crate) fn new(
        (env, options): (Arc<dyn Env>, Options),
        (state, store, log): (Rc<RefCell<State>>, Rc<FileStore>, Option<Rc<Log>>),
        (reserve, progress): (Rc<Reserve>, Rc<Signal>),
        lock: Option<Box<dyn Debug>>,
    ) -> Background {
        Background {
            env,
            state,
            store,
            log,
            log_bound: LogBound::new(&options),
            reserve,
            pacing: Pacing::new(&options),
            tasks: Rc::new(Tasks::new(options.shards)),
            reports: Reports::default(),
            work: Signal::default(),
            progress,
            acks: Gate::default(),
            busy: Cell::new(0),
            failed: RefCell::default(),
            lock: RefCell::new(lock),
            options,
        }
    }

    /// Starts the background tasks.
    pub(crate) fn start(self: &Rc<Self>) {
        self.busy.set(self.busy.get() + 2);
        let own = self.clone();
        self.env.spawn(Work::Flush, Box::pin(async move { own.flush_loop().await }));
        let own = self.clone();
        self.env.spawn(Work::Control, Box::pin(async move { own.pace_loop().await }));
        self.start_compactions();
        self.start_expiry_checks();
    }

    /// Counts a task that a shutdown waits for, until [`Background::leave`].
    ///
    /// # Errors
    /// [`StorageError::Closed`].
    pub(crate) fn enter(&self) -> Result<(), StorageError> {
        if self.state.borrow().closed {
            return Err(StorageError::Closed);
        }
        self.busy.set(self.busy.get() + 1);
        Ok(())
    }

    pub(crate) fn leave(&self) {
        self.busy.set(self.busy.get() - 1);
        self.progress.wake();
    }

    /// Returns true if writes are refused, because one failed or the disk is full.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.failure().is_some())
    }

    pub(crate) fn fail(&self, error: StorageError) {
        let error = Arc::new(error);
        if let Some(log) = &self.log {
            log.fail(error.clone());
        }
        self.failed.borrow_mut().get_or_insert(error);
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

    /// Repeats a step of a flush like [`Background::retry_while_full`], and also after other disk
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
                    self.options.event_sink.send(&Event::FlushFailed { error: error.clone(), again });
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

    pub(crate) async fn pace_loop(self: Rc<Self>) {
        loop {
            let busy = || {
                let state = self.state.borrow();
                match state.closed {
                    true => Some(true),
                    false => {
                        let memory = !state.frozen.is_empty() || !state.flushed.is_empty();
                        (memory || self.pacing.is_compacting()).then_some(false)
                    }
                }
            };
            let closed = self.work.wait(busy).await;
            self.decide();
            if closed {
                return self.leave();
            }
            // Memtables that a scan held when they were flushed, and those of truncated tables.
            self.free(CHUNKS_AN_INTERVAL).await;
            self.env.sleep(Duration::from_nanos(INTERVAL_NS)).await;
        }
    }

    /// Decides how fast background work goes.
    pub(crate) fn decide(&self) {
        let length = self.log.as_ref().map_or(0, |log| log.length());
        self.pacing.decide(&self.state.borrow(), length, &*self.env);
    }

    /// See [`crate::Shard::shutdown`].
    pub(crate) async fn shutdown(&self) -> Result<(), StorageError> {
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
        self.progress.wait(|| (self.busy.get() == 0).then_some(())).await;
        if result.is_ok() {
            self.end_log(log).await;
        }
        self.store.sweep().await;
        if let Some(mark) = &self.store.mark {
            mark.settle().await;
        }
        self.lock.borrow_mut().take();
        result
    }
}
