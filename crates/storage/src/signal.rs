//! Wake-ups between tasks of one fast lane. A woken task checks its condition again.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Tasks that wait for a change. Bounded by the number of tasks.
#[derive(Debug, Default)]
pub(crate) struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Wakes all waiting tasks.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut *self.0.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Registers the task for the next wake-up.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
    }

    /// Waits until `done` returns `Some`.
    pub(crate) async fn wait<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match done() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.register(cx);
                Poll::Pending
            }
        })
        .await
    }
}

/// Makes tasks wait while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: Cell<bool>,
    opened: Signal,
}

impl Gate {
    /// Closes or opens the gate.
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.is_closed.set(is_closed);
        if !is_closed {
            self.opened.wake();
        }
    }

    /// Polls for the open gate; otherwise registers the task.
    #[inline]
    pub(crate) fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_closed.get() {
            self.opened.register(cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
