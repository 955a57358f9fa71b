//! Notification between tasks of one fast lane: a notify wakes every waiter, which then checks its
//! condition again.

use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};

/// Notification between tasks of one lane. A notify without a waiter is remembered, once, for
/// [`Notify::notified`].
#[derive(Debug, Default)]
pub struct Notify {
    notified: Cell<bool>,
    /// Number of notifies, by which a waiter detects one since it began to wait.
    round: Cell<u64>,
    /// One waker for each waiting task. The number of tasks bounds it.
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Creates a notification without a remembered notify.
    #[must_use]
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes all waiters. If there are none, the next call of [`Notify::notified`] returns at once.
    pub fn notify(&self) {
        let waiting = self.waiting.take();
        self.notified.set(waiting.is_empty());
        self.round.set(self.round.get() + 1);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Wakes all waiters. Remembers nothing if there are none.
    pub fn notify_waiters(&self) {
        self.round.set(self.round.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits for the next notify, or a remembered one.
    pub async fn notified(&self) {
        let round = self.round.get();
        std::future::poll_fn(|cx| {
            if self.notified.take() || self.round.get() != round {
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
    fn notify_is_remembered_once_and_wakes_all_waiters() {
        let (notify, mut cx) = (Notify::new(), Context::from_waker(Waker::noop()));
        notify.notify();
        notify.notify();
        assert!(std::pin::pin!(notify.notified()).poll(&mut cx).is_ready());
        let mut a = Box::pin(notify.notified());
        let mut b = Box::pin(notify.notified());
        assert!(a.as_mut().poll(&mut cx).is_pending() && b.as_mut().poll(&mut cx).is_pending());
        notify.notify();
        assert!(a.as_mut().poll(&mut cx).is_ready() && b.as_mut().poll(&mut cx).is_ready());
        assert!(std::pin::pin!(notify.notified()).poll(&mut cx).is_pending());
    }
}
