//! Permits for calls from one core to another: their number is bounded, and they are taken and
//! given back from any lane without a lock.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::task::{Context, Poll, Waker};

use crate::queue::Inbox;

/// Largest number of calls in flight from one core to another. Beyond it the caller waits.
pub const CALLS_MAX: u32 = 16 * 1024;

/// Permits from one core to one other.
pub(crate) struct Permits {
    taken: AtomicU32,
    /// Tasks that found no permit. All are woken when one comes back, since a waiter may have been
    /// dropped since.
    waiting: Inbox<Waker>,
}

impl Permits {
    pub(crate) fn new() -> Permits {
        Permits { taken: AtomicU32::new(0), waiting: Inbox::new() }
    }

    /// Takes a permit. If there is none, this task is woken when one comes back.
    pub(crate) fn poll_take(&self, cx: &Context<'_>) -> Poll<()> {
        if self.try_take() {
            return Poll::Ready(());
        }
        // The inbox is never closed, so this cannot fail. Check again after it: a permit may have
        // come back in between.
        let _ = self.waiting.push(cx.waker().clone());
        if self.try_take() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn try_take(&self) -> bool {
        self.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < CALLS_MAX).then_some(taken + 1)).is_ok()
    }

    pub(crate) fn give_back(&self) {
        self.taken.fetch_sub(1, SeqCst);
        if !self.waiting.is_empty() {
            self.waiting.take().for_each(Waker::wake);
        }
    }
}
