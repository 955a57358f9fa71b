//! How far background work has come, and the way to end it: shared by the work, which may run on a heavy
//! lane, and whoever watches it, on any core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes done of all, and whether the work was cancelled. Clones share both; several cores may add to one.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    total: AtomicU64,
    done: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Bytes to be read in all. Grows when another part of the work begins.
    pub fn bytes_total(&self) -> u64 {
        self.0.total.load(Relaxed)
    }

    /// Bytes read so far, estimated between fragments.
    pub fn bytes_done(&self) -> u64 {
        self.0.done.load(Relaxed).min(self.bytes_total())
    }

    /// Ends the work at its next yield. What it has finished by then stays finished.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Relaxed);
    }

    /// Whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Relaxed)
    }

    pub(crate) fn add_total(&self, bytes: u64) {
        self.0.total.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_done(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Relaxed);
    }

    /// Bytes still to be read.
    pub(crate) fn left(&self) -> u64 {
        self.bytes_total() - self.bytes_done()
    }
}

/// Cancels work when its caller goes away before the work has ended.
pub(crate) struct CancelOnDrop(Option<Progress>);

impl CancelOnDrop {
    pub(crate) fn new(progress: Progress) -> CancelOnDrop {
        CancelOnDrop(Some(progress))
    }

    /// The work has ended here. Other cores with the same progress may still be at it.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(progress) = &self.0 {
            progress.cancel();
        }
    }
}
