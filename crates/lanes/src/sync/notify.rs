//! A bell for tasks of one fast lane: ring it, and whoever waits looks again.

use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};

/// Wakes tasks of one lane. A ring while nobody waits is remembered, once, for [`Notify::notified`].
#[derive(Debug, Default)]
pub struct Notify {
    rung: Cell<bool>,
    /// Counts rings of everybody, so that a waiter knows its own has come.
    round: Cell<u64>,
    /// One for each waiting task; bounded by their number.
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// A bell that has not been rung.
    #[must_use]
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes everybody who waits now; if nobody does, the next one to wait does not wait.
    pub fn notify(&self) {
        let waiting = self.waiting.take();
        self.rung.set(waiting.is_empty());
        self.round.set(self.round.get() + 1);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Wakes everybody who waits now; remembers nothing.
    pub fn notify_waiters(&self) {
        self.round.set(self.round.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits for the next ring (or a remembered one). May return early only if rung.
    pub async fn notified(&self) {
        let round = self.round.get();
        std::future::poll_fn(|cx| {
            if self.rung.take() || self.round.get() != round {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::Context;

    #[test]
    fn a_ring_is_remembered_once_and_reaches_all_who_wait() {
        let (bell, mut cx) = (Notify::new(), Context::from_waker(Waker::noop()));
        bell.notify();
        bell.notify();
        assert!(std::pin::pin!(bell.notified()).poll(&mut cx).is_ready());
        let (mut a, mut b) = (Box::pin(bell.notified()), Box::pin(bell.notified()));
        assert!(a.as_mut().poll(&mut cx).is_pending() && b.as_mut().poll(&mut cx).is_pending());
        bell.notify();
        assert!(a.as_mut().poll(&mut cx).is_ready() && b.as_mut().poll(&mut cx).is_ready());
        assert!(std::pin::pin!(bell.notified()).poll(&mut cx).is_pending());
    }
}
