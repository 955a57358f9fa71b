//! Background work: flushes memtables (`flush.rs`), and starts and ends the compactor
//! (`compaction`), which compacts files and removes dead ones.
//!
//! Tasks on the fast lane only decide and wait: one for flushes, some for compactions, one for
//! pacing (`jobs/pacing.rs`) and one for expiry (`compaction/expiry.rs`). Merging, encoding and
//! compression run on the heavy lane over snapshots. A file is written, synced, named in the
//! manifest, and swapped in, in this order. There is no await between the last two steps, so that
//! a reader always sees the memtable or its file. Seeing both is harmless, because merging is
//! idempotent.

pub(crate) mod backpressure;
pub(crate) mod flush;

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;

use sched::control::INTERVAL_NS;

use crate::compaction::Compactor;
use crate::env::Work;
use crate::error::StorageError;
use crate::event::Recovery;
use crate::jobs::Jobs;
use crate::jobs::lines::Lines;
use crate::log::bound::LogBound;
use crate::log::reserve::Reserve;
use crate::signal::Gate;

/// Chunks of memtables freed in each interval: at most a tenth of the core's time.
const CHUNKS_AN_INTERVAL: usize = 50;

/// Background work of a shard.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) jobs: Rc<Jobs>,
    pub(crate) compactor: Rc<Compactor>,
    log_bound: LogBound,
    pub(crate) reserve: Rc<Reserve>,
    /// The budget of log lines about flushes.
    lines: Lines,
    /// The work of the shard's start.
    pub(crate) recovery: Cell<Recovery>,
    /// Closed while acknowledgements wait, see [`crate::Shard::hold_acks`].
    pub(crate) acks: Gate,
    /// The locks of the shard's folder.
    lock: RefCell<Option<Box<dyn Debug>>>,
}

impl Background {
    pub(crate) fn new(jobs: Rc<Jobs>, reserve: Rc<Reserve>, lock: Option<Box<dyn Debug>>) -> Background {
        Background {
            compactor: Rc::new(Compactor::new(jobs.clone())),
            log_bound: LogBound::new(&jobs.options),
            reserve,
            lines: Lines::default(),
            recovery: Cell::default(),
            acks: Gate::default(),
            lock: RefCell::new(lock),
            jobs,
        }
    }

    /// Starts the background tasks.
    pub(crate) fn start(self: &Rc<Self>) {
        if self.jobs.enter().is_ok() {
            let own = self.clone();
            self.jobs.env.spawn(Work::Flush, Box::pin(async move { own.flush_loop().await }));
        }
        if self.jobs.enter().is_ok() {
            let own = self.clone();
            self.jobs.env.spawn(Work::Control, Box::pin(async move { own.pace_loop().await }));
        }
        self.compactor.start();
    }

    pub(crate) async fn pace_loop(self: Rc<Self>) {
        loop {
            let busy = || {
                let state = self.jobs.state.borrow();
                match state.closed {
                    true => Some(true),
                    false => {
                        let memory = !state.memory.frozen.is_empty() || !state.flushed.is_empty();
                        (memory || self.compactor.running() > 0).then_some(false)
                    }
                }
            };
            let closed = self.jobs.work.wait(busy).await;
            self.decide();
            if closed {
                return self.jobs.leave();
            }
            // Memtables that a scan held when they were flushed, and those of truncated tables.
            self.jobs.free(CHUNKS_AN_INTERVAL).await;
            self.jobs.env.sleep(Duration::from_nanos(INTERVAL_NS)).await;
        }
    }

    /// Decides how fast background work goes.
    pub(crate) fn decide(&self) {
        let length = self.jobs.log.as_ref().map_or(0, |log| log.length());
        let state = self.jobs.state.borrow();
        self.jobs.pacing.decide(&state, length, self.compactor.load(&state), &*self.jobs.env);
    }

    /// See [`crate::Shard::shutdown`].
    pub(crate) async fn shutdown(&self) -> Result<(), StorageError> {
        let result = match &self.jobs.log {
            Some(log) => log.close().await,
            None => Ok(()),
        };
        if self.jobs.state.borrow().closed {
            return result;
        }
        if let Some(log) = self.jobs.log.as_ref().filter(|_| result.is_ok()) {
            self.flush_rest(log).await;
        }
        self.jobs.state.borrow_mut().closed = true;
        self.decide();
        self.jobs.work.wake();
        self.jobs.progress.wake();
        let Some(log) = &self.jobs.log else { return Ok(()) };
        self.jobs.progress.wait(|| self.jobs.is_quiet().then_some(())).await;
        if result.is_ok() {
            self.end_log(log).await;
        }
        self.jobs.store.sweep().await;
        if let Some(mark) = &self.jobs.store.mark {
            mark.settle().await;
        }
        self.lock.borrow_mut().take();
        result
    }
}
