//! The progress of background work, and the means to cancel it. Shared by the work, which may run
//! on a heavy lane, and its observers on any core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes done and total, and whether the work was cancelled. Clones share them. Several cores may
/// add to one.
#[derive(Clone, Debug, Default)]
pub struct WorkProgress(Arc<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    total: AtomicU64,
    done: AtomicU64,
    cancelled: AtomicBool,
}

impl WorkProgress {
    /// Returns the bytes to read in total. Grows when another part of the work starts.
    pub fn bytes_total(&self) -> u64 {
        self.0.total.load(Relaxed)
    }

    /// Returns the bytes read so far, estimated between fragments.
    pub fn bytes_done(&self) -> u64 {
        self.0.done.load(Relaxed).min(self.bytes_total())
    }

    /// Ends the work at its next yield. Finished parts stay finished.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Relaxed);
    }

    /// Returns true if the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Relaxed)
    }

    /// Sets the parts done, and in total, of work that is not counted in bytes.
    pub fn set_parts(&self, done: u64, total: u64) {
        self.0.total.store(total, Relaxed);
        self.0.done.store(done, Relaxed);
    }

    pub(crate) fn add_total(&self, bytes: u64) {
        self.0.total.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_done(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Relaxed);
    }

    /// Returns the bytes still to read.
    pub(crate) fn left(&self) -> u64 {
        self.bytes_total() - self.bytes_done()
    }
}

/// Cancels work if its caller drops this before the work has ended.
pub(crate) struct CancelOnDrop(Option<WorkProgress>);

impl CancelOnDrop {
    pub(crate) fn new(progress: WorkProgress) -> CancelOnDrop {
        CancelOnDrop(Some(progress))
    }

    /// Disarms the guard after the end of the work. Other cores with the same progress may still
    /// work.
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
