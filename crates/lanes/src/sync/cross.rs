//! Channel for one value from any lane (or thread) to any other. It is lock-free, since fast lanes
//! take no locks.
//!
//! ```text
//!   EMPTY ──receiver leaves its waker──▶ WAITING ──send──▶ SENT ──receiver takes the value──▶ DONE
//!     └───────────────send──────────────────────────────────┘
//! ```
#![expect(unsafe_code, reason = "two cells, each owned by one side according to the state")]

use std::cell::UnsafeCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use super::Closed;

/// The receiver owns `waker`; the sender owns `value`.
const EMPTY: u8 = 0;
/// `waker` is set, and belongs to the side that swaps the state away. The sender owns `value`.
const WAITING: u8 = 1;
/// The sender is done with both; the receiver owns both.
const SENT: u8 = 2;

struct CrossState<T> {
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the state passes both cells from side to side with release and acquire. T moves from one
// thread to another.
unsafe impl<T: Send> Send for CrossState<T> {}
// SAFETY: as above; no two threads ever hold a reference into the same cell.
unsafe impl<T: Send> Sync for CrossState<T> {}

/// Sending side.
pub struct Sender<T>(Arc<CrossState<T>>);

/// Receiving side.
pub struct Receiver<T>(Arc<CrossState<T>>);

/// Creates a channel for one value.
#[must_use]
pub fn oneshot<T: Send>() -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(CrossState {
        state: AtomicU8::new(EMPTY),
        waker: UnsafeCell::new(None),
        value: UnsafeCell::new(None),
    });
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    /// Sends the value. If the receiver was dropped, the value is dropped with the last side.
    pub fn send(self, value: T) {
        // SAFETY: until the state is SENT, which only this side sets, `value` belongs to this side.
        unsafe { *self.0.value.get() = Some(value) };
        // Dropping this side publishes it.
    }

    /// Returns true if the receiver was dropped, so that a value would be lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.state.swap(SENT, Ordering::AcqRel) == WAITING {
            // SAFETY: the waker belongs to the side that swaps WAITING away, which was this swap;
            // the receiver, finding SENT, does not touch the cell.
            let waker = unsafe { (*self.0.waker.get()).take() };
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &self.0;
        loop {
            match shared.state.load(Ordering::Acquire) {
                // SAFETY: SENT gives `value` to the receiver.
                SENT => return Poll::Ready(unsafe { (*shared.value.get()).take() }.ok_or(Closed)),
                // Take the old waker back first. If that fails, the value has arrived.
                WAITING => {
                    let _ =
                        shared.state.compare_exchange(WAITING, EMPTY, Ordering::AcqRel, Ordering::Acquire);
                }
                _ => {
                    // SAFETY: EMPTY leaves `waker` to the receiver.
                    unsafe { *shared.waker.get() = Some(cx.waker().clone()) };
                    if shared
                        .state
                        .compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire)
                        .is_ok()
                    {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_gets_the_value_or_the_end_of_the_sender() {
        let mut cx = Context::from_waker(Waker::noop());
        let (sender, mut receiver) = oneshot();
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Pending);
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Pending);
        sender.send(7);
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Ready(Ok(7)));
        let (sender, mut receiver) = oneshot::<u8>();
        drop(sender);
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Ready(Err(Closed)));
        let (sender, receiver) = oneshot::<u8>();
        drop(receiver);
        assert!(sender.is_closed());
    }
}
