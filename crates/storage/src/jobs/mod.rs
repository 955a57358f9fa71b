//! Jobs: the flushes and compactions of a shard. What both need: the parts of the shard, the pace
//! of the work (`pacing.rs`), its heavy part (`job.rs`) and the list of tasks in flight
//! (`tasks.rs`). `background` and `compaction` decide which jobs there are.

pub(crate) mod job;
pub(crate) mod lines;
pub(crate) mod pacing;
pub(crate) mod purge;
pub(crate) mod shares;
pub(crate) mod tasks;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::env::Env;
use crate::error::StorageError;
use crate::event::Event;
use crate::jobs::pacing::Pacing;
use crate::jobs::tasks::Tasks;
use crate::log::{Log, RETRY_FULL};
use crate::memtable::Memtable;
use crate::model::FreeInChunks;
use crate::options::StorageOptions;
use crate::signal::Signal;
use crate::state::ShardState;
use crate::state::progress::WorkProgress;
use crate::state::retry::backoff;
use crate::table::store::FileStore;

/// Failures in a row after which writes are refused: three seconds after the first.
const REFUSED_AFTER: u32 = 3;

/// Allocations freed between yields to the fast lane, each a cache miss or two: well within 50 µs.
const CHUNK: usize = 64;

/// The parts of a shard that its jobs need, and the signals between them.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) options: StorageOptions,
    pub(crate) state: Rc<RefCell<ShardState>>,
    pub(crate) store: Rc<FileStore>,
    /// `None`: the shard is in memory, and nothing is durable.
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) pacing: Pacing,
    pub(crate) tasks: Rc<Tasks>,
    /// Wakes background work: something to flush or compact, or shutdown.
    pub(crate) work: Signal,
    /// A flush, compaction or manifest edit has ended.
    pub(crate) progress: Rc<Signal>,
    /// The number of tasks that a shutdown waits for.
    busy: Cell<u32>,
    /// The error after which writes are refused.
    pub(crate) failed: RefCell<Option<Arc<StorageError>>>,
}

impl Jobs {
    pub(crate) fn new(
        env: Arc<dyn Env>,
        options: StorageOptions,
        state: Rc<RefCell<ShardState>>,
        store: Rc<FileStore>,
        log: Option<Rc<Log>>,
        progress: Rc<Signal>,
    ) -> Jobs {
        Jobs {
            env,
            state,
            store,
            log,
            pacing: Pacing::new(&options),
            tasks: Rc::new(Tasks::new(options.shards)),
            work: Signal::default(),
            progress,
            busy: Cell::new(0),
            failed: RefCell::default(),
            options,
        }
    }

    /// Counts a task that a shutdown waits for, until [`Jobs::leave`].
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

    /// Returns true if a shutdown waits for no task.
    pub(crate) fn is_quiet(&self) -> bool {
        self.busy.get() == 0
    }

    /// Returns an error if the requested work must stop.
    pub(crate) fn check_stopped(&self, progress: &WorkProgress) -> Result<(), StorageError> {
        match () {
            () if self.state.borrow().closed => Err(StorageError::Closed),
            () if progress.is_cancelled() => Err(StorageError::Cancelled),
            () => Ok(()),
        }
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

    /// Repeats a step of a flush like [`Jobs::retry_while_full`], and also after other disk
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
}
